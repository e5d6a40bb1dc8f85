"""The reading of files of the key index, for `fuzzing`, with real files."""

from __future__ import annotations

from pyrmq_core.servers.broker.store.index.key_index import FOLDER
from pyrmq_core.servers.broker.store.layout import ABORT_NAME
from tests.servers.broker.indexed_stores import LAYOUT, IndexedStore, keyed
from tests.servers.broker.memory_files import MemoryFiles


def _stored() -> dict[str, bytes]:
    """Returns the files of a store whose index has a full file and another one."""
    files = MemoryFiles()
    indexed_store = IndexedStore(files)
    for number in range(6):
        indexed_store.put(keyed(f"k n{number}"))
    indexed_store.settle()
    indexed_store.stop()
    return {path: bytes(content) for path, content in files.contents.items()}


STORED = _stored()
FULL, LAST = sorted(path for path in STORED if path.startswith(f"{FOLDER}/"))
FILES = (STORED[FULL], STORED[LAST])


def index_file(data: bytes) -> None:
    """Opens a store one of whose index files has this content, after a stop and after a kill, and goes on with it."""
    content = data[: LAYOUT.file_bytes].ljust(LAYOUT.file_bytes, b"\0")
    for path in (FULL, LAST):
        for is_clean in (True, False):
            files = MemoryFiles({name: bytearray(stored) for name, stored in STORED.items()})
            files.contents[path] = bytearray(content)
            if not is_clean:
                files.contents[ABORT_NAME] = bytearray(b"1")
            indexed_store = IndexedStore(files)
            indexed_store.settle()
            for place in (*indexed_store.find("k"), *indexed_store.find("n5")):
                indexed_store.store.reader.record(place)
            fresh = indexed_store.put(keyed("fresh"))
            indexed_store.settle()
            assert indexed_store.find("fresh") == fresh
            indexed_store.stop()
