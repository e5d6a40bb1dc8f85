"""Transactions: half messages, which no consumer sees, their commits and rollbacks, and the checks of undecided ones.

`half_messages` encodes the records of a transaction, `check_rules` decides about one half message, and `ended_halves`
has the decided half messages. `producer_checks` sends a check to a producer, and `transactions` stores the results.

    RMQ_SYS_TRANS_HALF_TOPIC       half messages, in queue 0, stored again at a new offset when they are checked
    RMQ_SYS_TRANS_OP_HALF_TOPIC    the queue offset of each half message that needs no further check
    TRANS_CHECK_MAX_TIME_TOPIC     half messages that were checked too often, or are too old

The progress in the first two topics is stored as offsets of the consumer group CID_RMQ_SYS_TRANS. All records have
RocketMQ's format, so that a Java broker can continue with the store.
"""
