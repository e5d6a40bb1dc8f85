"""The broker's data in RocketMQ's own bytes: commit log, consume queues, checkpoint, and recovery after a stop.

`MessageStore` is the whole of it. `appending` makes the bytes of what a send brings, `reading` chooses what a pull
gets, `recovery` brings log and queues to agree by `log_scan`, `damage` keeps what it cuts, `formats` names files and
packs entries, `paths` refuses names that lead out. `files` and `descriptors` alone touch a disk, behind the value
`Files`; `unsynced` can forget what was never synced, as a power cut does. Nothing here waits, looks at a clock or logs.
"""
