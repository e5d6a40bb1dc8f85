"""SQL92 expressions of consumer groups, from their heartbeats, and their file `consumerFilter.json`.

An expression is compiled when the first pull needs it. It is kept for filterDataCleanTimeSpan after the last member of
its group left, and a heartbeat with the same version reactivates it. Unlike in RocketMQ, the number and length of
expressions are limited. Source: broker/filter/ConsumerFilterManager.java, ConsumerFilterData.java,
filter/util/BloomFilter.java (5.4.0).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias

from pyrmq_core.errors import InvalidArgument, StoreError
from pyrmq_core.filtering.sql92 import MAX_CHARS, parse
from pyrmq_core.protocol.java.integers import MAX_INT, long_member
from pyrmq_core.protocol.java.members import text_member
from pyrmq_core.protocol.requests.broker.heartbeat import SubscriptionData
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.tables.changing_rows import ChangingRows
from pyrmq_core.servers.broker.tables.config_files import encode_config, load_config

FILE_NAME: Final = "consumerFilter.json"
SQL92: Final = "SQL92"
MOST_FILTERS: Final = 20_000
MOST_CHARS: Final = 32 << 20
# The parameters of the Bloom filter, as computed by a broker with the defaults maxErrorRateOfBloomFilter=20 and
# expectConsumerNumUseFilter=32.
BLOOM_HASHES: Final = 3
BLOOM_BITS: Final = 112

Passes: TypeAlias = Callable[[Mapping[str, str]], bool]

C1: Final = 0x87C37B91114253D5
C2: Final = 0x4CF5AD432745937F
MASK: Final = 0xFFFF_FFFF_FFFF_FFFF


@dataclass(slots=True)
class ConsumerFilter:
    """A consumer group's SQL92 filter expression for one topic, with times in ms since 1970.

    If `dead_ms` is at or after `born_ms`, the group's members have left or no longer subscribe to the topic.
    """

    expression: str
    client_version: int
    born_ms: int
    dead_ms: int = 0
    _passes: Passes | None = field(default=None, repr=False, compare=False)
    is_wrong: bool = field(default=False, compare=False)

    @property
    def is_dead(self) -> bool:
        return self.dead_ms >= self.born_ms

    def passes(self) -> Passes | None:
        """Returns a function that tests a message's properties, or None if the expression is invalid."""
        if self._passes is None and not self.is_wrong:
            try:
                self._passes = parse(self.expression)
            except InvalidArgument:
                self.is_wrong = True
        return self._passes


class ConsumerFilters:
    """SQL92 expressions by topic and group. Groups without members are listed in the order of leaving."""

    def __init__(self, files: Files, *, kept_ms: int) -> None:
        self._files = files
        self._kept_ms = kept_ms
        self._topics = ChangingRows[str, dict[str, ConsumerFilter]](dict)
        self._topics_of: dict[str, set[str]] = {}
        self._dead: OrderedDict[tuple[str, str], None] = OrderedDict()  # a dict would find its first key slowly
        self._count = 0
        self._chars = 0
        self.is_changed = False

    def __len__(self) -> int:
        return self._count

    def load(self, now_ms: int) -> None:
        """Reads `consumerFilter.json`. Treats every group as one without members until it sends a heartbeat."""
        members = load_config(self._files, FILE_NAME)
        try:
            rows = [
                (topic, group, _loaded(data, now_ms))
                for topic, by_group in (members.get("filterDataByTopic") or {}).items()
                for group, data in by_group["groupFilterData"].items()
                if data["expressionType"] == SQL92
            ]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StoreError(f"{FILE_NAME}: a member is missing or wrong: {error!r}") from error
        for topic, group, consumer_filter in sorted(rows, key=lambda row: row[2].dead_ms):
            if self._put(topic, group, consumer_filter):
                self._dead[topic, group] = None

    def find(self, group: str, topic: str) -> ConsumerFilter | None:
        groups = self._topics.find(topic)
        return None if groups is None else groups.get(group)

    def members_of(self, group: str, topic: str) -> dict[str, Any] | None:
        consumer_filter = self.find(group, topic)
        return None if consumer_filter is None else _members(topic, group, consumer_filter)

    def register(self, group: str, subscriptions: Iterable[SubscriptionData], now_ms: int) -> None:
        """Adds the SQL92 expressions in a group's heartbeat. The group's other expressions are marked as unused."""
        topics = set()
        for subscription in subscriptions:
            topics.add(subscription.topic)
            if subscription.expression_type == SQL92 and 0 < len(subscription.sub_string) <= MAX_CHARS:
                self._register(group, subscription, now_ms)
        for topic in self._topics_of.get(group, set()) - topics:
            self._kill(topic, group, now_ms)

    def group_left(self, group: str, now_ms: int) -> None:
        for topic in self._topics_of.get(group, ()):
            self._kill(topic, group, now_ms)

    def _register(self, group: str, data: SubscriptionData, now_ms: int) -> None:
        before = self.find(group, data.topic)
        is_newer = before is None or data.sub_version > before.client_version
        if before is None or (is_newer and data.sub_string != before.expression):
            if before is not None:
                self._remove(data.topic, group)
            self._put(data.topic, group, ConsumerFilter(data.sub_string, data.sub_version, now_ms))
        elif is_newer or (data.sub_version == before.client_version and before.is_dead):
            self._replace(data.topic, group, replace(before, client_version=data.sub_version, dead_ms=0))
            self._dead.pop((data.topic, group), None)
            self.is_changed = True

    def _put(self, topic: str, group: str, consumer_filter: ConsumerFilter) -> bool:
        """Adds a group's expression. Returns False if the table is full.

        A full table first drops expressions of groups without members, in the order in which the last members left.
        """
        while not self._has_room(consumer_filter) and self._dead:
            self._remove(*next(iter(self._dead)))
        if not self._has_room(consumer_filter):
            return False
        self._topics.change(topic)[group] = consumer_filter
        self._topics_of.setdefault(group, set()).add(topic)
        self._count += 1
        self._chars += len(consumer_filter.expression)
        self.is_changed = True
        return True

    def _has_room(self, consumer_filter: ConsumerFilter) -> bool:
        return self._count < MOST_FILTERS and self._chars + len(consumer_filter.expression) <= MOST_CHARS

    def _remove(self, topic: str, group: str) -> None:
        groups = self._topics.change(topic)
        consumer_filter = groups.pop(group)
        if not groups:
            self._topics.remove(topic)
        self._topics_of[group].discard(topic)
        if not self._topics_of[group]:
            del self._topics_of[group]
        self._count -= 1
        self._chars -= len(consumer_filter.expression)
        self._dead.pop((topic, group), None)
        self.is_changed = True

    def _kill(self, topic: str, group: str, now_ms: int) -> None:
        consumer_filter = self.find(group, topic)
        if consumer_filter is not None and (topic, group) not in self._dead:
            self._replace(topic, group, replace(consumer_filter, dead_ms=max(now_ms, consumer_filter.born_ms)))
            self._dead[topic, group] = None
            self.is_changed = True

    def _replace(self, topic: str, group: str, consumer_filter: ConsumerFilter) -> None:
        # The object is not changed, since a worker thread may be encoding a snapshot that contains it.
        self._topics.change(topic)[group] = consumer_filter

    def clean(self, now_ms: int) -> None:
        while self._dead:
            topic, group = next(iter(self._dead))
            consumer_filter = self.find(group, topic)
            if consumer_filter is not None and now_ms - consumer_filter.dead_ms < self._kept_ms:
                break
            self._remove(topic, group)

    def unsaved(self) -> Callable[[], bytes] | None:
        """Returns a function that encodes `consumerFilter.json`, or None if nothing changed since the last call.

        Any thread may call that function.
        """
        if not self.is_changed:
            return None
        self.is_changed = False
        return partial(_text, self._topics.snapshot())


def _loaded(data: Mapping[str, Any], now_ms: int) -> ConsumerFilter:
    born_ms = long_member(data["bornTime"])
    return ConsumerFilter(
        expression=text_member(data["expression"]),
        client_version=long_member(data["clientVersion"]),
        born_ms=born_ms,
        dead_ms=long_member(data.get("deadTime", 0)) or max(now_ms, born_ms),
    )


def _members(topic: str, group: str, consumer_filter: ConsumerFilter) -> dict[str, Any]:
    return {
        "bornTime": consumer_filter.born_ms,
        "clientVersion": consumer_filter.client_version,
        "consumerGroup": group,
        "dead": consumer_filter.is_dead,
        "deadTime": consumer_filter.dead_ms,
        "expression": consumer_filter.expression,
        "expressionType": SQL92,
        "topic": topic,
    }


def _text(snapshot: Mapping[str, Mapping[str, ConsumerFilter]]) -> bytes:
    topics: dict[str, Any] = {}
    for topic, groups in snapshot.items():
        for group, consumer_filter in groups.items():
            if not consumer_filter.is_wrong:
                bloom = {"bitNum": BLOOM_BITS, "bitPos": bloom_bits(f"{group}#{topic}")}
                data = {"bloomFilterData": bloom, **_members(topic, group, consumer_filter)}
                topics.setdefault(topic, {"groupFilterData": {}, "topic": topic})["groupFilterData"][group] = data
    return encode_config({"filterDataByTopic": topics})


def bloom_bits(text: str) -> list[int]:
    """Returns the positions of a text's bits in RocketMQ's Bloom filter.

    They are saved with each expression, since Java's broker cannot read the file without them.
    """
    hashed = murmur3_long(text.encode())
    first, second = hashed & 0xFFFF_FFFF, hashed >> 32
    bits = []
    for number in range(1, BLOOM_HASHES + 1):
        combined = first + number * second & 0xFFFF_FFFF
        bits.append((combined if combined <= MAX_INT else combined ^ 0xFFFF_FFFF) % BLOOM_BITS)
    return bits


def murmur3_long(data: bytes) -> int:
    """Returns the first 64 bits, unsigned, of Guava's `Hashing.murmur3_128().hashBytes(...).asLong()`."""
    h1 = h2 = 0
    block_bytes = len(data) & ~15
    for start in range(0, block_bytes, 16):
        h1 ^= _mixed(int.from_bytes(data[start : start + 8], "little"), C1, 31, C2)
        h1 = (_rotated(h1, 27) + h2) * 5 + 0x52DCE729 & MASK
        h2 ^= _mixed(int.from_bytes(data[start + 8 : start + 16], "little"), C2, 33, C1)
        h2 = (_rotated(h2, 31) + h1) * 5 + 0x38495AB5 & MASK
    h2 ^= _mixed(int.from_bytes(data[block_bytes + 8 :], "little"), C2, 33, C1)
    h1 ^= _mixed(int.from_bytes(data[block_bytes : block_bytes + 8], "little"), C1, 31, C2)
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = h1 + h2 & MASK
    h2 = h2 + h1 & MASK
    return _final(h1) + _final(h2) & MASK


def _mixed(block: int, first: int, bits: int, second: int) -> int:
    return _rotated(block * first & MASK, bits) * second & MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & MASK


def _final(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & MASK
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & MASK
    return value ^ value >> 33
