"""UNIQ_KEYs: all different, from many threads, in a full millisecond, in a child after fork; and readable back."""

import os
import sys
import threading
import time

import pytest

from pyrmq_core.client import unique_ids as ids
from pyrmq_core.client.unique_ids import IDS_A_MILLISECOND, UniqueIds, unique_id, unique_ids
from tests.support.wire_forms import decode_unique_id


@pytest.fixture
def standing_clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A clock that stands until a test moves it; nanoseconds."""
    now = [1_700_000_000_000_000_000]
    monkeypatch.setattr("time.time_ns", lambda: now[0])
    return now


def test_many_threads_draw_no_id_twice() -> None:
    drawn: list[list[str]] = []
    start = threading.Barrier(8)

    def draw() -> None:
        start.wait(10)
        drawn.extend(unique_ids(count) for count in (1, 7, 900))
        drawn.append([unique_id() for _ in range(100)])

    threads = [threading.Thread(target=draw) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    flat = [drawn_id for ids in drawn for drawn_id in ids]
    assert len(flat) == 8 * 1008
    assert len(set(flat)) == len(flat)


def test_a_full_millisecond_takes_from_the_next(standing_clock: list[int]) -> None:
    """More ids than a millisecond has numbers, while the clock stands."""
    maker = UniqueIds()
    drawn = maker.draw(2 * IDS_A_MILLISECOND + 10) + maker.draw(1)
    assert len(set(drawn)) == 2 * IDS_A_MILLISECOND + 11
    assert [
        decode_unique_id(unique_id).month_ms - decode_unique_id(drawn[0]).month_ms for unique_id in drawn[::65536]
    ] == [0, 1, 2]
    standing_clock[0] += 1_000_000  # one millisecond later: still behind the ids that were given out
    assert maker.draw(1)[0] not in drawn


def test_a_clock_that_goes_back_repeats_nothing(standing_clock: list[int]) -> None:
    maker = UniqueIds()
    before = maker.draw(1000)
    standing_clock[0] -= 3_600_000_000_000
    after = maker.draw(1000)
    assert not set(before) & set(after)


def test_the_month_turns(standing_clock: list[int]) -> None:
    """The time in an id counts from the month's start, where the producer lives."""
    start_of_march = time.mktime((2027, 3, 1, 0, 0, 0, 0, 0, -1))
    standing_clock[0] = int(start_of_march * 1000) * 1_000_000 - 1_000_000
    maker = UniqueIds()
    last_of_february = decode_unique_id(maker.draw(1)[0])
    standing_clock[0] += 2_000_000
    first_of_march = decode_unique_id(maker.draw(1)[0])
    assert last_of_february.month_ms == 28 * 86_400_000 - 1
    assert first_of_march.month_ms == 1


def test_an_id_says_which_process_made_it() -> None:
    decoded = decode_unique_id(unique_ids(1)[0])
    assert decoded.pid == os.getpid() & 0xFFFF
    assert len(decoded.ip) in (4, 16)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_draws_ids_of_its_own() -> None:
    """Also when another thread of the parent held the lock while it forked."""
    unique_ids(1)
    receive, send = os.pipe()
    with ids._ids._lock:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os.write(send, ",".join(unique_ids(500)).encode())
            os._exit(0)
    os.close(send)
    with os.fdopen(receive) as pipe:
        theirs = pipe.read().split(",")
    assert os.waitpid(child, 0)[1] == 0
    ours = unique_ids(500)
    assert len(theirs) == 500
    assert not set(theirs) & set(ours)
    assert decode_unique_id(theirs[0]).discriminator != decode_unique_id(ours[0]).discriminator
    assert decode_unique_id(theirs[0]).pid == child & 0xFFFF


def test_one_by_one_and_many_are_drawn_from_the_same_numbers(standing_clock: list[int]) -> None:
    maker = UniqueIds()
    drawn = [maker.draw_one(), *maker.draw(IDS_A_MILLISECOND - 2), maker.draw_one(), maker.draw_one(), *maker.draw(2)]
    assert len(set(drawn)) == len(drawn)
    assert drawn == sorted(drawn)
    assert decode_unique_id(drawn[-1]).month_ms == decode_unique_id(drawn[0]).month_ms + 1
    standing_clock[0] += 5_000_000
    assert decode_unique_id(maker.draw_one()).month_ms == decode_unique_id(drawn[0]).month_ms + 5
