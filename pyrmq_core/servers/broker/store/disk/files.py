"""`Files`: the interface of a directory on a disk, as the store uses it.

A file has its full length from its creation, and is sparse: unwritten bytes are zeros. All methods block. One thread
calls them, but other threads may call `sync`, `check`, `save`, `space`, and the functions that `set_aside` and `retire`
return. Paths are checked before anything is changed. Failures of the system raise `StoreError` with path and reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol


class DiskSpace(NamedTuple):
    """The bytes of a folder's file system: all, the free ones, and those that users without privileges can use."""

    total: int
    free: int
    usable: int

    @property
    def used_percent(self) -> int:
        used = self.total - self.free
        return -(-used * 100 // max(1, used + self.usable))


class StoredFile(Protocol):
    """One file of fixed length."""

    @property
    def size(self) -> int: ...

    def read(self, position: int, count: int) -> bytes:
        """Returns exactly `count` bytes, which lie within the file."""

    def write(self, position: int, data: bytes) -> None:
        """Writes all bytes. Raises `StoreError` if that fails, as on a full disk."""

    def pieces(self, position: int) -> Iterator[tuple[int, bytes]]:
        """Yields the bytes from `position` on in parts, each with its position. Long runs of zeros are skipped."""

    def zero_from(self, position: int) -> None:
        """Replaces all bytes from `position` on by zeros."""

    def sync(self) -> None:
        """Syncs all earlier writes of the file. Any thread may call it.

        Raises `StoreError` for a failed sync, or if the file is no longer at its path.
        """

    def check(self) -> None:
        """Raises `StoreError` if the file is no longer at its path. Another thread may call it."""


class Files(Protocol):
    """A directory's files by relative path. A path that could lead out of it raises `UnsafePath`."""

    def add_folder(self, folder: str) -> None:
        """Allows paths below a further folder, which may lie outside the directory."""

    def folders(self, folder: str) -> list[str]: ...

    def names(self, folder: str) -> list[str]: ...

    def size(self, path: str) -> int | None:
        """Returns the length in bytes, or None if there is no such file."""

    def open(self, path: str, size: int, *, sync_name: bool = True) -> StoredFile:
        """Opens the file, or creates it with `size` zero bytes.

        The name of a new file is synced to the disk at once, or without `sync_name` by the file's first `sync`.
        """

    def remove(self, path: str) -> None:
        """Removes a file, or a folder with all its files, if it exists."""

    def set_aside(self, *folders: str) -> Callable[[], None]:
        """Moves folders away at once, so that new ones can have their names. Skips missing folders.

        Returns a function that deletes the moved folders, to be called in any thread.
        """
        ...

    def retire(self, path: str) -> Callable[[], None]:
        """Drops a file that is no longer used. Returns a function that deletes it, to be called in any thread."""
        ...

    def modified_ms(self, path: str) -> int | None:
        """Returns the time in ms at which the file was last written, or None if there is no such file."""

    def space(self, folder: str) -> DiskSpace:
        """Returns the space of the file system that holds, or will hold, a folder. Another thread may call it."""
        ...

    def load(self, path: str) -> bytes | None: ...

    def save(self, path: str, data: bytes, *, keep_previous: bool = True) -> None:
        """Replaces the file in one step and syncs it. With `keep_previous` the old version stays as `path.bak`."""

    def lock(self) -> None:
        """Locks the directory. Raises `StoreError` if another process has locked it."""

    def close(self) -> None:
        """Closes the descriptors and releases the lock, without a sync."""
