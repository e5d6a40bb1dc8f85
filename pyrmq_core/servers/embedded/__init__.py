"""`EmbeddedCluster`: NameServers and brokers in this process, on free ports, for tests and for trying things out.

A test can answer, drop, delay or cut chosen requests of any server (`control`), and end servers as a crash does
(`kill`) or as a power cut does (`power_cut`). `arguments` checks the cluster's arguments, `servers` starts and ends one
server, `controls` applies a test's rules before the servers' handlers, and `cluster` joins them.
"""
