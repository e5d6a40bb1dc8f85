"""The clients connected to a broker: `client_table` has their groups, `queue_locks` the queues they lock.

`held_pulls` has their pulls that wait for a message. `group_notices` notifies a group's clients of its changes, and
`consumer_calls` sends them requests for others.
"""
