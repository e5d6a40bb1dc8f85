"""Timer messages over kills, stops, power cuts, lost files and clocks that are set back: each comes once."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyrmq_core.servers.broker.store.formats import file_name
from pyrmq_core.servers.broker.timers.timer_checkpoint import TimerCheckpoint
from pyrmq_core.servers.broker.timers.timer_rules import (
    TIMER_TOPIC,
    slot_of,
)
from pyrmq_core.servers.broker.timers.timer_wheel import WHEEL_BYTES
from tests.servers.broker.timer_stores import DAY_MS, START_MS, timed_store


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.integers(-100, 6000)),
            st.tuples(st.just("many"), st.integers(1, 3000)),
            st.tuples(st.just("pass"), st.integers(0, 2500)),
            st.tuples(st.just("step"), st.integers(1, 3)),
            st.tuples(st.just("back"), st.integers(1, 6000)),
            st.tuples(st.sampled_from(("kill", "restart", "stopping", "save")), st.just(0)),
        ),
        max_size=25,
    )
)
@settings(deadline=None, max_examples=100)
def test_each_comes_once_and_not_before_its_time_whatever_happens(steps: list[tuple[str, int]]) -> None:
    """A broker is killed or stopped between any two steps of its work, or while it stops; after each start it goes on.

    The clock may be set back, too.
    """
    with timed_store() as timed:
        due: dict[bytes, int] = {}

        def send(delay_ms: int) -> None:
            body = b"%d" % len(due)
            due[body] = timed.now_ms + delay_ms
            timed.send(body, {"TIMER_DELIVER_MS": str(timed.now_ms + delay_ms)}, "TU"[len(due) % 2])

        for what, number in steps:
            match what:
                case "send":
                    send(number)
                case "many":
                    for extra in range(60):  # more than one step delivers
                        send(number + extra % 3)
                case "pass":
                    timed.run_until(timed.now_ms + number)
                case "step":
                    timed.now_ms += 400
                    for _ in range(number):
                        timed.timers.work(timed.now_ms)
                case "back":
                    timed.now_ms -= number
                case "save":
                    timed.save()
                case "kill":
                    timed.kill()
                case "stopping":
                    timed.kill_while_stopping()
                case _:
                    timed.restart()
            assert sum(timed.waiting().values()) == timed.timers.files.waiting
        timed.run_until(max(timed.now_ms, *due.values(), 0) + 10_000)
        deliveries = timed.delivered("T") | timed.delivered("U")
        assert not any(timed.waiting().values())
        assert {body: len(times) for body, times in deliveries.items()} == dict.fromkeys(due, 1)
        assert all(times[0] >= due[body] or due[body] < START_MS for body, times in deliveries.items())
        assert timed.lines == []


@pytest.mark.parametrize("kept", ["", "timerwheel", "timerlog"])
def test_a_checkpoint_after_a_kill_is_no_newer_than_the_synced_files(kept: str) -> None:
    """Pages that the killed process wrote and did not sync are in the system's cache alone."""
    with timed_store(forgetful=True) as timed:
        timed.send(b"a", {"TIMER_DELAY_MS": "3000"})
        timed.work()
        timed.save()
        timed.send(b"b", {"TIMER_DELAY_MS": "3000"})
        timed.work()
        timed.kill()
        timed.save()
        timed.power_cut(lambda page: bool(kept) and page[0].startswith(kept))
        timed.run_until(START_MS + 5000)
        assert timed.delivered() == {b"a": [START_MS + 3000], b"b": [START_MS + 3000]}


def test_a_kill_in_the_middle_of_a_second_repeats_nothing() -> None:
    with timed_store() as timed:
        for number in range(120):
            timed.send(b"%d" % number, {"TIMER_DELIVER_MS": str(START_MS + 2000)})
        timed.work()
        timed.save()
        timed.now_ms += 2000
        while not timed.delivered():
            timed.timers.work(timed.now_ms)
        assert 0 < len(timed.delivered()) < 120
        timed.kill()
        timed.run_until(START_MS + 5000)
        assert {len(times) for times in timed.delivered().values()} == {1}
        assert len(timed.delivered()) == 120


def test_copies_that_are_newer_than_rocketmqs_checkpoint_are_found() -> None:
    """5.4.0 may write a queue offset that is later than its read time."""
    with timed_store() as timed:
        timed.send(b"before", {"TIMER_DELAY_MS": "100000"})
        timed.run_until(START_MS + 500)
        timed.send(b"a", {"TIMER_DELAY_MS": "1000"})
        timed.run_until(START_MS + 1600)
        timed.send(b"b", {"TIMER_DELAY_MS": "2000"})
        timed.work()
        timed.save()
        read_ms = slot_of(START_MS + 1500, 1000)
        by_java = TimerCheckpoint(read_ms, timed.timers.files.log.end, timed.timers.queue_offset)
        timed.store.abandon()
        (timed.directory / "config" / "timercheck").write_bytes(by_java.encode())
        timed.open()
        timed.run_until(START_MS + 9000)
        assert timed.delivered() == {b"a": [START_MS + 1500], b"b": [START_MS + 3600]}
        assert [line.partition(":")[0] for line in timed.lines] == ["timers"]
        assert "taken over from RocketMQ's files (timerlog, timerwheel, config/timercheck)" in timed.lines[0]


def test_a_kill_while_the_broker_stops_repeats_nothing() -> None:
    """The open slot's entries are rewritten behind those of messages that were stored later."""
    with timed_store() as timed:
        for number in range(120):
            timed.send(b"%d" % number, {"TIMER_DELIVER_MS": str(START_MS + 2000)})
        timed.work()
        timed.save()
        timed.send(b"later", {"TIMER_DELIVER_MS": str(START_MS + 60_000)})
        timed.now_ms += 2000
        while not timed.delivered():
            timed.timers.work(timed.now_ms)
        timed.kill_while_stopping()
        timed.run_until(START_MS + 70_000)
        assert {len(times) for times in timed.delivered().values()} == {1}
        assert len(timed.delivered()) == 121


def test_a_kill_after_the_clock_was_set_back_loses_and_repeats_nothing() -> None:
    """The last checkpoint may be later than the clock: what came after it waits in slots before its read time."""
    with timed_store() as timed:
        for number in range(120):
            timed.send(b"%d" % number, {"TIMER_DELIVER_MS": str(START_MS + 30_000)})
        timed.send(b"later", {"TIMER_DELIVER_MS": str(START_MS + 60_000)})
        timed.run_until(START_MS + 29_000)
        timed.save()
        timed.now_ms = START_MS + 30_000
        while not timed.delivered():
            timed.timers.work(timed.now_ms)
        timed.now_ms = START_MS + 10_000
        timed.work()
        timed.send(b"between", {"TIMER_DELIVER_MS": str(START_MS + 12_000)})
        timed.work()
        timed.kill()
        timed.run_until(START_MS + 70_000)
        deliveries = timed.delivered()
        assert {len(times) for times in deliveries.values()} == {1}
        assert len(deliveries) == 122
        assert (deliveries[b"between"], deliveries[b"later"]) == ([START_MS + 12_000], [START_MS + 60_000])


def test_a_clock_that_is_set_back_before_the_first_delivery() -> None:
    """No slot was opened, but the checkpoint has the later time."""
    with timed_store() as timed:
        timed.send(b"a", {"TIMER_DELAY_MS": "60000"})
        timed.work()
        timed.save()
        timed.now_ms -= 20_000
        timed.send(b"b", {"TIMER_DELAY_MS": "3000"})
        timed.work()
        timed.kill()
        timed.run_until(START_MS + 70_000)
        assert timed.delivered() == {b"b": [START_MS - 17_000], b"a": [START_MS + 60_000]}


def test_a_clock_that_is_set_back_while_the_broker_is_down() -> None:
    """Two starts, of which the first does no work."""
    with timed_store() as timed:
        timed.send(b"a", {"TIMER_DELAY_MS": "2000"})
        timed.send(b"b", {"TIMER_DELAY_MS": "60000"})
        timed.run_until(START_MS + 30_000)
        timed.save()
        timed.now_ms = START_MS - 20_000
        timed.kill()
        timed.kill()
        timed.run_until(START_MS + 70_000)
        assert timed.delivered() == {b"a": [START_MS + 2000], b"b": [START_MS + 60_000]}


def test_a_checkpoint_while_the_clock_goes_back() -> None:
    """The next start reads no slot that still has its delivered entries."""
    with timed_store() as timed:
        timed.send(b"a", {"TIMER_DELAY_MS": "2000"})
        timed.run_until(START_MS + 30_000)
        timed.now_ms = START_MS - 20_000
        timed.save()
        timed.kill()
        timed.run_until(START_MS + 70_000)
        assert timed.delivered() == {b"a": [START_MS + 2000]}


def test_copies_due_after_a_clock_that_was_set_back_are_found() -> None:
    with timed_store() as timed:
        timed.send(b"far", {"TIMER_DELAY_MS": "90000"})
        timed.work()
        timed.save()
        timed.send(b"a", {"TIMER_DELAY_MS": "2000"})
        timed.run_until(START_MS + 30_000)
        timed.now_ms = START_MS - 20_000
        timed.work()
        timed.kill()
        timed.run_until(START_MS + 90_000)
        assert timed.delivered() == {b"a": [START_MS + 2000], b"far": [START_MS + 90_000]}


def test_a_stop_leaves_only_what_is_not_delivered_in_the_slot() -> None:
    """RocketMQ's broker would deliver all that the open slot names."""
    with timed_store() as timed:
        for number in range(120):
            timed.send(b"%d" % number, {"TIMER_DELIVER_MS": str(START_MS + 2000)})
        timed.now_ms += 2000
        while not timed.delivered():
            timed.timers.work(timed.now_ms)
        delivered = len(timed.delivered())
        timed.timers.close(timed.now_ms)
        slot_ms = slot_of(START_MS + 2000, 1000)
        assert timed.timers.files.wheel.slot(slot_ms).number == 120 - delivered
        assert len(list(timed.timers.files.chain(slot_ms, timed.timers.files.last(slot_ms)))) == 120 - delivered


@pytest.mark.parametrize(
    "gone", ["timerlog", "timerwheel", "config/timercheck", "timerlog timerwheel", "cut", "scribbled"]
)
@pytest.mark.parametrize("ended", ["kill", "restart"])
def test_lost_and_damaged_files_lose_no_message(gone: str, ended: str) -> None:
    """With its checkpoint, nothing that was delivered comes again, either."""
    with timed_store() as timed:
        for number in range(12):
            timed.send(b"%d" % number, {"TIMER_DELAY_SEC": str(number + 1)})
        timed.send(b"far", {"TIMER_DELAY_SEC": "259200"})
        timed.run_until(START_MS + 6500)
        timed.save()
        if ended == "restart":
            timed.timers.close(timed.now_ms)
            timed.store.close()
        else:
            timed.store.abandon()
        damage(timed.directory, gone)
        timed.open()
        timed.run_until(START_MS + 4 * DAY_MS)
        deliveries = timed.delivered()
        assert set(deliveries) == {b"far", *(b"%d" % number for number in range(12))}
        if "check" not in gone:
            assert {body: len(times) for body, times in deliveries.items()} == dict.fromkeys(deliveries, 1)
        if gone != "timerwheel":
            assert any("anew from the messages" in line for line in timed.lines)
        assert deliveries[b"11"][-1] == START_MS + 12_000


def damage(directory: Path, gone: str) -> None:
    files = sorted((directory / "timerlog").iterdir())
    if gone == "cut":
        for file in files[1:]:
            file.unlink()
    elif gone == "scribbled":
        for file in files:
            content = bytearray(file.read_bytes())
            content[60:100] = b"\x07" * 40
            file.write_bytes(content)
    else:
        for name in gone.split():
            place = directory / name
            shutil.rmtree(place) if place.is_dir() else place.unlink()


def test_a_wheel_of_another_length_is_made_anew() -> None:
    with timed_store() as timed:
        timed.send(b"a", {"TIMER_DELAY_MS": "5000"})
        timed.work()
        timed.save()
        timed.store.abandon()
        (timed.directory / "timerwheel").write_bytes(b"x" * 100)
        timed.open()
        timed.run_until(START_MS + 9000)
        assert timed.delivered() == {b"a": [START_MS + 5000]}
        assert (timed.directory / "timerwheel").stat().st_size == WHEEL_BYTES


def test_the_timer_log_shrinks_with_the_commit_log() -> None:
    with timed_store() as timed:
        for number in range(40):
            timed.send(b"%d" % number, {"TIMER_DELAY_MS": str(1000 + number)})
        timed.run_until(START_MS + 5000)
        log = timed.timers.files.log
        files = len(list((timed.directory / "timerlog").iterdir()))
        for remove in log.retire_before(timed.records(TIMER_TOPIC)[20].commit_log_offset):
            remove()
        assert len(list((timed.directory / "timerlog").iterdir())) == files - 5
        assert (timed.directory / "timerlog" / file_name(log.start)).exists()


def test_a_clock_that_is_set_back() -> None:
    with timed_store() as timed:
        timed.send(b"a", {"TIMER_DELAY_MS": "2000"})
        timed.send(b"b", {"TIMER_DELAY_MS": "60000"})
        timed.run_until(START_MS + 30_000)
        timed.now_ms = START_MS - 20_000
        timed.work()
        timed.send(b"c", {"TIMER_DELIVER_MS": str(START_MS + 1990)})
        timed.send(b"d", {"TIMER_DELAY_MS": "3000"})
        timed.run_until(START_MS + 90_000)
        assert timed.delivered() == {
            b"a": [START_MS + 2000],
            b"d": [START_MS - 17_000],
            b"c": [START_MS + 1990],
            b"b": [START_MS + 60_000],
        }
