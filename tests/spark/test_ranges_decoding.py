"""Pulls of several ranges are decoded together: rows, their order and the places reached are those of each apart."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from pyrmq_core import DataLost, MessageQueue, OffsetRange, RawPull
from pyrmq_core.columnar import DecodedBatch, decode_batches, schema_of
from pyrmq_core.columnar.decoding import decompression
from pyrmq_core.protocol.messages.compression import CompressionType, compress
from pyrmq_spark.read.partition_reader import _Unread
from pyrmq_spark.read.range_planner import QueueRange
from pyrmq_spark.read.ranges_decoding import RangesDecoding
from tests.columnar.stored import pull, record

COLUMNS = schema_of(["topic", "brokerName", "queueId", "queueOffset", "body"])
Row = tuple[str, int, int, bytes]


def queue(number: int, topic: str = "orders") -> MessageQueue:
    return MessageQueue(topic, "broker-a", number)


def pull_of(where: MessageQueue, start: int, end: int, *, missing: Sequence[int] = (), repeat: int = 1) -> RawPull:
    """Returns an unfiltered pull of these offsets; with `repeat` its bodies are so many times as long, compressed."""
    records = []
    for offset in range(start, end):
        if offset in missing:
            continue
        body, flag = body_of(where, offset, repeat), 0
        if repeat > 1:
            body, flag = compress(body, CompressionType.ZLIB), CompressionType.ZLIB.sys_flag
        records.append(record(offset, body, topic=where.topic, queue_id=where.queue_id, sys_flag=flag))
    return replace(pull(start, *records, count=end - start, queue=where), is_unfiltered=True)


def body_of(where: MessageQueue, offset: int, repeat: int = 1) -> bytes:
    return b"%s %d %d" % (where.topic.encode(), where.queue_id, offset) * repeat


class Task:
    """A task's ranges, their pulls, and what was decoded of them: `calls` has the queues of each decoding."""

    def __init__(self, ranges: list[QueueRange], *, fail_on_data_loss: bool = True) -> None:
        self.rest = _Unread(deque(ranges))
        self.calls: list[list[int]] = []
        self.rows: list[Row] = []
        self._decoding = RangesDecoding(ranges, self._decode, fail_on_data_loss=fail_on_data_loss)

    def read(self, pulls: list[RawPull]) -> None:
        for reached, batch in self._decoding.decoded(pulls):
            self.rest.go_on(reached.offset, reached.whole_ranges)
            self.rows += _rows(batch)

    def _decode(self, pulls: Sequence[RawPull], within: OffsetRange, allow_gaps: bool) -> Iterator[DecodedBatch]:
        self.calls.append([pull.queue.queue_id for pull in pulls])
        return decode_batches(pulls, COLUMNS, within, allow_gaps=allow_gaps)


def _rows(batch: pa.RecordBatch) -> list[Row]:
    return [(row["topic"], row["queueId"], row["queueOffset"], row["body"]) for row in batch.to_pylist()]


def rows_of(*ranges: QueueRange, repeat: int = 1) -> list[Row]:
    return [
        (part.queue.topic, part.queue.queue_id, offset, body_of(part.queue, offset, repeat))
        for part in ranges
        for offset in range(part.start, part.end)
    ]


@pytest.mark.parametrize("size", [1, 3, 40])
def test_the_pulls_of_a_list_are_decoded_at_once(size: int) -> None:
    ranges = [QueueRange(queue(number), 5, 5 + size) for number in range(12)]
    task = Task(ranges)
    task.read([pull_of(part.queue, part.start, part.end) for part in ranges[:7]])
    assert list(task.rest.ranges) == ranges[7:]
    task.read([pull_of(part.queue, part.start, part.end) for part in ranges[7:]])
    assert task.rows == rows_of(*ranges)
    assert len(task.calls) == 2
    assert not task.rest.ranges


def test_a_range_may_go_on_in_the_next_list() -> None:
    ranges = [QueueRange(queue(0), 0, 10), QueueRange(queue(1), 0, 20), QueueRange(queue(0), 30, 31)]
    task = Task(ranges)
    task.read([pull_of(queue(0), 0, 10), pull_of(queue(1), 0, 4), pull_of(queue(1), 4, 6)])
    assert list(task.rest.ranges) == [QueueRange(queue(1), 6, 20), ranges[2]]
    task.read([pull_of(queue(1), 6, 20), pull_of(queue(0), 30, 31)])
    assert not task.rest.ranges
    assert task.rows == rows_of(*ranges)


def test_topics_are_decoded_apart() -> None:
    ranges = [QueueRange(queue(0), 0, 2), QueueRange(queue(1), 0, 2), QueueRange(queue(0, "audit"), 0, 2)]
    task = Task(ranges)
    task.read([pull_of(part.queue, 0, 2) for part in ranges])
    assert task.calls == [[0, 1], [0]]
    assert task.rows == rows_of(*ranges)


@pytest.mark.parametrize("size", [3, 100])
def test_a_loss_is_that_of_its_range(size: int, caplog: pytest.LogCaptureFixture) -> None:
    """The ranges before it are read, and it is the first of those left; without failing, its other rows are read."""
    ranges = [QueueRange(queue(number), 0, size) for number in range(4)]
    pulls = [pull_of(part.queue, 0, size, missing=(1,) if part.queue.queue_id == 2 else ()) for part in ranges]
    task = Task(ranges)
    with pytest.raises(DataLost) as caught:
        task.read(pulls)
    assert caught.value.queue == queue(2)
    assert list(task.rest.ranges) == ranges[2:]
    assert task.rows == rows_of(*ranges[:2])
    going_on = Task(ranges, fail_on_data_loss=False)
    going_on.read(pulls)
    assert going_on.rows == [row for row in rows_of(*ranges) if row[1:3] != (2, 1)]
    assert not going_on.rest.ranges
    assert len(caplog.records) == 1


def test_a_loss_is_not_made_up_for_by_another_range() -> None:
    """One offset too few here and one twice there leave the number of rows, and their order, as they should be."""
    ranges = [QueueRange(queue(0), 0, 70), QueueRange(queue(1), 69, 71)]
    twice = pull_of(queue(1), 69, 71)
    twice = replace(twice, records=bytes(pull_of(queue(1), 69, 70).records) + bytes(twice.records))
    with pytest.raises(DataLost):
        Task(ranges).read([pull_of(queue(0), 0, 70, missing=(69,)), twice])


def test_the_place_within_a_list_of_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each batch, the rows that are left are those of the ranges that are left."""
    monkeypatch.setattr(decompression, "PART_BYTES", 30_000)
    ranges = [QueueRange(queue(number), 0, 40) for number in range(4)]
    expected = rows_of(*ranges, repeat=100)
    task = Task(ranges)
    batches = 0
    for reached, batch in task._decoding.decoded([pull_of(part.queue, 0, 40, repeat=100) for part in ranges]):
        batches += 1
        task.rest.go_on(reached.offset, reached.whole_ranges)
        task.rows += _rows(batch)
        assert task.rows + rows_of(*task.rest.ranges, repeat=100) == expected
    assert batches > 4
    assert task.rows == expected
