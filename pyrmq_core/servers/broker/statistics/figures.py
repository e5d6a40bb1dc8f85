"""`BrokerFigures`: the broker's counters, by RocketMQ's names of statistics.

Source: store/stats/BrokerStatsManager.java, BrokerStats.java (5.4.0). Of queues only latencies are counted. The
statistics of accounts, of acknowledgements (pop) and of connections are not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from pyrmq_core.protocol.messages.names import SCHEDULE_TOPIC, is_tools_group
from pyrmq_core.servers.broker.statistics.store_rates import StoreRates
from pyrmq_core.servers.broker.statistics.tallies import MINUTE, Period, Tally

# The most tallies in each of the five tables. With the samples of a day a tally takes some 10 KiB, so all take 250 MB.
MAX_TALLIES: Final = 5_000
KEY: Final = "{}@{}"
SCHEDULE_GROUP: Final = "SCHEDULE_CONSUMER"


class Kind(NamedTuple):
    """A statistic of RocketMQ, kept by the dict `table` of `BrokerFigures`, in the field `counter` of its tallies."""

    table: str
    counter: str


MESSAGES: Final = "messages"
SIZE: Final = "size_bytes"
KINDS: Final[Mapping[str, Kind]] = {
    "TOPIC_PUT_NUMS": Kind("puts", MESSAGES),
    "TOPIC_PUT_SIZE": Kind("puts", SIZE),
    "TOPIC_PUT_LATENCY": Kind("put_latencies", MESSAGES),
    "GROUP_GET_NUMS": Kind("gets", MESSAGES),
    "GROUP_GET_SIZE": Kind("gets", SIZE),
    "GROUP_GET_LATENCY": Kind("latencies", MESSAGES),
    "SNDBCK_PUT_NUMS": Kind("send_backs", MESSAGES),
    "BROKER_PUT_NUMS": Kind("broker", "put"),
    "BROKER_GET_NUMS": Kind("broker", "get"),
    "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": Kind("broker", "put_by_users"),
    "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": Kind("broker", "get_by_users"),
}


class BrokerFigures:
    """Counters by topic, `topic@group`, `queue@topic`, `queue@topic@group` and in total, and the store's rates."""

    def __init__(self, cluster: str, is_system: Callable[[str], bool]) -> None:
        self.store = StoreRates()
        self._is_system = is_system
        self._cluster = cluster
        names = ("puts", "put_latencies", "gets", "latencies", "send_backs")
        self._tables: dict[str, dict[str, Tally]] = {name: {} for name in names}
        self._puts, self._gets = self._tables["puts"], self._tables["gets"]
        self._put_latencies = self._tables["put_latencies"]
        self._latencies, self._send_backs = self._tables["latencies"], self._tables["send_backs"]
        self._broker = {name: Tally() for name in ("put", "get", "put_by_users", "get_by_users")}
        self._put, self._get = self._broker["put"], self._broker["get"]
        self._put_by_users, self._get_by_users = self._broker["put_by_users"], self._broker["get_by_users"]
        self._rest = Tally()  # counts for topics and groups beyond MAX_TALLIES
        self._deleted_topics: set[str] = set()
        self._deleted_groups: set[str] = set()
        self._mornings = {"Put": (0, 0), "Get": (0, 0)}  # the totals at the last two midnights

    def note_put(self, topic: str, messages: int, size_bytes: int, took_ms: int) -> None:
        self.store.note_put(messages, size_bytes, took_ms)
        tally = self._puts.get(topic)
        if tally is None:
            tally = self._make(self._puts, topic, topic)
        tally.messages += messages
        tally.requests += 1
        tally.size_bytes += size_bytes
        self._put.messages += messages
        if not tally.is_system:
            self._put_by_users.messages += messages

    def note_put_latency(self, topic: str, queue_id: int, took_ms: int) -> None:
        key = f"{queue_id}@{topic}"
        tally = self._put_latencies.get(key) or self._make(self._put_latencies, key, topic)
        tally.messages += took_ms
        tally.requests += 1

    def note_delivery(self, topic: str, size_bytes: int) -> None:
        """Counts the delivery of a delayed message: a read by the broker's own group, and a put into its topic."""
        self.note_get(SCHEDULE_TOPIC, SCHEDULE_GROUP, 0, 1, size_bytes, 0)
        self.note_put(topic, 1, size_bytes, 0)

    def note_commit(self, topic: str, size_bytes: int) -> None:
        self.note_put(topic, 1, size_bytes, 0)

    def note_get(self, topic: str, group: str, queue_id: int, messages: int, size_bytes: int, took_ms: int) -> None:
        """Counts one pull of a group, which took `took_ms`. The broker's totals leave out messages that tools read."""
        key = f"{topic}@{group}"
        tally = self._gets.get(key)
        if tally is None:
            tally = self._make(self._gets, key, topic)
            tally.is_tool = tally is not self._rest and is_tools_group(group)
        tally.messages += messages
        tally.requests += 1
        tally.size_bytes += size_bytes
        if not tally.is_tool:
            self._get.messages += messages
            if not tally.is_system:
                self._get_by_users.messages += messages
        key = f"{queue_id}@{key}"
        latency = self._latencies.get(key)
        if latency is None:
            latency = self._make(self._latencies, key, topic)
        latency.messages += took_ms
        latency.requests += 1

    def note_send_back(self, topic: str, group: str) -> None:
        key = f"{topic}@{group}"
        tally = self._send_backs.get(key) or self._make(self._send_backs, key, topic)
        tally.messages += 1
        tally.requests += 1

    def put_tps(self, topic: str) -> float:
        tally = self._puts.get(topic)
        return 0.0 if tally is None else tally.figure(MINUTE, MESSAGES).tps

    def get_tps(self, topic: str, group: str) -> float:
        tally = self._gets.get(KEY.format(topic, group))
        return 0.0 if tally is None else tally.figure(MINUTE, MESSAGES).tps

    def puts_by_topic(self) -> dict[str, Tally]:
        """Returns the counters of stored messages by topic. A counter that is idle for a day restarts at 0."""
        return dict(self._puts)

    def gets_by_topic_and_group(self) -> dict[tuple[str, str], Tally]:
        return {(key.partition("@")[0], key.partition("@")[2]): tally for key, tally in self._gets.items()}

    def find(self, name: str, key: str) -> tuple[Tally, str] | None:
        """Returns the tally (set of counters) of a statistic, and the name of its counter, or None without one.

        `name` is RocketMQ's name of the statistic, such as TOPIC_PUT_NUMS. `key` is the topic, group, queue or cluster
        that it counts, such as `topic@group`.
        """
        kind = KINDS.get(name)
        if kind is None:
            return None
        if kind.table == "broker":
            return (self._broker[kind.counter], MESSAGES) if key == self._cluster else None
        tally = self._tables[kind.table].get(key)
        return None if tally is None else (tally, kind.counter)

    def tallies(self) -> Iterator[Tally]:
        yield from self._broker.values()
        for table in self._tables.values():
            yield from list(table.values())

    def take_samples(self, period: Period, now_ms: int) -> Iterator[None]:
        """Adds the current counters of each tally to its samples of a period.

        Yields after each tally, so that other tasks can run.
        """
        for tally in self.tallies():
            tally.take_sample(period, now_ms)
            yield

    def forget_idle(self) -> Iterator[None]:
        return self._forget(lambda _, tally: tally.is_idle())

    def forget_topic(self, topic: str) -> None:
        """Schedules the removal of a deleted topic's tallies by `forget_deleted`."""
        self._deleted_topics.add(topic)

    def forget_group(self, group: str) -> None:
        self._deleted_groups.add(group)

    def forget_deleted(self) -> Iterator[None]:
        """Removes the tallies of the topics and groups that were deleted since the last call.

        Yields after each examined tally, so that other tasks can run.
        """
        topics, groups = self._deleted_topics, self._deleted_groups
        if topics or groups:
            self._deleted_topics, self._deleted_groups = set(), set()
            yield from self._forget(
                lambda parts, _: (parts[-2:-1] or parts)[0] in topics or (len(parts) > 1 and parts[-1] in groups)
            )

    def turn_day(self) -> None:
        """Saves the totals at midnight, so that `totals` can return the numbers of today and yesterday."""
        self._mornings = {
            "Put": (self._mornings["Put"][1], self._put_by_users.messages),
            "Get": (self._mornings["Get"][1], self._get_by_users.messages),
        }

    def totals(self) -> dict[str, object]:
        """Returns the message totals for GET_BROKER_RUNTIME_INFO (28): now, and at the last two midnights.

        Each total counts since the start of the broker.
        """
        now = {"Put": self._put_by_users.messages, "Get": self._get_by_users.messages}
        members: dict[str, object] = {}
        for name, (yesterday, today) in self._mornings.items():
            members[f"msg{name}TotalYesterdayMorning"] = yesterday
            members[f"msg{name}TotalTodayMorning"] = today
            members[f"msg{name}TotalTodayNow"] = now[name]
        return members

    def _make(self, table: dict[str, Tally], key: str, topic: str) -> Tally:
        if len(table) >= MAX_TALLIES:
            return self._rest
        tally = table[key] = Tally(self._is_system(topic))
        return tally

    def _forget(self, is_gone: Callable[[list[str], Tally], bool]) -> Iterator[None]:
        for table in self._tables.values():
            no_group = [""] if table is self._put_latencies else []
            for key, tally in list(table.items()):
                if is_gone([*key.split("@"), *no_group], tally):
                    table.pop(key, None)
                yield
