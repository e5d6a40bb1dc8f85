"""Peers that are no masters, or bad ones: a slave names each in one line, keeps what it has, and follows a good one."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from pyrmq_core.errors import StoreError
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.servers.broker.ha import ha_client
from pyrmq_core.servers.broker.ha.ha_client import FollowLines
from pyrmq_core.servers.broker.ha.master_checks import check_master
from pyrmq_core.servers.broker.store.layout import StoreSettings
from pyrmq_core.servers.broker.store.message_store import MessageStore
from tests.servers.broker.ha.following import HEAD, REPORT
from tests.servers.broker.ha.test_ha_client import SLAVE
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.serving import serving, until
from tests.servers.broker.stores import Sent, opened, put

TIMES = {"haHousekeepingInterval": "60000", "haSendHeartbeatInterval": "50"}
SILENCE = "was silent for 1 s (haHousekeepingInterval)"
BODY = b"x" * 50


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ha_client, "RETRY_SECONDS", 0.05)


class FakeMaster:
    """A port that sends the same bytes to two slaves, then serves a log as it should; `reports` are the first ones."""

    def __init__(self, sent: bytes, *, closes: bool) -> None:
        self.sent = sent
        self._closes = closes
        self.store = opened(MemoryFiles(), StoreSettings(segment_bytes=8 << 20))
        put(self.store, *[Sent("T", 0, (b"%d" % number,)) for number in range(20)])
        self.reports: list[int] = []

    async def serve(self, stream: trio.SocketStream) -> None:
        try:
            await self._serve(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async def _serve(self, stream: trio.SocketStream) -> None:
        start = REPORT.unpack(await _exactly(stream, REPORT.size))[0]
        self.reports.append(start)
        if len(self.reports) <= 2:
            await stream.send_all(self.sent)
            if self._closes:
                return
        else:
            data = self.store.reader.log_part(start, 1 << 20)
            for at in range(0, len(data), 7):  # blocks end anywhere
                piece = data[at : at + 7]
                await stream.send_all(HEAD.pack(start + at, len(piece)) + piece)
            while await stream.receive_some():  # a slave's reports
                await stream.send_all(HEAD.pack(start + len(data), 0))
        while await stream.receive_some():
            pass


async def _exactly(stream: trio.SocketStream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += (more := await stream.receive_some(size - len(data)))
        if not more:
            raise trio.BrokenResourceError
    return data


@asynccontextmanager
async def listening(master: FakeMaster) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, master.serve, 0, host="127.0.0.1")
        listeners: list[trio.SocketListener] = await nursery.start(serve)
        yield f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if "does not follow" in text or "lost the connection" in text]


@pytest.mark.parametrize(
    ("sent", "closes", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", True, "is it a master's port for slaves"),
        (HEAD.pack(0, 1 << 30), False, "is it a master's port for slaves"),
        (HEAD.pack(0, -1), False, "is it a master's port for slaves"),
        (HEAD.pack(-8, 8), False, "is it a master's port for slaves"),
        (HEAD.pack(100, 5) + b"12345", False, "mappedFileSizeCommitLog is another one there"),
        (HEAD.pack((8 << 20) - 5, 10) + bytes(10), False, "mappedFileSizeCommitLog is another one there"),
        (HEAD.pack(0, 50) + BODY[:20], True, "closed the connection"),
        (HEAD.pack(0, 50) + BODY[:20], False, SILENCE),
        (b"", True, "closed the connection"),
        (b"", False, SILENCE),
    ],
)
async def test_a_bad_master_is_one_line_and_a_good_one_is_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sent: bytes, closes: bool, reason: str
) -> None:
    caplog.set_level(logging.INFO)
    master = FakeMaster(sent, closes=closes)
    times = TIMES | {"haHousekeepingInterval": "1000"} if reason == SILENCE else TIMES
    async with (
        listening(master) as address,
        serving(tmp_path, **SLAVE, **times, haMasterAddress=address) as slave,
    ):
        store = slave.running.broker.store
        await until(lambda: store.readable_end == master.store.end)
        assert master.reports == [0, 0, 0]
    lines = failures(caplog)
    assert len(lines) == 1, lines
    assert reason in lines[0]
    assert address in lines[0] or "mappedFileSizeCommitLog" in lines[0]


@pytest.mark.parametrize("offset", [10, 60])
async def test_blocks_that_overlap_or_leave_a_gap_end_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, offset: int
) -> None:
    """Bytes that came in order stay; the beginning of a record is asked for again."""
    master = FakeMaster(b"", closes=False)
    first = master.store.reader.log_part(0, 50)
    master.sent = HEAD.pack(0, 50) + first + HEAD.pack(offset, 50) + BODY
    async with (
        listening(master) as address,
        serving(tmp_path, **SLAVE, **TIMES, haMasterAddress=address) as slave,
    ):
        await until(lambda: slave.running.broker.store.readable_end == master.store.end)
        assert master.reports == [0, 0, 0]
        assert slave.running.broker.store.reader.log_part(0, 1 << 20) == master.store.reader.log_part(0, 1 << 20)
    assert len(failures(caplog)) == 1
    assert f"sends 50 bytes at {offset} of its log, and this one ends at 50" in failures(caplog)[0]


async def test_lines_that_differ_in_numbers_are_one(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    caplog.set_level(logging.INFO)
    lines = FollowLines()
    for number in range(50):
        lines.fails(f"ends at {number}")
    assert caplog.messages == ["ends at 0"]
    for number in range(50):  # a peer that begins well each time
        lines.follows("m")
        lines.fails(f"ends at {number}")
        lines.fails("closed")
    follows = "this slave follows the master at m"
    assert caplog.messages == ["ends at 0", follows, "closed", follows]
    await trio.sleep(61)
    lines.follows("m")
    lines.fails("ends at 7")
    assert caplog.messages[4:] == ["ends at 7"]


async def test_a_slave_that_ends_where_its_master_begins_may_follow() -> None:
    """Its last message went at the master with the segment before."""
    slave = opened(MemoryFiles())
    put(slave, Sent("T", 0, (b"last",)))

    async def ask(request: Command) -> Command:
        if request.code == RequestCode.VIEW_MESSAGE_BY_ID:
            return Command(ResponseCode.SYSTEM_ERROR)
        table = f'{{"table":{{"commitLogMinOffset":"{slave.end}","commitLogMaxOffset":"5000"}}}}'
        return Command(ResponseCode.SUCCESS, body=table.encode())

    await check_master(ask, slave, "m:1")


def test_a_copy_begins_anywhere_after_a_full_disk() -> None:
    """An empty log that could not take its first bytes is still empty."""
    files = MemoryFiles()
    store = MessageStore(files, StoreSettings(segment_bytes=1024))
    store.open(1, is_copy=True)
    files.room = 10
    with pytest.raises(StoreError):
        store.copy(2048, BODY)
    assert (store.end, store.flushed) == (0, 0)
    files.room = None
    store.copy(1024, BODY)
    assert (store.start, store.end) == (1024, 1024 + len(BODY))


def test_a_sync_that_began_before_a_cut_proves_nothing_behind_it() -> None:
    store = MessageStore(MemoryFiles(), StoreSettings(segment_bytes=1024))
    store.open(1, is_copy=True)
    master = opened(MemoryFiles(), StoreSettings(segment_bytes=1024))
    put(master, Sent("T", 0, (b"a",)), Sent("T", 0, (b"b",)))
    whole = master.reader.log_part(0, 1024)
    half = len(whole) // 2
    store.copy(0, whole[: half + 20])
    end, _ = store.unsynced()
    while store.replay():
        pass
    store.drop_incomplete()
    assert store.end == half
    store.copy(half, whole[half:])
    store.synced(end)
    assert store.flushed == half
    end, _ = store.unsynced()
    store.synced(end)
    assert store.flushed == store.end == len(whole)


async def test_a_master_at_another_address_is_followed_from_where_the_first_one_ended(tmp_path: Path) -> None:
    first, second = FakeMaster(b"", closes=True), FakeMaster(b"", closes=True)
    first.reports, second.reports = [0, 0], [0, 0]  # they are good from the beginning
    put(second.store, Sent("T", 0, (b"later",)))
    async with (
        listening(first) as address,
        listening(second) as other,
        serving(tmp_path, **SLAVE, **TIMES, haMasterAddress=address) as slave,
    ):
        broker = slave.running.broker
        await until(lambda: broker.store.readable_end == first.store.end)
        broker.cluster.registration.master_ha_address = other
        await until(lambda: broker.store.readable_end == second.store.end)
        assert second.reports == [0, 0, first.store.end]


@pytest.mark.parametrize("topic", ["../../up", "a/b", ".", "\u2028", "x" * 127])
async def test_hostile_topics_in_records_touch_nothing_outside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, topic: str
) -> None:
    """The log is copied as it is; a record that cannot have a queue is passed over, and the next one is read."""
    master = FakeMaster(b"", closes=True)
    master.reports = [0, 0]
    name = topic.encode()[:100]
    stand_in = "y" * len(name)
    put(master.store, Sent(stand_in, 0, (b"evil",)), Sent("T", 0, (b"after",)))
    length = master.store.end
    forged = master.store.reader.log_part(0, length).replace(stand_in.encode(), name)
    master.store = forged_store(forged)
    async with (
        listening(master) as address,
        serving(tmp_path / "slave", **SLAVE, **TIMES, haMasterAddress=address) as slave,
    ):
        store = slave.running.broker.store
        await until(lambda: store.readable_end == length)
        assert store.reader.log_part(0, length) == forged
        assert store.reader.bounds(("T", 0)) == (0, 21)
    assert os.listdir(tmp_path) == ["slave"]
    passed = [text for text in caplog.messages if "it is passed over" in text]
    assert len(passed) == (0 if topic.startswith("x") else 1)


def forged_store(data: bytes) -> MessageStore:
    """Returns a store whose log has these bytes, whatever they are."""
    store = MessageStore(MemoryFiles(), StoreSettings(segment_bytes=8 << 20))
    store.open(1, is_copy=True)
    store.copy(0, data)
    return store


@pytest.mark.parametrize("seed", range(5))
async def test_bytes_at_random_change_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int) -> None:
    master = FakeMaster(random.Random(seed).randbytes(5000), closes=bool(seed % 2))
    async with (
        listening(master) as address,
        serving(tmp_path, **SLAVE, **TIMES, haMasterAddress=address) as slave,
    ):
        store = slave.running.broker.store
        await until(lambda: store.readable_end == master.store.end)
        assert master.reports == [0, 0, 0]
    assert len(failures(caplog)) == 1


async def test_a_full_disk_is_one_line_and_room_lets_the_slave_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No connection to the master is tried meanwhile. The disk has room, which no round of the retention may find."""
    master = FakeMaster(b"", closes=True)
    master.reports = [0, 0]
    times = TIMES | {"cleanResourceInterval": "3600000"}
    async with (
        listening(master) as address,
        serving(tmp_path, **SLAVE, **times, haMasterAddress=address) as slave,
    ):
        store = slave.running.broker.store
        await until(lambda: store.readable_end == master.store.end)
        store.refusal = "the broker's disk is full; make room"
        put(master.store, Sent("T", 0, (b"later",)))
        other = FakeMaster(b"", closes=True)
        other.store, other.reports = master.store, [0, 0]
        async with listening(other) as moved:
            slave.running.broker.cluster.registration.master_ha_address = moved
            await until(lambda: bool(failures(caplog)))
            assert other.reports == [0, 0]
            store.refusal = ""
            await until(lambda: store.readable_end == other.store.end)
            lines = failures(caplog)
    assert len(lines) == 1
    assert "disk is full" in lines[0]
