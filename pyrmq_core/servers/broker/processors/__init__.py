"""Processors of requests, one module a family, after RocketMQ's `broker/processor/*.java`.

A family is a frozen dataclass with the parts that it uses. `table` makes the families of a broker, and unites their
handlers. They share `put_message` (storing, and making topics), `name_rules` (checks of names), `delays` (the queues of
delayed messages) and `long_answers` (answers that are made piece by piece).
"""
