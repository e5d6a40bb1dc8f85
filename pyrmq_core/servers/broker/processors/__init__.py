"""Processors of requests, one module a family, after RocketMQ's `broker/processor/*.java`.

`table` maps request codes to the functions of `send_message`, `reply_message`, `consumer_send_back`, `pulls`,
`offsets`, `reset_offsets`, `clients`, `called_consumers`, `queue_locks`, `end_transaction`, `topics_and_groups` and
`statistics`. These share `put_message` (storing, and making topics), `name_rules` (checks of names) and `long_answers`
(answers that are made piece by piece).

Not built: `change_invisible_time` (pop consumption).
"""
