"""Writes, batch and streaming.

`writers` are made on the driver; `write_task` is one task's write, `commit_message` its report; `queue_assignment`
chooses queues, `row_checks` and `columns` check rows and schema; `delayed_rows`, `dead_letters` and `create_topic`.
"""
