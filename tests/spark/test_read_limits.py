"""The size of a micro-batch: the cases of Spark's Kafka source, and that no queue starves and no sum overflows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import MessageQueue
from pyrmq_spark.read_limits import ReadLimits, admitted, is_held_back

A, B, C = (MessageQueue("orders", "broker-a", number) for number in range(3))
BACKLOGS = st.dictionaries(st.sampled_from([A, B, C]), st.integers(1, 2**62), min_size=1)


def test_shares_are_proportional_and_small_queues_do_not_starve() -> None:
    assert admitted({A: 101, B: 11, C: 1}, ReadLimits(max_offsets=10), {}) == {A: 8, B: 1, C: 1}
    assert admitted({A: 93, B: 10}, ReadLimits(max_offsets=10), {}) == {A: 9, B: 1}


def test_what_the_division_leaves_is_given_out() -> None:
    """Kafka's source drops it: three equal queues get 9 of a limit of 10 there."""
    assert admitted({A: 50, B: 50, C: 50}, ReadLimits(max_offsets=10), {}) == {A: 4, B: 3, C: 3}
    assert admitted({A: 10, B: 26, C: 34}, ReadLimits(max_offsets=12), {}) == {A: 2, B: 4, C: 6}
    assert admitted({A: 1, B: 50, C: 50}, ReadLimits(max_offsets=7), {}) == {A: 1, B: 3, C: 3}
    sizes = {A: 100.0, B: 100.0, C: 30.0}
    assert admitted({A: 9, B: 9, C: 9}, ReadLimits(max_bytes=500), sizes) == {A: 2, B: 2, C: 3}


def test_a_limit_above_the_backlog_takes_it_all() -> None:
    assert admitted({A: 5, B: 7}, ReadLimits(max_offsets=2**63 - 1), {}) == {A: 5, B: 7}


def test_a_limit_of_one_goes_on_in_every_queue() -> None:
    assert admitted({A: 5, B: 7}, ReadLimits(max_offsets=1), {}) == {A: 1, B: 1}


@given(BACKLOGS, st.integers(1, 2**63 - 1))
def test_between_one_and_the_backlog_and_little_above_the_limit(backlog: dict[MessageQueue, int], limit: int) -> None:
    shares = admitted(backlog, ReadLimits(max_offsets=limit), {})
    assert shares.keys() == backlog.keys()
    assert all(1 <= shares[queue] <= size for queue, size in backlog.items())
    starving = sum(size * limit < sum(backlog.values()) for size in backlog.values())
    assert min(limit, sum(backlog.values())) <= sum(shares.values()) <= limit + starving


def test_bytes_are_estimated_by_each_queues_mean_size() -> None:
    shares = admitted({A: 1000, B: 1000}, ReadLimits(max_bytes=110_000), {A: 100.0, B: 1000.0})
    assert shares == {A: 100, B: 100}


def test_a_message_above_the_limit_on_bytes_is_taken_alone() -> None:
    assert admitted({A: 3}, ReadLimits(max_bytes=1), {A: 4_000_000.0}) == {A: 1}


def test_the_tighter_of_two_limits_holds() -> None:
    assert admitted({A: 1000}, ReadLimits(max_offsets=10, max_bytes=500), {A: 100.0}) == {A: 5}
    assert admitted({A: 1000}, ReadLimits(max_offsets=3, max_bytes=500), {A: 100.0}) == {A: 3}


@pytest.mark.parametrize(
    ("waiting", "since_last", "held"),
    [
        (14, None, False),  # the first batch always goes
        (6, 1.0, True),
        (14, 1.0, True),
        (15, 1.0, False),
        (10, 4.9, True),
        (10, 5.0, False),  # waited long enough
    ],
)
def test_a_minimum_holds_back_for_a_time(waiting: int, since_last: float | None, held: bool) -> None:
    limits = ReadLimits(min_offsets=15, max_delay=5.0)
    assert is_held_back({A: waiting - 1, B: 1}, limits, since_last) is held


def test_without_a_minimum_nothing_is_held_back() -> None:
    assert not is_held_back({A: 1}, ReadLimits(max_offsets=1), 0.0)
    assert not ReadLimits().are_set
    assert ReadLimits(max_bytes=1).are_set
