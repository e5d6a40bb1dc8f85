"""Ranges of tasks: Spark's own cases, and that no offset is dropped or read twice for any options."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import MessageQueue, OffsetRange
from pyrmq_spark.read.range_planner import RANGE_WORK, TASK_WORK, QueueRange, may_share, plan, share_out


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


# --- Tasks


def shared(lengths: list[int], mean_bytes: float = 0.0, **bounds: int | None) -> list[list[int]]:
    """Returns the sizes of each task's ranges."""
    pieces = [QueueRange(queue(number), 0, length) for number, length in enumerate(lengths)]
    return [[piece.size for piece in task] for task in share_out(pieces, {"a": mean_bytes}, **bounds)]


@pytest.mark.parametrize(
    ("lengths", "mean_bytes", "bounds", "tasks"),
    [
        ([3, 2, 3, 2], 100, {}, [[3, 2, 3, 2]]),  # a small micro-batch is one task
        ([3, 2, 3, 2], 100, {"min_partitions": 2}, [[3, 2], [3, 2]]),
        ([3, 2, 3, 2], 100, {"min_partitions": 3}, [[3], [2], [3, 2]]),
        ([3, 2, 3, 2], 100, {"min_partitions": 9}, [[3], [2], [3], [2]]),
        ([3, 2, 3, 2], 100, {"max_records": 5}, [[3, 2], [3, 2]]),
        ([3, 2, 3, 2], 100, {"max_records": 1}, [[3], [2], [3], [2]]),
        ([3, 2, 3, 2], 4_000_000, {}, [[3], [2], [3], [2]]),  # large messages are work
        ([50_000, 4, 5, 50_000, 6], 0, {}, [[50_000], [4, 5], [50_000], [6]]),  # what lies apart stays apart
        ([50_000, 4, 5], 0, {"min_partitions": 3}, [[50_000], [4], [5]]),
        ([TASK_WORK] * 3, 0, {}, [[TASK_WORK]] * 3),
        ([], 0, {"min_partitions": 4}, []),
    ],
)
def test_small_ranges_share_a_task(
    lengths: list[int], mean_bytes: float, bounds: dict[str, int], tasks: list[list[int]]
) -> None:
    assert shared(lengths, mean_bytes, **bounds) == tasks


def test_a_thousand_active_queues_are_not_as_many_tasks() -> None:
    assert len(shared([5] * 1000, 100)) == 32
    assert len(shared([100_000] * 1000, 100)) == 1000


def test_messages_of_unknown_size_count_as_the_largest_that_are_known() -> None:
    pieces = [QueueRange(MessageQueue(topic, "broker-a", 0), 0, 10) for topic in "abc"]
    assert len(share_out(pieces, {"a": 100.0})) == 1
    assert len(share_out(pieces, {"a": 1e6, "b": 100.0})) == 3
    assert len(share_out(pieces, {})) == 1


@given(
    lengths=st.lists(st.integers(1, 3000), max_size=60),
    mean_bytes=st.sampled_from([0.0, 100.0, 1e4]),
    min_partitions=st.none() | st.integers(1, 80),
    max_records=st.none() | st.integers(3000, 9000),
)
def test_tasks_keep_every_range_and_all_bounds(
    lengths: list[int], mean_bytes: float, min_partitions: int | None, max_records: int | None
) -> None:
    tasks = shared(lengths, mean_bytes, min_partitions=min_partitions, max_records=max_records)
    assert [size for task in tasks for size in task] == lengths
    assert len(tasks) >= min(min_partitions or 0, len(lengths))
    for task in tasks:
        assert max_records is None or sum(task) <= max_records
        work = sum(RANGE_WORK + size * (1 + mean_bytes / 1000) for size in task)
        assert len(task) == 1 or work <= TASK_WORK


def test_sizes_are_requested_only_where_ranges_may_share_a_task() -> None:
    def ranges(*lengths: int) -> list[QueueRange]:
        return [QueueRange(queue(number), 0, length) for number, length in enumerate(lengths)]

    assert may_share(ranges(3, 5, 4), None) == {"a": QueueRange(queue(1), 0, 5)}
    assert may_share(ranges(3, 5), 2) == {}
    assert may_share(ranges(TASK_WORK, 3), None) == {}
    assert may_share([], None) == {}
