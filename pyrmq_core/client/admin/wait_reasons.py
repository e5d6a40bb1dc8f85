"""Decides why messages of a group are not consumed, from its offsets, its settings and its members' reports.

The times in a member's report are by the member's own clock. It is no sign of a fault if a member has not pulled, or
finished a message, for less than `STILL_SECONDS`: a broker answers a pull without messages after 15 s, and members
store their offsets every 5 s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from pyrmq_core.client.admin.values import GroupDescription, GroupMember, QueueProgress, WaitKind, WaitReason
from pyrmq_core.client.texts import Text, joined
from pyrmq_core.model import Permission
from pyrmq_core.protocol.requests.client.get_consumer_running_info import (
    PROP_CONSUME_ORDERLY,
    PROP_CONSUMER_START_TIMESTAMP,
    ProcessQueueInfo,
)

STILL_SECONDS: Final = 30
# A handler that has finished no message for this time may hang.
HANGING_SECONDS: Final = 60
POPPING: Final = "CONSUME_POP"
PULLING: Final = "CONSUME_ACTIVELY"


@dataclass(slots=True)
class _Sums:
    """The queues to which one reason applies, and totals over these queues, for the sentence that states the reason.

    `in_memory` is the number of messages in the members' memory, `delivered` the number of delivered messages without
    an acknowledgement. `last_asked` and `last_finished` are the seconds since a member's latest pull, and since it last
    finished a message. `is_new` is True while no message has waited for `STILL_SECONDS`.
    """

    rows: list[QueueProgress] = field(default_factory=list)
    in_memory: int = 0
    delivered: int = 0
    last_asked: float | None = None
    last_finished: float | None = None
    is_new: bool = True


def wait_reasons(
    rows: Iterable[QueueProgress],
    description: GroupDescription,
    permissions: Mapping[tuple[str, str], int],
    now: datetime,
) -> tuple[WaitReason, ...]:
    """Returns the reasons why messages wait in queues with lag. The reason with the most messages comes first.

    `permissions` has the permission bits of each topic at each broker, by topic and broker name.
    """
    members = {member.client_id: member for member in description.members}
    sums_of: defaultdict[tuple[WaitKind, str, str | None], _Sums] = defaultdict(_Sums)
    for row in rows:
        if row.lag > 0:
            holder = members.get(row.client_id or "")
            kind, detail = _kind_of(row, holder, description, permissions, now)
            _add(sums_of[kind, detail, None if holder is None else holder.client_id], row, holder, now)
    reasons = (
        WaitReason(
            kind,
            _text(kind, detail, client_id, sums),
            sum(row.lag for row in sums.rows),
            tuple(sorted(row.queue for row in sums.rows)),
            client_id,
        )
        for (kind, detail, client_id), sums in sums_of.items()
    )
    return tuple(sorted(reasons, key=lambda reason: (-reason.lag, reason.text)))


def _kind_of(
    row: QueueProgress,
    holder: GroupMember | None,
    description: GroupDescription,
    permissions: Mapping[tuple[str, str], int],
    now: datetime,
) -> tuple[WaitKind, str]:
    topic, broker = row.queue.topic, row.queue.broker_name
    config = description.configs.get(broker)
    if config is not None and not config.consume_enable:
        return WaitKind.NO_RIGHT, Text("the group's consumeEnable is off at {broker}", broker=broker)
    if not permissions.get((topic, broker), Permission.READ) & Permission.READ:
        text = Text("{topic} may not be read at {broker}: its permission is without 4", topic=topic, broker=broker)
        return WaitKind.NO_RIGHT, text
    if not description.members:
        return WaitKind.NO_MEMBER, ""
    if holder is None:
        return _without_holder(row, description)
    info = holder.running_info
    if info is None:
        return WaitKind.NO_REPORT, str(holder.error or "")
    pulled, popped = info.queues.get(row.queue), info.pop_queues.get(row.queue)
    if popped is not None:
        if popped.wait_ack_count > 0:
            return WaitKind.IN_MEMORY, ""
        return _kind_by_times(row, now, popped.last_pop_timestamp_ms, None)
    if pulled is None:
        return WaitKind.BEING_READ, ""
    if info.properties.get(PROP_CONSUME_ORDERLY) == "true" and not pulled.locked:
        return WaitKind.NOT_LOCKED, ""
    if pulled.cached_msg_count > 0:
        return WaitKind.IN_MEMORY, ""
    return _kind_by_times(row, now, pulled.last_pull_timestamp_ms, _last_work_ms(holder, pulled))


def _without_holder(row: QueueProgress, description: GroupDescription) -> tuple[WaitKind, str]:
    topics = {subscription.topic for subscription in description.subscriptions}
    if topics and row.queue.topic not in topics:
        return WaitKind.NOT_SUBSCRIBED, row.queue.topic
    silent = [member for member in description.members if member.running_info is None]
    if silent:
        return WaitKind.NO_REPORT, f"{silent[0].client_id}: {silent[0].error or ''}"
    if description.consume_type in (POPPING, PULLING):
        return WaitKind.NOT_HELD, Text("no member asks for this queue now")
    cause = Text("it started suspended, or queues are being divided anew")
    if (number := len(description.members)) == 1:
        return WaitKind.NOT_HELD, Text("its member does not hold this queue: {cause}", cause=cause)
    return WaitKind.NOT_HELD, Text(
        "none of its {members} members holds this queue: {cause}", members=number, cause=cause
    )


def _kind_by_times(row: QueueProgress, now: datetime, asked_ms: int, worked_ms: int | None) -> tuple[WaitKind, str]:
    if row.waiting_since is not None and now - row.waiting_since < timedelta(seconds=STILL_SECONDS):
        return WaitKind.ARRIVED_NOW, ""
    if (_age(asked_ms, now) or 0) >= STILL_SECONDS:
        return WaitKind.NOT_ASKED, ""
    if worked_ms is not None and not row.inflight and (_age(worked_ms, now) or 0) >= STILL_SECONDS:
        return WaitKind.NOT_DELIVERED, ""
    return WaitKind.BEING_READ, ""


def _last_work_ms(member: GroupMember, queue: ProcessQueueInfo) -> int:
    properties = {} if member.running_info is None else member.running_info.properties
    started = properties.get(PROP_CONSUMER_START_TIMESTAMP, "")
    return max(queue.last_consume_timestamp_ms, int(started) if started.isascii() and started.isdecimal() else 0)


def _add(sums: _Sums, row: QueueProgress, holder: GroupMember | None, now: datetime) -> None:
    sums.rows.append(row)
    sums.delivered += max(0, row.inflight or 0)
    if row.waiting_since is None or now - row.waiting_since >= timedelta(seconds=STILL_SECONDS):
        sums.is_new = False
    info = None if holder is None else holder.running_info
    if info is None:
        return
    if (popped := info.pop_queues.get(row.queue)) is not None:
        sums.in_memory += popped.wait_ack_count
        sums.last_asked = _latest(sums.last_asked, _age(popped.last_pop_timestamp_ms, now))
    elif (pulled := info.queues.get(row.queue)) is not None:
        sums.in_memory += pulled.cached_msg_count
        sums.last_asked = _latest(sums.last_asked, _age(pulled.last_pull_timestamp_ms, now))
        sums.last_finished = _latest(sums.last_finished, _age(pulled.last_consume_timestamp_ms, now))


def _latest(*ages: float | None) -> float | None:
    return min((age for age in ages if age is not None), default=None)


def _age(at_ms: int, now: datetime) -> float | None:
    return max(0.0, now.timestamp() - at_ms / 1000) if at_ms > 0 else None


def _text(kind: WaitKind, detail: str, client_id: str | None, sums: _Sums) -> str:
    match kind:
        case WaitKind.NO_RIGHT:
            return Text("no right to read: {detail}", detail=detail)
        case WaitKind.NO_MEMBER:
            return Text("no member is connected")
        case WaitKind.NOT_SUBSCRIBED:
            return Text("no member subscribes to {topic}", topic=detail)
        case WaitKind.NO_REPORT if client_id is None:
            return Text("a member gives no report, so its queues are not known: {error}", error=detail)
        case WaitKind.NO_REPORT:
            silent = Text("{client} gives no report, and may be dead: {error}", client=client_id, error=detail)
            delivered = Text("{number:,} are delivered and not acknowledged", number=sums.delivered)
            return joined([silent, delivered]) if sums.delivered else silent
        case WaitKind.NOT_HELD:
            return detail
        case WaitKind.NOT_LOCKED:
            return Text(
                "{client} consumes in order and has no lock of the queue: another member may have it", client=client_id
            )
        case WaitKind.IN_MEMORY:
            return _text_in_memory(client_id, sums)
        case WaitKind.ARRIVED_NOW:
            return Text("they came within the last {seconds} s", seconds=STILL_SECONDS)
        case WaitKind.NOT_ASKED:
            since = _seconds(sums.last_asked)
            return Text("not asked for by {client} since {since}: it is paused, or dead", client=client_id, since=since)
        case WaitKind.NOT_DELIVERED:
            return Text(
                "{client} asks for them, and nothing is delivered: it is paused, or has no right to read",
                client=client_id,
            )
        case WaitKind.BEING_READ:
            return Text("{client} reads them now", client=client_id)


def _text_in_memory(client_id: str | None, sums: _Sums) -> str:
    cause = Text("its handler is slow")
    if sums.is_new:
        cause = Text("its handler is at work")
    elif sums.last_finished is None or sums.last_finished >= HANGING_SECONDS:
        cause = Text("its handler is slow, or hangs: look at its stack")
    values = {"number": sums.in_memory, "client": client_id, "cause": cause}
    if sums.last_finished is None:
        return Text("{number:,} in the memory of {client}: {cause}", **values)
    age = _seconds(sums.last_finished)
    return Text("{number:,} in the memory of {client}, the last finished {age} ago: {cause}", age=age, **values)


def _seconds(age: float | None) -> Text:
    if age is None:
        return Text("its start")
    return Text("{seconds:.0f} s", seconds=age) if age < 600 else Text("{minutes:.0f} min", minutes=age / 60)
