"""Looks up the topics of a write, and creates missing ones, on the driver or in the first task with a row for one.

It waits for brokers and NameServers that are away, up to `sendTimeoutMs`. A NameServer forgets a broker that is away,
with all its topics. So a topic without a route does not count as missing while no master is registered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from pyrmq_core import BrokerNotFound, InvalidArgument, NoRoute, ResponseError, RocketMQError, line_logger
from pyrmq_spark import worker
from pyrmq_spark.options import ConnectionOptions, SinkOptions
from pyrmq_spark.patience import wait_to_write
from pyrmq_spark.read.queue_selection import broker_is_away

if TYPE_CHECKING:
    from pyrmq_core import TopicPublishInfo
    from pyrmq_core.blocking import Producer

# The default of RocketMQ's own `updateTopic`.
DEFAULT_QUEUE_NUMS: Final = 8
MESSAGE_TYPE: Final = "message.type"

T = TypeVar("T")

log = line_logger(__name__)


def sending_topic(
    connection: ConnectionOptions, options: SinkOptions, producer: Producer, topic: str
) -> tuple[TopicPublishInfo, bool]:
    """Returns the topic's queues to write to, and whether it is a batch topic (`queue.type=BatchCQ`).

    Waits for the topic's brokers.
    """

    def look() -> tuple[TopicPublishInfo, bool]:
        return producer.sending_topic(topic, timeout=options.send_timeout)

    return wait_to_write(lambda: _looked_up(connection, topic, look), options.send_timeout)


def create_topic(connection: ConnectionOptions, options: SinkOptions, topic: str, columns_type: str | None) -> None:
    """Creates the topic on every master, and returns when a NameServer lists it at all masters that created it.

    An existing topic stays unchanged, even with `createTopic=batch`. Two tasks may create it at once. Each call queries
    a NameServer, since a topic may be deleted between two writes of one worker. `columns_type` is the message type that
    follows from the columns, for a topic without the option `messageType`. Brokers before 5.0 keep no types.
    """
    wait_to_write(lambda: _create(connection, options, topic, columns_type), options.send_timeout)


def _create(connection: ConnectionOptions, options: SinkOptions, topic: str, columns_type: str | None) -> None:
    admin, name = worker.admin(connection), worker.name_on_brokers(connection, topic)
    try:
        _looked_up(connection, topic, lambda: admin.route(name))
    except NoRoute:
        queues = options.topic_queue_nums or DEFAULT_QUEUE_NUMS
        if options.create_topic == "batch":
            admin.create_topic(name, queues=queues, batch=True)
            return
        chosen = options.message_type or columns_type
        try:
            admin.create_topic(name, queues=queues, attributes={MESSAGE_TYPE: chosen.upper()} if chosen else None)
        except (
            InvalidArgument,
            ResponseError,
        ):  # ResponseError: brokers before 5.4 know no type PRIORITY, before 5.5 no LITE
            if options.message_type is not None or columns_type is None:
                raise
            admin.create_topic(name, queues=queues)


def _looked_up(connection: ConnectionOptions, topic: str, look: Callable[[], T]) -> T:
    """Returns the result of `look`, which raises `NoRoute` for a topic that NameServers do not know.

    After a `NoRoute`, raises `BrokerNotFound` if the topic's broker may be away. Otherwise `look` is called once more,
    since a broker may have registered in the meantime, with all its topics.
    """
    try:
        return look()
    except NoRoute:
        _check_home(connection, topic)
        return look()


def _check_home(connection: ConnectionOptions, topic: str) -> None:
    brokers = worker.admin(connection).cluster_info().broker_addr_table
    if all(broker.master is None for broker in brokers.values()):
        raise BrokerNotFound(
            f"topic {topic} has no route, and no master is registered: start the brokers", broker_name=""
        )
    name = worker.name_on_brokers(connection, topic)
    consumer = worker.consumer(connection, worker.DEFAULT_CONSUMER_GROUP)
    if away := sorted(consumer.expected_brokers([name])[name] - brokers.keys()):
        raise broker_is_away(name, away)


def keep_order(connection: ConnectionOptions, topic: str) -> None:
    """Restores the topic's order configuration, if it has one, at NameServers that lost it with their disk.

    Without the order configuration, keys move to other queues while a broker of the topic is away.
    """
    name = worker.name_on_brokers(connection, topic)
    try:
        lacking = worker.admin(connection).topics.keep_order(name)
    except RocketMQError as error:
        log.warning("not every NameServer has the order configuration of %s: %s", name, error)
    else:
        if lacking:
            log.warning("the order configuration of %s is restored at NameServers %s", name, ", ".join(lacking))
