"""The half messages that need no check: ends, successors, and the records that may be forgotten."""

from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.servers.broker.transactions.ended_halves import EndedHalves, WaitingHalves


def test_an_end_is_that_of_all_repetitions() -> None:
    """The producer's own end names the first offset, whatever was stored again meanwhile."""
    ended = EndedHalves()
    ended.replace(3, 7)
    ended.replace(7, 9)
    assert ended.unwritten == [3, 7]
    ended.move_to(8)
    ended.end(3, committed=True)
    assert ended.is_done(9)
    assert not ended.is_done(8)
    assert ended.unwritten == [3, 7, 3, 9]
    ended.end(3, committed=True)
    assert ended.unwritten == [3, 7, 3, 9]
    assert ended.is_committed(3)
    assert ended.is_committed(7)
    assert ended.is_committed(9)


def test_the_answer_to_a_check_counts_for_the_first_one() -> None:
    ended = EndedHalves()
    ended.replace(3, 7)
    ended.end(7, committed=True)
    assert ended.is_committed(3)
    assert not ended.has_end(3)


def test_a_rollback_is_no_commit_and_a_commit_stays_one() -> None:
    ended = EndedHalves()
    ended.end(1, committed=False)
    assert (ended.is_committed(1), ended.has_end(1)) == (False, True)
    ended.end(1, committed=True)
    ended.end(1, committed=False)
    assert ended.is_committed(1)


def test_only_an_end_of_a_producer_is_one() -> None:
    """A record of ended half messages also lists those that were stored again: these have no end yet."""
    ended = EndedHalves()
    ended.listed(0, [4])
    ended.replace(5, 6)
    assert ended.is_done(4)
    assert ended.is_done(5)
    assert not ended.has_end(4)
    assert not ended.has_end(5)


def test_old_ends_and_successors_are_forgotten() -> None:
    ended = EndedHalves(most_kept=10)
    for offset in range(0, 100, 2):
        ended.replace(offset, offset + 1)
        ended.end(offset + 1, committed=True)
    assert sum(ended.is_committed(offset) for offset in range(1, 100, 2)) == 10
    assert sum(ended.last(offset) != offset for offset in range(0, 100, 2)) == 10
    assert all(ended.is_done(offset) for offset in range(100))


@given(st.lists(st.lists(st.integers(0, 40), max_size=5), max_size=15), st.lists(st.integers(0, 45), max_size=5))
def test_against_a_plain_list(records: list[list[int]], positions: list[int]) -> None:
    """Every offset at or behind the position is done if a record names it; needed records are never passed over."""
    ended = EndedHalves()
    for op_offset, offsets in enumerate(records):
        ended.listed(op_offset, offsets)
    first, position = 0, 0
    for moved in sorted(positions):
        ended.move_to(moved)
        first, position = ended.first_needed(first), moved
        assert all(max(offsets, default=-1) < position for offsets in records[:first])
        assert first == len(records) or max(records[first], default=-1) >= position
    named = {offset for offsets in records for offset in offsets}
    assert [ended.is_done(offset) for offset in range(position, 50)] == [
        offset in named for offset in range(position, 50)
    ]


def test_half_messages_are_counted_until_they_end_or_are_passed() -> None:
    ended = EndedHalves()
    for offset, topic in enumerate(("A", "A", "B", "A", "B")):
        ended.begin(offset, topic)
        ended.begin(offset, topic)  # as a start reads it, while it is stored
    counts = ended.waiting.by_topic
    assert counts == {"A": 3, "B": 2}
    ended.replace(0, 5)
    ended.begin(5, "A")
    assert counts == {"A": 3, "B": 2}, "a half message that is stored again counts once"
    ended.end(0, committed=True)
    ended.end(0, committed=False)
    ended.end(5, committed=True)
    assert counts == {"A": 2, "B": 2}
    ended.listed(0, [2])
    assert counts == {"A": 2, "B": 1}
    ended.begin(2, "B")
    ended.move_to(4)  # without an end, as past a damaged record
    assert counts == {"A": 0, "B": 1}
    ended.begin(3, "A")
    assert counts == {"A": 0, "B": 1}


def test_counts_of_half_messages_are_bounded() -> None:
    waiting = WaitingHalves(most_waiting=3, most_topics=2)
    for offset in range(5):
        waiting.add(offset, f"T{offset}")
    assert waiting.by_topic == {"T0": 1, "T1": 1, "T2": 1}
    for offset in range(5):
        waiting.remove(offset)
    assert waiting.by_topic == {"T1": 0, "T2": 0}
