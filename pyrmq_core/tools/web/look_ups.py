"""`LookUps`: all queries of the pages to brokers and NameServers. Equal queries share one answer (`SharedAnswers`)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from pyrmq_core import Admin, MessageExt, MessageQueue, PullConsumer, RocketMQError
from pyrmq_core.client.texts import Text
from pyrmq_core.protocol.messages.names import REPLY_TOPIC_SUFFIX
from pyrmq_core.tools.search.conditions import QUICK_BYTES, Condition
from pyrmq_core.tools.web.body_text import SUMMARY_BYTES
from pyrmq_core.tools.web.health_looks import HealthLooks
from pyrmq_core.tools.web.history import SAMPLE_SECONDS, Curve, History, Sample
from pyrmq_core.tools.web.look_up_queue import LookUpQueue, TooManyLookUps
from pyrmq_core.tools.web.masks import Masks
from pyrmq_core.tools.web.message_reads import (
    SHOWN_MESSAGES,
    FoundMessages,
    MessageReads,
    ShownMessage,
    Wanted,
)
from pyrmq_core.tools.web.shared_answers import FRESH_SECONDS, SharedAnswers
from pyrmq_core.tools.web.tails import TailPart, TailPlace, read_tail
from pyrmq_core.tools.web.topic_figures import TopicFigures

if TYPE_CHECKING:
    from pyrmq_core.client.admin.message_queries import MessageList
    from pyrmq_core.client.admin.message_tracks import MessageTrack
    from pyrmq_core.client.admin.messages import MessageTrace
    from pyrmq_core.client.admin.producers import ProducerList
    from pyrmq_core.client.admin.servers import Gathered
    from pyrmq_core.client.admin.settings_tables import SettingsTable
    from pyrmq_core.client.admin.values import (
        BrokerStatus,
        GroupDescription,
        GroupList,
        GroupProgress,
        TopicConsumers,
        TopicRates,
        TopicStats,
    )
    from pyrmq_core.model import TopicConfig

Answer = TypeVar("Answer")

# How long a list of groups is cached, since a new list costs several requests for each group and broker.
GROUPS_FRESH_SECONDS: Final = 15.0
TAIL_FRESH_SECONDS: Final = 1.0
# The most groups of a topic whose rates are drawn, since each costs a request to each of the topic's brokers.
MAX_GROUPS_DRAWN: Final = 5
# The most groups of a topic whose acknowledged messages a second are shown.
MAX_GROUPS_RATED: Final = 20
# The most look-ups at a time for the samples of charts, so that others remain for viewers.
SAMPLED_AT_ONCE: Final = 3
# The most searches at a time of all viewers, and how long a search may wait to begin.
SEARCHES_AT_ONCE: Final = 3
SEARCH_WAIT_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The names of all topics, and the names by which RocketMQ's own topics are recognized.

    `of_servers` are the names of brokers and clusters and of clusters' reply topics. `manifests` are the topics in
    which committed writes record their batches.
    """

    names: tuple[str, ...]
    of_servers: frozenset[str]
    manifests: frozenset[str] = frozenset()


class LookUps:
    """All queries that the pages of one server make to brokers and NameServers. Answers are cached for all viewers.

    `of_viewer` returns a copy for a viewer's address, since the limit of queries is divided fairly among addresses.
    """

    def __init__(self, admin: Admin, consumer: PullConsumer, masks: Masks) -> None:
        self.masks = masks
        self.history = History()
        self._admin = admin
        self._shared = SharedAnswers()
        once = self._shared.once
        self.figures = TopicFigures(lambda topic: once(partial(admin.topics.stats, topic)), self.groups)
        self.health = HealthLooks(lambda before: once(partial(admin.health, groups=True, before=before)))
        self._address = ""
        self._searches = SharedAnswers(LookUpQueue(SEARCHES_AT_ONCE, SEARCH_WAIT_SECONDS))
        self._reads = MessageReads(admin, consumer, masks)

    def of_viewer(self, address: str) -> LookUps:
        look_ups = copy(self)
        look_ups._address = address
        return look_ups

    async def _get(
        self, key: Hashable, look_up: Callable[[], Awaitable[Answer]], fresh_seconds: float = FRESH_SECONDS
    ) -> Answer:
        return await self._shared.get(key, look_up, fresh_seconds, address=self._address, size_of=_size_of)

    async def brokers(self, *, watch: bool = False) -> tuple[BrokerStatus, ...]:
        """Returns every registered broker with its figures or error. With `watch`, each cluster's rates are sampled."""

        async def look_up() -> tuple[float, tuple[BrokerStatus, ...]]:
            return time.time(), await self._admin.brokers.list()

        at, brokers = await self._get("brokers", look_up)
        for cluster in {broker.cluster for broker in brokers}:
            curve = Curve("cluster", cluster)
            rates = cluster_rates(status for status in brokers if status.cluster == cluster)
            if watch:
                self.watch(curve)
            if rates:
                self.history.add(curve, Sample(at, rates))
        return brokers

    async def topics(self) -> TopicNames:
        async def look_up() -> TopicNames:
            names = await self._admin.topics.list()
            clusters = (await self._admin.cluster_info()).cluster_addr_table
            of_servers = {*clusters, *(name + REPLY_TOPIC_SUFFIX for name in clusters)}.union(*clusters.values())
            return TopicNames(names, frozenset(of_servers), await self._admin.topics.manifests())

        return await self._get("topics", look_up)

    async def topic_stats(self, topic: str) -> TopicStats:
        return await self._get(("stats", topic), partial(self._admin.topics.stats, topic))

    async def consumers(self, topic: str) -> TopicConsumers:
        """Returns the groups of the topic, most lag first, and keeps their offsets to compute their rates."""

        async def look_up() -> TopicConsumers:
            listed = await self._admin.topics.consumers(topic)
            for consumer in reversed(listed.consumers[:MAX_GROUPS_RATED]):
                self.history.acknowledged.add((topic, consumer.group), consumer.progress)
            return listed

        return await self._get(("consumers", topic), look_up, GROUPS_FRESH_SECONDS)

    async def rates(self, topic: str) -> TopicRates:
        """Returns the rates of a topic and of its groups with most lag, and adds them to the topic's chart."""
        groups = [consumer.group for consumer in (await self.consumers(topic)).consumers[:MAX_GROUPS_DRAWN]]

        async def look_up() -> TopicRates:
            rates = await self._admin.topics.rates(topic, groups)
            lines: dict[str, float] = {Text("stored"): rates.put_tps}
            lines |= {Text("to {group}", group=group): rate for group, rate in rates.get_tps.items()}
            self.history.add(Curve("topic", topic), Sample(time.time(), lines))
            return rates

        return await self._get(("rates", topic), look_up, SAMPLE_SECONDS / 2)

    async def topic_configs(self, topic: str) -> Gathered[TopicConfig]:
        return await self._get(("topic settings", topic), partial(self._admin.topics.configs, topic))

    async def broker_settings(self) -> SettingsTable:
        return await self._get("broker settings", self._admin.brokers.settings)

    async def nameserver_settings(self) -> SettingsTable:
        return await self._get("nameserver settings", self._admin.nameservers.settings)

    async def groups(self) -> GroupList:
        return await self._get("groups", self._admin.groups.list, GROUPS_FRESH_SECONDS)

    async def describe(self, group: str) -> GroupDescription:
        return await self._get(("group", group), partial(self._admin.groups.describe, group))

    async def stack(self, group: str, client_id: str) -> str:
        return await self._get(("stack", group, client_id), partial(self._admin.groups.stack, group, client_id))

    async def progress(self, group: str) -> GroupProgress:
        """Returns a group's progress in each queue, with its members. Adds its lag to the chart, if that is shown."""

        async def look_up() -> GroupProgress:
            progress = await self._admin.groups.progress(group, members=True)
            self.history.acknowledged.add(group, progress)
            if progress.lag is not None:
                lines: dict[str, float] = {Text("messages behind"): progress.lag}
                self.history.add(Curve("lag", group), Sample(time.time(), lines))
            return progress

        return await self._get(("progress", group), look_up, SAMPLE_SECONDS / 2)

    async def producers(self) -> ProducerList:
        return await self._get("producers", self._admin.producers.list)

    async def by_key(self, wanted: Wanted, key: str) -> FoundMessages:
        """Returns the topic's messages with this key that were stored from `wanted.since` to before `wanted.before`."""
        last = None if wanted.before is None else wanted.before - timedelta(milliseconds=1)
        by_key, most = self._admin.messages.by_key, SHOWN_MESSAGES
        query = partial(by_key, wanted.topic, key, max_num=most, begin=wanted.since, end=last)
        return await self._found(("key", wanted, key), wanted, query)

    async def by_id(self, wanted: Wanted, message_id: str) -> FoundMessages:
        """Returns the topic's messages with this `msg_id`, which are several if the producer repeated a send."""
        query = partial(self._admin.messages.by_unique_key, wanted.topic, message_id)
        return await self._found(("id", wanted, message_id), wanted, query)

    async def _found(
        self, key: Hashable, wanted: Wanted, query: Callable[..., Awaitable[MessageList]]
    ) -> FoundMessages:
        async def look_up() -> FoundMessages:
            result = await query(body_bytes=QUICK_BYTES + 1 if wanted.columns else SUMMARY_BYTES)
            failures = {name: str(error) for name, error in result.failures.items()}
            newest = tuple(reversed(result.messages))[:SHOWN_MESSAGES]
            return FoundMessages(tuple(map(self._reads.shortening(wanted), newest)), failures)

        return await self._get(key, look_up)

    async def at(self, queue: MessageQueue, offset: int) -> MessageExt | None:
        """Returns the message at an offset of a queue, or None. Raises `RecordError` if it cannot be decoded."""
        return await self._get(("at", queue, offset), partial(self._reads.message_at, queue, offset))

    async def read(self, queue: MessageQueue, offset: int) -> MessageExt | None:
        """Returns the message at an offset of a queue, or None, without sharing the answer among viewers."""
        return await self._reads.message_at(queue, offset)

    async def shown(self, queue: MessageQueue, offset: int, form: str, part: int) -> ShownMessage | None:
        """Returns the message at an offset of a queue, with one part of its body formatted, or None without a message.

        `form` is the format, `part` the number of the part. Raises `TooManyLookUps` if a long body cannot be formatted
        in time.
        """

        async def look_up() -> ShownMessage | None:
            return await self._reads.shown(queue, offset, form, part, self._address)

        return await self._get(("shown", queue, offset, form, part), look_up)

    async def newest(self, wanted: Wanted) -> FoundMessages:
        return await self._get(("newest", wanted), partial(self._reads.newest, wanted))

    def _condition(self, wanted: Wanted) -> Condition | None:
        self.masks.refuse_sql(wanted.sql)
        return wanted.condition()

    async def search(self, wanted: Wanted) -> FoundMessages:
        """Returns the newest messages that match a search, by default among those stored in the last hour.

        Raises `TooManyLookUps` if the search cannot begin in time.
        """
        condition = self._condition(wanted)
        look_up = partial(self._reads.search, wanted, condition)
        return await self._searches.get(wanted, look_up, address=self._address, size_of=_size_of)

    async def tail(self, wanted: Wanted, place: TailPlace | None) -> TailPart:
        """Returns the messages that match a search and arrived since `place`, where the previous call ended.

        `place` is None in the first call. Viewers that would get the same answer share it for a second.
        """
        condition = self._condition(wanted)
        key = ("tail", wanted, None if place is None else place.text())
        return await self._get(key, partial(read_tail, self._reads, wanted, condition, place), TAIL_FRESH_SECONDS)

    async def hits(self, wanted: Wanted, form: str) -> bytes:
        """Returns all messages that match a search as a file to download, in the format `form`: jsonl or csv."""
        condition = self._condition(wanted)
        return await self._searches.once(partial(self._reads.hits, wanted, condition, form), self._address)

    async def tracks(self, message: MessageExt) -> tuple[MessageTrack, ...]:
        """Returns the state of the message in each group of the topic, such as consumed or not yet consumed."""
        return await self._get(_key("tracks", message), partial(self._admin.messages.track, message))

    async def trace(self, message: MessageExt) -> MessageTrace:
        """Returns the events that clients reported about the message. There are none if tracing is off."""
        return await self._get(_key("trace", message), partial(self._admin.messages.trace, message.msg_id))

    @staticmethod
    def age(at: float) -> int:
        return round(trio.current_time() - at)

    def watch(self, *curves: Curve) -> None:
        for curve in curves:
            self.history.watch(curve, trio.current_time())

    async def sample(self) -> None:
        """Samples the curves that pages show until cancelled, several at a time, since a broker may be slow."""

        async def brokers(_: str) -> object:
            return await self.brokers()

        looks: dict[str, Callable[[str], Awaitable[object]]]
        looks = {"lag": self.progress, "topic": self.rates, "cluster": brokers}
        room = trio.CapacityLimiter(SAMPLED_AT_ONCE)

        async def sample(curve: Curve) -> None:
            with contextlib.suppress(RocketMQError, TooManyLookUps):  # the page itself shows the error
                async with room:
                    await looks[curve.kind](curve.name)

        while True:
            next_time = trio.current_time() + SAMPLE_SECONDS
            async with trio.open_nursery() as nursery:
                for curve in self.history.due(trio.current_time()):
                    nursery.start_soon(sample, curve)
            await trio.sleep_until(next_time)

    def forget(self) -> None:
        self._shared.forget()
        self._searches.forget()
        self.figures.refresh()


def cluster_rates(brokers: Iterable[BrokerStatus]) -> dict[str, float]:
    """Returns the sums of the brokers' rates in messages a second, or an empty dict while no broker reports rates."""
    put, got = [], []
    for broker in brokers:
        put += [broker.put_tps] if broker.put_tps is not None else []
        got += [broker.get_tps] if broker.get_tps is not None else []
    return {name: sum(rates) for name, rates in ((Text("in"), put), (Text("out"), got)) if rates}


def _size_of(answer: object) -> int:
    if isinstance(answer, str):
        return len(answer)
    answer = answer.found if isinstance(answer, TailPart) else answer
    messages = answer.messages if isinstance(answer, FoundMessages) else (answer,)
    if isinstance(answer, ShownMessage):
        return len(answer.body.text) + _size_of(answer.message)
    return sum(
        len(message.body) + sum(len(name) + len(value) for name, value in message.properties.items())
        for message in messages
        if isinstance(message, MessageExt)
    )


def _key(question: str, message: MessageExt) -> tuple[str, str, int, int]:
    return question, message.broker_name, message.queue_id, message.commit_log_offset
