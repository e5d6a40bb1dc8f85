"""`EmbeddedCluster`: NameServers and brokers in this process, on free ports, for tests and for trying things out.

A test can answer, drop, delay or cut chosen requests of any server (`control`), and end servers as a crash does
(`kill`) or as a power failure does (`power_cut`). Brokers and NameServers have no code for this.

`arguments` checks what the cluster is made with, `servers` starts and ends one server, `controls` puts a test's rules
before the servers' handlers, and `cluster` joins them.
"""
