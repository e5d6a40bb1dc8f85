"""Connections closed for inactivity: idle, half a frame for ever, a peer that does not read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyrmq_core.network.connection.stall_detector import ConnectionActivity, ConnectionTimeouts, StallDetector

STILL = ConnectionActivity(
    received=1, commands=1, written_bytes=1, frame_bytes=0, queued_bytes=0, busy=False, reading=True
)
LIMITS = ConnectionTimeouts(idle=120, frame=30, stall=60)


def verdicts(looks: list[tuple[float, ConnectionActivity]], limits: ConnectionTimeouts = LIMITS) -> list[str | None]:
    watch = StallDetector(limits)
    return [watch.check(signs, now) for now, signs in looks]


def test_an_idle_connection_is_closed_at_its_limit_and_not_before() -> None:
    assert verdicts([(100, STILL), (219.9, STILL), (220, STILL)]) == [None, None, "nothing came or went for 120 s"]


@pytest.mark.parametrize("moved", [{"received": 2}, {"written_bytes": 2}, {"busy": True}])
def test_anything_that_moves_starts_the_idle_time_anew(moved: dict[str, int]) -> None:
    signs = replace(STILL, **moved)  # type: ignore[arg-type]
    later = replace(signs, busy=False)
    assert verdicts([(0, STILL), (100, signs), (219, later)]) == [None, None, None]
    assert verdicts([(0, STILL), (100, signs), (220, later)])[-1] is not None


def test_without_an_idle_limit_a_connection_idles_as_long_as_it_likes() -> None:
    assert verdicts([(0, STILL), (1e9, STILL)], ConnectionTimeouts()) == [None, None]


def test_a_frame_must_come_whole_in_time() -> None:
    half = replace(STILL, frame_bytes=5, received=2)
    trickle = replace(half, frame_bytes=6, received=3)
    assert verdicts([(0, STILL), (10, half), (39.9, trickle), (40, trickle)]) == [
        None,
        None,
        None,
        "the other end did not complete a frame within 30 s",
    ]


def test_each_whole_frame_gives_new_time() -> None:
    half = replace(STILL, frame_bytes=5)
    assert verdicts([(0, half), (29, replace(half, commands=2)), (58, replace(half, commands=2))])[-1] is None


def test_an_end_that_does_not_read_on_purpose_waits_for_no_frame() -> None:
    paused = replace(STILL, frame_bytes=5, reading=False, busy=True)
    assert verdicts([(0, paused), (100, paused)], ConnectionTimeouts()) == [None, None]


def test_a_peer_that_reads_nothing_is_given_up() -> None:
    full = replace(STILL, queued_bytes=9, busy=True)
    assert verdicts([(0, full), (59, full), (60, full)])[-1] == "the other end read nothing for 60 s"
    slow = replace(full, written_bytes=2)
    assert verdicts([(0, full), (59, slow), (118, slow)])[-1] is None


def test_limits_are_looked_at_four_times_each() -> None:
    assert ConnectionTimeouts(idle=2, frame=30).look_seconds == 0.5
    assert ConnectionTimeouts(idle=None, frame=8).look_seconds == 2
