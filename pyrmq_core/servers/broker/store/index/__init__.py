"""The broker's index of keys in RocketMQ's format, which finds messages by unique key, word of KEYS, or tags.

`key_index` is the index itself. Each of its files (`index_file`) has a table of slots (`slot_table`) and `entries`.
`key_hashes` computes the hashes of a record's keys. `waiting_messages` queues new messages, and `log_messages` reads
from the log the records that the index lacks.
"""
