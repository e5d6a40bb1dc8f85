"""The broker's data in RocketMQ's own bytes: commit log, consume queues, checkpoint, and recovery after a stop.

`message_store` joins `commit_log` and `queue_table`, which has each `consume_queue` and `batch_queue`. Both use
`entry_files`. `retention_rules` says which segments of the log may be removed. `appending` encodes what a send stores,
`reading` selects the bytes that a pull returns. `recovery` reads the log (`scan/log_scan`) and makes the queues agree
with it. Damaged bytes that it cuts from the log are kept in a copy (`scan/damage`). `formats` packs entries and names
files, `layout` has the folders and sizes, and opens a folder's files.

Synced bytes survive a power cut. Nothing here is async, reads a clock or logs.
"""
