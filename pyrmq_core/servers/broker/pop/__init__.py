"""Pop consumption: checkpoints of popped messages, their acknowledgements, and revival.

    records        the entries of the revive log, as RocketMQ writes them
    revival        which checkpoints in a queue of the revive log are due
    waits          pops that wait for a message
    revive_log     the writing of entries
    ordered        the queues that ordered pops lock
    lite_clients   the clients that subscribe to lite topics
    reviver        the task that makes messages visible again

As with RocketMQ's default in 5.4 and 5.5 (popConsumerKVServiceEnable=false), the state is kept in a topic, the revive
log. So RocketMQ's broker can continue with this broker's store, and this one with RocketMQ's. A pop writes a
checkpoint: a timer message that is delivered to the revive log one second before the popped messages become visible
again. An acknowledgement is a timer message for the time at which they become visible. At that time, each message of
the checkpoint without an acknowledgement is stored again in the group's retry topic.
"""
