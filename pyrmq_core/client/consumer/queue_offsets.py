"""Queries brokers for queues and their offsets, for many queues at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import trio

from pyrmq_core.client.arguments import queue_of
from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.consumer.pull.puller import Filter, Puller, no_progress
from pyrmq_core.client.consumer.retry_topic import give_back_nothing
from pyrmq_core.client.consumer.sql_checks import check_filter
from pyrmq_core.client.consumer.topic_statistics import TopicStatistics
from pyrmq_core.client.query_many import query_many
from pyrmq_core.client.routing.publish_info import (
    broker_addresses,
    not_readable,
    order_brokers,
    publish_info_of,
    topic_queues,
)
from pyrmq_core.committed.ranges import MANIFEST_NAMESPACE, manifests_in
from pyrmq_core.errors import CallTimeout, HeaderError, ResponseError, RocketMQError
from pyrmq_core.model import MessageQueue, OffsetRange, PullStatus, TopicQueues
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.header_requests import HeaderRequest, response_error
from pyrmq_core.protocol.framing.versions import V5_0_0
from pyrmq_core.protocol.messages.lite_topics import lite_queue_name
from pyrmq_core.protocol.messages.names import check_topic
from pyrmq_core.protocol.messages.namespaces import is_reachable, with_namespace, without_namespace
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.requests.broker.consumer_offsets import QueryConsumerOffset, UpdateConsumerOffset
from pyrmq_core.protocol.requests.broker.group_config import GetSubscriptionGroupConfig
from pyrmq_core.protocol.requests.broker.offsets import GetMaxOffset, GetMinOffset, OffsetFound, SearchOffset
from pyrmq_core.protocol.requests.nameserver.cluster_info import ClusterInfo, GetClusterInfo
from pyrmq_core.protocol.requests.nameserver.get_route_info import GetRouteInfo, RouteInfo
from pyrmq_core.protocol.requests.nameserver.kv_config import GetKvList, KvTable
from pyrmq_core.protocol.requests.nameserver.topic_lists import GetAllTopicList, TopicList
from pyrmq_core.protocol.routes.route import TopicRouteData

# A broker of 5.4.0 answers this if there is no offset.
NO_OFFSET: Final = -1
# The time limit of a search by time that has to read messages, in multiples of the request timeout.
SEARCH_TIMEOUTS: Final = 20
ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"


class QueueOffsets:
    """Queries of queues and offsets for one consumer group. Each request may take `timeout` seconds.

    Group, topics and queues in arguments and results are without the `namespace`, and requests contain it.
    """

    def __init__(
        self, client: ClientSession, consumer_group: str, *, timeout: float, namespace: str | None = None
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._group = with_namespace(consumer_group, namespace)
        self._timeout = timeout
        self._puller = Puller(client, consumer_group, namespace)
        self._committed_topics: set[tuple[str, str]] = set()  # brokers and topics with an offset of the group
        self._statistics = TopicStatistics(client, timeout=timeout, namespace=namespace)

    async def topics(self) -> tuple[str, ...]:
        question = GetAllTopicList().to_command()
        topics = await self._client.nameservers.ask_for(question, _topics_of, timeout=self._timeout)
        if self._namespace is None:
            return topics
        return tuple(
            without_namespace(topic, self._namespace) for topic in topics if is_reachable(topic, self._namespace)
        )

    async def cluster_info(self) -> ClusterInfo:
        """Returns the brokers that a NameServer knows, with their clusters.

        A proxy refuses this request. The result then has only the brokers that are in the routes of all topics of this
        client, and none if the client has used no topic.
        """
        try:
            return await self._client.nameservers.ask_for(
                GetClusterInfo().to_command(),
                _cluster_of,
                timeout=self._timeout,
                lacks=lambda info: not info.broker_addr_table,
            )
        except ResponseError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        routes = self._client.routes
        current = await query_many(routes.known_topics, lambda topic: routes.refresh(topic, timeout=self._timeout))
        return _cluster_of_routes(list(current.values()))

    async def message_queues(self, topic: str, lite_topic: str | None = None) -> tuple[MessageQueue, ...]:
        """Returns the readable queues of a topic, or the single queue of a lite topic.

        Raises `NoRoute` if no NameServer knows the topic, and `ResponseError` if none of its queues may be read.

        The NameServer is queried each time, as in Java (MQAdminImpl.fetchSubscribeMessageQueues). A cached route may be
        up to 30 s old, and lacks brokers that have created the topic since then.
        """
        if lite_topic is not None:
            name = lite_queue_name(topic, lite_topic)
            route = await self._client.routes.route(self._on_wire(topic), timeout=self._timeout)
            queue = publish_info_of(topic, route, counter_start=0).queue_of_key(lite_topic, is_lite=True)
            return (MessageQueue(name, queue.broker_name, 0),)
        queues = (await self.topic_queues([topic]))[topic]
        if queues is None:
            raise self._client.routes.no_route(topic)
        if not queues.readable:
            refusal = not_readable(topic, await self._client.routes.route(self._on_wire(topic), timeout=self._timeout))
            if refusal is not None:
                raise refusal
        return queues.readable

    async def current_queues(self, topics: Iterable[str]) -> dict[str, tuple[MessageQueue, ...] | None]:
        queues_of = await self.topic_queues(topics)
        return {topic: None if queues is None else queues.readable for topic, queues in queues_of.items()}

    async def topic_queues(self, topics: Iterable[str]) -> dict[str, TopicQueues | None]:

        async def current(topic: str) -> TopicQueues | None:
            check_topic(topic)
            route = await self._client.routes.refresh(self._on_wire(topic), timeout=self._timeout)
            return None if route is None else topic_queues(topic, route)

        return await query_many(topics, current)

    async def expected_brokers(self, topics: Iterable[str]) -> dict[str, frozenset[str]]:
        """Returns the names of each topic's brokers: those in its order configuration or in any NameServer's route.

        Brokers without readable queues are left out. NameServers that do not answer are skipped, so a set may be empty.
        """
        order = await self._kv_values(ORDER_TOPIC_CONFIG)

        async def expected(topic: str) -> frozenset[str]:
            on_wire = self._on_wire(topic)
            routes = await self._routes_everywhere(on_wire)
            without_queues = {
                data.broker_name for route in routes for data in route.queue_datas if not data.read_queue_nums
            }
            routed = {name for route in routes for name in broker_addresses([route])} - without_queues
            return order_brokers(order.get(on_wire, "")) | routed

        return await query_many(topics, expected)

    async def manifests(self) -> frozenset[str]:
        """Returns the manifests, the topics in which exactly-once writes record their batches.

        The result is empty if no NameServer answers.
        """
        kinds, orders = await self._kv_values(MANIFEST_NAMESPACE), await self._kv_values(ORDER_TOPIC_CONFIG)
        on_wire = (name for name in manifests_in(kinds, orders) if is_reachable(name, self._namespace))
        return frozenset(without_namespace(name, self._namespace) for name in on_wire)

    async def _kv_values(self, namespace: str) -> dict[str, str]:
        with suppress(RocketMQError):
            question = GetKvList(namespace).to_command()
            return await self._client.nameservers.ask_for(question, _table_of, timeout=self._timeout)
        return {}

    async def _routes_everywhere(self, topic: str) -> list[TopicRouteData]:
        question = GetRouteInfo(topic, accept_standard_json_only=True).to_command()

        async def route(address: str) -> TopicRouteData | None:
            with suppress(RocketMQError):
                answer = await self._client.call(address, question, timeout=self._timeout)
                if answer.code == ResponseCode.SUCCESS:
                    return RouteInfo.from_command(answer).route
            return None

        addresses = self._client.nameservers.addresses
        routes = await query_many(addresses if len(addresses) > 1 else (), route)  # a single one was queried before
        return [data for data in routes.values() if data is not None]

    async def min_offset(self, queue: MessageQueue) -> int:
        """Returns the queue's lowest offset. If 5.4.0 answers -1, for an empty queue of a batch topic, returns 0."""
        question = GetMinOffset(self._on_wire(queue_of(queue).topic), queue.queue_id, queue.broker_name)
        return max(0, await self._offset(queue, question))

    async def max_offset(self, queue: MessageQueue) -> int:
        question = GetMaxOffset(self._on_wire(queue_of(queue).topic), queue.queue_id, broker_name=queue.broker_name)
        return max(0, await self._offset(queue, question))

    async def offset_at(self, queue: MessageQueue, when_ms: int) -> int:
        try:
            answer = await self._ask(queue, self._search(queue, when_ms))
        except ResponseError:
            end = await self.max_offset(queue)
            if end > await self.min_offset(queue):
                raise
            return end  # 5.4.0 fails (NullPointerException) for an empty queue of a batch topic
        if answer.version >= V5_0_0:  # older brokers ignore `boundaryType`
            offset = _offset_of(queue, answer)
            # For a batch topic 5.4.0 returns the last record if all records are earlier.
            return await self._first_at_or_after(queue, offset, when_ms) if await self._keeps_batches(queue) else offset
        # 4.9 may return an earlier message, or any of that millisecond, so the search begins a millisecond before.
        return await self._first_at_or_after(
            queue, await self._offset(queue, self._search(queue, when_ms - 1)), when_ms
        )

    async def committed(self, queue: MessageQueue, *, zero_if_young: bool = False) -> int | None:
        """Returns the group's committed offset, or None if there is none.

        With `zero_if_young`, the broker then answers 0 instead, if the queue's first message is still in memory.
        """
        request = QueryConsumerOffset(
            self._group,
            self._on_wire(queue_of(queue).topic),
            queue.queue_id,
            set_zero_if_not_found=None if zero_if_young else False,
            broker_name=queue.broker_name,
        )
        try:
            return await self._offset(queue, request)
        except ResponseError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commits the offset. Returns when the broker has it in memory. Lets the broker create an unknown group."""
        topic = self._on_wire(queue_of(queue).topic)
        request = UpdateConsumerOffset(self._group, topic, queue.queue_id, offset, queue.broker_name)
        try:
            await self._ask(queue, request)
        except ResponseError as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            await self._create_group(queue)
            await self._ask(queue, request)

    async def _create_group(self, queue: MessageQueue) -> None:
        """Makes the queue's broker create the consumer group, by a query of the group's configuration.

        A proxy refuses this query. In that case a message that does not exist is sent back instead
        (`give_back_nothing`).
        """
        try:
            await self._ask(queue, GetSubscriptionGroupConfig(self._group))
        except ResponseError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            await give_back_nothing(self._client, self._group, queue, timeout=self._timeout, namespace=self._namespace)

    async def commit_oneway(self, queue: MessageQueue, offset: int) -> None:
        request = UpdateConsumerOffset(self._group, queue_of(queue).topic, queue.queue_id, offset, queue.broker_name)
        address = await self._client.master_address(queue, timeout=self._timeout)
        await self._client.send_oneway(address, request.to_command(), timeout=self._timeout)

    async def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        return await query_many(queues, self.min_offset)

    async def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        return await query_many(queues, self.max_offset)

    async def mean_sizes(self, positions: Mapping[MessageQueue, int]) -> dict[MessageQueue, float]:
        """Returns for each queue the mean stored bytes of a message, estimated by one pull at the queue's offset.

        It is 0 if the pull returns no message.
        """

        async def mean(queue: MessageQueue) -> float:
            pulled = await self._puller.pull(queue_of(queue), positions[queue], timeout=self._timeout)
            first = min((record.queue_offset for record in iterate_records(pulled.records)), default=pulled.start)
            answered = max(1, pulled.next_offset - min(first, pulled.start))  # a batch may begin before the offset
            return len(pulled.records) / answered

        return await query_many(positions, mean)

    async def offset_bounds(
        self, queues: Iterable[MessageQueue], reached: Mapping[MessageQueue, int] | None = None
    ) -> dict[MessageQueue, OffsetRange]:
        """Returns for each queue the range of its stored messages, from its minimum to before its maximum.

        If many of the queues belong to one topic and broker, one request returns their offsets. A queue whose maximum
        is that in `reached` may get an empty range, which saves the request for its minimum.
        """
        wanted = tuple(queues)
        bounds = await self._statistics.bounds(wanted)
        if len(bounds) == len(wanted):
            return bounds
        ask = self._bounds if reached is None else lambda queue: self._bounds_beyond(queue, reached.get(queue))
        answers = await query_many([queue for queue in wanted if queue not in bounds], ask)
        return {queue: answers[queue] if queue in answers else bounds[queue] for queue in wanted}

    async def _bounds(self, queue: MessageQueue) -> OffsetRange:
        kept = OffsetRange(await self.min_offset(queue), await self.max_offset(queue))
        if kept.start > kept.end:
            raise HeaderError(
                f"{queue.broker_name} answers that {queue} begins at offset {kept.start} and ends at {kept.end}: "
                "its queue is damaged, or was deleted and made again at this moment"
            )
        return kept

    async def _bounds_beyond(self, queue: MessageQueue, reached: int | None) -> OffsetRange:
        end = await self.max_offset(queue)
        start = end if end == reached else await self.min_offset(queue)
        return OffsetRange(min(start, end), end)  # messages may expire between the two requests

    async def offsets_at(self, when_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Returns for each queue the offset of the first message stored at or after its time, else its maximum.

        The times `when_ms` are milliseconds since 1970. A broker searches one queue for each request. If many of the
        queues belong to one topic and broker, one request first finds the queues whose last message is older than their
        time. These need no search.
        """
        ends = await self._statistics.ends_before(when_ms)
        answers = await query_many(
            [queue for queue in when_ms if queue not in ends], lambda queue: self.offset_at(queue, when_ms[queue])
        )
        return {queue: ends[queue] if queue in ends else answers[queue] for queue in when_ms}

    async def committed_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
        return await query_many(queues, self.committed)

    async def commit_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commits the offsets of many queues.

        The first commit for a topic at a broker is sent alone. RocketMQ's brokers create the table of a group's offsets
        without a lock (broker/offset/ConsumerOffsetManager.java, commitOffset, 4.9.7 and 5.4.0). Several first commits
        at once would be acknowledged, but some of them lost.
        """
        last_queues = {(queue.broker_name, queue.topic): queue for queue in offsets}
        first = {
            queue: offsets[queue]
            for broker_and_topic, queue in last_queues.items()
            if broker_and_topic not in self._committed_topics
        }
        await query_many(first, lambda queue: self.commit(queue, offsets[queue]))
        self._committed_topics |= last_queues.keys()
        await query_many(offsets.keys() - first.keys(), lambda queue: self.commit(queue, offsets[queue]))

    async def check_filter(self, queue: MessageQueue, wanted: Filter) -> None:
        queue = queue_of(queue)
        await check_filter(self._client, self._group, queue, wanted, timeout=self._timeout, namespace=self._namespace)

    async def _keeps_batches(self, queue: MessageQueue) -> bool:
        address = await self._client.master_address(queue, timeout=self._timeout, namespace=self._namespace)
        topics = self._client.batch_topics
        on_wire = self._on_wire(queue.topic)
        return await topics.is_batch_topic(on_wire, queue.broker_name, address, timeout=self._timeout)

    async def _first_at_or_after(self, queue: MessageQueue, offset: int, when_ms: int) -> int:
        deadline = trio.current_time() + SEARCH_TIMEOUTS * self._timeout
        while True:
            pulled = await self._puller.pull(queue, offset, timeout=self._timeout)
            for record in iterate_records(pulled.records):
                if record.store_timestamp_ms >= when_ms:
                    return record.queue_offset
            if pulled.status is PullStatus.NO_NEW_MSG or pulled.next_offset >= pulled.max_offset:
                return pulled.max_offset
            if pulled.next_offset <= offset:
                raise no_progress(pulled)
            if trio.current_time() > deadline:
                raise CallTimeout(
                    f"the search by time in {queue} got to offset {pulled.next_offset} of {pulled.max_offset} in "
                    f"{SEARCH_TIMEOUTS} times the timeout ({self._timeout:g} s); give a longer timeout",
                    address=queue.broker_name,
                    request_left=True,
                )
            offset = pulled.next_offset

    async def _offset(self, queue: MessageQueue, request: HeaderRequest) -> int:
        return _offset_of(queue, await self._ask(queue, request))

    async def _ask(self, queue: MessageQueue, request: HeaderRequest) -> Command:
        command = request.to_command()
        return await self._client.ask_broker(queue, command, timeout=self._timeout, namespace=self._namespace)

    def _search(self, queue: MessageQueue, when_ms: int) -> SearchOffset:
        topic = self._on_wire(queue_of(queue).topic)
        return SearchOffset(topic, queue.queue_id, when_ms, broker_name=queue.broker_name)

    def _on_wire(self, topic: str) -> str:
        return with_namespace(topic, self._namespace)


def _offset_of(queue: MessageQueue, answer: Command) -> int:
    offset = OffsetFound.from_command(answer).offset
    if offset < NO_OFFSET:
        raise HeaderError(f"{queue.broker_name} answers offset {offset} for {queue}: no queue has such a one")
    return offset


def _cluster_of(answer: Command, address: str) -> ClusterInfo:
    if answer.code != ResponseCode.SUCCESS:
        raise response_error(answer, RequestCode.GET_BROKER_CLUSTER_INFO, f"NameServer {address}")
    return ClusterInfo.from_command(answer)


def _cluster_of_routes(routes: Sequence[TopicRouteData | None]) -> ClusterInfo:
    tables = [{} if route is None else broker_addresses([route]) for route in routes]
    first = tables[0] if tables else {}
    brokers = {name: broker for name, broker in first.items() if all(name in table for table in tables)}
    clusters: dict[str, tuple[str, ...]] = {}
    for name, broker in brokers.items():
        clusters[broker.cluster] = (*clusters.get(broker.cluster, ()), name)
    return ClusterInfo(brokers, clusters)


def _table_of(answer: Command, address: str) -> dict[str, str]:
    return dict(KvTable.from_command(answer).table) if answer.code == ResponseCode.SUCCESS else {}


def _topics_of(answer: Command, address: str) -> tuple[str, ...]:
    if answer.code != ResponseCode.SUCCESS:
        raise response_error(answer, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, f"NameServer {address}")
    return TopicList.from_command(answer).topics
