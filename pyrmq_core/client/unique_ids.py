"""The message ids (UNIQ_KEY) of this process, which are unique among its threads and its children after `fork`."""

from __future__ import annotations

import ipaddress
import os
import random
import threading
import time
from datetime import timedelta, timezone
from itertools import chain
from typing import Final

from pyrmq_core.network import local_ip
from pyrmq_core.protocol.messages.message_id import BYTE_TEXTS, IdRun, UniqueIdMaker, month_start_ms

IDS_A_MILLISECOND: Final = 0x10000


class UniqueIds:
    """A generator of ascending ids, 65,536 for each millisecond. After these come the ids of the next millisecond."""

    def __init__(self) -> None:
        self.start_over()

    def start_over(self) -> None:
        """Resets the state in a child after `fork`: the child needs its own pid, random number and lock."""
        self._lock = threading.Lock()
        self._maker: UniqueIdMaker | None = None
        self._month_ms = 0
        self._month_of = -1
        self._now_ms = 0
        self._ends_ns = 0  # the end of the millisecond `_now_ms`
        self._counter = 0
        self._prefix = ""

    def draw_one(self) -> str:
        with self._lock:
            counter = self._counter
            if counter >= IDS_A_MILLISECOND or time.time_ns() >= self._ends_ns:
                maker = self._maker or self._make_maker()
                self._turn_clock()
                self._prefix = maker.run(self._now_ms, self._month_ms, 0, 0).prefix
                counter = self._counter
            self._counter = counter + 1
            return f"{self._prefix}{BYTE_TEXTS[counter >> 8]}{BYTE_TEXTS[counter & 0xFF]}"

    def draw(self, count: int) -> list[str]:
        return list(chain.from_iterable([run.ids() for run in self.draw_runs(count)]))

    def draw_runs(self, count: int) -> list[IdRun]:
        """Returns `count` new ids as runs of consecutive ids. Their texts are only made by `IdRun.ids`."""
        with self._lock:
            maker = self._maker or self._make_maker()
            runs: list[IdRun] = []
            while count > 0:
                self._turn_clock()
                take = min(count, IDS_A_MILLISECOND - self._counter)
                run = maker.run(self._now_ms, self._month_ms, self._counter, take)
                self._prefix = run.prefix
                runs.append(run)
                self._counter += take
                count -= take
            return runs

    def _turn_clock(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        if now_ms <= self._now_ms and self._counter < IDS_A_MILLISECOND:
            return
        self._now_ms, self._counter = max(now_ms, self._now_ms + 1), 0
        self._ends_ns = (self._now_ms + 1) * 1_000_000
        hour = self._now_ms // 3_600_000
        if hour != self._month_of:  # computed once an hour, since a month begins at a full hour
            zone = time.localtime(self._now_ms / 1000).tm_gmtoff
            self._month_ms, self._month_of = month_start_ms(self._now_ms, timezone(timedelta(seconds=zone))), hour

    def _make_maker(self) -> UniqueIdMaker:
        self._maker = UniqueIdMaker(ipaddress.ip_address(local_ip()).packed, os.getpid(), random.getrandbits(32))
        return self._maker


_ids: Final = UniqueIds()

# Returns one UNIQ_KEY of this process.
unique_id: Final = _ids.draw_one


def unique_ids(count: int) -> list[str]:
    """Returns `count` UNIQ_KEYs of this process."""
    return _ids.draw(count)


def unique_id_runs(count: int) -> list[IdRun]:
    """Returns `count` UNIQ_KEYs as runs of consecutive ids, for columnar encoding, which needs no text of each id."""
    return _ids.draw_runs(count)


os.register_at_fork(after_in_child=_ids.start_over)
