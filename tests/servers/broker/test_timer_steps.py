"""The steps of the timers' work, between which other tasks have a turn: each is short, and nothing depends on it."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core.errors import StoreError
from pyrmq_core.protocol.messages.record import RawRecord
from pyrmq_core.servers.broker.store.disk.disk_files import ASIDE
from pyrmq_core.servers.broker.timers.open_slot import OpenSlot
from pyrmq_core.servers.broker.timers.service import Timers
from pyrmq_core.servers.broker.timers.timer_delivery import STEP_BYTES
from pyrmq_core.servers.broker.timers.timer_files import REWRITTEN_AT_ONCE
from pyrmq_core.servers.broker.timers.timer_log import DEFAULT, ENTRY, NO_ENTRY, TimerEntry, TimerLog
from pyrmq_core.servers.broker.timers.timer_rules import TIMER_TOPIC, TimerSettings
from pyrmq_core.servers.broker.timers.timer_store import EMPTIED_AT_ONCE
from pyrmq_core.servers.broker.timers.timer_wheel import Slot
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.timer_stores import SETTINGS, START_MS, TimedStore, timed_store

LARGE = TimerSettings()
HOUR_MS = 3_600_000


def in_steps(timed: TimedStore, value: Callable[[], int], end: Callable[[], bool]) -> list[int]:
    """Works until a condition holds; returns by how much a value grew in each step."""
    growth = []
    while not end():
        before = value()
        timed.timers.work(timed.now_ms)
        growth.append(value() - before)
    return growth


def test_a_step_reads_and_delivers_few_large_messages() -> None:
    with timed_store() as timed:
        for number in range(12):
            properties = {"UNIQ_KEY": str(number), "TIMER_DELAY_MS": "2000"}
            timed.send(b"x" * 100_000, properties)
        read = in_steps(timed, lambda: timed.timers.queue_offset, lambda: timed.timers.queue_offset == 12)
        assert max(read) == STEP_BYTES // 100_000 + 1
        timed.now_ms += 2000
        delivered = in_steps(timed, timed.count, lambda: timed.count() == 12)
        assert max(delivered) == STEP_BYTES // 100_000 + 1


def test_a_step_delivers_few_small_messages() -> None:
    with timed_store(LARGE) as timed:
        for number in range(200):
            timed.send(b"%d" % number, {"TIMER_DELAY_MS": "2000"})
        timed.work()
        timed.now_ms += 2000
        assert max(in_steps(timed, timed.count, lambda: timed.count() == 200)) < 60


def test_messages_that_take_others_back_are_read_in_steps() -> None:
    with timed_store(LARGE) as timed:
        for number in range(300):
            timed.send(b"%d" % number, {"TIMER_DELIVER_MS": str(START_MS + 2000)})
            timed.take_back(b"%d" % number, START_MS + 2000)
        timed.send(b"stays", {"TIMER_DELIVER_MS": str(START_MS + 2000)})
        timed.work()
        timed.now_ms += 2000
        reads: list[int] = []
        record_of = timed.store.reader.record_of

        def recorded(offset: int, size: int) -> RawRecord | None:
            reads.append(size)
            return record_of(offset, size)

        timed.store.reader.record_of = recorded  # type: ignore[method-assign]
        assert max(in_steps(timed, lambda: len(reads), lambda: timed.count() == 1)) < 60
        assert list(timed.delivered()) == [b"stays"]


def test_what_is_taken_back_takes_little_memory() -> None:
    """A recall's UNIQ_KEY may have 32 KB."""
    slot = OpenSlot(START_MS, 1000)
    tracemalloc.start()
    try:
        for number in range(1000):
            slot.take_back("T", f"{number}" * 5000)
        assert tracemalloc.get_traced_memory()[0] < 1000 * 200
    finally:
        tracemalloc.stop()
    assert slot.is_taken_back("T", "17" * 5000)
    assert not slot.is_taken_back("U", "17" * 5000)


@pytest.mark.parametrize("kill_after", [None, 1, 2, 3, 4])
def test_a_clock_is_set_back_in_steps_that_a_kill_may_end(kill_after: int | None) -> None:
    """The open slot is rewritten, then the slots that come again are emptied."""
    count = 3 * REWRITTEN_AT_ONCE
    with timed_store(LARGE) as timed:
        for number in range(count):
            timed.send(b"%d" % number, {"TIMER_DELIVER_MS": str(START_MS + HOUR_MS)})
        timed.send(b"soon", {"TIMER_DELAY_MS": "2000"})
        timed.run_until(START_MS + HOUR_MS - 1000)
        timed.save()
        timed.now_ms += 1000
        while timed.count() < 2:
            timed.timers.work(timed.now_ms)
        timed.now_ms = START_MS
        log, back = timed.timers.files.log, START_MS // 1000 * 1000
        if kill_after is None:
            growth = in_steps(timed, lambda: log.end, lambda: timed.timers.state(START_MS).read_ms == back)
            assert max(growth) == REWRITTEN_AT_ONCE * ENTRY.size
            assert growth.count(0) >= HOUR_MS // 1000 // EMPTIED_AT_ONCE
        else:
            for _ in range(kill_after):
                timed.timers.work(timed.now_ms)
            timed.kill()
        timed.send(b"between", {"TIMER_DELAY_MS": "1000"})
        timed.run_until(START_MS + HOUR_MS + 2000)
        deliveries = timed.delivered()
        assert {len(times) for times in deliveries.values()} == {1}
        assert len(deliveries) == count + 2
        assert deliveries[b"between"] == [START_MS + 1000]


def test_a_clock_that_is_right_again_before_all_steps_are_done() -> None:
    """The steps go on, so that a second change of the clock finds nothing half done."""
    with timed_store(LARGE) as timed:
        for number in range(2 * REWRITTEN_AT_ONCE):
            timed.send(b"%d" % number, {"TIMER_DELIVER_MS": str(START_MS + 2000)})
        timed.work()
        for _ in range(2):
            timed.now_ms = START_MS + 2000
            before = timed.count()
            while timed.count() == before:
                timed.timers.work(timed.now_ms)
            timed.now_ms = START_MS
            timed.timers.work(timed.now_ms)
        timed.run_until(START_MS + 5000)
        deliveries = timed.delivered()
        assert {len(times) for times in deliveries.values()} == {1}
        assert len(deliveries) == 2 * REWRITTEN_AT_ONCE


@pytest.mark.parametrize("failing", range(6))
def test_a_read_that_fails_once_loses_no_message(failing: int) -> None:
    """A slot is opened, closed since the clock was set back, and opened again, whichever read of the wheel fails."""
    with timed_store() as timed:
        for number in range(120):
            timed.send(b"%d" % number, {"TIMER_DELIVER_MS": str(START_MS + 2000)})
        timed.work()
        timed.save()
        read, reads = timed.timers.files.wheel.slot, iter(range(1000))

        def slot(time_ms: int) -> Slot:
            if next(reads) == failing:
                raise StoreError("cannot read timerwheel: Input/output error")
            return read(time_ms)

        timed.timers.files.wheel.slot = slot  # type: ignore[method-assign]
        errors = 0
        for end_ms in (START_MS + 2000, START_MS, START_MS + 5000):
            timed.now_ms = end_ms
            before = timed.count()
            for _ in range(20):
                try:
                    timed.timers.work(timed.now_ms)
                except StoreError:
                    errors += 1
                if 0 < timed.count() - before < 60:
                    break
        timed.run_until(START_MS + 5000)
        assert errors == 1
        assert {body: len(times) for body, times in timed.delivered().items()} == {b"%d" % n: 1 for n in range(120)}


def test_messages_that_removal_took_are_reported_in_one_line_and_their_entries_are_removed() -> None:
    with timed_store() as timed:
        for number in range(30):
            timed.send(b"x" * 100_000, {"UNIQ_KEY": str(number), "TIMER_DELAY_MS": "2000"})
        timed.work()
        timed.save()
        for remove in timed.store.remove_oldest_segment():
            remove()
        gone = timed.store.reader.bounds((TIMER_TOPIC, 0))[0]
        files = timed.directory / "timerlog"
        before = len(list(files.iterdir()))
        timed.run_until(START_MS + 5000)
        assert timed.count() == 30 - gone
        assert timed.lines == [
            f"{gone} timer messages are not delivered, whose records are damaged or removed from the commit log; "
            "the first was at 0"
        ]
        assert before - len(list(files.iterdir())) == gone // 4 == len(timed.timers.removals)
        assert len(list((timed.directory / ASIDE).iterdir())) == gone // 4
        for remove in timed.timers.removals:
            remove()
        assert list((timed.directory / ASIDE).iterdir()) == []


@pytest.mark.parametrize("reopened", [False, True])
def test_a_file_of_the_timer_log_stays_as_long_as_one_of_its_messages(reopened: bool) -> None:
    """A stop writes the open slot's older entries behind newer ones."""
    files, slot_ms = MemoryFiles(), START_MS // 1000 * 1000
    log = TimerLog(files, SETTINGS.log_file_bytes)
    for offset in (10, 900, 20, 30, 1000):  # four entries a file
        log.append(TimerEntry(NO_ENTRY, DEFAULT, slot_ms, slot_ms, offset, 100))
    if reopened:
        log = TimerLog(files, SETTINGS.log_file_bytes)
        log.open()
    assert log.retire_before(500) == log.retire_before(900) == []
    assert len(log.retire_before(901)) == 1


def test_a_wheel_lost_after_the_clock_was_set_back_loses_no_message() -> None:
    """The open slot's entries are written anew, without a link to those that the timer log has of it already."""
    with timed_store() as timed:
        for number in range(120):
            timed.send(b"%d" % number, {"TIMER_DELIVER_MS": str(START_MS + 2000)})
        timed.work()
        timed.save()
        timed.now_ms += 2000
        timed.timers.work(timed.now_ms)
        timed.timers.work(timed.now_ms)
        timed.timers.work(timed.now_ms)
        assert 0 < timed.count() < 120
        timed.now_ms -= 1500
        timed.work()
        timed.send(b"new", {"TIMER_DELIVER_MS": str(START_MS + 2001)})
        timed.work()
        timed.store.abandon()
        (timed.directory / "timerwheel").unlink()
        timed.open()
        timed.run_until(START_MS + 9000)
        deliveries = timed.delivered()
        assert {body: len(times) for body, times in deliveries.items()} == {
            b"new": 1,
            **{b"%d" % n: 1 for n in range(120)},
        }


@pytest.mark.parametrize("may_save", [True, False])
def test_a_checkpoint_of_a_clock_set_back_is_not_overwritten_by_an_earlier_state(may_save: bool) -> None:
    """The service saves a state after its syncs, in another thread; after a failed sync there is no checkpoint."""
    with timed_store() as timed:
        timed.send(b"a", {"TIMER_DELAY_MS": "60000"})
        timed.work()
        timed.save()
        files, before = timed.timers.files, timed.timers.files.saved
        earlier = timed.timers.state(timed.now_ms)
        files.may_save = may_save
        timed.now_ms -= 20_000
        timed.work()
        if may_save:
            files.save(earlier)
            assert files.saved.read_ms == before.read_ms - 20_000
        else:
            assert files.saved == before


class SettableClock:
    """The system's clock of a service; `ms` is what it says."""

    def __init__(self) -> None:
        self.ms = START_MS

    def __call__(self) -> int:
        return self.ms


async def test_a_clock_that_is_set_forward_is_noticed_within_a_second(autojump_clock: MockClock) -> None:
    with timed_store() as timed:
        clock = SettableClock()
        timers = Timers(timed.store, timed.store.files, timed.settings, enabled=True, flush_ms=1000, now_ms=clock)
        timed.send(b"a", {"TIMER_DELAY_MS": str(HOUR_MS)})
        timers.open()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timers.run)
            await trio.sleep(10)
            assert timed.delivered() == {}
            clock.ms += 2 * HOUR_MS
            await trio.sleep(1.5)
            assert timed.delivered() == {b"a": [clock.ms]}
            nursery.cancel_scope.cancel()


async def test_the_service_removes_files_of_the_timer_log(autojump_clock: MockClock, tmp_path: Path) -> None:
    with timed_store() as timed:
        clock = SettableClock()
        timers = Timers(timed.store, timed.store.files, timed.settings, enabled=True, flush_ms=1000, now_ms=clock)
        timers.open()
        removed = trio.Event()
        place = tmp_path / "file"
        place.touch()
        token = trio.lowlevel.current_trio_token()

        def remove() -> None:
            place.unlink()
            trio.from_thread.run_sync(removed.set, trio_token=token)  # raises in the loop's own thread

        timers.messages.removals.append(remove)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timers.run)
            await removed.wait()
            nursery.cancel_scope.cancel()
        assert not place.exists()
