"""From positions to offsets: complete sets, start before end, expired ranges, times later than every message."""

import pytest

from pyrmq_core import DataLost, MessageQueue, OffsetRange
from pyrmq_spark.offsets import (
    BrokerAnswers,
    NoMatchStrategy,
    ResolvedOffsets,
    check_batch_start,
    check_order,
    committed_of,
    points_of,
    ranges_between,
    resolve_end,
    resolve_start,
    times_of,
)
from pyrmq_spark.positions import AtTime, PerQueue, Point, Word
from pyrmq_spark.spark_errors import InvalidOffsets

A0, A1 = MessageQueue("a", "broker-a", 0), MessageQueue("a", "broker-a", 1)
B0 = MessageQueue("b", "broker-a", 0)
BOUNDS = {A0: OffsetRange(10, 100), A1: OffsetRange(0, 0)}


def test_a_word_is_every_queues_point() -> None:
    assert points_of(Word.EARLIEST, [A0, A1], "o") == {A0: Word.EARLIEST, A1: Word.EARLIEST}


def test_a_topics_word_is_all_its_queues_point() -> None:
    position = PerQueue({B0: 7}, {"a": Word.LATEST})
    assert points_of(position, [A0, A1, B0], "o") == {A0: Word.LATEST, A1: Word.LATEST, B0: 7}


def test_an_incomplete_or_surplus_text_lists_both_sets() -> None:
    with pytest.raises(InvalidOffsets) as error:
        points_of(PerQueue({A0: 1, B0: 2}, {"c": Word.EARLIEST}), [A0, A1], "startingOffsets")
    assert str(error.value) == (
        "option startingOffsets has to name every queue that is read, once: it leaves out a/broker-a/1; it names "
        "b/broker-a/0, c, which this read does not have (specified: a/broker-a/0, b/broker-a/0; read: a/broker-a/0, "
        "a/broker-a/1)"
    )


def test_a_batch_does_not_start_at_latest() -> None:
    check_batch_start(PerQueue({A0: Word.EARLIEST, A1: 5}, {"b": Word.EARLIEST}), "startingOffsets")
    check_batch_start(Word.COMMITTED, "startingOffsets")
    with pytest.raises(InvalidOffsets, match=r"startingOffsets: a batch read cannot start at latest \(-1\); name"):
        check_batch_start(Word.LATEST, "startingOffsets")
    with pytest.raises(
        InvalidOffsets, match=r"startingOffsets: a batch read cannot start at latest \(-1\) as a/broker-a/1"
    ):
        check_batch_start(PerQueue({A0: Word.EARLIEST, A1: Word.LATEST}, {}), "startingOffsets")
    with pytest.raises(InvalidOffsets, match="as b does"):
        check_batch_start(PerQueue({A0: 3}, {"b": Word.LATEST}), "startingOffsets")


@pytest.mark.parametrize(
    ("start", "end", "ordered"),
    [
        (5, 5, True),
        (6, 5, False),
        (AtTime(5), AtTime(5), True),
        (AtTime(6), AtTime(5), False),
        (Word.EARLIEST, 5, True),
        (6, Word.LATEST, True),
        (6, AtTime(5), True),
    ],
)
def test_what_is_written_is_checked_before_anything_is_asked(start: Point, end: Point, ordered: bool) -> None:
    if ordered:
        check_order({A0: start}, {A0: end})
    else:
        with pytest.raises(InvalidOffsets, match=r"a/broker-a/0 is to be read from .* the end is before the start"):
            check_order({A0: start}, {A0: end})


def test_the_output_is_checked_too() -> None:
    assert ranges_between(ResolvedOffsets({A0: 3}), ResolvedOffsets({A0: 9})) == {A0: OffsetRange(3, 9)}
    with pytest.raises(InvalidOffsets, match="came to be read from offset 10 to 9"):
        ranges_between(ResolvedOffsets({A0: 10}), ResolvedOffsets({A0: 9}))


def test_a_time_between_which_and_the_other_end_nothing_lies_is_an_empty_range() -> None:
    start, end = ResolvedOffsets({A0: 10, A1: 4}), ResolvedOffsets({A0: 9, A1: 4})
    assert ranges_between(start, end, by_time={A0}) == {A0: OffsetRange(10, 10), A1: OffsetRange(4, 4)}
    with pytest.raises(InvalidOffsets, match="from offset 10 to 9"):
        ranges_between(start, end, by_time={A1})


def test_words_come_to_bounds() -> None:
    requested = BrokerAnswers(BOUNDS, committed={A0: 42, A1: None})
    for point, offsets in (
        (Word.EARLIEST, {A0: 10, A1: 0}),
        (Word.LATEST, {A0: 100, A1: 0}),
        (Word.COMMITTED, {A0: 42, A1: 0}),
    ):
        assert resolve_start(dict.fromkeys(BOUNDS, point), requested).offsets == offsets
    assert resolve_end(dict.fromkeys(BOUNDS, Word.LATEST), requested).offsets == {A0: 100, A1: 0}


def test_only_what_is_needed_is_asked() -> None:
    points: dict[MessageQueue, Point] = {A0: AtTime(7), A1: Word.COMMITTED, B0: 3}
    assert times_of(points) == {A0: 7}
    assert committed_of(points) == [A1]


@pytest.mark.parametrize(("answer", "offset"), [(3, 10), (10, 10), (55, 55), (99, 99)])
def test_a_time_starts_at_what_was_found_within_bounds(answer: int, offset: int) -> None:
    assert resolve_start({A0: AtTime(7)}, BrokerAnswers(BOUNDS, {A0: answer})).offsets == {A0: offset}


def test_no_message_as_young_fails_or_starts_at_the_end() -> None:
    requested = BrokerAnswers(BOUNDS, {A0: 100})
    with pytest.raises(
        InvalidOffsets, match=r"a/broker-a/0 has no message stored at or after 1970-01-01T00:00:00.007000"
    ):
        resolve_start({A0: AtTime(7)}, requested)
    assert resolve_start({A0: AtTime(7)}, requested, none_as_young=NoMatchStrategy.LATEST).offsets == {A0: 100}
    assert resolve_end({A0: AtTime(7)}, requested).offsets == {A0: 100}


def test_a_queue_without_messages_has_none_to_miss() -> None:
    assert resolve_start({A1: AtTime(7)}, BrokerAnswers(BOUNDS, {A1: 0})).offsets == {A1: 0}


@pytest.mark.parametrize(("offset", "left"), [(9, 10), (101, 100)])
def test_a_start_that_is_gone_fails_or_is_reported(offset: int, left: int) -> None:
    with pytest.raises(DataLost, match="set failOnDataLoss=false") as error:
        resolve_start({A0: offset}, BrokerAnswers(BOUNDS))
    assert (error.value.queue, error.value.min_offset, error.value.max_offset) == (A0, 10, 100)
    resolved = resolve_start({A0: offset}, BrokerAnswers(BOUNDS), fail_on_data_loss=False)
    assert resolved.offsets == {A0: left}
    assert f"the start of a/broker-a/0 is offset {offset}" in resolved.skipped[0]


def test_an_end_that_is_not_there_fails_or_is_reported() -> None:
    assert resolve_end({A0: 100}, BrokerAnswers(BOUNDS)) == ResolvedOffsets({A0: 100})
    with pytest.raises(DataLost, match="the end of a/broker-a/0 is offset 101"):
        resolve_end({A0: 101}, BrokerAnswers(BOUNDS))
    resolved = resolve_end({A0: 101}, BrokerAnswers(BOUNDS), fail_on_data_loss=False)
    assert (resolved.offsets, len(resolved.skipped)) == ({A0: 100}, 1)


def test_a_time_too_large_to_show_is_shown_as_it_is() -> None:
    with pytest.raises(InvalidOffsets, match="9223372036854775807 ms"):
        resolve_start({A0: AtTime(2**63 - 1)}, BrokerAnswers(BOUNDS, {A0: 100}))
