"""The samples behind a curve: bounded in curves and in time, taken of what is looked at alone, and at a stated rate."""

from __future__ import annotations

import itertools

from pyrmq_core.tools.web.history import (
    MAX_CURVES,
    MAX_LINES,
    MAX_SAMPLES,
    REMEMBERED_SECONDS,
    SELDOM_SECONDS,
    Curve,
    History,
    Sample,
)

LAG = Curve("lag", "G")


def test_a_curve_that_no_page_shows_takes_no_sample() -> None:
    history = History()
    history.add(LAG, Sample(1.0, {"lag": 3}))
    history.watch(LAG, 0.0)
    assert history.columns(LAG) == ([], {})


def test_a_curve_is_sampled_for_an_hour_more_seldom_without_a_viewer() -> None:
    history = History()
    history.watch(LAG, 0.0)
    times = range(0, 2 * int(REMEMBERED_SECONDS), 10)
    due = [now for now in times if history.due(now)]
    assert due[:90] == list(times[:90])
    assert {later - now for now, later in itertools.pairwise(due[90:])} == {int(SELDOM_SECONDS)}
    assert REMEMBERED_SECONDS - SELDOM_SECONDS <= due[-1] < REMEMBERED_SECONDS
    assert len(due) < MAX_SAMPLES
    history.watch(LAG, 2 * REMEMBERED_SECONDS)
    assert history.due(2 * REMEMBERED_SECONDS) == (LAG,)


def test_one_look_up_is_one_sample() -> None:
    history = History()
    history.watch(LAG, 0.0)
    for seconds in (1.0, 1.0, 0.5, 2.0):
        history.add(LAG, Sample(seconds, {"lag": seconds}))
    assert history.columns(LAG) == ([1.0, 2.0], {"lag": [1.0, 2.0]})


def test_a_line_has_gaps_where_it_has_no_figure() -> None:
    history = History()
    history.watch(LAG, 0.0)
    for number, lines in enumerate(({"a": 1}, {"b": 2}, {"a": 3, "b": 4})):
        history.add(LAG, Sample(number, lines))
    assert history.columns(LAG) == ([0, 1, 2], {"a": [1, None, 3], "b": [None, 2, 4]})


def test_the_lines_of_the_latest_samples_are_kept() -> None:
    history = History()
    history.watch(LAG, 0.0)
    for number in range(MAX_LINES + 5):
        history.add(LAG, Sample(number, {f"G{number}": 1}))
    assert list(history.columns(LAG)[1]) == [f"G{number}" for number in range(MAX_LINES + 4, 4, -1)]


def test_samples_take_bounded_room() -> None:
    history = History()
    for number in range(MAX_CURVES + 5):
        history.watch(Curve("lag", f"G{number}"), 0.0)
        history.watch(LAG, 0.0)
    assert len(history.due(0.0)) == MAX_CURVES
    assert LAG in history.due(0.0)
    for number in range(MAX_SAMPLES + 5):
        history.add(LAG, Sample(number, {"lag": number}))
    seconds, _ = history.columns(LAG)
    assert (len(seconds), seconds[0]) == (MAX_SAMPLES, 5)
