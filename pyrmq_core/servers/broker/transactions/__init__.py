"""Transactions: half messages that no consumer sees, their ends, and the checks of half messages without an end.

`half_messages` makes the records of a transaction, `check_rules` decides about one half message, `ended_halves` has
those that ended, `producer_checks` sends a check to a producer, and `transactions` stores their results.

    RMQ_SYS_TRANS_HALF_TOPIC       half messages, in queue 0, stored again at a new offset once they are checked
    RMQ_SYS_TRANS_OP_HALF_TOPIC    the queue offset of each half message that needs no check any more
    TRANS_CHECK_MAX_TIME_TOPIC     half messages that were checked too often, or are too old

The progress in the first two is that of the consumer group CID_RMQ_SYS_TRANS. All of it has Java's bytes, so that a
Java broker continues with the store.
"""
