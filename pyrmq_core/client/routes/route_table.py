"""The topics of a client: their routes, and which of them are batch topics of 5.x.

Routes are fetched when first needed, every 30 s and after failures. Only one query of a topic runs at a time. A route
does not say whether its topic is a batch topic. So the client asks a broker for the topic's settings
(GET_TOPIC_CONFIG), once for each topic, and again after each query for its route. Brokers before 5.0 have no batch
topics, and are not asked.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Final

import trio

from pyrmq_core.client.remoting.remoting_client import RemotingClient
from pyrmq_core.client.routes.name_servers import NameServers
from pyrmq_core.client.routing.publish_info import (
    TopicPublishInfo,
    borrowed_route,
    broker_addresses,
    publish_info_of,
    publish_queues,
    reading_address,
)
from pyrmq_core.errors import BrokerNotFound, CallTimeout, NoNameServer, NoRoute, RocketMQError
from pyrmq_core.network.problems import Problems
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.messages.batch_topic import is_batch_topic
from pyrmq_core.protocol.requests.broker.topic_admin import GetTopicConfig, TopicConfigFound
from pyrmq_core.protocol.requests.nameserver.get_route_info import GetRouteInfo, RouteInfo
from pyrmq_core.protocol.routes.route import MASTER_ID, BrokerData, TopicRouteData

log = logging.getLogger(__name__)

# The time for a query of a route (client/impl/factory/MQClientInstance.java: mqClientApiTimeout).
ROUTE_TIMEOUT_SECONDS = 3.0
QUERY_SECONDS: Final = 3.0
REFRESHES_AT_ONCE = 16
DIGEST_BYTES: Final = 16
REFRESH = "refreshing the route of"

# A topic, with its namespace, and the name of a broker.
TopicOnBroker = tuple[str, str]


class _Query:
    """The query for one topic's route, and its last result, which concurrent callers share.

    The task that holds `lock` sends the query, or uses the answer that arrived while it waited for the lock. `count` is
    the number of ended queries, and `timeout` the seconds that the last query had. `last_read` has a digest of the last
    body and the route in it, so that an equal body is not parsed again.
    """

    __slots__ = ("count", "error", "last_read", "lock", "route", "timeout")

    def __init__(self) -> None:
        self.lock = trio.Lock()
        self.count = 0
        self.timeout = 0.0
        self.route: TopicRouteData | None = None
        self.error: RocketMQError | None = None
        self.last_read: tuple[bytes, TopicRouteData] | None = None

    def is_mine(self) -> bool:
        return self.lock.statistics().owner is trio.lowlevel.current_task()

    def is_free(self) -> bool:
        return not self.lock.locked() and not self.lock.statistics().tasks_waiting


class Routes:
    """A client's topic routes, with the queues to write to (`TopicPublishInfo`) and the broker addresses in them.

    When a topic's route changes, the event `changed` is set and replaced by a new event. When the addresses of brokers
    change, the same happens to `brokers_changed`.
    """

    def __init__(self, nameservers: NameServers, problems: Problems, *, random_start: Callable[[], int]) -> None:
        self._nameservers = nameservers
        self._problems = problems
        self._random_start = random_start
        self._routes: dict[str, TopicRouteData] = {}
        self._publish_infos: dict[str, TopicPublishInfo] = {}
        self._borrowed_once: set[str] = set()  # topics that use borrowed queues until their next query
        self._brokers: dict[str, BrokerData] = {}
        self._queries: defaultdict[str, _Query] = defaultdict(_Query)
        self._may_name_less = False  # True if routes have changed since `forget_offline_brokers`
        self.brokers_changed = trio.Event()
        self.changed = trio.Event()

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self._publish_infos)

    @property
    def known_topics(self) -> tuple[str, ...]:
        return tuple(self._routes)

    @property
    def brokers(self) -> tuple[BrokerData, ...]:
        return tuple(self._brokers.values())

    def broker(self, broker_name: str) -> BrokerData:
        try:
            return self._brokers[broker_name]
        except KeyError:
            raise BrokerNotFound(
                f"no known route names broker {broker_name}; it is down, or its name is spelled otherwise "
                f"(known: {', '.join(sorted(self._brokers)) or 'none'})",
                broker_name=broker_name,
            ) from None

    def answers(self, topic: str) -> int:
        """Returns the number of ended queries for the topic's route, answered or failed."""
        return self._queries[topic].count if topic in self._queries else 0

    def known_master(self, broker_name: str) -> str | None:
        broker = self._brokers.get(broker_name)
        return None if broker is None else broker.broker_addrs.get(MASTER_ID)

    def awaits_master(self, topic: str) -> bool:
        info = self._publish_infos.get(topic)
        return info is not None and not info.queues and bool(info.without_master)

    def known_publish_info(self, topic: str) -> TopicPublishInfo | None:
        """Returns the known queues to write to, or None if `publish_info` must query a NameServer."""
        info = self._publish_infos.get(topic)
        if info is None or not info.queues or (info.borrowed and topic not in self._borrowed_once):
            return None
        return info

    async def route(self, topic: str, *, timeout: float = ROUTE_TIMEOUT_SECONDS) -> TopicRouteData:
        """Returns the topic's route, fetched if it is not known. Raises `NoRoute` if the NameServers have none."""
        route = self._routes.get(topic)
        if route is None:
            await self.refresh(topic, timeout=timeout)
            route = self._routes.get(topic)
        if route is None:
            raise self.no_route(topic)
        return route

    async def publish_info(
        self, topic: str, *, create_topic_key: str, default_topic_queue_nums: int, timeout: float
    ) -> TopicPublishInfo:
        """Returns the queues to which a producer may write to the topic. Queries a NameServer if they are not known.

        A topic that does not exist borrows the queues of the template topic `create_topic_key` (TBW102), since a broker
        creates the topic when it receives a message for it. Borrowed queues are used until the next answered query for
        the topic (a poll, or a query after a failure). So each broker receives some of the first messages and creates
        the topic. All callers share the result's counter, so that they use the queues in turn.
        """
        if (ready := self.known_publish_info(topic)) is not None:
            return ready
        kept = self._publish_infos.get(topic)
        deadline = trio.current_time() + timeout
        count = self._queries[create_topic_key].count
        try:
            await self.refresh(topic, timeout=timeout)
            if topic not in self._routes:
                template = await self._ask(create_topic_key, deadline - trio.current_time(), count)
                self._borrow(topic, template, default_topic_queue_nums)
        except RocketMQError:
            if kept is None or not kept.keyed_queues:
                raise
        info = self._publish_infos.get(topic)
        if info is None:
            raise self.no_route(topic)
        return info

    def no_route(self, topic: str) -> NoRoute:
        """Returns the error for a topic that no NameServer knows. It names the brokers of the last known route."""
        route = self._routes.get(topic)
        return no_route(topic, self._nameservers, () if route is None else route.broker_datas)

    async def refresh(self, topic: str, *, timeout: float = ROUTE_TIMEOUT_SECONDS) -> TopicRouteData | None:
        """Queries a NameServer for the topic's route and returns it, or None for a topic that does not exist.

        Calls during a query share its answer. If the topic no longer exists, its last route is kept for `route`, as in
        Java's client. Raises `NoNameServer` if no NameServer gives a readable answer, and `ResponseError` for a
        refusal.
        """
        route = await self._ask(topic, timeout)
        if route is not None:
            self._learn(topic, route)
        self._borrowed_once.discard(topic)
        return route

    async def query(self, topic: str, *, timeout: float = ROUTE_TIMEOUT_SECONDS) -> TopicRouteData | None:
        """Returns the topic's route from a NameServer, or None if there is none. The route is not kept."""
        is_first = topic not in self._queries
        try:
            return await self._ask(topic, timeout)
        finally:
            if is_first and self._queries[topic].is_free():
                del self._queries[topic]

    async def refresh_all(self) -> None:
        """Refreshes the routes of all known topics. A failure is recorded in `problems` and stops no other refresh."""
        topics = self._publish_infos.keys() | self._routes.keys()
        left = iter(topics)
        async with trio.open_nursery() as nursery:
            for _ in range(min(REFRESHES_AT_ONCE, len(topics))):
                nursery.start_soon(self._refresh_quietly, left)

    async def _refresh_quietly(self, topics: Iterator[str]) -> None:
        for topic in topics:
            try:
                await self.refresh(topic)
            except RocketMQError as error:
                self._problems.failed(REFRESH, topic, error, line="topics")
            else:
                self._problems.passed(REFRESH, topic)

    async def _ask(self, topic: str, timeout: float, count: int | None = None) -> TopicRouteData | None:
        """Returns the topic's route from a NameServer, or None without one. Only one query of a topic runs at a time.

        A call that waited for another call's query returns its result. With `count`, the result of any query after the
        first `count` queries is returned. A failure is shared only if the query had at least as much time as this call
        has left.
        """
        deadline = trio.current_time() + timeout
        query = self._queries[topic]
        count = query.count if count is None else count
        with trio.move_on_after(max(0.0, timeout)):
            await query.lock.acquire()
        if not query.is_mine():
            raise NoNameServer(
                f"the query for the route of {topic} was still under way after {timeout:.3g} s; "
                f"look whether NameServer {';'.join(self._nameservers.addresses)} is alive, or allow more time"
            )
        try:
            time_left = deadline - trio.current_time()
            if query.count == count or (query.error is not None and query.timeout < time_left):
                await self._put(query, topic, time_left)
            if query.error is not None:
                raise copy(query.error)
            return query.route
        finally:
            query.lock.release()

    async def _put(self, query: _Query, topic: str, timeout: float) -> None:
        command = GetRouteInfo(topic, accept_standard_json_only=True).to_command()
        route, failure = None, None
        try:
            route = await self._nameservers.ask_for(command, partial(self._read, query, topic), timeout=timeout)
        except RocketMQError as error:
            failure = error
        # Set together at the end, so that a cancelled query leaves the result of the query before it.
        query.route, query.error, query.timeout = route, failure, timeout
        query.count += 1

    def _read(self, query: _Query, topic: str, answer: Command, address: str) -> TopicRouteData | None:
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise response_error(answer, RequestCode.GET_ROUTEINFO_BY_TOPIC, f"NameServer {address}", f"topic {topic}")
        digest = blake2b(answer.body, digest_size=DIGEST_BYTES).digest()
        if query.last_read is not None and query.last_read[0] == digest:
            return query.last_read[1]
        route = RouteInfo.from_command(answer).route
        if route.order_topic_conf:
            publish_queues(topic, route)  # raises for an order configuration that cannot be read
        route = replace(route, broker_datas=tuple(self._shared(broker) for broker in route.broker_datas))
        query.last_read = digest, route
        return route

    def _shared(self, broker: BrokerData) -> BrokerData:
        """Returns the equal object of an earlier route, so that routes share memory, or `broker` if there is none."""
        other = self._brokers.get(broker.broker_name)
        return other if other == broker else broker

    def _borrow(self, topic: str, template: TopicRouteData | None, queue_nums: int) -> None:
        if template is None or topic in self._routes:
            return
        self._learn_brokers(template)
        self._may_name_less = True
        self._borrowed_once.add(topic)
        route = borrowed_route(template, queue_nums)
        info = publish_info_of(topic, route, counter_start=self._random_start(), borrowed=True)
        before = self._publish_infos.get(topic)
        if before is None or (before.queues, before.keyed_queues) != (info.queues, info.keyed_queues):
            self._publish_infos[topic] = info

    def _learn(self, topic: str, route: TopicRouteData) -> None:
        before = self._routes.get(topic)
        if before is route or (before is not None and _sorted(before) == _sorted(route)):
            return
        self._publish_infos[topic] = publish_info_of(topic, route, counter_start=self._random_start())
        self._routes[topic] = route
        self._may_name_less = True
        self._learn_brokers(route)
        changed, self.changed = self.changed, trio.Event()
        changed.set()
        names = sorted(broker.broker_name for broker in route.broker_datas)
        log.info("the route of %s changed: brokers %s", topic, ", ".join(names))

    def _learn_brokers(self, route: TopicRouteData) -> None:
        brokers = broker_addresses([route])
        if any(self._brokers.get(name) != broker for name, broker in brokers.items()):
            self._brokers.update(brokers)
            changed, self.brokers_changed = self.brokers_changed, trio.Event()
            changed.set()

    def forget_offline_brokers(self) -> None:
        """Removes the brokers that are in no known route any more (MQClientInstance.cleanOfflineBroker)."""
        if not self._may_name_less:
            return
        self._may_name_less = False
        named = set(broker_addresses(list(self._routes.values())))
        named.update(
            queue.broker_name for info in self._publish_infos.values() if info.borrowed for queue in info.queues
        )
        self._brokers = {name: broker for name, broker in self._brokers.items() if name in named}


def no_route(topic: str, asked: NameServers, brokers: Sequence[BrokerData] = ()) -> NoRoute:
    """Returns the error for a missing route, in Java's words, which users search for (`No route info of this topic`).

    If there are `brokers`, those of the topic's last known route, the text says that no NameServer lists the topic at
    them any more. It also names the NameServers in `asked` that did not answer.
    """
    failures = asked.failures
    nameservers = ";".join(address for address in asked.addresses if address not in failures) or "(none)"
    unheard = "".join(f" ({address} gave none: {error})" for address, error in failures.items())
    if brokers:
        had = ", ".join(f"{broker.broker_name} ({reading_address(broker) or 'no address'})" for broker in brokers)
        return NoRoute(
            f"No route info of this topic: {topic}. It was on {had}, and NameServer {nameservers} names that no more"
            f"{unheard}: start the broker if it is down; create the topic again only if it was deleted",
            topic=topic,
        )
    return NoRoute(
        f"No route info of this topic: {topic}. NameServer {nameservers} knows neither it nor a topic that "
        f"creates it{unheard}; create the topic (pyrmq topic create {topic}), or switch on autoCreateTopicEnable at "
        "the brokers",
        topic=topic,
    )


class BatchTopics:
    """The brokers' answers to the question which topics are batch topics.

    After each query for a topic's route, a broker is asked again about the topic.
    """

    def __init__(self, caller: RemotingClient, routes: Routes) -> None:
        self._caller = caller
        self._routes = routes
        self._known: dict[TopicOnBroker, tuple[int, bool]] = {}
        self._locks: defaultdict[TopicOnBroker, trio.Lock] = defaultdict(trio.Lock)

    def is_known(self, topic: str, broker_name: str) -> bool:
        """Returns whether the broker's last answer, however old, was that the topic is a batch topic."""
        answer = self._known.get((topic, broker_name))
        return answer is not None and answer[1]

    async def is_batch_topic(self, topic: str, broker_name: str, address: str, *, timeout: float) -> bool:
        """Returns whether the broker stores a batch of the topic as one record.

        Raises `NetworkError`s and `ProtocolError`s.
        """
        pair = topic, broker_name
        if self._is_fresh(pair):
            return self._known[pair][1]
        async with self._locks[pair]:
            if not self._is_fresh(pair):
                answers = self._routes.answers(topic)
                self._known[pair] = answers, await self._ask(topic, address, min(timeout, QUERY_SECONDS))
            return self._known[pair][1]

    async def any_batch_topic(self, topic: str, info: TopicPublishInfo, *, timeout: float) -> bool:
        """Returns whether any of the topic's brokers stores a batch as one record. Asks them all at once."""
        answers: list[bool] = []

        async def ask(pair: TopicOnBroker) -> None:
            answers.append(await self.keeps_whole(*pair, timeout=timeout))
            if answers[-1]:
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for pair in dict.fromkeys((topic, queue.broker_name) for queue in info.queues):
                nursery.start_soon(ask, pair)
        return any(answers)

    def keeps_whole_nowait(self, topic: str, broker_name: str) -> bool | None:
        """Returns whether the broker stores a batch of the topic as one record, or None if that is not known yet."""
        pair = topic, broker_name
        return self._known[pair][1] if self._is_fresh(pair) else None

    async def keeps_whole(self, topic: str, broker_name: str, *, timeout: float) -> bool:
        """Returns whether the broker stores a batch of the topic as one record. Asks the broker if this is unknown.

        If the broker does not answer, its previous answer is returned, or False if there is none. Raises no
        `RocketMQError`, so that no send fails because of this query.
        """
        try:
            if (address := self._routes.known_master(broker_name)) is not None:
                return await self.is_batch_topic(topic, broker_name, address, timeout=timeout)
        # The old answer is kept until the next query for the route, so that a silent broker does not delay every send.
        except CallTimeout:
            self._known[topic, broker_name] = self._routes.answers(topic), self.is_known(topic, broker_name)
        except RocketMQError:
            pass
        return self.is_known(topic, broker_name)

    async def _ask(self, topic: str, address: str, timeout: float) -> bool:
        answer = await self._caller.call(address, GetTopicConfig(topic).to_command(), timeout=timeout)
        if answer.code != ResponseCode.SUCCESS:
            return False
        return is_batch_topic(TopicConfigFound.from_command(answer).config.attributes)

    def _is_fresh(self, pair: TopicOnBroker) -> bool:
        answer = self._known.get(pair)
        return answer is not None and answer[0] == self._routes.answers(pair[0])


def _sorted(route: TopicRouteData) -> tuple[object, ...]:
    return (
        sorted(route.queue_datas, key=lambda data: data.broker_name),
        sorted(route.broker_datas, key=lambda data: data.broker_name),
        route.order_topic_conf,
    )
