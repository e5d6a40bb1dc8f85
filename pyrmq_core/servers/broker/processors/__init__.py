"""The handlers of requests, one module for each family, after RocketMQ's `broker/processor/*.java`.

A family is a frozen dataclass with the parts that it uses. `table` creates the families of a broker, and joins their
handlers in one table. The families share `put_message` (storing messages, creating topics), `name_rules` (checks of
names), `delays` (the queues of delayed messages) and `long_answers` (answers that are created piece by piece).
"""
