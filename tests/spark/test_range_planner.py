"""Ranges of tasks: Spark's own cases, and that no offset is dropped or read twice for any options."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import MessageQueue, OffsetRange
from pyrmq_spark.read.range_planner import QueueRange, plan


def queue(number: int) -> MessageQueue:
    return MessageQueue("a", "broker-a", number)


def sizes(lengths: list[int], **bounds: int) -> list[int]:
    ranges = {queue(number): OffsetRange(1, 1 + length) for number, length in enumerate(lengths)}
    return [piece.size for piece in plan(ranges, **bounds)]


@pytest.mark.parametrize(
    ("lengths", "min_partitions", "pieces"),
    [
        ([2, 2], 2, [2, 2]),  # as many as there are queues
        ([0, 1, 0], 3, [1]),  # empty ones are left out
        ([4], 4, [1, 1, 1, 1]),
        ([4, 20], 4, [4, 6, 7, 7]),  # skewed: the small one stays whole
        ([1, 1000], 4, [1, 333, 333, 334]),
        ([10], 3, [3, 3, 4]),  # not exact: the last takes the rest
        ([10, 10, 1], 6, [3, 3, 4, 3, 3, 4, 1]),
        ([5, 5, 5], 2, [5, 5, 5]),  # fewer partitions wanted than queues
        ([1, 1, 1000], 5, [1, 1, 333, 333, 334]),
    ],
)
def test_min_partitions(lengths: list[int], min_partitions: int, pieces: list[int]) -> None:
    assert sizes(lengths, min_partitions=min_partitions) == pieces


@pytest.mark.parametrize(
    ("lengths", "bounds", "pieces"),
    [
        ([10], {"max_records": 4}, [3, 3, 4]),
        ([10, 3], {"max_records": 5}, [5, 5, 3]),
        ([10], {"max_records": 5, "min_partitions": 1}, [5, 5]),
        ([10], {"max_records": 5, "min_partitions": 4}, [2, 3, 2, 3]),
        ([0], {"max_records": 5}, []),
    ],
)
def test_max_records(lengths: list[int], bounds: dict[str, int], pieces: list[int]) -> None:
    assert sizes(lengths, **bounds) == pieces


def test_ranges_come_in_the_order_of_queues_and_offsets() -> None:
    ranges = {queue(1): OffsetRange(5, 9), queue(0): OffsetRange(0, 2)}
    assert plan(ranges, max_records=2) == [
        QueueRange(queue(0), 0, 2),
        QueueRange(queue(1), 5, 7),
        QueueRange(queue(1), 7, 9),
    ]


@given(
    lengths=st.lists(st.integers(0, 2**62) | st.integers(0, 50), max_size=8),
    min_partitions=st.none() | st.integers(1, 200),
    pieces_at_least=st.none() | st.integers(1, 40),
)
def test_no_offset_is_dropped_or_read_twice(
    lengths: list[int], min_partitions: int | None, pieces_at_least: int | None
) -> None:
    ranges = {queue(number): OffsetRange(7, 7 + length) for number, length in enumerate(lengths)}
    total = sum(lengths)
    max_records = None if pieces_at_least is None else max(1, total // pieces_at_least)
    pieces = plan(ranges, min_partitions=min_partitions, max_records=max_records)
    assert pieces == sorted(pieces)
    for expected, length in zip(ranges, lengths, strict=True):
        position = 7
        for piece in (piece for piece in pieces if piece.queue == expected):
            assert piece.start == position < piece.end
            position = piece.end
        assert position == 7 + length
    if max_records is not None:
        assert all(piece.size <= max_records for piece in pieces)
