"""The broker's data in RocketMQ's own bytes: commit log, consume queues, checkpoint, and recovery after a stop.

`message_store` joins `commit_log` and `queue_table`, which has each `consume_queue` and `batch_queue`. Both use
`entry_files`. `retention_rules` says which segments of the log may be removed. `appending` makes the bytes that a send
stores, `reading` chooses the bytes that a pull returns. `recovery` makes log and queues agree by a `log_scan`, and
`damage` copies what it cuts. `formats` packs entries and names files, `layout` names folders and sizes, and opens a
folder's files.

Synced bytes are on the medium and survive a power cut. Nothing here is async, reads a clock or logs.
"""
