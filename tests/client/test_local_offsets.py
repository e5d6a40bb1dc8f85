"""`LocalOffsetStore`: its file in Java's place, what survives a crash at each step of writing, and damaged files."""

from __future__ import annotations

import itertools
import logging
import os
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import MessageQueue
from pyrmq_core.client.consumer.offsets.local_offsets import LocalOffsetStore
from pyrmq_core.client.consumer.offsets.offset_file import OffsetFile, folder_name
from pyrmq_core.errors import StoreError
from tests.protocol.strategies import TEXT
from tests.support.golden import text

CLIENT, GROUP = "10.0.0.1@DEFAULT", "GID_broadcast"
A0, A1, A2 = (MessageQueue("orders", "broker-a", number) for number in range(3))


def path_of(directory: Path) -> Path:
    """Returns the place that Java uses (LocalFileOffsetStore.java)."""
    return directory / CLIENT / GROUP / "offsets.json"


def store_in(directory: Path) -> LocalOffsetStore:
    return LocalOffsetStore(CLIENT, GROUP, directory)


def file_in(directory: Path) -> OffsetFile:
    return OffsetFile(directory, CLIENT, GROUP)


async def test_what_is_stored_is_found_by_the_next_start(tmp_path: Path) -> None:
    first = store_in(tmp_path)
    await first.load()
    assert await first.stored(A0) is None
    first.update(A0, 3)
    first.update(A1, 4)
    await first.persist([A0, A1])
    assert path_of(tmp_path).is_file()
    second = store_in(tmp_path)
    await second.load()
    assert (second.known(A0), second.known(A1), second.known(A2)) == (3, 4, None)
    assert await second.stored(A1) == 4


async def test_javas_file_is_found_and_kept(tmp_path: Path) -> None:
    path_of(tmp_path).parent.mkdir(parents=True)
    path_of(tmp_path).write_text(text("local_offsets_4.9.7.json"))
    store = store_in(tmp_path)
    await store.load()
    assert store.known(MessageQueue("TopicA", "broker-a", 0)) == 2
    store.update(A0, 5)
    await store.persist([A0])
    assert await store.stored(MessageQueue("TopicA", "broker-a", 0)) == 2
    assert await store.stored(A0) == 5


async def test_the_default_place_is_javas(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    store = LocalOffsetStore(CLIENT, GROUP)
    store.update(A0, 3)
    await store.persist([A0])
    assert path_of(tmp_path / ".rocketmq_offsets").is_file()


async def test_nothing_is_written_without_a_change(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    await store.load()
    await store.persist([A0])
    assert not path_of(tmp_path).exists()
    store.update(A0, 3)
    await store.persist([A0])
    path_of(tmp_path).unlink()
    await store.persist([A0], confirmed=True)
    assert not path_of(tmp_path).exists()


async def test_loaded_offsets_are_not_written_again(tmp_path: Path) -> None:
    first = store_in(tmp_path)
    first.update(A0, 3)
    await first.persist([A0])
    second = store_in(tmp_path)
    await second.load()
    path_of(tmp_path).unlink()
    await second.persist([A0])
    assert not path_of(tmp_path).exists()


async def test_a_change_during_the_writing_is_written_next(tmp_path: Path) -> None:
    """The thread reads the old file first: a pipe holds it up there."""
    path_of(tmp_path).parent.mkdir(parents=True)
    os.mkfifo(path_of(tmp_path))
    store = store_in(tmp_path)
    store.update(A0, 3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.persist, [A0])
        pipe = await opened_by_its_reader(path_of(tmp_path))
        store.update(A0, 4)
        os.close(pipe)
    assert await store.stored(A0) == 3
    await store.persist([A0])
    assert await store.stored(A0) == 4


async def opened_by_its_reader(path: Path) -> int:
    """Returns the writing end of a pipe once another thread has opened the reading end."""
    with trio.fail_after(60):
        while True:
            with suppress(OSError):  # ENXIO: no reader yet
                return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            await trio.lowlevel.checkpoint()


async def test_two_writings_at_once_lose_nothing(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    queues = [MessageQueue("orders", "broker-a", number) for number in range(20)]
    async with trio.open_nursery() as nursery:
        for number, queue in enumerate(queues):
            store.update(queue, number)
            nursery.start_soon(store.persist, [queue])
    assert file_in(tmp_path).read() == {queue: number for number, queue in enumerate(queues)}


async def test_a_failed_writing_is_logged_and_repeated(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / CLIENT).write_text("a file where a folder should be")
    store = store_in(tmp_path)
    store.update(A0, 3)
    with caplog.at_level(logging.WARNING):
        await store.persist([A0])
        await store.persist([A0])
    [line] = [record.getMessage() for record in caplog.records]
    assert "offsets will be stored again: cannot" in line
    assert str(path_of(tmp_path)) in line
    (tmp_path / CLIENT).unlink()
    await store.persist([A0])
    assert await store.stored(A0) == 3


def crashed_at(directory: Path, step: int, offsets: dict[MessageQueue, int]) -> str | None:
    """Writes up to a step and stops there, as a killed process does; returns its name, None if all are done."""
    file = file_in(directory)
    steps = file.writing(offsets, keep_previous=True)
    names = list(itertools.islice(steps, step + 1))
    for part in (b"", b'{"offsetTable":{{'):
        if names and names[-1] == "sync it":  # perhaps nothing of it, or a part, had reached the medium
            file.path.with_name("offsets.json.tmp").write_bytes(part)
    return names[step] if len(names) > step else None


@pytest.mark.parametrize("step", range(7))
def test_a_crash_at_each_step_leaves_the_old_or_the_new_offsets(tmp_path: Path, step: int) -> None:
    old, new = {A0: 3, A1: 1}, {A0: 9, A1: 2}
    file_in(tmp_path).merge({A0: 1})
    file_in(tmp_path).merge(old)
    assert crashed_at(tmp_path, step, new) is not None
    assert file_in(tmp_path).read() == (old if step < 6 else new)
    file_in(tmp_path).merge({A2: 7})  # and the next one goes on from there
    assert file_in(tmp_path).read() == {**(old if step < 6 else new), A2: 7}


def test_there_are_no_more_steps(tmp_path: Path) -> None:
    file_in(tmp_path).merge({A0: 1})
    assert crashed_at(tmp_path, 7, {A0: 9}) is None
    assert file_in(tmp_path).read() == {A0: 9}


@pytest.mark.parametrize("damage", [b"", b'{"offsetTable":{{', b"\xff\xfe", b"null", b'{"offsetTable":{"orders":1}}'])
def test_a_damaged_file_falls_back_to_its_backup(tmp_path: Path, damage: bytes) -> None:
    file_in(tmp_path).merge({A0: 1})
    file_in(tmp_path).merge({A0: 2})
    path_of(tmp_path).write_bytes(damage)
    assert file_in(tmp_path).read() == {A0: 1}


@pytest.mark.parametrize("step", range(6))
def test_a_damaged_file_never_replaces_the_backup(tmp_path: Path, step: int) -> None:
    """Otherwise a crash before the new file has its name would leave no file that can be read."""
    file_in(tmp_path).merge({A0: 1})
    file_in(tmp_path).merge({A0: 2})
    path_of(tmp_path).write_bytes(b"damaged")
    file = file_in(tmp_path)
    for _ in itertools.islice(file.writing({A0: 3}, keep_previous=file._read()[1]), step + 1):
        pass
    assert file_in(tmp_path).read() == ({A0: 1} if step < 5 else {A0: 3})


async def test_two_damaged_files_are_an_error_that_names_them(tmp_path: Path) -> None:
    file_in(tmp_path).merge({A0: 1})
    file_in(tmp_path).merge({A0: 2})
    for name in ("offsets.json", "offsets.json.bak"):
        path_of(tmp_path).with_name(name).write_bytes(b"damaged")
    store = store_in(tmp_path)
    with pytest.raises(
        StoreError, match=r"offsets\.json.*not JSON.*repair .*offsets\.json, or remove it and its \.bak"
    ):
        await store.load()
    with pytest.raises(StoreError):
        await store.stored(A0)
    store.update(A0, 5)
    await store.persist([A0])  # logged; what may still be repaired is not overwritten
    assert path_of(tmp_path).read_bytes() == b"damaged"


def test_a_file_that_cannot_be_read_is_no_empty_one(tmp_path: Path) -> None:
    path_of(tmp_path).mkdir(parents=True)
    with pytest.raises(StoreError, match=r"cannot read the offsets in .*offsets\.json: Is a directory"):
        file_in(tmp_path).read()


def test_plain_names_are_javas() -> None:
    for name in ("10.0.0.1@4711#123456", "GID_a-b", "MQ_INST%GID", "%RETRY%x", "café", "a b"):
        assert folder_name(name) == name


NAMES = st.one_of(
    TEXT,
    st.text("./\\=%~\0", max_size=6),
    st.sampled_from(["..", ".", "", "a/../../b", "/etc", "C:\\x", "=2E", "a\ud800", "\u202e"]),
)


@given(NAMES)
def test_no_name_leads_out_of_the_folder(name: str) -> None:
    path = OffsetFile(Path("/offsets"), name, name).path
    assert len(path.parts) == 5
    assert path.parts[:2] == ("/", "offsets")
    assert not {".", "..", ""} & set(path.parts[2:])
    assert "\0" not in str(path)


def test_a_name_that_looks_escaped_is_escaped_too() -> None:
    assert folder_name("a/b") == "=a%2Fb"
    assert folder_name("=a%2Fb") == "=%3Da%252Fb"


@given(NAMES, NAMES)
def test_two_names_never_share_a_folder(first: str, second: str) -> None:
    assert (folder_name(first) == folder_name(second)) == (first == second)
