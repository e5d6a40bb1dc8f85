"""`LookUpQueue`: limits the page's queries to brokers, and shares them fairly among the viewers' addresses."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

LOOK_UPS_A_SECOND: Final = 20.0
# How many look-ups may begin at once after a pause. Then LOOK_UPS_A_SECOND holds.
BURST: Final = 40
# How many look-ups run at the same time.
LOOK_UPS_AT_ONCE: Final = 8
LONGEST_WAIT_SECONDS: Final = 5.0


class TooManyLookUps(Exception):
    """Raised for a look-up that could not begin, since all viewers together have reached the limit."""


@dataclass(eq=False, slots=True)
class WaitingLookUp:
    """A look-up, which is a query to brokers, that waits until `LookUpQueue` lets it begin.

    Viewers at several addresses may wait for the same look-up. `called` is set when it may begin. From then on it
    counts as a look-up of the address `called_for`.
    """

    called: trio.Event = field(default_factory=trio.Event)
    called_for: str = ""


class LookUpQueue:
    """The look-ups (queries to brokers) that wait to begin, with a waiting line for each viewer's address.

    The next look-up to begin is one of the address with the fewest in progress. Addresses with equally many take turns.
    At most `at_once` look-ups are in progress. One that cannot begin within `longest_wait` seconds fails.
    """

    def __init__(self, at_once: int = LOOK_UPS_AT_ONCE, longest_wait: float = LONGEST_WAIT_SECONDS) -> None:
        self._at_once = at_once
        self._longest_wait = longest_wait
        # By address. The address whose look-up began last is at the end.
        self._lines: dict[str, dict[WaitingLookUp, None]] = {}
        self._under_way: Counter[str] = Counter()
        self._paced: WaitingLookUp | None = None
        self._next_at = -math.inf

    def join(self, look_up: WaitingLookUp, address: str) -> None:
        """Adds a look-up to the waiting line of an address, unless it may begin already.

        A look-up that viewers at several addresses need is in the line of each.
        """
        if not look_up.called.is_set():
            self._lines.setdefault(address, {})[look_up] = None

    @asynccontextmanager
    async def admitted(self, look_up: WaitingLookUp, address: str) -> AsyncIterator[None]:
        """Waits until the look-up may begin. Raises `TooManyLookUps` if the wait is too long."""
        self.join(look_up, address)
        try:
            self._call_next()
            with trio.move_on_after(self._longest_wait):
                await look_up.called.wait()
            if not look_up.called.is_set():
                raise TooManyLookUps
            await self._keep_pace()
            self._call_next()
            yield
        finally:
            self._end(look_up)
            self._call_next()

    async def _keep_pace(self) -> None:
        begin_at = max(self._next_at, trio.current_time() - (BURST - 1) / LOOK_UPS_A_SECOND)
        await trio.sleep_until(begin_at)
        self._next_at = begin_at + 1 / LOOK_UPS_A_SECOND
        self._paced = None

    def _call_next(self) -> None:
        if self._paced is not None or not self._lines or self._under_way.total() >= self._at_once:
            return
        address = min(self._lines, key=lambda waiting: self._under_way[waiting])
        line = self._lines.pop(address)
        self._lines[address] = line
        look_up = next(iter(line))
        self._leave_lines(look_up)
        self._under_way[address] += 1
        self._paced = look_up
        look_up.called_for = address
        look_up.called.set()

    def _end(self, look_up: WaitingLookUp) -> None:
        self._leave_lines(look_up)
        if look_up.called.is_set():
            self._under_way[look_up.called_for] -= 1
            self._under_way += Counter()  # drops an address without look-ups
        if self._paced is look_up:
            self._paced = None

    def _leave_lines(self, look_up: WaitingLookUp) -> None:
        for address in [address for address, line in self._lines.items() if look_up in line]:
            del self._lines[address][look_up]
            if not self._lines[address]:
                del self._lines[address]
