"""A cache of open file descriptors by path, limited in number, and a reserve for when the process has none left.

Network connections use the process's descriptors, too. The reserve consists of descriptors that are open on the null
device. When the process has none left, the store closes one of them to open a file for a short time. Only the store's
thread reads and writes through the cache. Other threads may sync, and write small files, but close no cached descriptor
in use.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")

# The descriptors in reserve: enough to sync, to write a file, and to list or remove a folder at the same time.
RESERVED: Final = 8
NONE_LEFT: Final = (errno.EMFILE, errno.ENFILE)


class OpenDescriptor:
    """An open descriptor, and the number of syncs that use it (`users`).

    If it `is_gone`, its file was removed or replaced, and the last user closes it.
    """

    __slots__ = ("is_gone", "number", "users")

    def __init__(self, number: int, users: int = 0) -> None:
        self.number = number
        self.users = users
        self.is_gone = False


class Descriptors:
    """A cache of open file descriptors by path: if it has `most`, the least recently used is closed for a new one.

    A descriptor is not closed while a sync uses it. `place_of` returns the full path of a file from its path in the
    store. Failures raise OSError.
    """

    def __init__(self, most: int, place_of: Callable[[str], Path]) -> None:
        self._most = most
        self._place_of = place_of
        self._opened: OrderedDict[str, OpenDescriptor] = OrderedDict()  # in the order of last use
        self._reserve: list[int] = []
        self._reserved = 0
        self._lock = threading.Lock()

    def reserve(self) -> None:
        self._reserved = RESERVED
        with self._lock:
            self._fill_reserve()

    def get(self, path: str) -> int:
        """Returns an open descriptor of the file at `path`. Only the store's thread may call it.

        Opening the file may close the descriptors of other files.
        """
        opened = self._opened.get(path)
        if opened is not None:
            self._opened.move_to_end(path)
            return opened.number
        while len(self._opened) >= self._most and self._close_oldest():
            pass
        full_path = self._place_of(path)
        while True:
            try:
                number = os.open(full_path, os.O_RDWR)
                break
            except OSError as error:
                if error.errno not in NONE_LEFT or not self._close_oldest():
                    number = self.open(full_path, os.O_RDWR)
                    break
        self._opened[path] = OpenDescriptor(number)
        return number

    @contextlib.contextmanager
    def held(self, path: str) -> Iterator[OpenDescriptor]:
        """Yields a descriptor of the file at `path` that stays open inside the `with` block. Any thread may call it."""
        with self._lock:
            opened = self._opened.get(path)
            if opened is not None:
                opened.users += 1
        if opened is None:
            opened = OpenDescriptor(self.open(self._place_of(path), os.O_RDWR), users=1)
            opened.is_gone = True
        try:
            yield opened
        finally:
            with self._lock:
                opened.users -= 1
                if opened.is_gone and not opened.users:
                    self._give_back(opened.number)

    def open(self, full_path: Path, flags: int) -> int:
        """Opens a file, also if the process has no descriptor left but the reserve. The caller must `close` it."""
        return self.with_room(lambda: os.open(full_path, flags, 0o666))

    def with_room(self, call: Callable[[], T]) -> T:
        """Calls a function that needs a descriptor. If none is left, frees a reserved descriptor and calls it again."""
        while True:
            try:
                return call()
            except OSError as error:
                with self._lock:
                    if error.errno not in NONE_LEFT or not self._reserve:
                        raise
                    os.close(self._reserve.pop())

    def close(self, number: int) -> None:
        with self._lock:
            self._give_back(number)

    def forget(self, path: str) -> None:
        """Drops the descriptors of a file or folder that is removed, so that none is used for its path again."""
        for name in [name for name in self._opened if name == path or name.startswith(f"{path}/")]:
            self._leave(name)

    def close_all(self) -> None:
        for name in list(self._opened):
            self._leave(name)
        with self._lock:
            self._reserved = 0
            while self._reserve:
                os.close(self._reserve.pop())

    def _close_oldest(self) -> bool:
        for name, opened in self._opened.items():
            if not opened.users:
                self._leave(name)
                return True
        return False

    def _leave(self, name: str) -> None:
        with self._lock:
            opened = self._opened.pop(name)
            opened.is_gone = True
            if not opened.users:
                os.close(opened.number)

    def _give_back(self, number: int) -> None:
        """Adds the descriptor to the reserve, or closes it if the reserve is full.

        `dup2` replaces its file by the null device in one step. After a close and a new open, a network connection
        could get the descriptor in between.
        """
        if 0 < len(self._reserve) < self._reserved:
            os.dup2(self._reserve[0], number, inheritable=False)
            self._reserve.append(number)
        else:
            os.close(number)
        self._fill_reserve()

    def _fill_reserve(self) -> None:
        with contextlib.suppress(OSError):
            while len(self._reserve) < self._reserved:
                self._reserve.append(os.open(os.devnull, os.O_RDWR))
