"""The store's files in memory, and a disk that fills up."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pyrmq_core.errors import StoreError
from pyrmq_core.servers.broker.store.disk.files import DiskSpace

EMPTY_DISK = DiskSpace(total=100, free=90, usable=90)
# Of a file that is read whole: most of a timer wheel of 38 MB is zeros, which no broker looks at one by one.
PIECE_BYTES = 1 << 16


@dataclass
class MemoryFiles:
    """`Files` without a disk; `syncs` lists every step towards the medium."""

    contents: dict[str, bytearray] = field(default_factory=dict)
    room: int | None = None
    syncs: list[str] = field(default_factory=list)
    fails_at: int | None = None  # the number of the step towards the medium that fails
    modified: dict[str, int] = field(default_factory=dict)  # ms, 0 for a file that is not here
    unremovable: set[str] = field(default_factory=set)
    unreadable: dict[str, int] = field(default_factory=dict)  # by path the first byte that cannot be read
    disk: DiskSpace | StoreError = EMPTY_DISK
    read_bytes: int = 0  # of all reads so far
    writes: list[str] = field(default_factory=list)  # the path of each

    def step(self, path: str) -> None:
        """Counts a step that a disk brings to its medium before it returns; the step `fails_at` raises."""
        self.syncs.append(path)
        if len(self.syncs) == self.fails_at:
            raise StoreError(f"cannot sync {path}: Input/output error")

    def add_folder(self, folder: str) -> None:
        pass

    def folders(self, folder: str) -> list[str]:
        return sorted({rest.split("/")[0] for rest in self._below(folder) if "/" in rest})

    def names(self, folder: str) -> list[str]:
        return sorted(rest for rest in self._below(folder) if "/" not in rest)

    def size(self, path: str) -> int | None:
        return len(self.contents[path]) if path in self.contents else None

    def open(self, path: str, size: int, *, sync_name: bool = True) -> "MemoryFile":
        if path not in self.contents:
            self.contents[path] = bytearray(size)
            if sync_name:
                self.step(path)
        return MemoryFile(self, path)

    def remove(self, path: str) -> None:
        self._check_removable(path)
        for name in [name for name in self.contents if name == path or name.startswith(f"{path}/")]:
            del self.contents[name]
        self.step(path)

    def set_aside(self, *folders: str) -> Callable[[], None]:
        for folder in folders:
            self.remove(folder)
        return lambda: None

    def retire(self, path: str) -> Callable[[], None]:
        def removed() -> None:
            self._check_removable(path)
            self.contents.pop(path, None)
            self.step(path)

        return removed

    def modified_ms(self, path: str) -> int | None:
        return self.modified.get(path, 0) if path in self.contents else None

    def space(self, folder: str) -> DiskSpace:
        if isinstance(self.disk, StoreError):
            raise self.disk
        return self.disk

    def load(self, path: str) -> bytes | None:
        return bytes(self.contents[path]) if path in self.contents else None

    def save(self, path: str, data: bytes, *, keep_previous: bool = True) -> None:
        if keep_previous and path in self.contents:
            self.contents[path + ".bak"] = self.contents[path]
        self.contents[path] = bytearray(data)
        self.step(path)

    def lock(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _check_removable(self, path: str) -> None:
        if path in self.unremovable:
            raise StoreError(f"cannot remove {path}: operation not permitted")

    def _below(self, folder: str) -> list[str]:
        start = f"{folder}/"
        return [path.removeprefix(start) for path in self.contents if path.startswith(start)]


@dataclass
class MemoryFile:
    """A file of `MemoryFiles`."""

    files: MemoryFiles
    path: str

    @property
    def size(self) -> int:
        return len(self.files.contents[self.path])

    def read(self, position: int, count: int) -> bytes:
        self._check_readable(position + count)
        assert 0 <= position <= position + count <= self.size, "read outside the file"
        self.files.read_bytes += count
        return bytes(self.files.contents[self.path][position : position + count])

    def write(self, position: int, data: bytes) -> None:
        assert 0 <= position <= position + len(data) <= self.size, "written outside the file"
        self.files.writes.append(self.path)
        fitting = data if self.files.room is None else data[: self.files.room]
        self.files.contents[self.path][position : position + len(fitting)] = fitting
        if self.files.room is not None:
            self.files.room -= len(fitting)
        if len(fitting) < len(data):
            raise StoreError(f"cannot write {self.path}: no space left on device")

    def zero_from(self, position: int) -> None:
        self.files.contents[self.path][position:] = bytes(self.size - position)

    def pieces(self, position: int) -> Iterator[tuple[int, bytes]]:
        self._check_readable(self.size)
        contents = self.files.contents[self.path]
        for start in range(position, len(contents), PIECE_BYTES):
            data = bytes(contents[start : start + PIECE_BYTES])
            if data.count(0) < len(data):
                yield start, data

    def sync(self) -> None:
        self.files.step(self.path)

    def _check_readable(self, end: int) -> None:
        if end > self.files.unreadable.get(self.path, end):
            raise StoreError(f"cannot read {self.path}: Input/output error")

    def check(self) -> None:
        if self.path not in self.files.contents:
            raise StoreError(f"{self.path} was removed")
