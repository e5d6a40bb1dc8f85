"""The broker's stored data in RocketMQ's file formats: commit log, consume queues and checkpoint.

`message_store` is the entry point. It joins the log (`commit_log`) and the queues (`queue_table`). A queue is a
`batch_queue` for a batch topic, and else a `consume_queue`. `appending` encodes messages, `reading` selects the
messages that a pull returns. `recovery` reads the log at a start (`scan/log_scan`) and corrects the queues. Before it
cuts damaged bytes from the log, it copies them to a file (`scan/damage`). `retention_rules` decides which segments of
the log are removed. `formats` and `layout` define entries, file names, folders and sizes.

Synced bytes survive a power cut. Nothing here is async, reads a clock or logs.
"""
