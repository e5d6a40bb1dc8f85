"""The judge of work queues: what it calls lost, acknowledged and come again, and late."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.groups.pop_lines import Line, Trouble, acknowledged, delays, lines_of, repeats

OURS, JAVA = "ours-1", "java-2"
# A message that a worker popped at 100 for 5 s, and that came again 0.2 s behind them.
BEGINS = Line("begins", "m", 0, OURS, 100.0, 5.0, 99.0, 100.1)
ACKS = replace(BEGINS, what="acks", at=101.0)
ACKED = replace(BEGINS, what="acked", at=101.1)
AGAIN = Line("begins", "m", 1, OURS, 105.3, 5.0, 105.25, 105.4)
BROKER = Trouble("", 101.5, 103.0)


def by_java(*lines: Line) -> list[Line]:
    return [replace(line, worker=JAVA) for line in lines if line.what != "acked"]


def test_lines_are_read_and_a_part_of_one_is_left() -> None:
    text = "acks m 0 java-2 100 5 99 101\nbegins m 0 java-2 100 5 99 100.1\nbegins m"
    assert lines_of(text) == by_java(BEGINS, ACKS)
    assert acknowledged(lines_of(text)) == {"m"}
    assert acknowledged([BEGINS, AGAIN]) == set()


def test_an_acknowledgement_that_was_lost_is_seen() -> None:
    lines = [BEGINS, ACKS, ACKED, AGAIN]
    assert repeats(lines, set(), [BROKER, Trouble(OURS, 101.2, 101.2)]) == [AGAIN]
    assert repeats(lines, {"m"}, []) == []


@pytest.mark.parametrize("tries", [0, 1])
def test_one_of_java_is_seen_with_the_same_count_or_more(tries: int) -> None:
    """A broker that lost its offsets delivers a message as if for the first time."""
    again = replace(AGAIN, tries=tries)
    assert repeats([*by_java(BEGINS, ACKS), again], set(), []) == [again]


def test_what_a_kill_explains_is_no_repeat() -> None:
    java = [*by_java(BEGINS, ACKS), AGAIN]
    assert repeats([BEGINS, ACKS, AGAIN], set(), []) == []  # killed before the broker's answer
    assert repeats(java, set(), [Trouble(JAVA, 101.2, 101.2)]) == []
    assert repeats(java, set(), [BROKER]) == []
    assert repeats(java, set(), [Trouble("java-3", 101.2, 101.2), Trouble(JAVA, 104.0, 104.0)]) == [AGAIN]


def test_an_acknowledgement_behind_the_invisible_time_promises_nothing() -> None:
    late = replace(ACKED, at=105.1)
    assert repeats([BEGINS, late, AGAIN], set(), []) == []
    assert repeats([*by_java(BEGINS, replace(ACKS, at=104.0)), AGAIN], set(), []) == []


def test_a_worker_that_stood_still_begins_late_with_an_earlier_delivery() -> None:
    again_acked = replace(AGAIN, what="acked", at=106.0)
    assert repeats([AGAIN, again_acked, replace(BEGINS, at=107.0)], set(), []) == []


def test_a_broker_that_forgets_is_not_excused_for_ever() -> None:
    lines = [BEGINS, ACKS, ACKED, AGAIN]
    killed = Trouble("", AGAIN.stored - 12.0, AGAIN.stored - 9.0)
    assert repeats(lines, set(), [killed], forgets=10.0) == []
    assert repeats(lines, set(), [killed], forgets=8.0) == [AGAIN]
    assert repeats(lines, set(), [killed]) == [AGAIN]
    later = [Trouble("", AGAIN.stored + 1.0, AGAIN.stored + 2.0), Trouble(OURS, AGAIN.stored - 1.0, AGAIN.stored)]
    assert repeats(lines, set(), later, forgets=10.0) == [AGAIN]


def test_a_delivery_is_late_by_the_time_at_which_its_copy_is_stored() -> None:
    assert delays([BEGINS, replace(AGAIN, at=130.0)], []) == [(0.25, replace(AGAIN, at=130.0))]
    late = replace(AGAIN, stored=107.0)
    assert delays([BEGINS, late], [Trouble(OURS, 101.0, 104.0)]) == [(2.0, late)]
    assert delays([BEGINS, late], [BROKER]) == []
    assert delays([AGAIN], []) == []  # the worker of the delivery before was killed before its line
