"""Pop consumption: checkpoints of popped messages, their merging with acknowledgements, and revival.

    records        the entries of the revive log, as RocketMQ writes them
    revival        which checkpoints of a revive queue are over, and which are due
    waits          pops that wait for a message
    revive_log     the writing of entries
    ordered        the queues that ordered pops lock
    reviver        the task that makes messages visible again

RocketMQ has two services for this. Its default in 5.4 and 5.5 (popConsumerKVServiceEnable=false) keeps the state in a
topic, the revive log, and this broker does the same: it can go on with a store of RocketMQ, and RocketMQ with a store
of this broker. A pop writes a checkpoint, a timer message that enters the revive log one second before the messages
become visible again. An acknowledgement is a timer message for the time at which they do. A checkpoint whose time has
come is over: each of its messages without an acknowledgement is stored again in the group's retry topic.
"""
