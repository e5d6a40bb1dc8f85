"""`ForgetfulFiles`: files that record which pages are not synced, so that a simulated power cut can undo them.

Before the first write to a page after a sync, the page's old content is saved, until the file is synced again. A power
cut writes it back, and removes a new file whose name is not synced. It does not undo that a file was removed or moved,
since the broker's store syncs that at once.

A file whose sync fails behaves as in Linux. Its unsynced pages can still be read, but a later sync does not write them
to the disk unless they are written again. So the power cut undoes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from pyrmq_core.errors import InvalidState, StoreError
from pyrmq_core.servers.broker import RunningBroker
from pyrmq_core.servers.broker.store.disk.files import DiskSpace, Files, StoredFile

PAGE_BYTES: Final = 4096
# A page that a power cut may undo: the file's path and the page's number. The number NAME stands for the file's name.
Page = tuple[str, int]
NAME: Final = -1


class ForgetfulFiles:
    """A wrapper around the `files` of a broker's store that records unsynced writes, which `power_cut` undoes."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._synced: dict[Page, bytes] = {}  # the content at the last sync of pages written since
        self._dropped: dict[Page, bytes] = {}  # the earlier content of pages whose sync failed
        self._unnamed: set[str] = set()  # new files whose names are not synced
        # By file, for each sync that runs: the pages written during it, with their content before.
        self._syncing: dict[str, list[dict[Page, bytes]]] = {}

    def add_folder(self, folder: str) -> None:
        self._files.add_folder(folder)

    def folders(self, folder: str) -> list[str]:
        return self._files.folders(folder)

    def names(self, folder: str) -> list[str]:
        return self._files.names(folder)

    def size(self, path: str) -> int | None:
        return self._files.size(path)

    def open(self, path: str, size: int, *, sync_name: bool = True) -> StoredFile:
        if not sync_name and self._files.size(path) is None:
            self._unnamed.add(path)
        return _ForgetfulFile(self, path, self._files.open(path, size, sync_name=sync_name))

    def remove(self, path: str) -> None:
        self._files.remove(path)
        self._forget(path)

    def set_aside(self, *folders: str) -> Callable[[], None]:
        free = self._files.set_aside(*folders)
        for folder in folders:
            self._forget(folder)
        return free

    def retire(self, path: str) -> Callable[[], None]:
        self._forget(path)
        return self._files.retire(path)

    def modified_ms(self, path: str) -> int | None:
        return self._files.modified_ms(path)

    def space(self, folder: str) -> DiskSpace:
        return self._files.space(folder)

    def _forget(self, path: str) -> None:
        for pages in (self._synced, self._dropped):
            for page in [page for page in pages if page[0] == path or page[0].startswith(f"{path}/")]:
                del pages[page]
        self._unnamed = {name for name in self._unnamed if name != path and not name.startswith(f"{path}/")}

    def load(self, path: str) -> bytes | None:
        return self._files.load(path)

    def save(self, path: str, data: bytes, *, keep_previous: bool = True) -> None:
        self._files.save(path, data, keep_previous=keep_previous)

    def lock(self) -> None:
        self._files.lock()

    def close(self) -> None:
        self._files.close()

    def power_cut(self, survives: Callable[[Page], bool] = lambda page: False) -> None:
        """Undoes unsynced writes and removes files with unsynced names, except pages for which `survives` is True."""
        for path in [path for path in self._unnamed if not survives((path, NAME))]:
            self._files.remove(path)
            self._forget(path)
        for (path, number), content in [*self._synced.items(), *self._dropped.items()]:
            if not survives((path, number)):
                file = self._files.open(path, self._files.size(path) or 0)
                file.write(number * PAGE_BYTES, content)
        self._synced.clear()
        self._dropped.clear()
        self._unnamed.clear()

    def about_to_write(self, path: str, file: StoredFile, position: int, count: int) -> None:
        under_way = self._syncing.get(path, [])
        for number in range(position // PAGE_BYTES, (position + count - 1) // PAGE_BYTES + 1 if count else 0):
            page, start = (path, number), number * PAGE_BYTES
            if page not in self._synced or any(page not in meanwhile for meanwhile in under_way):
                content = self._dropped.pop(page, b"") or file.read(start, min(PAGE_BYTES, file.size - start))
                self._synced.setdefault(page, content)
                for meanwhile in under_way:
                    meanwhile.setdefault(page, content)

    def sync(self, path: str, file: StoredFile) -> None:
        """Syncs a file. Pages that are written during the sync stay unsynced."""
        pages = [page for page in list(self._synced) if page[0] == path]
        meanwhile: dict[Page, bytes] = {}
        self._syncing[path] = [*self._syncing.get(path, ()), meanwhile]
        try:
            file.sync()
        except StoreError:
            for page in pages:
                if page in self._synced and page not in meanwhile:
                    self._dropped[page] = self._synced.pop(page)
            raise
        finally:
            self._syncing[path] = [unsynced for unsynced in self._syncing[path] if unsynced is not meanwhile]
        self._unnamed.discard(path)
        for page in pages:
            if page in meanwhile:
                self._synced[page] = meanwhile[page]
            else:
                self._synced.pop(page, None)
            for other in self._syncing[path]:  # this sync changed the page's synced content for the other syncs, too
                if page in other and page in meanwhile:
                    other[page] = meanwhile[page]
                else:
                    other.pop(page, None)


class _ForgetfulFile:
    __slots__ = ("_file", "_files", "_path", "size")

    def __init__(self, files: ForgetfulFiles, path: str, file: StoredFile) -> None:
        self._files = files
        self._path = path
        self._file = file
        self.size = file.size

    def read(self, position: int, count: int) -> bytes:
        return self._file.read(position, count)

    def write(self, position: int, data: bytes) -> None:
        self._files.about_to_write(self._path, self._file, position, len(data))
        self._file.write(position, data)

    def zero_from(self, position: int) -> None:
        """Writes zeros from `position` to the end. Skips pages of zeros, so that fewer pages are recorded."""
        while position < self.size:
            count = min(PAGE_BYTES - position % PAGE_BYTES, self.size - position)
            if any(self._file.read(position, count)):
                self.write(position, bytes(count))
            position += count

    def pieces(self, position: int) -> Iterator[tuple[int, bytes]]:
        return self._file.pieces(position)

    def sync(self) -> None:
        self._files.sync(self._path, self._file)

    def check(self) -> None:
        self._file.check()


def cut_power(running: RunningBroker) -> None:
    """Stops a broker as a power cut does. Raises `InvalidState` unless it runs on `ForgetfulFiles`."""
    files = running.broker.store.files
    if not isinstance(files, ForgetfulFiles):
        raise InvalidState("only a broker on ForgetfulFiles can forget what was not synced")

    def forget() -> None:
        files.power_cut()
        files.close()

    running.kill(then=forget)
