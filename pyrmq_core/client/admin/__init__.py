"""Administration of topics, groups, brokers, NameServers, messages and access, as with the command `mqadmin`."""
