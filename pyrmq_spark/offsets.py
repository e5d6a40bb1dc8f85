"""Turns positions into offsets: the start of each queue, and the offset before which its read ends. Pure.

The answers of brokers are arguments. The checks follow Spark's Kafka source (KafkaOffsetReaderAdmin.scala): every queue
has a position, and no end is before its start. The second is checked for the options, and again for the offsets.
"""

from __future__ import annotations

import enum
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from pyrmq_core import BrokerNotFound, DataLost, MessageQueue, OffsetRange
from pyrmq_spark.positions import LATEST_OFFSET, AtTime, PerQueue, Point, Position, Word, shown
from pyrmq_spark.spark_errors import InvalidOffsets


class NoMatchStrategy(enum.Enum):
    """The treatment of a queue without a message at or after the starting time: an error, or a start at its end."""

    ERROR = "error"
    LATEST = "latest"


def points_of(position: Position, queues: Sequence[MessageQueue], option: str) -> dict[MessageQueue, Point]:
    """Returns the point of each queue: an offset, a word or a time.

    `option` is the name of the option with the position, for the error. Raises `InvalidOffsets` if JSON leaves out one
    of the queues, or names others.
    """
    if not isinstance(position, PerQueue):
        return dict.fromkeys(queues, position)
    topics = {queue.topic for queue in queues}
    named = set(position.queues) | {queue for queue in queues if queue.topic in position.topics}
    strangers = [str(queue) for queue in sorted(named - set(queues))] + sorted(set(position.topics) - topics)
    missing = [str(queue) for queue in sorted(set(queues) - named)]
    if strangers or missing:
        faults = [f"it leaves out {', '.join(missing)}"] * bool(missing)
        faults += [f"it names {', '.join(strangers)}, which this read does not have"] * bool(strangers)
        raise InvalidOffsets(
            f"option {option} has to name every queue that is read, once: {'; '.join(faults)} "
            f"(specified: {', '.join(map(str, sorted(named))) or 'none'}; read: {', '.join(map(str, sorted(queues)))})"
        )
    return {queue: position.queues.get(queue, position.topics.get(queue.topic, Word.LATEST)) for queue in queues}


def check_batch_start(position: Position, option: str) -> None:
    """Raises `InvalidOffsets` for a batch that starts at `latest`, which would always be empty."""
    named: dict[str, Point] = {}
    if isinstance(position, PerQueue):
        named = {str(queue): point for queue, point in position.queues.items()} | dict(position.topics)
    latest = sorted(name for name, point in named.items() if point is Word.LATEST)
    if latest or position is Word.LATEST:
        raise InvalidOffsets(
            f"option {option}: a batch read cannot start at latest ({LATEST_OFFSET})"
            f"{f' as {latest[0]} does' if latest else ''}; name an offset or a time, or read it as a stream"
        )


def check_order(start: Mapping[MessageQueue, Point], end: Mapping[MessageQueue, Point]) -> None:
    """Raises `InvalidOffsets` if the options show, without queries to brokers, that an end is before its start."""
    for queue in sorted(start):
        first, last = start[queue], end[queue]
        ordered = type(first) is not type(last) or (
            first <= last
            if isinstance(first, int) and isinstance(last, int)
            else not (isinstance(first, AtTime) and isinstance(last, AtTime)) or first.ms <= last.ms
        )
        if not ordered:
            raise InvalidOffsets(
                f"{queue} is to be read from {shown(first)} to {shown(last)}: the end is before the start"
            )


def times_of(points: Mapping[MessageQueue, Point]) -> dict[MessageQueue, int]:
    return {queue: point.ms for queue, point in points.items() if isinstance(point, AtTime)}


def committed_of(points: Mapping[MessageQueue, Point]) -> list[MessageQueue]:
    return [queue for queue, point in points.items() if point is Word.COMMITTED]


@dataclass(frozen=True, slots=True)
class BrokerAnswers:
    """The answers of brokers about the queues of a read.

    `bounds` are the offset of each queue's oldest message and the offset of its next one. `at_time` is the offset of
    the first message stored at or after the time in the option, or the upper bound if there is none. `committed` is the
    group's offset, or None. For brokers in `masterless` a slave reported the bounds, and the master may keep more
    messages.
    """

    bounds: Mapping[MessageQueue, OffsetRange]
    at_time: Mapping[MessageQueue, int] = field(default_factory=dict)
    committed: Mapping[MessageQueue, int | None] = field(default_factory=dict)
    masterless: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ResolvedOffsets:
    """The offset of every queue. `skipped` has a line for each lost range that failOnDataLoss=false skips."""

    offsets: Mapping[MessageQueue, int]
    skipped: tuple[str, ...] = ()


def resolve_start(
    points: Mapping[MessageQueue, Point],
    answers: BrokerAnswers,
    *,
    none_as_young: NoMatchStrategy = NoMatchStrategy.ERROR,
    fail_on_data_loss: bool = True,
) -> ResolvedOffsets:
    """Returns the offset at which each queue starts.

    Raises `InvalidOffsets` for a time after a queue's last message, unless `none_as_young` allows it. Raises
    `BrokerNotFound` for an offset outside the queue's bounds if only a slave reports them, or else `DataLost`. Without
    `fail_on_data_loss` the nearest offset inside is used in place of `DataLost`.
    """
    offsets: dict[MessageQueue, int] = {}
    skipped: list[str] = []
    for queue, point in points.items():
        bounds = answers.bounds[queue]
        if isinstance(point, AtTime):
            offsets[queue] = _start_at_time(queue, point, answers.at_time[queue], bounds, none_as_young)
            continue
        offset = _offset(point, bounds, answers.committed.get(queue))
        offsets[queue] = min(max(offset, bounds.start), bounds.end)
        if offset != offsets[queue]:
            lost = _out_of_bounds(queue, "start", offset, bounds, answers.masterless)
            if fail_on_data_loss:
                raise lost
            skipped.append(str(lost))
    return ResolvedOffsets(offsets, tuple(skipped))


def resolve_end(
    points: Mapping[MessageQueue, Point], answers: BrokerAnswers, *, fail_on_data_loss: bool = True
) -> ResolvedOffsets:
    """Returns the offset before which each queue's read ends. For a time after all messages, it is the queue's end.

    Raises the errors of `resolve_start` for an offset above the queue's upper bound. A lower offset than the bounds
    becomes the lower bound.
    """
    offsets: dict[MessageQueue, int] = {}
    skipped: list[str] = []
    for queue, point in points.items():
        bounds = answers.bounds[queue]
        offset = answers.at_time[queue] if isinstance(point, AtTime) else _offset(point, bounds, None)
        offsets[queue] = min(max(offset, bounds.start), bounds.end)
        if isinstance(point, int) and offset > bounds.end:
            lost = _out_of_bounds(queue, "end", offset, bounds, answers.masterless)
            if fail_on_data_loss:
                raise lost
            skipped.append(str(lost))
    return ResolvedOffsets(offsets, tuple(skipped))


def ranges_between(
    start: ResolvedOffsets, end: ResolvedOffsets, *, by_time: Container[MessageQueue] = ()
) -> dict[MessageQueue, OffsetRange]:
    """Returns the offsets to read of each queue. Raises `InvalidOffsets` for a queue whose end is before its start.

    For a queue in `by_time`, whose start or end is a time, it returns an empty range instead of raising the error.
    """
    ranges = {}
    for queue, first in start.offsets.items():
        last = end.offsets[queue]
        if last < first and queue not in by_time:
            raise InvalidOffsets(
                f"{queue} came to be read from offset {first} to {last}, so the end is before the start: has the group "
                "gone on behind it, or was the topic made anew since the offsets were noted?"
            )
        ranges[queue] = OffsetRange(first, max(first, last))
    return ranges


def _start_at_time(
    queue: MessageQueue, point: AtTime, offset: int, bounds: OffsetRange, none_as_young: NoMatchStrategy
) -> int:
    # For a time before the oldest message a broker may return an offset below the lowest (ConsumeQueue.java), so the
    # result is limited to the bounds.
    has_messages = bounds.end > bounds.start
    if offset >= bounds.end and has_messages and none_as_young is NoMatchStrategy.ERROR:
        raise InvalidOffsets(
            f"{queue} has no message stored at or after {shown(point)}; set startingOffsetsByTimestampStrategy=latest "
            "to start such queues at their end"
        )
    return min(max(offset, bounds.start), bounds.end)


def _offset(point: Point, bounds: OffsetRange, committed: int | None) -> int:
    match point:
        case Word.EARLIEST:
            return bounds.start
        case Word.LATEST:
            return bounds.end
        case Word.COMMITTED:
            return bounds.start if committed is None else committed
        case int():
            return point
        case _:
            raise AssertionError(f"{point} is resolved elsewhere")


def _out_of_bounds(
    queue: MessageQueue, what: str, offset: int, bounds: OffsetRange, masterless: frozenset[str]
) -> DataLost:
    if queue.broker_name in masterless:
        raise BrokerNotFound(
            f"the {what} of {queue} is offset {offset}, its slave keeps {bounds.start} to {bounds.end}, and "
            f"{queue.broker_name} has no master",
            broker_name=queue.broker_name,
        )
    return DataLost(
        f"the {what} of {queue} is offset {offset}, but its broker keeps {bounds.start} to {bounds.end}: "
        "messages expired, or the topic was deleted and made again; set failOnDataLoss=false to read what is left",
        queue=queue,
        start=min(offset, bounds.start),
        end=max(offset, bounds.end),
        min_offset=bounds.start,
        max_offset=bounds.end,
    )
