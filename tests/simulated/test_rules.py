"""The rules of lives that those of `tests/chaos` do not have: each finds its fault, and no other."""

from __future__ import annotations

from collections.abc import Sequence

from tests.chaos.history import Event, Fault, Got, Queue, Reset
from tests.chaos.judged import History
from tests.simulated.rules import (
    Committed,
    Handled,
    offsets_are_of_consumed,
    one_member_a_queue,
    order_is_kept,
)

QUEUE: Queue = ("plain", "broker-a", 0)
KILL = Fault(1.0, 2.0, "kill", "broker-a")


def got(*offsets: int, kept: bool = True) -> list[Event]:
    """Returns messages of `QUEUE` that were passed to a handler, one a second from 10 on."""
    return [
        Got(10.0 + place, "workers", "one", *QUEUE, offset, f"plain-{offset}", 0, kept)
        for place, offset in enumerate(offsets)
    ]


def beyond(events: Sequence[Event], *commits: tuple[float, int]) -> list[str]:
    return list(offsets_are_of_consumed(History(events), [Committed(at, QUEUE, offset) for at, offset in commits]))


def test_an_offset_of_consumed_messages_is_right() -> None:
    assert beyond(got(0, 1, 2), (11.5, 2), (13.0, 3)) == []
    assert beyond(got(0, 1, kept=False), (13.0, 2)) == []


def test_an_offset_before_its_message_is_found() -> None:
    assert beyond(got(0, 1, 2), (11.5, 3)) == [f"offset 3 of {QUEUE} is committed, and 2 is not consumed"]
    assert beyond(got(0, 2), (13.0, 3)) != []


def test_a_reset_passes_over_messages() -> None:
    reset = Reset(11.0, 11.1, "workers", *QUEUE, 1, 7)
    assert beyond([*got(0), reset], (10.5, 1), (12.0, 7)) == []
    assert beyond([*got(0), reset], (10.5, 7)) != []


def test_a_reset_that_failed_moved_perhaps_its_topic() -> None:
    failed = Fault(11.0, 11.1, "failed skip", f"{QUEUE[0]}: no answer")
    assert beyond([*got(0), failed], (12.0, 7)) == []
    assert beyond([*got(0), failed], (10.5, 7)) != []
    assert beyond([*got(0), Fault(11.0, 11.1, "failed skip", "another: no answer")], (12.0, 7)) != []


def test_two_members_of_one_queue_are_found() -> None:
    calls = [Handled(1.0, 2.0, "one", QUEUE), Handled(1.5, 1.6, "two", QUEUE)]
    assert list(one_member_a_queue(History([]), calls)) == [f"one and two both had messages of {QUEUE} in order"]
    assert list(one_member_a_queue(History([KILL]), calls)) == []
    assert list(one_member_a_queue(History([]), [calls[0], Handled(2.0, 3.0, "two", QUEUE)])) == []


def test_messages_out_of_order_are_found() -> None:
    assert list(order_is_kept(History(got(0, 1, 0, 2)))) == []
    assert list(order_is_kept(History(got(0, 2, 1)))) == [f"plain-1 at 1 of {QUEUE} was consumed behind 2"]
    assert list(order_is_kept(History([KILL, *got(0, 2, 1)]))) == []
