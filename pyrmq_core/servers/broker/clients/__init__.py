"""The clients connected to a broker: `client_table` has their groups, `queue_locks` the queues that they lock.

`held_pulls` has their pulls that wait for a message. `group_notices` notifies a group's clients of its changes.
`consumer_calls` sends requests to clients on behalf of an administrator or of another client.
"""
