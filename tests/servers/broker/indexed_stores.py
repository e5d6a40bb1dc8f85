"""Small stores with an index of keys, for tests, and messages that have keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyrmq_core.errors import StoreError
from pyrmq_core.protocol.messages.record import RawRecord
from pyrmq_core.servers.broker.store.appending import Append, Dispatched
from pyrmq_core.servers.broker.store.batch_pieces import piece
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.store.index.index_file import Layout
from pyrmq_core.servers.broker.store.index.key_index import FOLDER, KeyIndex
from pyrmq_core.servers.broker.store.message_store import MessageStore, StoreListener
from pyrmq_core.servers.broker.store_services.key_indexing import KeyIndexing
from tests.servers.broker.java_index import JavaIndex
from tests.servers.broker.stores import NOW_MS, SMALL, Sent

LAYOUT = Layout(slots=5, entries=8)
EVER = (0, 1 << 60)


@dataclass(frozen=True, slots=True)
class Keyed:
    """Messages of one append, each with its properties."""

    properties: tuple[str, ...]
    topic: str = "T"
    sys_flag: int = 0

    def append(self) -> Append:
        plain = Sent(self.topic, 0, ()).append()
        return replace(plain, pieces=[piece(0, b"", text.encode()) for text in self.properties], sys_flag=self.sys_flag)


def keyed(*keys: str, topic: str = "T") -> Keyed:
    """Returns one message for each text of KEYS."""
    return Keyed(tuple([f"KEYS\x01{key}\x02" for key in keys]), topic)


@dataclass
class Notes(StoreListener):
    """Has an index note a store's messages, as the broker does."""

    index: KeyIndex | KeyIndexing

    def dispatched(self, messages: Dispatched) -> None:
        self.index.note(messages)


class IndexedStore:
    """A store and its index, as the broker joins them; `warnings` are those of the index's opening."""

    def __init__(self, files: Files, layout: Layout = LAYOUT, segment_bytes: int = 4096) -> None:
        self.files = files
        self.layout = layout
        self.store = MessageStore(files, replace(SMALL, segment_bytes=segment_bytes))
        recovery = self.store.open(1)
        self.index = KeyIndex(self.store, layout)
        self.warnings = self.index.open(clean=recovery.clean)
        self.store.listener = Notes(self.index)
        self._catching_up: Iterator[None] | None = None

    def put(self, sent: Keyed, now_ms: int = NOW_MS) -> list[int]:
        return self.store.put(sent.append(), now_ms).positions

    def settle(self) -> None:
        """Brings the index to the last message."""
        while not self.index.is_live or self.index.has_waiting:
            self.step()

    def step(self) -> None:
        """Makes the next step of the index, if there is one; after a failure it begins anew to catch up."""
        if self.index.is_live:
            if self.index.has_waiting:
                self.index.step()
            return
        steps, self._catching_up = self._catching_up or self.index.catch_up(), None
        if next(steps, self) is not self:
            self._catching_up = steps

    def seal(self) -> None:
        """Brings full files to the medium, as the broker does in the background."""
        while (file := self.index.full_file()) is not None:
            for _ in file.unwritten():
                pass
            file.file.sync()
            file.seal()
            self.index.mark_synced(file)

    def stop(self) -> None:
        self.index.close()
        self.store.close()

    def find(self, key: str, most: int = 64, times_ms: tuple[int, int] = EVER, topic: str = "T") -> list[int]:
        places: list[int] = []
        for _ in self.index.find((topic, key, None), most, times_ms, places):
            pass
        return places

    def java(self) -> JavaIndex:
        """Returns the index that Java has of this log."""
        records = [record for record in self.store.records(self.store.start) if isinstance(record, RawRecord)]
        return JavaIndex(self.layout.slots, self.layout.entries).build(records)

    def contents(self) -> list[bytes]:
        """Returns the bytes of each index file, before its next entry."""
        file_contents = []
        for name in self.files.names(FOLDER):
            data = self.files.load(f"{FOLDER}/{name}") or b""
            file_contents.append(data[: self.layout.entry_at(int.from_bytes(data[36:40]))])
        return file_contents


def try_put(indexed_store: IndexedStore, sent: Keyed, now_ms: int) -> None:
    """Stores messages if the disk has room for them."""
    try:
        indexed_store.put(sent, now_ms)
    except StoreError:
        return


def try_settle(indexed_store: IndexedStore) -> None:
    """Brings the index to the last message if the disk has room for it."""
    try:
        indexed_store.settle()
    except StoreError:
        assert not indexed_store.index.is_live
