"""`DiskFiles`: the store's files in a directory.

Files are read and written by position, not mapped to memory: with mappings a full disk would end the process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Final

from pyrmq_core.errors import StoreError
from pyrmq_core.servers.broker.store.disk.descriptors import Descriptors
from pyrmq_core.servers.broker.store.disk.files import DiskSpace, StoredFile
from pyrmq_core.servers.broker.store.disk.paths import check_path

try:
    import fcntl
except ImportError:  # on Windows; there a second broker on the same directory is not detected
    fcntl = None  # type: ignore[assignment]

MAX_OPEN_FILES: Final = 256
PIECE_BYTES: Final = 1 << 20
# Removed folders are moved here first, since the deletion of thousands of files would block the store's thread.
ASIDE: Final = "removed"
LOCK_NAME: Final = "lock"


class DiskFiles:
    """The implementation of `Files` for a directory on a disk, with a limited number of open descriptors."""

    def __init__(self, root: Path, *, max_open_files: int = MAX_OPEN_FILES) -> None:
        self._root = root
        self._folders: list[str] = []
        self._made: dict[str, object] = {}  # by path: an object for each file that was opened and not removed
        self._descriptors = Descriptors(max_open_files, self.full_path)
        self.descriptor = self._descriptors.get  # to be called in the store's thread
        self._lock: IO[str] | None = None
        self._set_aside = 0
        self._unsynced_folders: set[Path] = set()  # the folders in which new files or folders were created
        self._syncing_names = threading.Lock()

    def add_folder(self, folder: str) -> None:
        self._folders.append(folder)

    def full_path(self, path: str) -> Path:
        for folder in self._folders:
            if path.startswith(f"{folder}/"):
                return self._root / folder / check_path(path[len(folder) + 1 :])
            if path == folder:
                return self._root / folder
        return self._root / check_path(path)

    def folders(self, folder: str) -> list[str]:
        return self._listing(folder, folders=True)

    def names(self, folder: str) -> list[str]:
        return self._listing(folder, folders=False)

    def size(self, path: str) -> int | None:
        full_path = self.full_path(path)
        with _named("look at", full_path):
            try:
                return full_path.stat().st_size
            except (FileNotFoundError, NotADirectoryError):
                return None

    def open(self, path: str, size: int, *, sync_name: bool = True) -> StoredFile:
        full_path = self.full_path(path)
        with _named("make", full_path):
            if not full_path.exists():
                self._make_folder(full_path.parent, sync=sync_name)
                self._make_file(full_path, size, sync=sync_name)
            self._made.setdefault(path, object())
            return DiskFile(self, path, full_path.stat().st_size)

    def remove(self, path: str) -> None:
        full_path = self.full_path(path)
        with _named("remove", full_path):
            self._forget(path)
            if full_path.is_dir():
                self._remove_folder(full_path)
            else:
                full_path.unlink(missing_ok=True)
            if full_path.parent.exists():
                self._sync_folder(full_path.parent)

    def set_aside(self, *folders: str) -> Callable[[], None]:
        moved: list[Path] = []
        parents: set[Path] = set()
        self._forget(*folders)
        for full_path in [path for folder in folders if (path := self.full_path(folder)).is_dir()]:
            aside = self._root / ASIDE / str(self._set_aside)
            with _named("remove", full_path):
                self._make_folder(aside.parent)
                try:
                    full_path.rename(aside)
                except OSError:  # the target is on another file system
                    self._remove_folder(full_path)
            self._set_aside += 1
            moved.append(aside)
            parents.add(full_path.parent)
        for parent in parents:
            with _named("sync", parent):
                self._sync_folder(parent)
        return partial(self._free, moved)

    def _free(self, moved: list[Path]) -> None:
        for aside in moved:
            with _named("remove", aside):
                if aside.exists():
                    self._remove_folder(aside)

    def _forget(self, *paths: str) -> None:
        # Without an entry in `_made`, `sync` does not report a file as lost.
        gone, below = set(paths), tuple(f"{path}/" for path in paths)
        for name in [name for name in self._made if name in gone or name.startswith(below)]:
            del self._made[name]
        for path in paths:
            self._descriptors.forget(path)

    def _remove_folder(self, full_path: Path) -> None:
        self._descriptors.with_room(lambda: shutil.rmtree(full_path))

    def retire(self, path: str) -> Callable[[], None]:
        """Drops a file that is no longer used, and moves it to the folder `removed` if that is possible.

        Returns a function that deletes the file, to be called in any thread.
        """
        full_path = self.full_path(path)
        self._forget(path)
        aside = self._root / ASIDE / f"file{self._set_aside}"
        self._set_aside += 1
        try:
            self._make_folder(aside.parent)
            full_path.rename(aside)
        except OSError:
            return partial(self._unlink, full_path, full_path.parent)
        return partial(self._unlink, aside, full_path.parent)

    def _unlink(self, full_path: Path, folder: Path) -> None:
        with _named("remove", full_path):
            full_path.unlink(missing_ok=True)
            if folder.exists():
                self._sync_folder(folder)

    def modified_ms(self, path: str) -> int | None:
        full_path = self.full_path(path)
        with _named("look at", full_path):
            try:
                return full_path.stat().st_mtime_ns // 1_000_000
            except (FileNotFoundError, NotADirectoryError):
                return None

    def space(self, folder: str) -> DiskSpace:
        full_path = self.full_path(folder)
        with _named("look at the file system of", full_path):
            while not full_path.exists() and full_path != full_path.parent:
                full_path = full_path.parent
            usage = shutil.disk_usage(full_path)
            return DiskSpace(usage.total, usage.total - usage.used, usage.free)

    def load(self, path: str) -> bytes | None:
        full_path = self.full_path(path)
        with _named("read", full_path):
            try:
                return self._descriptors.with_room(full_path.read_bytes)
            except FileNotFoundError:
                return None

    def save(self, path: str, data: bytes, *, keep_previous: bool = True) -> None:
        full_path = self.full_path(path)
        fresh = full_path.with_name(full_path.name + ".tmp")
        with _named("write", full_path):
            self._make_folder(full_path.parent)
            number = self._descriptors.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            try:
                _write_all(number, data, 0)
                os.fsync(number)
            finally:
                self._descriptors.close(number)
            if keep_previous and full_path.exists():
                full_path.replace(full_path.with_name(full_path.name + ".bak"))
            fresh.replace(full_path)
            self._sync_folder(full_path.parent)

    def lock(self) -> None:
        """Locks byte 0 of the file `lock`, as RocketMQ does, so that no other broker opens this store.

        Raises `StoreError` if another process has locked it. Windows has no such lock.
        """
        if self._lock is not None:
            return
        place = self._root / LOCK_NAME
        with _named("open", place):
            self._make_folder(place.parent)
            file = place.open("a+")
            try:
                if fcntl is not None:
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
            except OSError as error:
                file.close()
                raise StoreError(f"another broker holds {self._root}; stop it or set storePathRootDir") from error
            self._lock = file
            if not place.stat().st_size:
                file.write("lock")
                file.flush()
            self._descriptors.reserve()
        self.remove(ASIDE)  # left by a killed process

    def close(self) -> None:
        with _named("close files of", self._root):
            self._descriptors.close_all()
            if self._lock is not None:
                self._lock.close()
                self._lock = None

    def sync(self, path: str) -> None:
        full_path, creation = self.full_path(path), self._made.get(path)
        with _named("sync", full_path):
            try:
                with self._descriptors.held(path) as opened:
                    getattr(os, "fdatasync", os.fsync)(opened.number)
                    self._check(path, creation, os.fstat(opened.number))
                self._sync_names(full_path)
            except FileNotFoundError:
                self._check(path, creation, None)

    def check(self, path: str) -> None:
        with _named("look at", self.full_path(path)):
            self._check(path, self._made.get(path), None)

    def _check(self, path: str, creation: object, held: os.stat_result | None) -> None:
        full_path = self.full_path(path)
        try:
            on_disk: os.stat_result | None = full_path.stat()
        except (FileNotFoundError, NotADirectoryError):
            on_disk = None
        is_there = on_disk is not None and (held is None or os.path.samestat(held, on_disk))
        if not is_there and creation is not None and self._made.get(path) is creation:
            raise StoreError(f"{full_path} was removed or replaced while the broker uses it")

    def _listing(self, folder: str, *, folders: bool) -> list[str]:
        full_path = self.full_path(folder)

        def listed() -> list[str]:
            with os.scandir(full_path) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir() == folders)

        with _named("list", full_path):
            try:
                return self._descriptors.with_room(listed)
            except (FileNotFoundError, NotADirectoryError):
                return []

    def _make_file(self, full_path: Path, size: int, *, sync: bool) -> None:
        """Creates a file of zeros, and with `sync` syncs it and its folder's entry. Removes the file on failure."""
        number = self._descriptors.open(full_path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            os.truncate(number if os.truncate in os.supports_fd else full_path, size)
            self._unsynced_folders.add(full_path.parent)
            if sync:
                os.fsync(number)
                self._sync_names(full_path)
        except OSError:
            with contextlib.suppress(OSError):
                full_path.unlink()
            raise
        finally:
            self._descriptors.close(number)

    def _make_folder(self, folder: Path, *, sync: bool = True) -> None:
        # The names of all parent folders must be synced, too, or a power cut may lose the file.
        if not folder.exists():
            self._make_folder(folder.parent, sync=sync)
            folder.mkdir(exist_ok=True)
            self._unsynced_folders.add(folder.parent)
            if sync:
                self._sync_names(folder)

    def _sync_names(self, full_path: Path) -> None:
        with self._syncing_names:
            for folder in full_path.parents:
                if folder in self._unsynced_folders:
                    self._unsynced_folders.discard(folder)  # before the sync, during which a new file may add it again
                    try:
                        self._sync_folder(folder)
                    except OSError:
                        self._unsynced_folders.add(folder)
                        raise

    def _sync_folder(self, folder: Path) -> None:
        # A power cut may lose a new file whose folder was not synced.
        number = self._descriptors.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            self._descriptors.close(number)


class DiskFile:
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
            _write_all(self._files.descriptor(self._path), data, position)
        except OSError as error:
            raise self._error("write", error) from error

    def pieces(self, position: int) -> Iterator[tuple[int, bytes]]:
        """Yields the parts of the file that are not zero. Holes are skipped without reading them."""
        try:
            descriptor = self._files.descriptor(self._path)
            while (start := _seek(descriptor, position, self.size, "SEEK_DATA")) < self.size:
                end = _seek(descriptor, start, self.size, "SEEK_HOLE")
                count = min(PIECE_BYTES, (end if end > start else self.size) - start)
                data = os.pread(descriptor, count, start)
                if data.count(0) < len(data):
                    yield start, data
                    descriptor = self._files.descriptor(self._path)
                position = start + count
        except OSError as error:
            raise self._error("read", error) from error

    def zero_from(self, position: int) -> None:
        # Only parts with data are written, so that the file stays sparse.
        for start, data in self.pieces(position):
            self.write(start, bytes(len(data)))

    def sync(self) -> None:
        self._files.sync(self._path)

    def check(self) -> None:
        self._files.check(self._path)

    def _error(self, what: str, error: OSError) -> StoreError:
        return StoreError(f"cannot {what} {self._files.full_path(self._path)}: {error.strerror}")


def _seek(descriptor: int, position: int, end: int, what: str) -> int:
    """Returns the position of the next data or hole (`what`: SEEK_DATA or SEEK_HOLE), or `end` if there is none.

    A system that cannot search returns `position`.
    """
    if position >= end or not hasattr(os, what):
        return position
    try:
        return os.lseek(descriptor, position, getattr(os, what))
    except OSError as error:
        return end if error.errno == errno.ENXIO else position


def _write_all(descriptor: int, data: bytes, position: int) -> None:
    written = os.pwrite(descriptor, data, position)
    while written < len(data):
        written += os.pwrite(descriptor, memoryview(data)[written:], position + written)


@contextlib.contextmanager
def _named(what: str, full_path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot {what} {full_path}: {error.strerror or error}") from error
