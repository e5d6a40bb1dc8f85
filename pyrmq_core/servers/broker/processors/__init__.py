"""The handlers of requests, one module for each family of requests, as in RocketMQ's `broker/processor/*.java`.

The handlers of a family are methods of a frozen dataclass, whose fields are the parts of the broker that they use.
`table` creates these objects, and joins their handlers in one table by request code. The families share `put_message`
(storing messages, creating topics), `name_rules` (checks of names), `delays` (the queues of delayed messages) and
`long_answers` (answers that are created piece by piece).
"""
