"""Why messages of a group wait: each reason from plain values, and that no time is wrongly taken for a fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pyrmq_core import MessageQueue
from pyrmq_core.client.admin.values import (
    GroupDescription,
    GroupMember,
    GroupProgress,
    QueueProgress,
    WaitKind,
    WaitReason,
)
from pyrmq_core.client.admin.wait_reasons import wait_reasons
from pyrmq_core.errors import InvalidState
from pyrmq_core.protocol.requests.broker.heartbeat import SubscriptionData
from pyrmq_core.protocol.requests.client.get_consumer_running_info import (
    ConsumerRunningInfo,
    ConsumeStatus,
    PopProcessQueueInfo,
    ProcessQueueInfo,
)
from pyrmq_core.protocol.requests.groups.subscription_groups import SubscriptionGroupConfig

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
QUEUE, SECOND = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
NOT_HELD = "its member does not hold this queue: it started suspended, or queues are being divided anew"
ROW = QueueProgress(QUEUE, 10_500, 100, 100, None, NOW - timedelta(hours=1), "c1")


def ms(seconds_ago: float) -> int:
    return round((NOW.timestamp() - seconds_ago) * 1000)


def report(
    *,
    cached: int = 0,
    asked: float = 1,
    finished: float = 3,
    locked: bool = True,
    properties: Mapping[str, str] | None = None,
) -> ConsumerRunningInfo:
    info = ProcessQueueInfo(
        cached_msg_count=cached,
        locked=locked,
        last_pull_timestamp_ms=ms(asked),
        last_consume_timestamp_ms=ms(finished),
    )
    return ConsumerRunningInfo(dict(properties or {}), queues={QUEUE: info, SECOND: info})


def group(*members: GroupMember, consume_enable: bool = True, consume_type: str | None = None) -> GroupDescription:
    return GroupDescription(
        "audit",
        {"broker-a": SubscriptionGroupConfig("audit", consume_enable=consume_enable)},
        members,
        consume_type or "CONSUME_PASSIVELY",
        "CLUSTERING",
        None,
        (SubscriptionData("orders", "*"), SubscriptionData("%RETRY%audit", "*")),
        {},
    )


def member(info: ConsumerRunningInfo | None, client_id: str = "c1") -> GroupMember:
    error = InvalidState("no answer within 5 s") if info is None else None
    return GroupMember(client_id, "h:1", "JAVA", "5.4.0", info, error)


def reason(
    description: GroupDescription, row: QueueProgress = ROW, permissions: Mapping[tuple[str, str], int] | None = None
) -> tuple[WaitKind, str]:
    (only,) = wait_reasons([row], description, permissions or {}, NOW)
    assert (only.lag, only.queues) == (row.lag, (row.queue,))
    return only.kind, only.text


@pytest.mark.parametrize(
    ("info", "kind", "text"),
    [
        (
            report(cached=10_400),
            WaitKind.IN_MEMORY,
            "10,400 in the memory of c1, the last finished 3 s ago: its handler is slow",
        ),
        (
            report(cached=32, finished=90),
            WaitKind.IN_MEMORY,
            "32 in the memory of c1, the last finished 90 s ago: its handler is slow, or hangs: look at its stack",
        ),
        (report(asked=40), WaitKind.NOT_ASKED, "not asked for by c1 since 40 s: it is paused, or dead"),
        (report(asked=1200), WaitKind.NOT_ASKED, "not asked for by c1 since 20 min: it is paused, or dead"),
        (
            report(finished=40),
            WaitKind.NOT_DELIVERED,
            "c1 asks for them, and nothing is delivered: it is paused, or has no right to read",
        ),
        (report(), WaitKind.BEING_READ, "c1 reads them now"),
        (
            report(locked=False, cached=3, properties={"PROP_CONSUMEORDERLY": "true"}),
            WaitKind.NOT_LOCKED,
            "c1 consumes in order and has no lock of the queue: another member may have it",
        ),
        (report(cached=3, properties={"PROP_CONSUMEORDERLY": "true"}), WaitKind.IN_MEMORY, None),
        (report(finished=40, properties={"PROP_CONSUMER_START_TIMESTAMP": str(ms(5))}), WaitKind.BEING_READ, None),
        (
            ConsumerRunningInfo(pop_queues={QUEUE: PopProcessQueueInfo(7, last_pop_timestamp_ms=ms(2))}),
            WaitKind.IN_MEMORY,
            "7 in the memory of c1: its handler is slow, or hangs: look at its stack",
        ),
        (
            ConsumerRunningInfo(pop_queues={QUEUE: PopProcessQueueInfo(0, last_pop_timestamp_ms=ms(50))}),
            WaitKind.NOT_ASKED,
            "not asked for by c1 since 50 s: it is paused, or dead",
        ),
        (None, WaitKind.NO_REPORT, "c1 gives no report, and may be dead: no answer within 5 s"),
    ],
)
def test_the_reason_of_a_member(info: ConsumerRunningInfo | None, kind: WaitKind, text: str | None) -> None:
    shown = reason(group(member(info)))
    assert shown == (kind, text or shown[1])


@pytest.mark.parametrize("info", [report(asked=40), report(finished=40)])
def test_messages_that_came_a_moment_ago_are_no_fault(info: ConsumerRunningInfo) -> None:
    fresh = replace(ROW, waiting_since=NOW - timedelta(seconds=29))
    assert reason(group(member(info)), fresh) == (WaitKind.ARRIVED_NOW, "they came within the last 30 s")
    busy = reason(group(member(report(cached=3))), fresh)[1]
    assert busy.endswith("the last finished 3 s ago: its handler is at work")


def test_what_is_delivered_to_a_silent_member_is_said() -> None:
    text = reason(group(member(None)), replace(ROW, pull_offset=500))[1]
    assert text.endswith("; 400 are delivered and not acknowledged")
    delivered = replace(ROW, pull_offset=500)
    assert reason(group(member(report(finished=40))), delivered)[0] is WaitKind.BEING_READ


@pytest.mark.parametrize(
    ("description", "permissions", "kind", "text"),
    [
        (group(), {}, WaitKind.NO_MEMBER, "no member is connected"),
        (
            group(member(report()), consume_enable=False),
            {},
            WaitKind.NO_RIGHT,
            "no right to read: the group's consumeEnable is off at broker-a",
        ),
        (
            group(member(report())),
            {("orders", "broker-a"): 2},
            WaitKind.NO_RIGHT,
            "no right to read: orders may not be read at broker-a: its permission is without 4",
        ),
        (group(member(report())), {("orders", "broker-a"): 6, ("orders", "broker-b"): 2}, WaitKind.BEING_READ, None),
    ],
)
def test_the_reason_of_a_group(
    description: GroupDescription, permissions: Mapping[tuple[str, str], int], kind: WaitKind, text: str | None
) -> None:
    shown = reason(description, permissions=permissions)
    assert shown == (kind, text or shown[1])


@pytest.mark.parametrize(
    ("description", "topic", "kind", "text"),
    [
        (group(member(ConsumerRunningInfo())), "orders", WaitKind.NOT_HELD, NOT_HELD),
        (
            group(member(ConsumerRunningInfo()), member(ConsumerRunningInfo(), "c2")),
            "orders",
            WaitKind.NOT_HELD,
            "none of its 2 members holds this queue: it started suspended, or queues are being divided anew",
        ),
        (
            group(member(ConsumerRunningInfo()), consume_type="CONSUME_POP"),
            "orders",
            WaitKind.NOT_HELD,
            "no member asks for this queue now",
        ),
        (group(member(ConsumerRunningInfo())), "bills", WaitKind.NOT_SUBSCRIBED, "no member subscribes to bills"),
        (
            group(member(None)),
            "orders",
            WaitKind.NO_REPORT,
            "a member gives no report, so its queues are not known: c1: no answer within 5 s",
        ),
    ],
)
def test_the_reason_of_a_queue_that_no_member_holds(
    description: GroupDescription, topic: str, kind: WaitKind, text: str
) -> None:
    row = replace(ROW, queue=MessageQueue(topic, "broker-a", 0), client_id=None)
    assert reason(description, row) == (kind, text)


def test_queues_of_one_reason_are_one_line_and_the_most_messages_come_first() -> None:
    rows = [
        replace(ROW, broker_offset=101),
        replace(ROW, queue=SECOND),
        replace(ROW, queue=MessageQueue("orders", "broker-a", 2), client_id=None, broker_offset=50_000),
        replace(ROW, queue=MessageQueue("orders", "broker-a", 3), broker_offset=100),
    ]
    first, second = wait_reasons(rows, group(member(report(cached=20))), {}, NOW)
    assert first == WaitReason(
        WaitKind.NOT_HELD,
        NOT_HELD,
        49_900,
        (MessageQueue("orders", "broker-a", 2),),
    )
    assert (second.lag, second.queues, second.client_id) == (10_401, (QUEUE, SECOND), "c1")
    assert second.text.startswith("40 in the memory of c1")


def test_what_is_acknowledged_is_counted_from_offsets() -> None:
    def progress(seconds: float, **offsets: int) -> GroupProgress:
        rows = (
            QueueProgress(MessageQueue(topic, "broker-a", 0), 1000, offset, None, None, None)
            for topic, offset in offsets.items()
        )
        return GroupProgress("audit", tuple(rows), 99.0, {}, NOW + timedelta(seconds=seconds))

    first = progress(0, orders=100, gone=5, reset=50)
    assert progress(10, orders=140, fresh=700, reset=0).acknowledged_tps(first) == 4.0
    assert progress(10, orders=100).acknowledged_tps(first) == 0.0
    assert progress(0, orders=140).acknowledged_tps(first) is None
    assert progress(10, fresh=1).acknowledged_tps(first) is None


def test_a_members_rates_are_those_of_all_topics() -> None:
    statuses = {"orders": ConsumeStatus(1, 2, 3, 4, 5, 6), "%RETRY%audit": ConsumeStatus(10, 2, 30, 4, 5, 6)}
    assert member(ConsumerRunningInfo(statuses=statuses)).rates == ConsumeStatus(10, 4, 30, 8, 10, 12)
    assert member(None).rates is None
