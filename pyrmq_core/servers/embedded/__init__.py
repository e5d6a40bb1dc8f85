"""`EmbeddedCluster`: NameServers and brokers in this process, on free ports, for tests and for trying things out.

A test can answer, drop or delay chosen requests of any server, or cut their connections (`control`). It can also end a
server as a crash does (`kill`) or a power cut (`power_cut`). `cluster` has the class. `arguments` checks its arguments,
`servers` starts and ends one server, and `controls` applies a test's rules before the servers' handlers.
"""
