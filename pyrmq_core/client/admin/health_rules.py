"""The rules that find faults of a cluster in the values that `health` queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from pyrmq_core.client.admin.topics import parse_order
from pyrmq_core.client.admin.values import BrokerStatus, GroupMember, GroupSummary
from pyrmq_core.client.texts import Text, joined
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.messages.names import is_system_group
from pyrmq_core.protocol.requests.nameserver.cluster_info import ClusterInfo

OK: Final = "OK"
WARN: Final = "WARN"
FAIL: Final = "FAIL"

MOST_NAMES: Final = 5
MAX_DISK: Final = 90
# A disk that fills later is not reported: the broker removes old log files meanwhile.
FULL_WITHIN: Final = timedelta(hours=24)
# A smaller growth of a lag is usual while a group consumes.
GROWN_MESSAGES: Final = 100


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The result of one check. `subject` is the name of the broker, group, topic or NameServer that was checked.

    `check` names the rule, such as `disk`. `status` is OK, WARN or FAIL, and `found` is the finding. `advice` says what
    to do, or is empty.
    """

    check: str
    status: str
    found: str
    advice: str = ""
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """The checks of a cluster at the time `taken`, compared with earlier checks from the time `since`.

    `since` is None if there were no earlier checks. For the next comparison, `disks` has the used fraction of the
    commit log's disk, 0 to 1, by broker address, and `lags` the number of unconsumed messages by group.
    """

    checks: tuple[HealthCheck, ...]
    taken: datetime
    since: datetime | None = None
    disks: Mapping[str, float] = field(default_factory=dict)
    lags: Mapping[str, int] = field(default_factory=dict)

    @property
    def wrong(self) -> tuple[HealthCheck, ...]:
        """The checks that failed, followed by the checks with a warning."""
        return tuple(check for status in (FAIL, WARN) for check in self.checks if check.status == status)


def check_brokers(rows: Iterable[BrokerStatus], max_disk: int) -> Iterator[HealthCheck]:
    """Yields a check for each broker address. No answer is a failure of a master, and a warning for a slave.

    A disk of which more than `max_disk` percent are used is a failure too.
    """
    empty = True
    for row in rows:
        empty = False
        where, name = _place(row), row.broker_name
        if not row.reachable:
            text = Text("{broker}: {error}", broker=where, error=str(row.error))
            yield HealthCheck("broker", FAIL if row.is_master else WARN, text, subject=name)
        elif row.error is not None:
            text = Text("{broker} answers, and refuses its figures: {error}", broker=where, error=str(row.error))
            yield HealthCheck("broker", WARN, text, subject=name)
        elif row.disk_ratio is not None and row.disk_ratio * 100 > max_disk:
            full = Text("{broker}: {used:.0%} of the log's disk are used", broker=where, used=row.disk_ratio)
            advice = Text("more than {most}%: the broker refuses sends when its disk is full", most=max_disk)
            yield HealthCheck("disk", FAIL, full, advice, name)
        else:
            yield HealthCheck("broker", OK, f"{where}, {row.version}", subject=name)
    if empty:
        advice = Text("start one, or look at its namesrvAddr")
        yield HealthCheck("broker", FAIL, Text("the NameServer knows none"), advice)


def check_versions(rows: Iterable[BrokerStatus]) -> Iterator[HealthCheck]:
    """Yields a warning for each broker whose version differs from that of most brokers of its cluster."""
    answering = [row for row in rows if row.version is not None]
    for cluster in sorted({row.cluster for row in answering}):
        there = [row for row in answering if row.cluster == cluster]
        counted = Counter(row.version for row in there)
        usual, number = max(counted.items(), key=lambda item: (item[1], item[0]))
        for row in there:
            if row.version != usual:
                values = {"broker": _place(row), "version": row.version, "number": number, "all": len(there)}
                text = Text("{broker} is of {version}, and {number} of {all} brokers of {usual}", usual=usual, **values)
                advice = Text("give all brokers of a cluster one version")
                yield HealthCheck("version", WARN, text, advice, row.broker_name)


def check_disks(before: Health, now: Health, rows: Iterable[BrokerStatus], max_disk: int) -> Iterator[HealthCheck]:
    """Yields a warning for each disk that will be used to more than `max_disk` percent within a day.

    The forecast is from its growth since `before`.
    """
    for row in rows:
        earlier, ratio = before.disks.get(row.address), now.disks.get(row.address)
        if earlier is None or ratio is None or not earlier < ratio <= max_disk / 100:
            continue
        left = (now.taken - before.taken) * ((max_disk / 100 - ratio) / (ratio - earlier))
        if left <= FULL_WITHIN:
            at = (now.taken + left).strftime("%Y-%m-%d %H:%M UTC")
            text = Text(
                "{broker}: {used:.0%} of the log's disk are used, and {most}% at {time} at the present rate",
                broker=_place(row),
                used=ratio,
                most=max_disk,
                time=at,
            )
            advice = Text("make room, or keep messages shorter: fileReservedTime")
            yield HealthCheck("disk", WARN, text, advice, row.broker_name)


def check_growth(before: Health, now: Health, groups: Iterable[GroupSummary]) -> list[HealthCheck]:
    """Returns a warning for each group whose lag grew by 100 messages or more since `before`, greatest growth first."""
    seconds = max(0.001, (now.taken - before.taken).total_seconds())
    grown = [
        (group.lag - before.lags[group.group], group)
        for group in groups
        if group.group in before.lags and not is_system_group(group.group)
    ]
    checks = []
    for messages, group in sorted(grown, key=lambda item: (-item[0], item[1].group)):
        if messages >= GROWN_MESSAGES:
            values = {"group": group.group, "lag": group.lag, "rate": messages / seconds}
            texts = [Text("group {group} is {lag:,} messages behind, {rate:,.1f} a second more", **values)]
            texts += [] if group.members else [Text("no member is connected")]
            checks.append(HealthCheck("lag", WARN, joined(texts), subject=group.group))
    return checks


def check_subscriptions(group: str, members: Iterable[GroupMember]) -> Iterator[HealthCheck]:
    """Yields a failure if members of a group report different subscriptions."""
    reading: dict[tuple[str, ...], str] = {}
    for member in members:
        if topics := member.read_texts:
            reading.setdefault(tuple(topics), member.client_id)
    if len(reading) > 1:
        shown = [(client, ", ".join(topics)) for topics, client in reading.items()][:MOST_NAMES]
        each = joined([Text("{client} reads {topics}", client=client, topics=topics) for client, topics in shown])
        text = Text("members of group {group} differ: {each}", group=group, each=each)
        advice = Text("a queue has one member, and what it does not read is lost to the group: give all the same")
        yield HealthCheck("members", FAIL, text, advice, group)


def check_order(values: Mapping[str, str], info: ClusterInfo) -> Iterator[HealthCheck]:
    """Yields a failure for each order topic with queues at a broker that is not registered or has no master.

    `values` are the order configurations by topic. An unreadable configuration is a warning.
    """
    masters = {name for name, broker in info.broker_addr_table.items() if broker.master is not None}
    for topic, text in sorted(values.items()):
        try:
            missing = sorted(parse_order(topic, text).keys() - masters)
        except InvalidArgument as error:
            yield HealthCheck("order", WARN, str(error), subject=topic)
        else:
            if missing:
                values = {"topic": topic, "brokers": ", ".join(missing)}
                fault = Text("order topic {topic} has queues at {brokers}, without a master", **values)
                yield HealthCheck("order", FAIL, fault, Text("their keys cannot be sent: start the broker"), topic)


def check_agreement(brokers: Mapping[str, set[str]]) -> Iterator[HealthCheck]:
    """Yields a failure for each NameServer that does not list a broker of another NameServer.

    `brokers` has the brokers that each NameServer lists, by the NameServer's address.
    """
    everywhere = set().union(*brokers.values())
    for address, registered in brokers.items():
        if missing := sorted(everywhere - registered):
            remedy = Text("NameServers share nothing: name all of them in each broker's namesrvAddr")
            values = {"address": address, "brokers": first_names(missing)}
            text = Text("{address} lacks {brokers}, which another NameServer has", **values)
            yield HealthCheck("nameserver", FAIL, text, remedy, address)


def check_lags(lags: Mapping[str, int], beyond: Mapping[str, int], max_lag: int | None) -> list[HealthCheck]:
    """Returns a failure for each lag above `max_lag`, and a warning for each group with offsets beyond its queues.

    `lags` has the unconsumed messages by group. `beyond` has by group the number of queues with an offset beyond their
    end. A `max_lag` of None means no limit.
    """
    checks = []
    for group, queues in beyond.items():
        if queues:
            text = Text("group {group} has offsets beyond the ends of {number} queues", group=group, number=queues)
            advice = Text("they became shorter: pyrmq group progress {group}, then reset", group=group)
            checks.append(HealthCheck("lag", WARN, text, advice, group))
    if max_lag is None:
        return checks
    late = [
        HealthCheck("lag", FAIL, Text("group {group} is {lag} messages behind", group=name, lag=lag), subject=name)
        for name, lag in lags.items()
        if lag > max_lag
    ]
    if lags and not late:
        late.append(HealthCheck("lag", OK, f"{len(lags)} groups, the furthest {max(lags.values())} messages behind"))
    return [*checks, *late]


def slaves_awaited(settings: Mapping[str, str]) -> int:
    """Returns the number of slaves for which a master with these settings waits before it answers a send."""
    if settings.get("brokerRole") != "SYNC_MASTER":
        return 0
    replicas, most_behind = _number(settings, "inSyncReplicas"), _number(settings, "haSlaveFallbehindMax")
    if replicas is None or (most_behind is not None and most_behind >= 0):  # the rule of 4.9
        return max(1, (replicas or 1) - 1)
    return replicas - 1


def _number(settings: Mapping[str, str], name: str) -> int | None:
    """Returns a setting's number, or None if the broker does not list it, or lists another text."""
    try:
        return int(settings[name])
    except (KeyError, ValueError):
        return None


def _place(row: BrokerStatus) -> str:
    return f"{row.broker_name} ({row.broker_id}) {row.address}"


def first_names(names: Sequence[str]) -> str:
    return f"{', '.join(names[:MOST_NAMES])}{', ...' if len(names) > MOST_NAMES else ''}"
