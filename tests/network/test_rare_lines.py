"""A line that a peer could cause without end: one a minute, for each of some peers."""

from pyrmq_core.network.rare_lines import RareLine, RareLines


def test_the_first_line_is_written_at_once_and_the_next_counts_those_between() -> None:
    line = RareLine(60)
    assert [line.is_due(now) for now in (100, 101, 159)] == [True, False, False]
    assert line.left_out() == " (2 more since the last such line)"
    assert line.is_due(160)
    assert line.left_out() == ""


def test_a_peers_line_takes_none_from_another_and_strangers_share_one() -> None:
    lines = RareLines(most=2, seconds=60)
    due = [(key, lines.of(key, 100).is_due(100)) for key in ("a", "b", "a", "c", "d", "b")]
    assert due == [("a", True), ("b", True), ("a", False), ("c", True), ("d", False), ("b", False)]
    assert lines.of("d", 161).is_due(161)  # the lines of a and b are over, and made room
    assert lines.of("c", 161).is_due(161)
    assert not lines.of("d", 162).is_due(162)
