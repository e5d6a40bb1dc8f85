"""Batches in the index of keys: its bytes are Java's, wherever a file ends and a kill comes."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from pyrmq_core.servers.broker.store.batch_pieces import batch_pieces
from pyrmq_core.servers.broker.store.index import index_file, log_messages
from pyrmq_core.servers.broker.store.index.entries import Entries
from pyrmq_core.servers.broker.store.index.index_file import Header, IndexFile, Layout
from tests.servers.broker.indexed_stores import IndexedStore, Keyed
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.stores import NOW_MS, Sent

MANY = Layout(slots=7, entries=4000)
SEGMENT = 1 << 20


def new_file(slots: int) -> tuple[IndexFile, bytearray]:
    files, layout = MemoryFiles(), Layout(slots, 400)
    file = IndexFile(files.open("index/0", layout.file_bytes), "0", layout, Header(begin_ms=NOW_MS - 9000))
    file.begin()
    return file, files.contents["index/0"]


def body(first: int, count: int, tags: bytes = b"TAGS\x01A\x02") -> bytes:
    """Returns messages as Java's client sends them in one request."""
    parts = []
    for number in range(first, first + count):
        properties = b"KEYS\x01k%06d\x02UNIQ_KEY\x017F0000010E8F%08X\x02WAIT\x01true\x02" % (number, 3 * number) + tags
        head = struct.pack(">iiiii4s", 22 + 4 + len(properties), 0, 0, 0, 4, b"body")
        parts.append(head + struct.pack(">h", len(properties)) + properties)
    return b"".join(parts)


def put_batch(indexed_store: IndexedStore, queue_id: int, messages: bytes, now_ms: int) -> list[int]:
    return indexed_store.store.put(
        replace(Sent("T", queue_id, ()).append(), pieces=batch_pieces(messages)), now_ms
    ).positions


@pytest.mark.parametrize("is_live", [True, False])
def test_batches_enter_with_javas_bytes(is_live: bool) -> None:
    """Batches of 2,500 messages, in files of 3,999 entries: a file ends within a batch, and within a message."""
    indexed_store = IndexedStore(MemoryFiles(), MANY, SEGMENT)
    if is_live:
        indexed_store.settle()
    places = []
    for number in range(3):
        now_ms = NOW_MS + 700 * number
        places += put_batch(indexed_store, number % 2, body(2500 * number, 2500), now_ms)
        places += indexed_store.put(Keyed(("KEYS\x01single\x02",)), now_ms)
    indexed_store.settle()
    assert [indexed_store.find(f"k{number:06d}") for number in (0, 2499, 2500, 7499)] == [
        [places[at]] for at in (0, 2499, 2501, 7501)
    ]
    java = indexed_store.java()
    indexed_store.stop()
    assert indexed_store.contents() == java.contents()
    assert len(java.contents()) == 6


@pytest.mark.parametrize("steps", range(5))
def test_the_index_is_read_on_after_any_step(steps: int) -> None:
    """A kill in the midst of batches, whose last entries of a file are a part of a message."""
    files = MemoryFiles()
    indexed_store = IndexedStore(files, MANY, SEGMENT)
    indexed_store.settle()
    put_batch(indexed_store, 0, body(0, 3000), NOW_MS)
    for _ in range(steps):
        indexed_store.step()
    indexed_store.store.abandon()
    indexed_store = IndexedStore(files, MANY, SEGMENT)
    put_batch(indexed_store, 1, body(3000, 500), NOW_MS + 1)
    indexed_store.settle()
    java = indexed_store.java()
    indexed_store.stop()
    assert indexed_store.contents() == java.contents()


def test_records_are_read_up_to_what_is_readable() -> None:
    indexed_store = IndexedStore(MemoryFiles(), MANY, SEGMENT)
    places = put_batch(indexed_store, 0, body(0, 100), NOW_MS)
    for end in (0, 10, 50, 99):
        parts = list(log_messages.unread_messages(indexed_store.store, 0, places[end]))
        read = [message.offset for messages, _ in parts for message in messages]
        assert read == places[:end]
        assert parts[-1][1] == places[end]


def test_a_file_is_linked_anew_from_its_entries() -> None:
    file, written = new_file(101)
    for first in range(0, 90, 30):
        hashes = [key_hash for number in range(first, first + 30) for key_hash in (number, 5, 7 * number)]
        file.append(Entries(hashes, [number for number in range(first, first + 30) for _ in range(3)], [NOW_MS] * 90))
    assert file.save()
    again = IndexFile(file.file, "0", file.layout, file.header)
    for _ in again.relink(1000):
        pass
    assert again.header == file.header
    before = bytes(written)
    assert again.save()
    assert written == before
    assert file.layout.entry_at(index_file.FIRST_ENTRY) < len(written)
