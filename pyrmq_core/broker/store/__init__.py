"""The broker's data in RocketMQ's own bytes: commit log, consume queues, checkpoint, and recovery after a stop.

`message_store` is the whole of it, on `commit_log`, `consume_queue` and `batch_queue`; both queues stand on
`entry_files`. `appending` makes the bytes of a send, `reading` chooses those of a pull. `recovery` makes log and queues
agree by a `log_scan`, and `damage` copies what it cuts. `formats` packs entries and names files, `named_files` opens
them, `layout` names folders and sizes, `paths` refuses names that lead out of the store. `files` and `descriptors`
alone touch a disk, behind the value `Files`; `unsynced` can forget what was never synced, as a power cut does.

Synced bytes are on the medium and survive a power cut. Nothing here is async, reads a clock or logs. Not built: the
index of keys (`key_index`).
"""
