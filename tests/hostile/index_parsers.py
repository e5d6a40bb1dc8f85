"""The reading of files of the key index, for `fuzzing`, with real files."""

from __future__ import annotations

from pyrmq_core.broker.store.index.key_index import FOLDER
from pyrmq_core.broker.store.layout import ABORT_NAME
from tests.broker.indexed_stores import LAYOUT, IndexedStore, keyed
from tests.broker.memory_files import MemoryFiles


def _stored() -> dict[str, bytes]:
    """Returns the files of a store whose index has a full file and another one."""
    files = MemoryFiles()
    one = IndexedStore(files)
    for number in range(6):
        one.put(keyed(f"k n{number}"))
    one.settle()
    one.stop()
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
            one = IndexedStore(files)
            one.settle()
            for place in (*one.find("k"), *one.find("n5")):
                one.store.reader.record(place)
            fresh = one.put(keyed("fresh"))
            one.settle()
            assert one.find("fresh") == fresh
            one.stop()
