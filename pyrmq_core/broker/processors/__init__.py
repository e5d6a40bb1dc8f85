"""Processors of requests, one module a family, after RocketMQ's `broker/processor/*.java`.

`table` maps request codes to the functions of `send_message`, `consumer_send_back`, `pull_message`, `offsets`,
`clients`, `queue_locks`, `topics_and_groups` and `statistics`. These share `put_message` (storing, and making topics),
`name_rules` (checks of names) and `table_answers` (answers that carry a whole table).

Not built: `end_transaction`, `query_message` (by key), `change_invisible_time` (pop consumption).
"""
