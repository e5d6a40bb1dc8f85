"""Keeps routes: asked for when first needed, again every 30 s and after failures, one question a topic at a time."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable

import trio

from pyrmq_core.client.nameservers import NameServers
from pyrmq_core.client.routing import TopicPublishInfo, borrowed_route, broker_addresses, publish_queues
from pyrmq_core.errors import BrokerNotFound, NoRoute, RocketMQError
from pyrmq_core.protocol.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.conversation import response_error
from pyrmq_core.protocol.requests.get_route_info import GetRouteInfo, RouteInfo
from pyrmq_core.protocol.route import BrokerData, TopicRouteData

log = logging.getLogger(__name__)

# client/impl/factory/MQClientInstance.java: mqClientApiTimeout.
ROUTE_TIMEOUT_SECONDS = 3.0
REFRESHES_AT_ONCE = 16


class Routes:
    """Routes by topic and what follows from them: publish infos and broker addresses."""

    def __init__(self, nameservers: NameServers, *, random_start: Callable[[], int]) -> None:
        self._nameservers = nameservers
        self._random_start = random_start
        self._routes: dict[str, TopicRouteData] = {}
        self._publish_infos: dict[str, TopicPublishInfo] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._locks: defaultdict[str, trio.Lock] = defaultdict(trio.Lock)
        self._asked_at: dict[str, float] = {}
        self.brokers_changed = trio.Event()

    @property
    def brokers(self) -> tuple[BrokerData, ...]:
        """Every broker of every known route."""
        return tuple(self._brokers.values())

    def broker(self, broker_name: str) -> BrokerData:
        """`BrokerNotFound` when no known route names the broker."""
        try:
            return self._brokers[broker_name]
        except KeyError:
            raise BrokerNotFound(
                f"no known route names broker {broker_name}; it is down, or its name is spelled otherwise "
                f"(known: {', '.join(sorted(self._brokers)) or 'none'})",
                broker_name=broker_name,
            ) from None

    async def route(self, topic: str, *, timeout: float = ROUTE_TIMEOUT_SECONDS) -> TopicRouteData:
        """The topic's route, asked for when it is not known; `NoRoute` when no NameServer has one."""
        known = self._routes.get(topic)
        if known is None:
            await self.refresh(topic, timeout=timeout)
            known = self._routes.get(topic)
        if known is None:
            raise no_route(topic, self._nameservers.addresses)
        return known

    async def publish_info(
        self, topic: str, *, create_topic_key: str, default_topic_queue_nums: int, timeout: float
    ) -> TopicPublishInfo:
        """Where to write the topic; one that nobody knows yet borrows the queues of the topic that auto-creates.

        The counter of the result is shared by all who ask, so that they take turns.
        """
        known = self._publish_infos.get(topic)
        if known is not None and known.queues and not known.borrowed:
            return known
        with trio.move_on_after(timeout):
            await self.refresh(topic, timeout=timeout)
            if topic not in self._routes:
                await self._borrow(topic, create_topic_key, default_topic_queue_nums, timeout)
        info = self._publish_infos.get(topic)
        if info is None:
            raise no_route(topic, self._nameservers.addresses)
        return info

    async def refresh(self, topic: str, *, timeout: float = ROUTE_TIMEOUT_SECONDS) -> bool:
        """Ask again; True when the route changed. Whoever asks while the question is under way shares its answer.

        A topic that stopped existing keeps its last route, as in Java's client.
        """
        wanted_at = trio.current_time()
        async with self._locks[topic]:
            if self._asked_at.get(topic, -1.0) >= wanted_at:
                return True
            route = await self._ask(topic, timeout)
            self._asked_at[topic] = trio.current_time()
            return route is not None and self._learn(topic, route)

    async def refresh_all(self) -> None:
        """One round over all known topics; a topic that fails is logged and does not hold up the others."""
        limit = trio.CapacityLimiter(REFRESHES_AT_ONCE)
        async with trio.open_nursery() as nursery:
            for topic in list(self._publish_infos.keys() | self._routes.keys()):
                nursery.start_soon(self._refresh_quietly, topic, limit)

    async def _refresh_quietly(self, topic: str, limit: trio.CapacityLimiter) -> None:
        async with limit:
            try:
                await self.refresh(topic)
            except RocketMQError as error:
                log.warning("the route of %s could not be refreshed: %s", topic, error)

    async def _ask(self, topic: str, timeout: float) -> TopicRouteData | None:
        answer = await self._nameservers.ask(
            GetRouteInfo(topic, accept_standard_json_only=True).to_command(), timeout=timeout
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise response_error(answer, RequestCode.GET_ROUTEINFO_BY_TOPIC, "the NameServer", f"topic {topic}")
        return RouteInfo.from_command(answer).route

    async def _borrow(self, topic: str, create_topic_key: str, queue_nums: int, timeout: float) -> None:
        template = await self._ask(create_topic_key, timeout)
        if template is None:
            return
        self._learn_brokers(template)
        route = borrowed_route(template, queue_nums)
        known = self._publish_infos.get(topic)
        queues = publish_queues(topic, route)
        if known is None or known.queues != queues:
            self._publish_infos[topic] = TopicPublishInfo(
                topic, queues, counter_start=self._random_start(), borrowed=True
            )

    def _learn(self, topic: str, route: TopicRouteData) -> bool:
        """Nothing changes when the route says what is known already (topicRouteDataIsChange)."""
        if _same(self._routes.get(topic), route):
            return False
        self._routes[topic] = route
        self._publish_infos[topic] = TopicPublishInfo(
            topic,
            publish_queues(topic, route),
            counter_start=self._random_start(),
            order_topic=bool(route.order_topic_conf),
        )
        self._learn_brokers(route)
        log.info("the route of %s changed: brokers %s", topic, ", ".join(_broker_names(route)))
        return True

    def _learn_brokers(self, route: TopicRouteData) -> None:
        before = dict(self._brokers)
        self._brokers.update(broker_addresses([route]))
        if self._brokers != before:
            changed, self.brokers_changed = self.brokers_changed, trio.Event()
            changed.set()

    def forget_offline_brokers(self) -> None:
        """Addresses that no known route names any more (MQClientInstance.cleanOfflineBroker)."""
        named = broker_addresses(list(self._routes.values()))
        borrowed = {
            queue.broker_name for info in self._publish_infos.values() if info.borrowed for queue in info.queues
        }
        self._brokers = {
            name: named.get(name, broker) for name, broker in self._brokers.items() if name in named or name in borrowed
        }


def no_route(topic: str, addresses: tuple[str, ...]) -> NoRoute:
    """Texts as Java users search for them (`No route info of this topic`)."""
    return NoRoute(
        f"No route info of this topic: {topic}. NameServer {';'.join(addresses)} knows neither it nor a topic that "
        "creates it; create the topic (mqadmin updateTopic), or switch on autoCreateTopicEnable at the brokers",
        topic=topic,
    )


def _same(known: TopicRouteData | None, route: TopicRouteData) -> bool:
    return known is not None and _sorted(known) == _sorted(route)


def _sorted(route: TopicRouteData) -> tuple[object, ...]:
    return (
        sorted(route.queue_datas, key=lambda data: data.broker_name),
        sorted(route.broker_datas, key=lambda data: data.broker_name),
        route.order_topic_conf,
    )


def _broker_names(route: TopicRouteData) -> list[str]:
    return sorted(broker.broker_name for broker in route.broker_datas)
