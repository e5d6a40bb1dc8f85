"""A stream's offset as Spark keeps it in a checkpoint, and its comparison with the present queues. Pure.

    {"source": "rocketmq", "version": 1, "offsets": {"orders": {"broker-a": {"0": 7}}}, "from": {"orders": ...}}

`offsets` has the next offset of each queue. `from` has the offsets at which the batch with this end began, for the
queues that it reads.

`from` is needed because Spark does not store the start of batch 0. If that batch fails, Spark asks for the start again.
With `latest` the answer is then a later offset, so the batch would lose rows. The end of the batch is stored, so its
`from` is used instead.

`beginnings` has the lowest offset that brokers kept of each queue. It is set only if the end was chosen before the
batch's start was known: after a restart with `availableNow`, PySpark before 4.2 requests an end before it passes the
checkpoint's offsets. The batch then begins at those offsets. Only batch 0, which has none, uses `from`.

`UNRESOLVED` represents a start that cannot be computed again, for example because the topic has new queues that the
options do not name. It is returned only as a start, and never stored.

Spark compares offsets as text, so names are sorted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from pyrmq_core import DataLost, MessageQueue, OffsetRange
from pyrmq_spark.spark_errors import InvalidCheckpoint

SOURCE: Final = "rocketmq"
VERSION: Final = 1

UNRESOLVED: Final = {"source": SOURCE, "version": VERSION, "offsets": {}, "start": "unresolved"}

Offsets = Mapping[MessageQueue, int]

PARTS: Final = ("offsets", "from", "beginnings")
# A further field in the latest offset of a committed stream: the number of rows in the waiting records.
ROWS_BEHIND: Final = "rowsBehind"


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The end of a batch: the next offset of every queue (`offsets`), and the offsets at which this batch `began`.

    `beginnings` are the lowest offsets that brokers kept, if the batch's start was not known. Otherwise it is empty.
    """

    offsets: Offsets
    began: Offsets = field(default_factory=dict)
    beginnings: Offsets = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        written = {"source": SOURCE, "version": VERSION, "offsets": _tree(self.offsets)}
        if self.began:
            written["from"] = _tree(self.began)
        if self.beginnings:
            written["beginnings"] = _tree(self.beginnings)
        return written

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Returns the offset of a checkpoint. Raises `InvalidCheckpoint` for any JSON of another source or version."""
        if not isinstance(data, Mapping) or data.get("source") != SOURCE:
            raise InvalidCheckpoint(
                "the checkpoint's offset was not written by the source rocketmq; start the query with a new "
                f"checkpointLocation (it holds {_shortened(data)})"
            )
        if data.get("version") != VERSION:
            raise InvalidCheckpoint(
                f"the checkpoint's offset has version {data.get('version')}, this pyrmq reads version {VERSION}; "
                "go on with the pyrmq that wrote it, or start with a new checkpointLocation"
            )
        try:
            return cls(*(_offsets(data[name] if name == "offsets" else data.get(name, {})) for name in PARTS))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidCheckpoint(
                f"the checkpoint's offset is damaged: {_shortened(data)}; start with a new checkpointLocation"
            ) from None

    def ranges(self) -> dict[MessageQueue, OffsetRange]:
        return {queue: OffsetRange(first, self.offsets[queue]) for queue, first in self.began.items()}

    def bounds(self) -> dict[MessageQueue, OffsetRange]:
        """Returns the offsets from `beginnings` to `offsets`, by queue, which brokers kept when this end was chosen."""
        return {queue: OffsetRange(first, self.offsets[queue]) for queue, first in self.beginnings.items()}


@dataclass(frozen=True, slots=True)
class FollowedOffsets:
    """The first offset and the end of the next batch in each existing queue, and an error for each loss of messages."""

    begins: Offsets
    ends: Offsets
    losses: tuple[DataLost, ...] = ()

    @property
    def backlog(self) -> dict[MessageQueue, int]:
        return {queue: end - begin for queue, begin in self.begins.items() if (end := self.ends[queue]) > begin}


def follow(
    start: Offsets, bounds: Mapping[MessageQueue, OffsetRange], gone: Mapping[MessageQueue, str]
) -> FollowedOffsets:
    """Returns the next batch after the offsets `start`, up to the ends in `bounds`, the offsets that brokers keep now.

    `gone` has the deleted queues, with reasons. Each is a loss in the result, and so is a queue whose start offset the
    broker no longer keeps. A queue that is not in `start` is new and begins at its first message, wherever the query
    started. A queue that has become shorter continues at its end, as in Spark's Kafka source, since from its beginning
    every row would be read again.
    """
    losses = [
        _lost(queue, f"{queue} is gone after offset {start[queue]}: {reason}", start[queue], None)
        for queue, reason in sorted(gone.items())
    ]
    begins: dict[MessageQueue, int] = {}
    for queue, available in sorted(bounds.items()):
        begin = start.get(queue, available.start)
        if begin > available.end:
            reason = (
                f"{queue} was read up to offset {begin}, but its broker keeps {available.start} to {available.end}: "
                "the topic was deleted and made again, or the broker lost its newest messages"
            )
            losses.append(_lost(queue, reason, begin, available))
        elif begin < available.start:
            reason = (
                f"offsets {begin} to {available.start} of {queue} have expired: its broker keeps {available.start} to "
            )
            losses.append(_lost(queue, f"{reason}{available.end}", begin, available))
        begins[queue] = min(max(begin, available.start), available.end)
    return FollowedOffsets(begins, {queue: available.end for queue, available in bounds.items()}, tuple(losses))


def all_lost(losses: tuple[DataLost, ...]) -> DataLost:
    """Returns one error for several losses, which says how to continue."""
    listed = "; ".join(map(str, losses[:10])) + (f"; and {len(losses) - 10} queues more" if len(losses) > 10 else "")
    first = losses[0]
    return DataLost(
        f"{listed}. Set failOnDataLoss=false to go on with what is left",
        queue=first.queue,
        start=first.start,
        end=first.end,
        min_offset=first.min_offset,
        max_offset=first.max_offset,
    )


def bounds_of_run(targets: Offsets, bounds: Mapping[MessageQueue, OffsetRange]) -> dict[MessageQueue, OffsetRange]:
    """Returns the offsets that an AvailableNow run may read: up to `targets`, the ends when the run began.

    Raises an error, even without failOnDataLoss, if a queue cannot be read up to its target.
    """
    ends = {queue: available.end for queue, available in bounds.items()}
    missing = sorted(set(targets) - set(ends))
    if missing:
        names = ", ".join(map(str, missing))
        reason = f"this AvailableNow run began with queues that are gone now: {names}; start the query again"
        raise _lost(missing[0], reason, targets[missing[0]], None)
    for queue in sorted(targets):
        if ends[queue] < targets[queue]:
            reason = (
                f"this AvailableNow run was to read {queue} up to offset {targets[queue]}, but it now ends at "
                f"{ends[queue]}: the topic was made anew; start the query again"
            )
            raise _lost(queue, reason, targets[queue], OffsetRange(0, ends[queue]))
    return {queue: OffsetRange(min(bounds[queue].start, end), end) for queue, end in targets.items()}


def _lost(queue: MessageQueue, reason: str, offset: int, available: OffsetRange | None) -> DataLost:
    held_range = available or OffsetRange(offset, offset)
    going_on = min(max(offset, held_range.start), held_range.end)
    return DataLost(
        reason,
        queue=queue,
        start=min(offset, going_on),
        end=max(offset, going_on),
        min_offset=held_range.start,
        max_offset=held_range.end,
    )


def _tree(offsets: Offsets) -> dict[str, dict[str, dict[str, int]]]:
    tree: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        tree.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return tree


def _offsets(tree: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[MessageQueue, int]:
    offsets = {}
    for topic, brokers in tree.items():
        for broker_name, queues in brokers.items():
            for queue_id, offset in queues.items():
                if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
                    raise ValueError(offset)
                offsets[MessageQueue(topic, broker_name, int(queue_id))] = offset
    return offsets


def _shortened(data: object) -> str:
    text = str(data)
    return text if len(text) <= 200 else f"{text[:197]}..."
