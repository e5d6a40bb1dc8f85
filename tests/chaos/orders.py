"""Orders to a broker's process that only its inside can carry out: a power cut, a full disk, a step of its clock.

A run writes the order into a file in the broker's folder and sends SIGUSR1; the process carries it out wherever its
main thread is, and removes the file.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from collections.abc import Callable
from enum import StrEnum, auto
from pathlib import Path
from typing import Any, Final

from pyrmq_core.servers.broker import server
from pyrmq_core.servers.broker.store.disk import disk_files
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.embedded.forgetful_files import ForgetfulFiles
from tests.chaos.planted import replace
from tests.support.our_cluster import OurServer

FILE: Final = "order"
CARRIED_OUT_SECONDS: Final = 30.0


class Order(StrEnum):
    """The effect of an order."""

    CUT_POWER = auto()
    FILL_DISK = auto()
    FREE_DISK = auto()
    SET_CLOCK = auto()


def give_order(broker: OurServer, order: Order, seconds: float = 0.0) -> None:
    """Returns when the broker has carried out the order, which ends its process if it is a power cut.

    A clock is set to the system's time and `seconds`.
    """
    file, pid = broker.process.log.parent / FILE, broker.process.pid
    assert pid is not None, "the broker runs"
    fresh = file.with_suffix(".tmp")
    fresh.write_text(f"{order} {seconds}")
    fresh.replace(file)
    os.kill(pid, signal.SIGUSR1)
    if order is Order.CUT_POWER:
        broker.process.wait_for_exit(CARRIED_OUT_SECONDS)
    else:
        broker.process.wait_until(lambda: not file.exists(), CARRIED_OUT_SECONDS)


class Disk:
    """The disk of a broker's process, which forgets what is not flushed, and fills up."""

    def __init__(self) -> None:
        self.is_full = False
        self._files: ForgetfulFiles | None = None

    def plant(self) -> None:
        replace(server, "DiskFiles", self._forgetful)
        replace(disk_files, "_write_all", self._refusing)
        replace(shutil, "disk_usage", self._full)

    def cut_power(self) -> None:
        """Undoes what is not flushed, and ends the process."""
        if self._files is not None:
            self._files.power_cut()
        os.kill(os.getpid(), signal.SIGKILL)

    def _forgetful(self, real: Callable[[Path], Files]) -> Callable[[Path], Files]:
        def planted(root: Path) -> Files:
            self._files = ForgetfulFiles(real(root))
            return self._files

        return planted

    def _refusing(self, real: Callable[[int, bytes, int], None]) -> Callable[[int, bytes, int], None]:
        """Returns the function that writes to a file: of a full disk it writes half; what is there may become zeros."""

        def planted(descriptor: int, data: bytes, position: int) -> None:
            if not self.is_full or not any(data):
                return real(descriptor, data, position)
            real(descriptor, data[: len(data) // 2], position)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        return planted

    def _full(self, real: Callable[[Path], Any]) -> Callable[[Path], Any]:
        def planted(path: Path) -> Any:
            usage = real(path)
            return usage._replace(used=usage.total, free=0) if self.is_full else usage

        return planted


class Clock:
    """The clock of a broker's process, `ahead` of the system's by seconds."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def plant(self) -> None:
        replace(time, "time_ns", lambda real: lambda: real() + int(self.ahead * 1e9))
        replace(time, "time", lambda real: lambda: real() + self.ahead)


def take_orders(folder: Path) -> None:
    """Has this process, which is to become a broker, carry out the orders in a folder."""
    disk, clock = Disk(), Clock()
    disk.plant()
    clock.plant()

    def carry_out(*_: object) -> None:
        order, seconds = (folder / FILE).read_text().split()
        match Order(order):
            case Order.SET_CLOCK:
                clock.ahead = float(seconds)
            case Order.CUT_POWER:
                disk.cut_power()
            case Order.FILL_DISK:
                disk.is_full = True
            case Order.FREE_DISK:
                disk.is_full = False
        (folder / FILE).unlink()

    signal.signal(signal.SIGUSR1, carry_out)
