"""A running broker whose old segments are removed: what its clients are answered, and what its log says."""

import os
import time
from pathlib import Path

import pytest
import trio

from pyrmq_core.errors import StoreError
from pyrmq_core.network import ConnectionPool
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.requests.broker.consumer_offsets import UpdateConsumerOffset
from pyrmq_core.protocol.requests.broker.heartbeat import ConsumerData, HeartBeat, SubscriptionData
from pyrmq_core.protocol.requests.broker.offsets import (
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetFound,
    SearchOffset,
    StoreTimeFound,
)
from pyrmq_core.protocol.requests.broker.pull_message import PullMessage, PullSysFlag
from pyrmq_core.servers.broker.store.disk.files import DiskSpace, StoredFile
from pyrmq_core.servers.broker.store_services.retention import unread_lines
from pyrmq_core.servers.embedded.forgetful_files import PAGE_BYTES, ForgetfulFiles, Page
from pyrmq_core.testing import EmbeddedCluster
from tests.servers.broker.serving import Served, serving, until
from tests.servers.broker.stores import NOW_MS, Sent, put

SEGMENT = 8192
SMALL = {"mappedFileSizeCommitLog": str(SEGMENT), "cleanResourceInterval": "60000", "deleteWhen": ""}
BODY = b"b" * 900


async def fill(served: Served, segments: int = 4, topic: str = "T") -> None:
    """Sends until the log has so many segments, and waits for a checkpoint behind all but the last."""
    store = served.running.broker.store
    while store.end <= (segments - 1) * SEGMENT:
        assert (await served.send(topic, BODY)).code == 0
    await until(lambda: store.oldest_segment() is not None)
    await served.running.broker.services.flusher.flush_queues()


async def remove_old(served: Served, directory: Path) -> int:
    """Has all segments but the last one removed as old; returns the log's start."""
    store = served.running.broker.store
    last = store.end - store.end % SEGMENT
    for file in (directory / "commitlog").iterdir():
        if int(file.name) < last:
            os.utime(file, (0, time.time() - 73 * 3600))
    with trio.fail_after(30):
        while [file.name for file in (directory / "commitlog").iterdir()] != [f"{last:020}"]:
            # A segment may go when the checkpoint lies behind it, which is written every second.
            assert (await served.ask(Command(RequestCode.DELETE_EXPIRED_COMMITLOG))).code == 0
            await trio.sleep(0.05)
    return last


async def test_readers_below_the_minimum_get_21_and_the_offset_of_what_is_left(tmp_path: Path) -> None:
    async with serving(tmp_path, **SMALL) as served:
        await fill(served)
        first = await served.pull("T", offset=0)
        assert (first.code, first.min_offset) == (0, 0)
        gone_id = next(iter(iterate_records(first.records))).commit_log_offset
        end = first.max_offset
        start = await remove_old(served, tmp_path)
        moved = await served.pull("T", offset=3)
        low = moved.next_begin_offset
        assert (moved.code, moved.min_offset, moved.records) == (ResponseCode.PULL_OFFSET_MOVED, low, b"")
        assert 3 < low < end
        answer = await served.pull("T", offset=low)
        records = list(iterate_records(answer.records, check_crc=True))
        assert [record.queue_offset for record in records] == list(range(low, end))
        assert start <= records[0].commit_log_offset < start + SEGMENT
        least = OffsetFound.from_command(await served.ask(GetMinOffset("T", 0).to_command()))
        most = OffsetFound.from_command(await served.ask(GetMaxOffset("T", 0).to_command()))
        assert (least.offset, most.offset) == (low, end)
        searched = await served.ask(SearchOffset("T", 0, 0).to_command())
        assert OffsetFound.from_command(searched).offset == low
        earliest = StoreTimeFound.from_command(await served.ask(GetEarliestStoreTime("T", 0).to_command()))
        assert earliest.timestamp_ms == records[0].store_timestamp_ms
        viewed = await served.ask(Command(RequestCode.VIEW_MESSAGE_BY_ID, ext={"offset": str(gone_id)}))
        assert viewed.code == ResponseCode.SYSTEM_ERROR


async def test_queues_without_messages_and_without_topics_are_deleted_by_hand(tmp_path: Path) -> None:
    async with serving(tmp_path, **SMALL) as served:
        await served.send("Gone", BODY)
        await fill(served)
        await remove_old(served, tmp_path)
        store = served.running.broker.store
        assert store.reader.bounds(("Gone", 0)) == (1, 1)
        before = store.reader.bounds(("T", 0))
        assert (await served.ask(Command(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE))).code == 0
        assert (store.reader.bounds(("Gone", 0)), store.reader.bounds(("T", 0))) == ((0, 0), before)
        assert not (tmp_path / "consumequeue" / "Gone" / "0").exists()
        await served.send("Gone", BODY)
        assert store.reader.bounds(("Gone", 0)) == (0, 1)
        served.running.broker.tables.topics.remove("Gone", NOW_MS)
        assert (await served.ask(Command(RequestCode.CLEAN_UNUSED_TOPIC))).code == 0
        assert (store.reader.bounds(("Gone", 0)), store.reader.bounds(("T", 0))) == ((0, 0), before)
        assert (await served.pull("T", offset=before[0])).code == 0


async def test_index_files_go_with_their_messages(tmp_path: Path) -> None:
    async with serving(tmp_path, **SMALL, maxHashSlotNum="50", maxIndexNum="10") as served:
        for number in range(40):
            await served.send("T", BODY, f"KEYS\x01k{number}\x02")
        index, store = tmp_path / "index", served.running.broker.store
        await until(lambda: len(list(index.iterdir())) > 3)
        await until(lambda: store.oldest_segment() is not None)
        await served.running.broker.services.flusher.flush_queues()
        await remove_old(served, tmp_path)
        await until(lambda: len(list(index.iterdir())) < 3)
        assert list(index.iterdir())


async def test_delayed_messages_that_go_before_their_time_are_errors_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, **SMALL) as served:
        for _ in range(3):
            await served.send("T", BODY, "DELAY\x0118\x02")
        await fill(served)
        await remove_old(served, tmp_path)
        await until(lambda: "3 delayed messages of level 18 are gone undelivered" in caplog.text)


async def test_half_messages_that_go_unfinished_are_found(tmp_path: Path) -> None:
    async with serving(tmp_path, **SMALL) as served:
        broker = served.running.broker
        put(broker.store, *[Sent("RMQ_SYS_TRANS_HALF_TOPIC", 0, (BODY,))] * 5)
        broker.tables.offsets.commit("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0, 2)
        await fill(served)
        assert unread_lines(broker.store, broker.tables.offsets) == []
        await remove_old(served, tmp_path)
        (line,) = unread_lines(broker.store, broker.tables.offsets)
        assert line.startswith("3 half messages of transactions (queue 0 of RMQ_SYS_TRANS_HALF_TOPIC, from 2 on)")
        broker.tables.offsets.commit("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0, 5)
        assert unread_lines(broker.store, broker.tables.offsets) == []


class FullDisk:
    """A disk on which no new page can be written while it `is_full`; those that have bytes may be written over."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        self.is_seen = True  # when its room is asked for
        pages: set[Page] = set()
        save, about_to_write = ForgetfulFiles.save, ForgetfulFiles.about_to_write

        def saved(files: ForgetfulFiles, path: str, data: bytes, *, keep_previous: bool = True) -> None:
            self._refuse(path)
            save(files, path, data, keep_previous=keep_previous)

        def written(files: ForgetfulFiles, path: str, file: StoredFile, position: int, count: int) -> None:
            touched = {(path, page) for page in range(position // PAGE_BYTES, (position + count - 1) // PAGE_BYTES + 1)}
            if touched - pages:
                self._refuse(path)
            pages.update(touched)
            about_to_write(files, path, file, position, count)

        def space(_: ForgetfulFiles, folder: str) -> DiskSpace:
            return DiskSpace(100, 0, 0) if self.is_full and self.is_seen else DiskSpace(100, 90, 1 << 40)

        monkeypatch.setattr(ForgetfulFiles, "save", saved)
        monkeypatch.setattr(ForgetfulFiles, "about_to_write", written)
        monkeypatch.setattr(ForgetfulFiles, "space", space)

    def _refuse(self, path: str) -> None:
        if self.is_full:
            raise StoreError(f"cannot write {path}: No space left on device")


async def test_on_a_full_disk_reads_go_on_for_new_groups_too_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    settings = {"cleanResourceInterval": "20", "cleanFileForciblyEnable": "false", "deleteWhen": ""}
    async with serving(tmp_path, **settings) as served:
        await served.send("T")
        disk.is_full = True
        await until(lambda: bool(served.running.broker.store.refusal))
        for group in ("New1", "New2"):
            beat = HeartBeat("c1", (), (ConsumerData(group, subscriptions=(SubscriptionData("T", "*"),)),))
            assert (await served.ask(beat.to_command())).code == 0
            pull = PullMessage(group, "T", 0, 0, 32, int(PullSysFlag.SUBSCRIPTION))
            answer = await served.ask(pull.to_command())
            assert (answer.code, len(list(iterate_records(answer.body)))) == (0, 1), answer.remark
            assert (await served.ask(UpdateConsumerOffset(group, "T", 0, 1).to_command())).code == 0
        refused = await served.send("T")
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "the broker's disk is full" in (refused.remark or "")
        disk.is_full = False
        await until(lambda: not served.running.broker.store.refusal)
        assert (await served.send("T")).code == 0
    async with serving(tmp_path) as served:
        assert served.running.broker.store.reader.bounds(("T", 0)) == (0, 2)
        assert "New2" in served.running.broker.tables.groups


async def test_a_write_that_finds_no_room_is_answered_14_before_the_disk_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    disk.is_seen = False
    async with serving(tmp_path) as served:
        await served.send("T")
        disk.is_full = True
        refused = await served.send("T", bytes(2 * PAGE_BYTES))
        assert (refused.code, served.running.broker.store.refusal) == (ResponseCode.SERVICE_NOT_AVAILABLE, "")
        assert "No space left on device" in (refused.remark or "")
        disk.is_full = False
        assert (await served.send("T")).code == 0
        assert served.running.broker.store.reader.bounds(("T", 0)) == (0, 2)


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_broker_starts_on_a_full_disk_and_serves_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    disk = FullDisk(monkeypatch)
    settings = {"cleanResourceInterval": "20", "cleanFileForciblyEnable": "false", "deleteWhen": ""}
    async with serving(tmp_path, **settings) as served:
        await served.send("T")
        getattr(served.running, end)()
        await served.ended.wait()
    disk.is_full = True
    async with serving(tmp_path, **settings) as served:
        answer = await served.pull("T")
        assert (answer.code, len(list(iterate_records(answer.records)))) == (0, 1)
        await until(lambda: bool(served.running.broker.store.refusal))
        assert (await served.send("T")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        disk.is_full = False
        await until(lambda: not served.running.broker.store.refusal)
        assert (await served.send("T")).code == 0
    async with serving(tmp_path) as served:
        assert served.running.broker.store.reader.bounds(("T", 0)) == (0, 2)


@pytest.mark.parametrize(
    ("given", "most"),
    [({}, 2 << 30), ({"maxStoreBytes": "0"}, 0), ({"mappedFileSizeCommitLog": str(1 << 30)}, 4 << 30)],
)
async def test_the_brokers_of_an_embedded_cluster_keep_to_a_size(given: dict[str, str], most: int) -> None:
    async with EmbeddedCluster(settings=given) as cluster, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        answer = await pool.call(cluster.brokers["broker-a"], Command(RequestCode.GET_BROKER_CONFIG), timeout=30)
        assert f"maxStoreBytes={most}" in bytes(answer.body).decode().splitlines()
        await pool.aclose()
