"""Pulls that found no message and wait for a new message, for as long as their client allows.

Source: broker/longpolling/PullRequestHoldService.java (5.4.0), which looks for expired pulls every 5 s; here each pull
is answered when its time ends. Number and memory of held pulls are limited, in total and for each connection; a pull
beyond the limits is answered at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

import trio

from pyrmq_core.broker.store.formats import ENTRY
from pyrmq_core.broker.store.reading import QueueKey
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.headers import LazyFields

MILLISECONDS: Final = 1000
# Clients wait 15 to 30 s; a larger number in a request is cut to this.
MOST_MS: Final = 3_600_000
# The memory of a held pull besides its request: a task, its events and its entries in tables.
PULL_BYTES: Final = 8 * 1024
CODE_BYTES: Final = 200
# The pulls that read the store before other tasks run.
WOKEN_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class HeldLimits:
    """The limits on held pulls, in total and for each connection."""

    pulls: int
    pulls_of_connection: int
    held_bytes: int
    bytes_of_connection: int


@dataclass(eq=False, slots=True)
class _Held:
    tags_codes: Collection[int] | None
    group: str
    woken: trio.Event = field(default_factory=trio.Event)
    is_waiting: bool = True


@dataclass(slots=True)
class _Amount:
    pulls: int = 0
    held_bytes: int = 0

    def add(self, pulls: int, size_bytes: int) -> None:
        self.pulls += pulls
        self.held_bytes += size_bytes


class _Queue:
    """Pulls that wait at one queue, by the tags codes they want; None stands for any."""

    __slots__ = ("by_code",)

    def __init__(self) -> None:
        self.by_code: dict[int | None, dict[_Held, None]] = {}

    def add(self, held: _Held) -> None:
        for code in (None,) if held.tags_codes is None else held.tags_codes:
            self.by_code.setdefault(code, {})[held] = None

    def remove(self, held: _Held) -> None:
        for code in (None,) if held.tags_codes is None else held.tags_codes:
            waiting = self.by_code[code]
            del waiting[held]
            if not waiting:
                del self.by_code[code]

    def take(self, codes: set[int]) -> list[_Held]:
        """Removes and returns the pulls that want a message with one of these tags codes."""
        wanting = (held for code in codes for held in self.by_code.get(code, ()))
        return self._taken([*self.by_code.get(None, ()), *wanting])

    def take_group(self, group: str) -> list[_Held]:
        """Removes and returns the pulls of a group."""
        return self._taken([held for waiting in self.by_code.values() for held in waiting if held.group == group])

    def take_all(self) -> list[_Held]:
        """Removes and returns all pulls."""
        return self._taken([held for waiting in self.by_code.values() for held in waiting])

    def _taken(self, pulls: list[_Held]) -> list[_Held]:
        distinct = list(dict.fromkeys(pulls))
        for held in distinct:
            self.remove(held)
            held.is_waiting = False
        return distinct


class HeldPulls:
    """The waiting pulls by queue. `wake` wakes the first of them at once; `run` wakes the rest."""

    def __init__(self, limits: HeldLimits) -> None:
        self._limits = limits
        self._queues: dict[QueueKey, _Queue] = {}
        self._all = _Amount()
        self._of_peers: dict[Peer, _Amount] = {}
        self._to_wake: deque[_Held] = deque()
        self._has_work = trio.Event()

    @property
    def count(self) -> int:
        return self._all.pulls

    def has_room(self, peer: Peer, size_bytes: int) -> bool:
        """Returns True if one more pull of this size may be held for the connection."""
        limits, every = self._limits, self._all
        if every.pulls >= limits.pulls or every.held_bytes + size_bytes > limits.held_bytes:
            return False
        own = self._of_peers.get(peer)
        return size_bytes <= limits.bytes_of_connection if own is None else self._fits(own, size_bytes)

    def _fits(self, own: _Amount, size_bytes: int) -> bool:
        limits = self._limits
        return own.pulls < limits.pulls_of_connection and own.held_bytes + size_bytes <= limits.bytes_of_connection

    def _drop_if_empty(self, key: QueueKey, queue: _Queue) -> None:
        if not queue.by_code and self._queues.get(key) is queue:
            del self._queues[key]

    async def wait(
        self,
        key: QueueKey,
        tags_codes: Collection[int] | None,
        timeout_ms: int,
        peer: Peer,
        size_bytes: int,
        group: str = "",
    ) -> None:
        """Returns when the queue gets a message with one of these tags codes (None: any), or after the time.

        `wake_group` with the pull's group ends the wait, too.
        """
        held = _Held(tags_codes, group)
        queue = self._queues.setdefault(key, _Queue())
        own = self._of_peers.setdefault(peer, _Amount())
        queue.add(held)
        own.add(1, size_bytes)
        self._all.add(1, size_bytes)
        try:
            with trio.move_on_after(min(max(timeout_ms, 0), MOST_MS) / MILLISECONDS):
                await held.woken.wait()
        finally:
            self._all.add(-1, -size_bytes)
            own.add(-1, -size_bytes)
            if not own.pulls:
                del self._of_peers[peer]
            if held.is_waiting:
                queue.remove(held)
                self._drop_if_empty(key, queue)

    def wake(self, key: QueueKey, entries: bytes) -> None:
        """Wakes the pulls whose filter matches one of a queue's new messages."""
        queue = self._queues.get(key)
        if queue is None:
            return
        woken = queue.take({code for _, _, code in ENTRY.iter_unpack(entries)})
        self._drop_if_empty(key, queue)
        self._wake_in_turns(woken)

    def wake_group(self, key: QueueKey, group: str) -> None:
        """Wakes all pulls of a group at a queue, without regard to their filters."""
        queue = self._queues.get(key)
        if queue is not None:
            woken = queue.take_group(group)
            self._drop_if_empty(key, queue)
            self._wake_in_turns(woken)

    def wake_all(self) -> None:
        """Wakes all waiting pulls."""
        queues, self._queues = self._queues, {}
        self._wake_in_turns([held for queue in queues.values() for held in queue.take_all()])

    def _wake_in_turns(self, woken: list[_Held]) -> None:
        for held in woken[:WOKEN_AT_ONCE]:
            held.woken.set()
        if len(woken) > WOKEN_AT_ONCE:
            self._to_wake.extend(woken[WOKEN_AT_ONCE:])
            self._has_work.set()

    async def run(self) -> None:
        """Wakes the pulls that `wake` did not wake at once, a few at a time, until cancelled."""
        while True:
            await self._has_work.wait()
            self._has_work = trio.Event()
            while self._to_wake:
                await trio.lowlevel.checkpoint()
                for _ in range(min(WOKEN_AT_ONCE, len(self._to_wake))):
                    self._to_wake.popleft().woken.set()


def held_bytes(request: Command, tags_codes: Collection[int] | None) -> int:
    """Returns the approximate memory that a request takes while it is held."""
    ext = request.ext
    fields = len(ext.raw) if isinstance(ext, LazyFields) else sum([len(text) for text in ext.values()])
    return PULL_BYTES + len(request.body) + 4 * fields + CODE_BYTES * len(tags_codes or ())
