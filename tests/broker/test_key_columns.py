"""Entries by columns: the bytes of the index are those of entries one by one, and Java's, wherever a file ends."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.broker.store.batch_pieces import batch_pieces
from pyrmq_core.broker.store.index import index_file, log_messages
from pyrmq_core.broker.store.index.entries import Entries, KeyColumns
from pyrmq_core.broker.store.index.index_file import Header, IndexFile, Layout
from pyrmq_core.errors import StoreError
from tests.broker.indexed_stores import IndexedStore, Keyed
from tests.broker.memory_files import MemoryFiles
from tests.broker.stores import NOW_MS, Sent

MANY = Layout(slots=7, entries=4000)
SEGMENT = 1 << 20
HASHES = st.integers(0, 30) | st.integers(0, 0x7FFFFFFF)
PLACES = st.sampled_from([0, 90, (1 << 32) - 40, 5 << 32])


@st.composite
def key_columns(draw: st.DrawFn) -> KeyColumns:
    """Entries of one to twenty messages, some of whose columns share slots, and whose offsets may pass 4 GiB."""
    count = draw(st.integers(1, 20))
    column = HASHES | st.lists(HASHES, min_size=count, max_size=count)
    steps = draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    offsets = [draw(PLACES) + sum(steps[: number + 1]) for number in range(count)]
    times = st.integers(NOW_MS - 3000, NOW_MS + 3000)
    return KeyColumns(
        draw(st.lists(column, min_size=1, max_size=4)),
        sorted(offsets),
        draw(st.lists(times, min_size=count, max_size=count) | times.map(lambda one: [one] * count)),
    )


def new_file(slots: int) -> tuple[IndexFile, bytearray]:
    files, layout = MemoryFiles(), Layout(slots, 400)
    file = IndexFile(files.open("index/0", layout.file_bytes), "0", layout, Header(begin_ms=NOW_MS - 9000))
    file.begin()
    return file, files.contents["index/0"]


@given(st.lists(key_columns(), min_size=1, max_size=4), st.sampled_from([1, 5, 101, 1 << 12]))
def test_columns_have_the_bytes_of_entries_one_by_one(parts: list[KeyColumns], slots: int) -> None:
    (bulk, bulk_bytes), (plain, plain_bytes) = new_file(slots), new_file(slots)
    for part in parts:
        bulk.append_columns(part)
        entries = part.one_by_one()
        for at in range(part.count):
            plain.append(Entries(*(column[at : at + 1] for column in entries)))
    assert bulk.header == plain.header
    assert bulk.save()
    assert plain.save()
    assert bulk_bytes == plain_bytes


@given(st.lists(key_columns(), min_size=2, max_size=3), st.sampled_from([1, 5, 101]))
def test_columns_that_a_full_disk_refuses_leave_no_trace(parts: list[KeyColumns], slots: int) -> None:
    (one, written), (other, expected) = new_file(slots), new_file(slots)
    for part in parts:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(one.file, "write", refuse)
            before = one.header
            with pytest.raises(StoreError):
                one.append_columns(part)
            assert one.header == before
        one.append_columns(part)
        other.append_columns(part)
    assert one.save()
    assert other.save()
    assert written == expected


def refuse(*_: object) -> None:
    raise StoreError("No space left on device")


def body(first: int, count: int, tags: bytes = b"TAGS\x01A\x02") -> bytes:
    """Returns messages as Java's client sends them in one request."""
    parts = []
    for number in range(first, first + count):
        properties = b"KEYS\x01k%06d\x02UNIQ_KEY\x017F0000010E8F%08X\x02WAIT\x01true\x02" % (number, 3 * number) + tags
        head = struct.pack(">iiiii4s", 22 + 4 + len(properties), 0, 0, 0, 4, b"body")
        parts.append(head + struct.pack(">h", len(properties)) + properties)
    return b"".join(parts)


def put_batch(one: IndexedStore, queue_id: int, messages: bytes, now_ms: int) -> list[int]:
    return one.store.put(replace(Sent("T", queue_id, ()).append(), pieces=batch_pieces(messages)), now_ms).positions


@pytest.mark.parametrize("is_live", [True, False])
def test_batches_enter_by_columns_with_javas_bytes(is_live: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of 2,500 messages, in files of 3,999 entries: a file ends within columns, and within a message."""
    by_columns: list[KeyColumns] = []
    append_columns = IndexFile.append_columns

    def noted(file: IndexFile, new: KeyColumns) -> None:
        by_columns.append(new)
        append_columns(file, new)

    monkeypatch.setattr(IndexFile, "append_columns", noted)
    one = IndexedStore(MemoryFiles(), MANY, SEGMENT)
    if is_live:
        one.settle()
    places = []
    for number in range(3):
        now_ms = NOW_MS + 700 * number
        places += put_batch(one, number % 2, body(2500 * number, 2500), now_ms)
        places += one.put(Keyed(("KEYS\x01single\x02",)), now_ms)
    one.settle()
    assert [one.find(f"k{number:06d}") for number in (0, 2499, 2500, 7499)] == [
        [places[at]] for at in (0, 2499, 2501, 7501)
    ]
    assert bool(by_columns) == is_live
    java = one.java()
    one.stop()
    assert one.contents() == java.contents()
    assert len(java.contents()) == 6


@pytest.mark.parametrize("steps", range(5))
def test_the_index_is_read_on_after_any_step(steps: int) -> None:
    """A kill in the midst of batches, whose last entries of a file are a part of a message."""
    files = MemoryFiles()
    one = IndexedStore(files, MANY, SEGMENT)
    one.settle()
    put_batch(one, 0, body(0, 3000), NOW_MS)
    for _ in range(steps):
        one.step()
    one.store.abandon()
    one = IndexedStore(files, MANY, SEGMENT)
    put_batch(one, 1, body(3000, 500), NOW_MS + 1)
    one.settle()
    java = one.java()
    one.stop()
    assert one.contents() == java.contents()


def test_records_are_read_up_to_what_is_readable() -> None:
    one = IndexedStore(MemoryFiles(), MANY, SEGMENT)
    places = put_batch(one, 0, body(0, 100), NOW_MS)
    for end in (0, 10, 50, 99):
        parts = list(log_messages.unread_messages(one.store, 0, places[end]))
        read = [message.offset for messages, _ in parts for message in messages]
        assert read == places[:end]
        assert parts[-1][1] == places[end]


def test_a_file_of_columns_is_linked_anew_from_its_entries() -> None:
    file, written = new_file(101)
    for first in range(0, 90, 30):
        hashes = range(first, first + 30)
        file.append_columns(KeyColumns([[*hashes], 5, [7 * one for one in hashes]], [*hashes], [NOW_MS] * 30))
    assert file.save()
    again = IndexFile(file.file, "0", file.layout, file.header)
    for _ in again.relink(1000):
        pass
    assert again.header == file.header
    before = bytes(written)
    assert again.save()
    assert written == before
    assert file.layout.entry_at(index_file.FIRST_ENTRY) < len(written)
