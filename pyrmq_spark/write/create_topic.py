"""Makes the missing topic of a write: on the driver, or in the first task with a row for it."""

from __future__ import annotations

from typing import Final

from pyrmq_core import InvalidArgument, NoRoute
from pyrmq_spark import worker
from pyrmq_spark.options import ConnectionOptions, SinkOptions

# The default of RocketMQ's own `updateTopic`.
DEFAULT_QUEUE_NUMS: Final = 8
MESSAGE_TYPE: Final = "message.type"


def create_topic(connection: ConnectionOptions, options: SinkOptions, topic: str, columns_type: str | None) -> None:
    """Creates the topic on every master; an existing topic stays as it is. Two tasks may create it at once.

    Each call queries a NameServer: a topic may be deleted between two writes of one worker. `createTopic=batch` leaves
    a plain topic plain. Returns when a NameServer lists the topic at all masters that made it. `columns_type` is the
    type of message that the columns make, for a topic without `messageType`; brokers before 5.0 keep no types, and make
    the topic without it.
    """
    admin, name = worker.admin(connection), worker.name_on_brokers(connection, topic)
    try:
        admin.route(name)
    except NoRoute:
        queues = options.topic_queue_nums or DEFAULT_QUEUE_NUMS
        if options.create_topic == "batch":
            admin.create_topic(name, queues=queues, batch=True)
            return
        chosen = options.message_type or columns_type
        try:
            admin.create_topic(name, queues=queues, attributes={MESSAGE_TYPE: chosen.upper()} if chosen else None)
        except InvalidArgument:
            if options.message_type is not None or columns_type is None:
                raise
            admin.create_topic(name, queues=queues)
