"""Tables whose file cannot be written for a time: nothing of them is forgotten."""

import json
from pathlib import Path

import pytest
import trio

from pyrmq_core.errors import StoreError
from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.requests.broker.consumer_offsets import UpdateConsumerOffset
from pyrmq_core.servers.broker.processors.topics_and_groups import make_topics
from pyrmq_core.servers.broker.store.disk.files import StoredFile
from pyrmq_core.servers.embedded.forgetful_files import ForgetfulFiles
from tests.servers.broker.pop.popping import pop
from tests.servers.broker.serving import serving, until

OFFSETS = "config/consumerOffset.json"
NO_SYNC = dict.fromkeys(
    ("flushIntervalCommitLog", "flushIntervalConsumeQueue", "flushConsumerOffsetInterval"), str(3_600_000)
)


async def test_offsets_whose_file_could_not_be_written_are_written_at_the_next_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []
    save = ForgetfulFiles.save

    def save_later(files: ForgetfulFiles, path: str, data: bytes, *, keep_previous: bool = True) -> None:
        if path == OFFSETS and not failed:
            failed.append(path)
            raise StoreError("the disk is full")
        save(files, path, data, keep_previous=keep_previous)

    monkeypatch.setattr(ForgetfulFiles, "save", save_later)
    async with serving(tmp_path, flushConsumerOffsetInterval="20") as served:
        await served.send("T")
        await served.pull("T")  # makes the group
        answer = await served.ask(UpdateConsumerOffset("G", "T", 0, 1).to_command())
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        await until(lambda: bool(failed))
        await until((tmp_path / OFFSETS).exists)
        assert json.loads((tmp_path / OFFSETS).read_text())["offsetTable"] == {"T@G": {"0": 1}}


async def test_topics_that_are_made_while_the_broker_stops_end_with_an_error(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, trio.open_nursery() as nursery:

        async def make() -> None:
            with trio.fail_after(60), pytest.raises(StoreError, match="the broker stopped before"):
                await make_topics(served.running.broker, [TopicConfig("T", 4, 4, 6)])

        nursery.start_soon(make)
        served.running.stop()


async def test_a_stop_whose_sync_fails_writes_no_offset_of_pops_without_their_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing: list[str] = []
    sync = ForgetfulFiles.sync

    def sync_or_fail(files: ForgetfulFiles, path: str, file: StoredFile) -> None:
        if failing:
            raise StoreError(f"cannot sync {path}: Input/output error")
        sync(files, path, file)

    monkeypatch.setattr(ForgetfulFiles, "sync", sync_or_fail)
    async with serving(tmp_path, **NO_SYNC) as served:
        await served.send("T")
        store = served.running.broker.store
        store.flush()
        assert len(await pop(served)) == 1
        failing.append("from now on")
        served.running.stop()
        await served.ended.wait()
        failing.clear()
        assert isinstance(store.files, ForgetfulFiles)
        store.files.power_cut()
        store.files.close()
    async with serving(tmp_path) as served:
        assert len(await pop(served)) == 1
