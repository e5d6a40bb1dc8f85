"""Replication of the commit log: a master sends the log's bytes to its slaves, which report how many they have.

`ha_server` is the master's port for slaves, and `replicas` has the connected slaves and the sends that wait for them.
`ha_client` is a slave's end of the connection. `log_transfer` encodes the bytes of both directions. `slave_tables`
fetches a master's topics, groups and offsets, and `acting_master` lets a slave answer for a lost master. Sources:
store/ha/DefaultHAService.java, DefaultHAConnection.java, GroupTransferService.java (5.4.0).
"""
