"""The clients connected to a broker: `client_table` has their groups, `queue_locks` the queues they lock.

`held_pulls` has their pulls that wait for a message. `group_notices` sends a group's clients a notice of its changes,
and `consumer_calls` passes an administrator's requests on to them.
"""
