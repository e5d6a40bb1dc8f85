"""The broker's index of keys, in RocketMQ's bytes: messages by a word of their keys, their unique key, or their tags.

`key_index` is the whole of it, over files (`index_file`) that have a table of slots (`slot_table`) and `entries`.
`key_hashes` says which keys a record has. `waiting_messages` has the messages that are new, and `log_messages` reads
the records that the index lacks.
"""
