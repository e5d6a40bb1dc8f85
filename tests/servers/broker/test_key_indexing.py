"""The index beside a broker's work: files that go in another thread, files that cannot be opened yet."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.store.index.key_index import FOLDER
from pyrmq_core.servers.broker.store_services import key_indexing
from pyrmq_core.servers.broker.store_services.key_indexing import KeyIndexing
from tests.servers.broker.indexed_stores import Notes, keyed
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.serving import serving, until
from tests.servers.broker.stores import NOW_MS, opened
from tests.servers.broker.test_key_look_ups import SMALL, bodies, fill, query

CONFIG = BrokerConfig().with_settings({"maxHashSlotNum": "5", "maxIndexNum": "8"})


@dataclass
class RetiringFiles(MemoryFiles):
    """Files in memory that note the threads in which those of the index are removed."""

    threads: set[int] = field(default_factory=set)

    def retire(self, path: str) -> Callable[[], None]:
        remove = super().retire(path)

        def removed() -> None:
            if path.startswith(FOLDER):
                self.threads.add(threading.get_ident())
            remove()

        return removed


async def test_old_files_go_in_another_thread_and_are_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    files = RetiringFiles()
    store = opened(files)
    indexing = KeyIndexing(store, CONFIG)
    indexing.open(clean=True)
    store.listener = Notes(indexing)
    assert await indexing.catch_up()
    for number in range(40):
        store.put(keyed(f"k n{number}").append(), NOW_MS)
    assert await indexing.look_up(("T", "k", None), 1, (0, 1 << 60), 1 << 20) is not None
    store.flush()
    names = files.names(FOLDER)
    files.unremovable.add(f"{FOLDER}/{names[0]}")
    for _ in range(3):
        for remove in store.remove_oldest_segment():
            remove()
    before = indexing.stored_bytes
    await indexing.remove_old()
    assert files.names(FOLDER) == names
    assert "old files of the index are not removed: cannot remove index/" in caplog.text
    files.unremovable.clear()
    await indexing.remove_old()
    left = files.names(FOLDER)
    assert 1 < len(left) < len(names)
    assert before == indexing.stored_bytes == (len(left) - 1) * CONFIG.index_layout.file_bytes
    assert files.threads
    assert threading.get_ident() not in files.threads
    indexing.close()


async def test_the_newest_records_fill_an_answer() -> None:
    store = opened(MemoryFiles())
    indexing = KeyIndexing(store, CONFIG)
    indexing.open(clean=True)
    store.listener = Notes(indexing)
    assert await indexing.catch_up()
    for _ in range(5):
        store.put(keyed("k").append(), NOW_MS)
    times_ms = (0, 1 << 60)
    every = await indexing.look_up(("T", "k", None), 5, times_ms, 1 << 20)
    assert every is not None
    assert len(every.records) == 5
    room_for_two = sum(map(len, every.records[-2:]))
    newest = await indexing.look_up(("T", "k", None), 5, times_ms, room_for_two)
    assert newest is not None
    assert newest.records == every.records[-2:]
    indexing.close()


async def test_an_index_that_cannot_be_opened_is_opened_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(key_indexing, "RETRY_SECONDS", 0.01)
    async with serving(tmp_path, **SMALL) as served:
        await fill(served, 20)
        await query(served, "k")
    (tmp_path / "index").rename(tmp_path / "kept")
    damaged = sorted((tmp_path / "kept").iterdir())[1]
    damaged.write_bytes(b"short")
    (tmp_path / "index").symlink_to("index")
    async with serving(tmp_path, **SMALL) as served:
        await fill(served, 5, 20)
        with monkeypatch.context() as patch:
            patch.setattr(key_indexing, "WAIT_SECONDS", 0.01)
            assert bodies(await query(served, "k")) == []
        assert "the index of keys is behind, and tries again: cannot list" in caplog.text
        (tmp_path / "index").unlink()
        (tmp_path / "kept").rename(tmp_path / "index")
        await until(lambda: served.running.broker.services.index._index.is_live)
        assert bodies(await query(served, "k")) == [b"%d" % number for number in range(25)]
        assert f"index file {damaged.name} is damaged" in caplog.text


def test_files_that_were_never_checked_are_not_left_for_the_next_start() -> None:
    files = MemoryFiles()
    store = opened(files)
    indexing = KeyIndexing(store, CONFIG)
    indexing.open(clean=True)
    indexing.close()
    names = [f"{FOLDER}/{NOW_MS:017}"]
    for clean in (True, False):
        files.contents[names[0]] = bytearray(10)
        files.unremovable = set(names)
        indexing = KeyIndexing(store, CONFIG)
        indexing.open(clean=clean)
        files.unremovable.clear()
        indexing.close()
        assert bool(files.names(FOLDER)) is clean
