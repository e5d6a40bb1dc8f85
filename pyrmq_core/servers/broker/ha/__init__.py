"""Replication of the commit log: a master sends the log's bytes to its slaves, which report how many they have.

`log_transfer` encodes the bytes of both directions, `replicas` has the slaves that follow a master and the sends that
wait for them, `ha_server` the port and the connections, and `ha_client` a slave's end of a connection. Sources:
store/ha/DefaultHAService.java, DefaultHAConnection.java, GroupTransferService.java (5.4.0).
"""
