"""The broker's index of keys, in RocketMQ's bytes: messages by a word of their keys, their unique key, or their tags.

`key_index` is the index itself. Its files (`index_file`) have a table of slots (`slot_table`) and `entries`.
`key_hashes` returns a record's keys. `waiting_messages` has the new messages, and `log_messages` reads the records that
the index lacks.
"""
