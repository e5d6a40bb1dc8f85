"""The queues of a topic's route, to which producers write and from which consumers read, and its brokers' addresses.

Sources: client/impl/factory/MQClientInstance.java (topicRouteData2TopicPublishInfo),
client/common/ThreadLocalIndex.java, client/impl/producer/TopicPublishInfo.java, 5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from pyrmq_core.errors import NoRoute, ResponseError
from pyrmq_core.model import MessageQueue, Permission, TopicQueues
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.java.string_hash import consistent_bucket, string_hash_code
from pyrmq_core.protocol.routes.route import BrokerData, TopicRouteData, order_counts

# The largest counter. Java's counter has 32 bits, of which the sign is ignored.
COUNTER_MASK: Final = 0x7FFFFFFF


class TopicPublishInfo:
    """The queues to which a producer may write, and a counter by which it uses them in turn.

    `counter_start` is a random number, so that many clients do not begin at the same queue. `borrowed` means that no
    NameServer knows the topic yet, and that the queues are those of the template topic TBW102. `without_master` are the
    brokers that have only slaves at present. `queues` lacks their queues, but `keyed_queues`, from which a sharding key
    selects, has them. So a key keeps its queue while a master is elected.
    """

    __slots__ = ("_counter", "borrowed", "keyed_queues", "order_topic", "queues", "topic", "without_master")

    def __init__(
        self,
        topic: str,
        queues: Sequence[MessageQueue],
        *,
        counter_start: int,
        order_topic: bool = False,
        borrowed: bool = False,
        without_master: Sequence[str] = (),
        keyed_queues: Sequence[MessageQueue] | None = None,
    ) -> None:
        self.topic = topic
        self.queues = tuple(queues)
        self.keyed_queues = self.queues if keyed_queues is None else tuple(keyed_queues)
        self.order_topic = order_topic
        self.borrowed = borrowed
        self.without_master = tuple(without_master)
        self._counter = counter_start

    def select_one_message_queue(self, last_broker_name: str | None = None) -> MessageQueue:
        """Returns the next queue, if possible of another broker than `last_broker_name`.

        Raises `NoRoute` if there is no queue to write to.
        """
        if not self.queues:
            why = "its brokers have no master, or it is read-only"
            if self.without_master:
                has = "has" if len(self.without_master) == 1 else "have"
                why = f"{', '.join(self.without_master)} {has} no master now, only slaves, which take no writes; "
                why += "a plain send waits for one as long as its time allows"
            raise NoRoute(f"topic {self.topic} has no queue to write to: {why}", topic=self.topic)
        if last_broker_name is not None:
            for _ in self.queues:
                queue = self._next()
                if queue.broker_name != last_broker_name:
                    return queue
        return self._next()

    def select(self, accept: Callable[[MessageQueue], bool]) -> MessageQueue | None:
        """Returns the next queue that `accept` accepts. Returns None after trying each queue once."""
        for _ in self.queues:
            queue = self._next()
            if accept(queue):
                return queue
        return None

    def queue_of_key(self, sharding_key: str, *, is_lite: bool = False) -> MessageQueue:
        """Returns the queue of a sharding key: number `abs(hashCode % n)` of n, as in Java's SelectMessageQueueByHash.

        With `is_lite`, the key is the name of a lite topic, and the result is the queue in which brokers expect it
        (broker/lite/LiteShardingImpl.java, 5.5.0). Raises `NoRoute` if there is no queue to write to.
        """
        if not self.keyed_queues:
            return self.select_one_message_queue()
        code, count = string_hash_code(sharding_key), len(self.keyed_queues)
        return self.keyed_queues[consistent_bucket(code, count) if is_lite else abs(code) % count]

    def interleaved(self, counter: int) -> TopicPublishInfo:
        """Returns a copy whose queues are in the order of their ids: queue 0 of each broker, then queue 1 of each, ...

        Neighbours in this order are mostly on different brokers. So a few writers whose counters start at consecutive
        numbers write to all brokers. `counter` is the start of the copy's counter.
        """
        return TopicPublishInfo(
            self.topic,
            sorted(self.queues, key=lambda queue: queue.queue_id),
            counter_start=counter,
            order_topic=self.order_topic,
            borrowed=self.borrowed,
            without_master=self.without_master,
            keyed_queues=self.keyed_queues,
        )

    def restart(self, counter: int) -> None:
        """Sets the counter by which the queues are used in turn."""
        self._counter = counter

    def next_number(self) -> int:
        """Advances the counter and returns it. 2,147,483,647 is followed by 0."""
        self._counter = (self._counter + 1) & COUNTER_MASK
        return self._counter

    def _next(self) -> MessageQueue:
        self._counter = counter = (self._counter + 1) & COUNTER_MASK
        return self.queues[counter % len(self.queues)]


def publish_info_of(
    topic: str, route: TopicRouteData, *, counter_start: int, borrowed: bool = False
) -> TopicPublishInfo:
    without_master = brokers_without_master(route)
    return TopicPublishInfo(
        topic,
        publish_queues(topic, route),
        counter_start=counter_start,
        order_topic=bool(route.order_topic_conf),
        borrowed=borrowed,
        without_master=without_master,
        keyed_queues=publish_queues(topic, route, needs_master=False) if without_master else None,
    )


def publish_queues(topic: str, route: TopicRouteData, *, needs_master: bool = True) -> tuple[MessageQueue, ...]:
    """Returns the queues to write to, from the order configuration if there is one, else in the order of broker names.

    Without an order configuration, it leaves out brokers where the topic may not be written. With `needs_master`, it
    also leaves out brokers without a master. Raises `BodyError` for an unreadable order configuration.
    """
    if route.order_topic_conf:
        return tuple(_order_queues(topic, route.order_topic_conf))
    masters = {broker.broker_name for broker in route.broker_datas if broker.master is not None or not needs_master}
    return tuple(
        MessageQueue(topic, data.broker_name, queue_id)
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
        if data.perm & Permission.WRITE and data.broker_name in masters
        for queue_id in range(data.write_queue_nums)
    )


def brokers_without_master(route: TopicRouteData) -> tuple[str, ...]:
    masters = {broker.broker_name for broker in route.broker_datas if broker.master is not None}
    writable = {data.broker_name for data in route.queue_datas if data.perm & Permission.WRITE}
    return tuple(sorted(writable - masters))


def subscribe_queues(topic: str, route: TopicRouteData) -> tuple[MessageQueue, ...]:
    """Returns the queues from which a consumer may read, including those of a broker that has only slaves."""
    return _read_queues(topic, route, Permission.READ)


def topic_queues(topic: str, route: TopicRouteData) -> TopicQueues:
    """Returns the topic's queues with and without the READ permission, and the names of its brokers without a master.

    In 5.x a slave may act as master: the route then names the slave as master, but without the write permission for the
    topic. Such a broker is returned as one without a master.
    """
    writable = {data.broker_name for data in route.queue_datas if data.perm & Permission.WRITE}
    masterless = (
        broker.broker_name
        for broker in route.broker_datas
        if broker.master is None or (broker.enable_acting_master and broker.broker_name not in writable)
    )
    return TopicQueues(subscribe_queues(topic, route), _read_queues(topic, route, 0), frozenset(masterless))


def not_readable(topic: str, route: TopicRouteData) -> ResponseError | None:
    """Returns an error that names the brokers where the topic lacks the READ permission, or None if there are none.

    The client never pulls from the queues of these brokers, so no broker reports this. The error has the code that a
    broker would send, NO_PERMISSION.
    """
    names = {queue.broker_name for queue in _read_queues(topic, route, 0)}
    if not names:
        return None
    addresses = {broker.broker_name: reading_address(broker) for broker in route.broker_datas}
    brokers = ", ".join(f"{name} ({addresses.get(name) or 'no address'})" for name in sorted(names))
    remark = "the topic lacks the READ permission"
    return ResponseError(
        f"topic {topic} may not be read at {brokers}: it lacks the READ permission there; give it back (pyrmq topic "
        f"perm {topic} 6), nothing was skipped",
        code=ResponseCode.NO_PERMISSION,
        remark=remark,
        address=addresses.get(min(names)) or "",
    )


def order_brokers(order_topic_conf: str) -> frozenset[str]:
    return frozenset(part.partition(":")[0] for part in order_topic_conf.split(";") if part)


def _read_queues(topic: str, route: TopicRouteData, permission: int) -> tuple[MessageQueue, ...]:
    return tuple(
        MessageQueue(topic, data.broker_name, queue_id)
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
        if data.perm & Permission.READ == permission
        for queue_id in range(data.read_queue_nums)
    )


def borrowed_route(route: TopicRouteData, default_topic_queue_nums: int) -> TopicRouteData:
    """Returns a route for a topic that does not exist yet, made from the route of the template topic TBW102.

    It has the same brokers, with at most `default_topic_queue_nums` queues on each.
    """
    queue_datas = tuple(
        replace(
            data,
            read_queue_nums=min(default_topic_queue_nums, data.read_queue_nums),
            write_queue_nums=min(default_topic_queue_nums, data.read_queue_nums),
        )
        for data in route.queue_datas
    )
    return replace(route, queue_datas=queue_datas)


def broker_addresses(routes: Sequence[TopicRouteData]) -> dict[str, BrokerData]:
    """Returns the brokers in the routes by name, with their addresses. A later route overrides an earlier one."""
    return {broker.broker_name: broker for route in routes for broker in route.broker_datas}


def reading_address(broker: BrokerData) -> str | None:
    """Returns the address from which to pull: the master, else the slave with the lowest id, else None."""
    if broker.master is not None:
        return broker.master
    return broker.broker_addrs[min(broker.broker_addrs)] if broker.broker_addrs else None


def _order_queues(topic: str, order_topic_conf: str) -> list[MessageQueue]:
    return [
        MessageQueue(topic, broker_name, queue_id)
        for broker_name, count in order_counts(topic, order_topic_conf)
        for queue_id in range(count)
    ]
