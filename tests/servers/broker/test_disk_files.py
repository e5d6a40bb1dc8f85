"""Files on a disk: paths that lead out, files that vanish, descriptors that run out, and errors by name."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyrmq_core.errors import StoreError
from pyrmq_core.servers.broker.store.disk.disk_files import DiskFiles
from pyrmq_core.servers.broker.store.disk.paths import UnsafePath, check_name, check_path, queue_folder, queue_number
from pyrmq_core.servers.broker.store.formats import file_name
from pyrmq_core.servers.broker.store.layout import StoreSettings
from pyrmq_core.servers.broker.store.message_store import MessageStore
from tests.servers.broker.stores import SMALL, Sent, opened, put, read

UNSAFE = (
    "..",
    ".",
    "",
    "../x",
    "a/../../x",
    "/etc/x",
    "a//b",
    "a/",
    "a\0b",
    "a\nb",
    "a\\b",
    "a/\ud800",
    "a/./b",
    "\u00e9" * 128,
)


@pytest.mark.parametrize("path", UNSAFE, ids=ascii)
def test_a_path_out_of_the_store_is_refused_before_anything_is_touched(tmp_path: Path, path: str) -> None:
    (tmp_path / "x").write_bytes(b"precious")
    files = DiskFiles(tmp_path / "deep" / "store")
    for touch in (
        lambda: files.remove(path),
        lambda: files.open(path, 10),
        lambda: files.save(path, b"1"),
        lambda: files.load(path),
        lambda: files.size(path),
        lambda: files.names(path),
        lambda: files.folders(path),
    ):
        with pytest.raises(UnsafePath, match="store's folder"):
            touch()
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


def test_the_name_of_a_queue_file_is_synced_with_its_first_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is lost if the name of any of its folders is."""
    synced: list[str] = []
    fsync = os.fsync

    def record(number: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{number}"))
        fsync(number)

    monkeypatch.setattr(os, "fsync", record)
    files = DiskFiles(tmp_path)
    folders = [str(tmp_path / name) for name in ("queues/T/0", "queues/T", "queues", "")]
    first = files.open("queues/T/0/1", 10, sync_name=False)
    second = files.open("queues/T/0/2", 10, sync_name=False)
    first.write(0, b"1")
    assert synced == []
    first.sync()
    assert synced == [folder.rstrip("/") for folder in folders]
    second.sync()
    assert synced == [folder.rstrip("/") for folder in folders]
    files.open("queues/T/0/3", 10, sync_name=False).sync()
    assert synced[4:] == folders[:1]
    files.open("queues/T/1/1", 10)
    assert synced[5:] == [str(tmp_path / name) for name in ("queues/T", "queues/T/1/1", "queues/T/1")]


def test_folders_that_go_together_need_one_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    files, fsync = DiskFiles(tmp_path), os.fsync
    kept = [files.open(f"queues/{name}/0/1", 10) for name in ("a", "b", "c", "bb")][3]

    def record(number: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{number}"))
        fsync(number)

    monkeypatch.setattr(os, "fsync", record)
    free = files.set_aside("queues/a", "queues/none", "queues/b", "queues/c")
    assert [path for path in synced if "queues" in path] == [str(tmp_path / "queues")]
    assert files.folders("queues") == ["bb"]
    free()
    assert files.folders("removed") == []
    kept.check()


def test_plain_names_are_those_that_brokers_make() -> None:
    for name in ("%RETRY%G", "a|b_c-d", "SCHEDULE_TOPIC_XXXX", "topics.json.bak", "%LMQ%a"):
        assert check_name(name) == check_path(name) == name
    assert queue_folder("T", 7) == "T/7"
    assert [queue_number(name) for name in ("0", "12", "012", "x", "-1", "\u00b2", "9" * 30)] == [0, 12, *[None] * 5]


@pytest.mark.parametrize(("topic", "queue_id"), [("../commitlog", 0), ("a/b", 0), ("", 0), ("T", -1), ("T", 2**31)])
def test_no_queue_is_made_outside_its_folder(tmp_path: Path, topic: str, queue_id: int) -> None:
    store = opened(DiskFiles(tmp_path))
    put(store, Sent("T", 0, (b"kept",)))
    end = store.end
    with pytest.raises(UnsafePath):
        put(store, Sent(topic, queue_id, (b"1",)))
    with pytest.raises(UnsafePath):
        store.delete_topic(topic if topic != "T" else "..")
    assert (store.end, store.failure) == (end, "")
    assert [record.body for record in read(store, "T", 0)] == [b"kept"]
    store.close()


def test_the_logs_folder_may_lie_elsewhere(tmp_path: Path) -> None:
    settings = StoreSettings(1024, 100, log_folder=f"{tmp_path}/log/")
    store = opened(DiskFiles(tmp_path / "store"), settings)
    put(store, Sent("T", 0, (b"there",)))
    store.close()
    assert (tmp_path / "log" / file_name(0)).stat().st_size == 1024
    store = opened(DiskFiles(tmp_path / "store"), settings)
    assert [record.body for record in read(store, "T", 0)] == [b"there"]
    with pytest.raises(UnsafePath):
        store.files.remove(f"{tmp_path}/log/../store")
    store.close()


@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_a_file_that_vanishes_fails_its_sync(tmp_path: Path, how: str) -> None:
    files = DiskFiles(tmp_path / "store")
    file = files.open("commitlog/" + file_name(0), 1024)
    file.write(0, b"1")
    file.sync()
    file.check()
    path = tmp_path / "store" / "commitlog"
    if how == "removed":
        (path / file_name(0)).unlink()
    else:
        path.rename(tmp_path / "elsewhere")
    if how == "replaced":
        path.mkdir()
        (path / file_name(0)).write_bytes(bytes(1024))
    with pytest.raises(StoreError, match="was removed or replaced while"):
        file.sync()
    files.close()


def test_a_file_that_is_removed_in_order_fails_no_sync(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    file, again = files.open("q/T/0/f", 100), files.open("q/T/0/g", 100)
    file.write(0, b"1")
    files.remove("q/T")
    file.sync()
    again.check()
    files.open("q/T/0/f", 100).sync()
    file.sync()
    assert (tmp_path / "q/T/0/f").exists()
    files.close()


@contextmanager
def without_descriptors() -> Iterator[None]:
    """Leaves no descriptor for a new file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 2, hard))
    descriptors = []
    try:
        while True:
            try:
                descriptors.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        yield
    finally:
        for number in descriptors:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_store_works_on_without_descriptors(tmp_path: Path) -> None:
    """New segments and queues, syncs, small files, lists, a topic deleted: all with the reserved descriptors."""
    store = opened(DiskFiles(tmp_path, max_open_files=3))
    put(store, Sent("A", 0, (b"1" * 400,)))
    with without_descriptors():
        for number in range(12):
            put(store, Sent("A", number % 4, (b"2" * 400,)))
        end, syncs = store.unsynced()
        for sync in [*syncs, *store.unsynced_queues(), *store.checks()]:
            sync()
        store.synced(end)
        store.files.save("config/topics.json", b"{}")
        assert store.files.load("config/topics.json") == b"{}"
        store.delete_topic("A")
        put(store, Sent("B", 0, (b"3",)))
        store.close()
    store = opened(DiskFiles(tmp_path))
    assert [record.body for record in read(store, "B", 0)] == [b"3"]
    store.close()


def test_without_a_reserve_the_error_has_path_and_reason(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    (tmp_path / "d").mkdir()
    with without_descriptors():
        for touch in (lambda: files.open("d/f", 10), lambda: files.save("d/g", b"1"), lambda: files.names("d")):
            with pytest.raises(StoreError, match=r"/d.*: Too many open files"):
                touch()
    files.close()


def test_every_failure_of_the_system_is_a_store_error(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    (tmp_path / "plain").write_bytes(b"1")
    (tmp_path / "folder").mkdir()
    for touch in (
        lambda: files.open("plain/f", 10),
        lambda: files.save("plain/f", b"1"),
        lambda: files.load("folder"),
        lambda: files.save("folder", b"1", keep_previous=False),
        lambda: DiskFiles(tmp_path / "plain").lock(),
        lambda: files.open("folder", 10).zero_from(0),
        lambda: files.open("folder", 10).read(0, 1),
    ):
        with pytest.raises(StoreError, match=str(tmp_path)):
            touch()
    files.close()


def test_descriptors_in_use_are_not_closed(tmp_path: Path) -> None:
    """A sync in another thread holds its descriptor while the store opens many other files."""
    files = DiskFiles(tmp_path, max_open_files=2)
    files.open("f0", 10).write(0, b"1")
    with files._descriptors.held("f0") as held:
        for number in range(1, 6):
            files.open(f"f{number}", 10).write(0, b"2")
        files.remove("f0")
        assert os.fstat(held.number).st_size == 10
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held.number)
    files.close()


def test_a_store_whose_log_vanished_takes_nothing_more(tmp_path: Path) -> None:
    store = MessageStore(DiskFiles(tmp_path), SMALL)
    store.open(1)
    put(store, Sent("T", 0, (b"1",)))
    (tmp_path / "commitlog" / file_name(0)).unlink()
    with pytest.raises(StoreError, match="was removed or replaced"):
        store.flush()
    with pytest.raises(StoreError, match="was removed or replaced"):
        put(store, Sent("T", 0, (b"2",)))
    with pytest.raises(StoreError, match="was removed or replaced"):
        store.close()
    store.abandon()
    assert (tmp_path / "abort").exists()
