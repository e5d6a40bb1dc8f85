"""Where the store keeps its bytes: `Files` is all it asks of a disk, `DiskFiles` is a directory.

Files have one length from the moment they are made and are sparse: zeros until written. Reading and writing go by
position, not through mappings: a full disk is then an error to answer, where a mapping would end the process, and what
is kept in memory stays small. All methods block; everything but `sync` is called by one thread.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections import OrderedDict
from pathlib import Path
from typing import IO, Final, Protocol

from pyrmq_core.broker.store.formats import file_offset
from pyrmq_core.errors import StoreError

try:
    import fcntl
except ImportError:  # Windows has none; two brokers on one directory are not noticed there
    fcntl = None  # type: ignore[assignment]

MAX_OPEN_FILES: Final = 256
ZERO_BYTES: Final = 1 << 20
LOCK_NAME: Final = "lock"


class StoredFile(Protocol):
    """One file of fixed length."""

    @property
    def size(self) -> int: ...

    def read(self, position: int, count: int) -> bytes:
        """Exactly `count` bytes, which lie within the file."""

    def write(self, position: int, data: bytes) -> None:
        """Raises `StoreError` when not all could be written, as on a full disk."""

    def zero_from(self, position: int) -> None:
        """Everything from `position` on becomes zeros."""

    def sync(self) -> None:
        """Returns when what was written before is on the medium; may be called by another thread."""


class Files(Protocol):
    """A directory's files by relative path, with `/` between folders."""

    def folders(self, folder: str) -> list[str]: ...

    def names(self, folder: str) -> list[str]: ...

    def size(self, path: str) -> int | None:
        """The length in bytes; None when there is no such file."""

    def open(self, path: str, size: int) -> StoredFile:
        """The file, made of zeros when it does not exist."""

    def remove(self, path: str) -> None:
        """Removes a file, or a folder with all its files; nothing happens when there is none."""

    def load(self, path: str) -> bytes | None: ...

    def save(self, path: str, data: bytes, *, keep_previous: bool = True) -> None:
        """Replaces the file in one step and syncs it; the previous version stays as `path.bak`."""

    def lock(self) -> None:
        """`StoreError` when another process holds the directory."""

    def close(self) -> None:
        """Gives back descriptors and the lock; syncs nothing."""


class DiskFiles:
    """`Files` below a directory, with a bounded number of open descriptors."""

    def __init__(self, root: Path, *, max_open_files: int = MAX_OPEN_FILES) -> None:
        self._root = root
        self._max_open_files = max_open_files
        self._descriptors: OrderedDict[str, int] = OrderedDict()  # the one used last stands last
        self._lock: IO[str] | None = None

    def folders(self, folder: str) -> list[str]:
        return self._listing(folder, folders=True)

    def names(self, folder: str) -> list[str]:
        return self._listing(folder, folders=False)

    def size(self, path: str) -> int | None:
        try:
            return (self._root / path).stat().st_size
        except FileNotFoundError:
            return None

    def open(self, path: str, size: int) -> StoredFile:
        place = self._root / path
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                with place.open("xb") as new:
                    new.truncate(size)
                    os.fsync(new.fileno())
                _sync_folder(place.parent)
            except OSError as error:
                raise StoreError(f"cannot make {place}: {error.strerror}") from error
        return DiskFile(self, path, place.stat().st_size)

    def remove(self, path: str) -> None:
        for opened in [name for name in self._descriptors if name == path or name.startswith(f"{path}/")]:
            os.close(self._descriptors.pop(opened))
        place = self._root / path
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
        if place.parent.exists():
            _sync_folder(place.parent)

    def load(self, path: str) -> bytes | None:
        try:
            return (self._root / path).read_bytes()
        except FileNotFoundError:
            return None

    def save(self, path: str, data: bytes, *, keep_previous: bool = True) -> None:
        place = self._root / path
        fresh = place.with_name(place.name + ".tmp")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with fresh.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if keep_previous and place.exists():
                place.replace(place.with_name(place.name + ".bak"))
            fresh.replace(place)
            _sync_folder(place.parent)
        except OSError as error:
            raise StoreError(f"cannot write {place}: {error.strerror}") from error

    def lock(self) -> None:
        """Locks byte 0 of `lock`, as RocketMQ does: neither broker opens what the other one holds."""
        place = self._root / LOCK_NAME
        place.parent.mkdir(parents=True, exist_ok=True)
        file = place.open("a+")
        try:
            if fcntl is not None:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except OSError as error:
            file.close()
            raise StoreError(f"another broker holds {self._root}; stop it or set storePathRootDir") from error
        if not place.stat().st_size:
            file.write("lock")
            file.flush()
        self._lock = file

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def descriptor(self, path: str) -> int:
        """An open descriptor; the one that was not used for longest is closed when there are too many."""
        descriptor = self._descriptors.get(path)
        if descriptor is not None:
            self._descriptors.move_to_end(path)
            return descriptor
        while len(self._descriptors) >= self._max_open_files:
            os.close(self._descriptors.popitem(last=False)[1])
        descriptor = self._descriptors[path] = os.open(self._root / path, os.O_RDWR)
        return descriptor

    def sync(self, path: str) -> None:
        """By a descriptor of its own: the shared ones belong to the store's thread."""
        try:
            descriptor = os.open(self._root / path, os.O_RDWR)
        except FileNotFoundError:  # removed meanwhile, with its topic
            return
        try:
            getattr(os, "fdatasync", os.fsync)(descriptor)
        except OSError as error:
            raise StoreError(f"cannot sync {self._root / path}: {error.strerror}") from error
        finally:
            os.close(descriptor)

    def full_path(self, path: str) -> Path:
        return self._root / path

    def _listing(self, folder: str, *, folders: bool) -> list[str]:
        try:
            with os.scandir(self._root / folder) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir() == folders)
        except FileNotFoundError:
            return []


class DiskFile:
    """A file of `DiskFiles`."""

    __slots__ = ("_files", "_path", "size")

    def __init__(self, files: DiskFiles, path: str, size: int) -> None:
        self._files = files
        self._path = path
        self.size = size

    def read(self, position: int, count: int) -> bytes:
        try:
            data = os.pread(self._files.descriptor(self._path), count, position)
        except OSError as error:
            raise self._error("read", error) from error
        if len(data) < count:
            raise StoreError(
                f"{self._files.full_path(self._path)} ends at {position + len(data)}; "
                f"{count} bytes at {position} were asked for"
            )
        return data

    def write(self, position: int, data: bytes) -> None:
        try:
            descriptor = self._files.descriptor(self._path)
            written = os.pwrite(descriptor, data, position)
            while written < len(data):
                written += os.pwrite(descriptor, memoryview(data)[written:], position + written)
        except OSError as error:
            raise self._error("write", error) from error

    def zero_from(self, position: int) -> None:
        """Holes stay holes: only what is not zero is written."""
        descriptor = self._files.descriptor(self._path)
        while (start := _seek(descriptor, position, self.size, "SEEK_DATA")) < self.size:
            end = _seek(descriptor, start, self.size, "SEEK_HOLE")
            count = min(ZERO_BYTES, (end if end > start else self.size) - start)
            if any(os.pread(descriptor, count, start)):
                self.write(start, bytes(count))
            position = start + count

    def sync(self) -> None:
        self._files.sync(self._path)

    def _error(self, what: str, error: OSError) -> StoreError:
        return StoreError(f"cannot {what} {self._files.full_path(self._path)}: {error.strerror}")


def open_all(files: Files, folder: str, file_bytes: int, setting: str) -> dict[int, StoredFile]:
    """The files of a folder that are named for the offset of their first byte, by it, ascending.

    An empty last one was never begun and is removed; `StoreError` for one that is not of the length `setting` names.
    """
    names = [name for name in files.names(folder) if file_offset(name) is not None]
    if names and not files.size(f"{folder}/{names[-1]}"):
        files.remove(f"{folder}/{names.pop()}")
    opened = {}
    for name in names:
        path = f"{folder}/{name}"
        if (size := files.size(path)) != file_bytes:
            raise StoreError(
                f"{path} has {size} bytes and {setting} is {file_bytes}; set it as it was when the store was made"
            )
        opened[int(name)] = files.open(path, file_bytes)
    return opened


def _seek(descriptor: int, position: int, end: int, what: str) -> int:
    """Where the next bytes lie that may not be zero, or the next hole; `position` where the system cannot tell."""
    if position >= end or not hasattr(os, what):
        return position
    try:
        return os.lseek(descriptor, position, getattr(os, what))
    except OSError as error:
        return end if error.errno == errno.ENXIO else position


def _sync_folder(folder: Path) -> None:
    """A new name is on the medium only when its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
