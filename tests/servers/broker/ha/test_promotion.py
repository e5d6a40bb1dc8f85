"""A slave that becomes the master delivers what its master had not, and nothing again, of delays and of timers."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.servers.broker.timers.timer_checkpoint import TimerCheckpoint, keep_checkpoint
from tests.servers.broker.ha.test_ha_client import SLAVE, caught_up
from tests.servers.broker.ha.test_slaves_by_nameserver import cluster
from tests.servers.broker.serving import Served, serving, until
from tests.servers.broker.timer_stores import DAY_MS, START_MS, TimedStore, timed_store


def fetched(timed: TimedStore) -> TimerCheckpoint | None:
    """Returns the checkpoint as a slave gets it."""
    checkpoint = TimerCheckpoint.decode(timed.timers.files.saved.encode_fields())
    return checkpoint if checkpoint is not None and checkpoint.read_ms else None


def promote(timed: TimedStore, checkpoint: TimerCheckpoint | None) -> None:
    """Opens the log again as the slave has it, without the files of the master's timers."""
    timed.store.abandon()
    for folder in ("timerlog", "config"):
        shutil.rmtree(timed.directory / folder, ignore_errors=True)
    (timed.directory / "timerwheel").unlink(missing_ok=True)
    if checkpoint is not None:
        keep_checkpoint(timed.files, checkpoint)
    timed.open()
    timed.lines.clear()  # the index is made anew


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.integers(-100, 6000)),
            st.tuples(st.just("other"), st.integers(1, 3)),
            st.tuples(st.just("pass"), st.integers(0, 2500)),
            st.tuples(st.just("step"), st.integers(1, 3)),
            st.tuples(st.just("down"), st.integers(0, 5000)),
            st.tuples(st.sampled_from(("save", "fetch", "promote", "kill", "restart")), st.just(0)),
        ),
        max_size=25,
    )
)
@example([("send", 1), ("send", 1), ("pass", 655), ("promote", 0), ("fetch", 0)])
@settings(deadline=None, max_examples=150)
def test_each_timer_comes_once_and_not_before_its_time(steps: list[tuple[str, int]]) -> None:
    """The slave has the whole log, and a checkpoint of any time before."""
    with timed_store() as timed:
        due: dict[bytes, int] = {}
        checkpoint: TimerCheckpoint | None = None
        for what, number in steps:
            match what:
                case "send":
                    body = b"%d" % len(due)
                    due[body] = timed.now_ms + number
                    timed.send(body, {"TIMER_DELIVER_MS": str(due[body])})
                case "other":
                    timed.put("other", number, b"x", b"")
                case "pass":
                    timed.run_until(timed.now_ms + number)
                case "step":
                    timed.now_ms += 400
                    for _ in range(number):
                        timed.timers.work(timed.now_ms)
                case "down":
                    timed.now_ms += number
                case "save":
                    timed.save()
                case "fetch":
                    checkpoint = fetched(timed)
                case "promote":
                    promote(timed, checkpoint)
                    checkpoint = None
                case "kill":
                    timed.kill()
                case _:
                    timed.restart()
        promote(timed, checkpoint)
        timed.run_until(max(timed.now_ms, *due.values(), 0) + 10_000)
        deliveries = timed.delivered()
        assert {body: len(times) for body, times in deliveries.items()} == dict.fromkeys(due, 1)
        assert all(times[0] >= due[body] or due[body] < START_MS for body, times in deliveries.items())
        assert timed.lines == []


@pytest.mark.parametrize("down_ms", [0, 10_000])
def test_messages_that_were_taken_back_stay_so_while_no_broker_runs(down_ms: int) -> None:
    with timed_store() as timed:
        for name in (b"gone", b"kept"):
            timed.send(name, {"TIMER_DELIVER_MS": str(START_MS + 5000)})
        for number in range(200):  # more than one step reads
            timed.send(b"%d" % number, {"TIMER_DELIVER_MS": str(START_MS + 90_000)})
        timed.take_back(b"gone", START_MS + 5000)
        timed.run_until(START_MS + 2000)
        timed.save()
        checkpoint = fetched(timed)
        timed.now_ms += down_ms
        promote(timed, checkpoint)
        timed.run_until(timed.now_ms + 20_000)
        assert list(timed.delivered()) == [b"kept"]


def test_copies_are_found_behind_more_bytes_than_one_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only timer message is old, and the log has grown since."""
    monkeypatch.setattr("pyrmq_core.servers.broker.timers.timer_checkpoint.MAX_LOOKED_AT_BYTES", 50_000)
    with timed_store() as timed:
        timed.send(b"late", {"TIMER_DELIVER_MS": str(START_MS + 60_000)})
        for _ in range(600):
            timed.now_ms += 99
            timed.put("other", 0, bytes(100), b"")
        timed.work()
        timed.save()
        checkpoint = fetched(timed)
        timed.run_until(START_MS + 65_000)
        assert timed.count() == 1
        promote(timed, checkpoint)
        timed.run_until(timed.now_ms + DAY_MS)
        assert timed.count() == 1


def test_what_a_slave_lacks_of_the_end_is_delivered_again_and_nothing_is_lost() -> None:
    """A slave takes no checkpoint before it has what that names; an older one leaves more to be delivered."""
    draw = random.Random(7)
    with timed_store() as timed:
        due = {b"%d" % number: START_MS + draw.randrange(1, 9000) for number in range(200)}
        for body, due_ms in due.items():
            timed.send(body, {"TIMER_DELIVER_MS": str(due_ms)})
        timed.run_until(START_MS + 2000)
        timed.save()
        older = fetched(timed)
        timed.run_until(START_MS + 6000)
        timed.save()
        promote(timed, older)
        timed.run_until(START_MS + 20_000)
        assert {body: len(times) for body, times in timed.delivered().items()} == dict.fromkeys(due, 1)


LEVELS = {"messageDelayLevel": "1s 2s", "timerFlushIntervalMs": "50", "flushConsumerOffsetInterval": "600000"}


async def send(served: Served, body: bytes, properties: str) -> None:
    assert (await served.send("T", body, f"UNIQ_KEY\x01{body.decode()}\x02{properties}\x02")).code == 0


def delivered(served: Served, count: int) -> Callable[[], bool]:
    return lambda: served.running.broker.store.reader.bounds(("T", 0))[1] >= count


async def bodies(served: Served) -> list[bytes]:
    return sorted(record.body for record in iterate_records((await served.pull("T")).records))


@pytest.mark.parametrize("ending", ["stop", "kill"])
async def test_a_slave_started_as_the_master_goes_on_where_its_master_was(tmp_path: Path, ending: str) -> None:
    async with cluster(tmp_path) as pair:
        async with pair.master(**LEVELS) as master, pair.slave(**LEVELS) as slave:
            await until(lambda: (tmp_path / "slave" / "config" / "timercheck").exists())
            for number in range(3):
                await send(master, b"delay %d" % number, "DELAY\x011")
                await send(master, b"timer %d" % number, "TIMER_DELAY_MS\x01500")
            await until(delivered(master, 6))
            for number in range(3):
                await send(master, b"late delay %d" % number, "DELAY\x012")
                await send(master, b"late timer %d" % number, "TIMER_DELAY_MS\x013000")
            await caught_up(slave, master)
            for served in (master, slave):
                getattr(served.running, ending)()
                await served.ended.wait()
        async with serving(tmp_path / "slave", **LEVELS) as promoted:
            await until(delivered(promoted, 12))
            await send(promoted, b"last delay", "DELAY\x012")
            await send(promoted, b"last timer", "TIMER_DELAY_MS\x011500")
            await until(delivered(promoted, 14))
            messages = await bodies(promoted)
            expected = [
                b"%s %d" % (what, n) for what in (b"delay", b"timer", b"late delay", b"late timer") for n in range(3)
            ]
            assert messages == sorted([*expected, b"last delay", b"last timer"])


async def test_a_copied_store_goes_on_as_well(tmp_path: Path) -> None:
    """Log and tables of a master, and no timer log."""
    async with serving(tmp_path / "master", **LEVELS) as master:
        await send(master, b"delay", "DELAY\x011")
        await send(master, b"timer", "TIMER_DELAY_MS\x01500")
        await until(delivered(master, 2))
        await send(master, b"late delay", "DELAY\x012")
        await send(master, b"late timer", "TIMER_DELAY_MS\x012500")
        assert (await master.ask(Command(RequestCode.GET_TIMER_CHECK_POINT))).code == 0
        master.running.kill()
        await master.ended.wait()
    for folder in ("commitlog", "config"):
        shutil.copytree(tmp_path / "master" / folder, tmp_path / "copy" / folder)
    async with serving(tmp_path / "copy", **LEVELS) as copy:
        await until(delivered(copy, 4))
        await send(copy, b"last", "DELAY\x012")
        await until(delivered(copy, 5))
        assert await bodies(copy) == sorted([b"delay", b"timer", b"late delay", b"late timer", b"last"])


@pytest.mark.parametrize("is_slave", [True, False])
async def test_offsets_beyond_the_messages_go_back_where_a_slave_becomes_the_master(
    tmp_path: Path, is_slave: bool
) -> None:
    """A slave may lack the messages before its master's offsets; a master's own offsets stay whatever they are."""
    async with serving(tmp_path, **(SLAVE if is_slave else {})) as former:
        offsets = former.running.broker.tables.offsets
        offsets.commit("g", "T", 0, 100)
        offsets.commit("g", "T", 1, 0)
    for _ in range(2):
        async with serving(tmp_path) as master:
            offsets = master.running.broker.tables.offsets
            assert offsets.of_group("g", "T") == {0: 0 if is_slave else 100, 1: 0}
            offsets.commit("g", "T", 0, 100)
            is_slave = False
