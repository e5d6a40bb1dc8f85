"""Writes, batch and streaming.

`writers` are made on the driver. `write_task` is one task's write with its dead letters, `commit_message` its report.
`queue_assignment` chooses queues, `columns` and `rows` check schema and rows, `create_topic` makes missing topics.
"""
