"""The NameServer: tables as plain decisions, requests in memory, real sockets, the process."""
