"""Writes, batch and streaming.

`writers` are created on the driver. `write_task` is one task's write with its dead letters, and `commit_message` the
task's report. `queue_assignment` chooses queues, `columns` and `rows` check schema and rows, and `create_topic` creates
missing topics.
"""
