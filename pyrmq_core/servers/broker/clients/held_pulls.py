"""Held pulls: pulls that found no message and wait for a new one, for as long as their client allows.

A held pull has no task, only a row in these tables, which takes a third of a task's memory. It is answered within 10 ms
after its waiting time ends. RocketMQ checks these times only every 5 s (broker/longpolling/PullRequestHoldService.java,
5.4.0). The number and memory of held pulls are limited, in total and for each connection. A pull beyond the limits is
answered at once.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

import trio

from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.headers import LazyFields
from pyrmq_core.servers.broker.store.formats import ENTRY
from pyrmq_core.servers.broker.store.reading import QueueKey

MILLISECONDS: Final = 1000
# The longest wait of a pull, to which longer ones are shortened. Clients request 15 to 30 s.
MOST_MS: Final = 3_600_000
# Pulls whose time ends in the same hundredth of a second are woken together.
TICKS_A_SECOND: Final = 100
# The memory that is counted for a held pull beside its request, and for each tag hash that it selects. It includes the
# task that the pull needs when it is woken.
PULL_BYTES: Final = 8 * 1024
CODE_BYTES: Final = 200
# How many woken pulls read the store before other tasks run.
WOKEN_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class HeldLimits:
    """The limits on held pulls: their number and bytes, in total and for each connection."""

    pulls: int
    pulls_of_connection: int
    held_bytes: int
    bytes_of_connection: int


@dataclass(eq=False, slots=True)
class HeldPull:
    """A pull that waits for a message in the queue `key` with one of `tags_codes`, hashes of tags (None: any message).

    The pull waits until `ends_tick`, in ticks of 10 ms. `wake` is called once to answer it, and is None afterwards.
    `number` counts the pulls in the order of their arrival.
    """

    key: QueueKey
    tags_codes: Collection[int] | None
    group: str
    peer: Peer
    size_bytes: int
    ends_tick: int
    wake: Callable[[], None] | None
    number: int = 0


@dataclass(slots=True)
class _Amount:
    pulls: int = 0
    held_bytes: int = 0

    def add(self, pulls: int, size_bytes: int) -> None:
        self.pulls += pulls
        self.held_bytes += size_bytes


class _Queue:
    """The pulls held for one queue, by each tag hash that they select. The key None has the pulls of all messages."""

    __slots__ = ("by_code",)

    def __init__(self) -> None:
        self.by_code: dict[int | None, dict[HeldPull, None]] = {}

    def add(self, held: HeldPull) -> None:
        for code in (None,) if held.tags_codes is None else held.tags_codes:
            self.by_code.setdefault(code, {})[held] = None

    def remove(self, held: HeldPull) -> None:
        for code in (None,) if held.tags_codes is None else held.tags_codes:
            waiting = self.by_code.get(code)
            if waiting is not None:
                waiting.pop(held, None)
                if not waiting:
                    del self.by_code[code]

    def take(self, codes: set[int]) -> list[HeldPull]:
        wanting = self._taken(held for code in codes for held in self.by_code.get(code, ()))
        return [*self.by_code.pop(None, ()), *wanting]

    def take_first(self, codes: set[int] | None) -> list[HeldPull]:
        """Removes the longest waiting pull that selects one of the tag hashes `codes`, or any pull if that is None.

        Returns a list with that pull, or an empty list.
        """
        lists = self.by_code.values() if codes is None else map(self.by_code.get, (None, *codes))
        firsts = [next(iter(waiting)) for waiting in lists if waiting]
        return self._taken([min(firsts, key=lambda held: held.number)] if firsts else [])

    def take_group(self, group: str) -> list[HeldPull]:
        return self._taken(held for waiting in self.by_code.values() for held in waiting if held.group == group)

    def take_all(self) -> list[HeldPull]:
        return self._taken(held for waiting in self.by_code.values() for held in waiting)

    def _taken(self, pulls: Iterable[HeldPull]) -> list[HeldPull]:
        distinct = list(dict.fromkeys(pulls))
        for held in distinct:
            self.remove(held)
        return distinct


class _Deadlines:
    """The held pulls by the time at which their waiting ends, in ticks of 10 ms."""

    def __init__(self) -> None:
        self._of_tick: dict[int, dict[HeldPull, None]] = {}
        self._ticks: list[int] = []  # a heap of the keys of `_of_tick`

    def add(self, held: HeldPull) -> bool:
        ending = self._of_tick.get(held.ends_tick)
        if ending is None:
            ending = self._of_tick[held.ends_tick] = {}
            heapq.heappush(self._ticks, held.ends_tick)
        ending[held] = None
        return self._ticks[0] == held.ends_tick and len(ending) == 1

    def remove(self, held: HeldPull) -> None:
        ending = self._of_tick.get(held.ends_tick)
        if ending is not None:
            ending.pop(held, None)
            if not ending:
                self._of_tick[held.ends_tick] = {}  # a new dict, since an emptied one keeps its memory

    def take_ended(self, now: float) -> list[HeldPull]:
        ended: list[HeldPull] = []
        while self._ticks and self.next <= now:
            ended += self._of_tick.pop(heapq.heappop(self._ticks))
        return ended

    @property
    def next(self) -> float:
        return self._ticks[0] / TICKS_A_SECOND if self._ticks else math.inf


class HeldPulls:
    """The pulls that wait for a message at this broker, by queue.

    When a queue gets messages, `wake` answers up to 64 of its pulls at once. The task `run` answers the rest of them,
    and the pulls whose time has passed.
    """

    def __init__(self, limits: HeldLimits) -> None:
        self._limits = limits
        self._queues: dict[QueueKey, _Queue] = {}
        self._deadlines = _Deadlines()
        self._all = _Amount()
        self._added = 0
        self._of_peers: dict[Peer, _Amount] = {}
        self._to_wake: deque[HeldPull] = deque()
        self._has_work = trio.Event()

    @property
    def count(self) -> int:
        return self._all.pulls

    def has_room(self, peer: Peer, size_bytes: int) -> bool:
        """Returns True if the limits allow one more pull of this size for the connection."""
        limits, every = self._limits, self._all
        if every.pulls >= limits.pulls or every.held_bytes + size_bytes > limits.held_bytes:
            return False
        own = self._of_peers.get(peer) or _Amount()
        return own.pulls < limits.pulls_of_connection and own.held_bytes + size_bytes <= limits.bytes_of_connection

    def _drop_if_empty(self, key: QueueKey, queue: _Queue) -> None:
        if not queue.by_code and self._queues.get(key) is queue:
            del self._queues[key]

    def add(
        self,
        key: QueueKey,
        tags_codes: Collection[int] | None,
        timeout_ms: int,
        peer: Peer,
        size_bytes: int,
        group: str,
        wake: Callable[[], None],
    ) -> HeldPull:
        """Holds a pull until its queue gets a message with one of the tag hashes (None: any), or its time ends.

        `wake` is called once, on the event loop, when the wait ends. `wake_group`, `wake_first` and `wake_all` may end
        it earlier.
        """
        ends = trio.current_time() + min(max(timeout_ms, 0), MOST_MS) / MILLISECONDS
        self._added += 1
        tick = math.ceil(ends * TICKS_A_SECOND)
        held = HeldPull(key, tags_codes, group, peer, size_bytes, tick, wake, self._added)
        self._queues.setdefault(key, _Queue()).add(held)
        self._of_peers.setdefault(peer, _Amount()).add(1, size_bytes)
        self._all.add(1, size_bytes)
        if self._deadlines.add(held):
            self._has_work.set()
        return held

    def drop(self, held: HeldPull) -> None:
        """Removes a pull whose connection was closed, unless it was woken."""
        self._leave_queue(held)
        self._deadlines.remove(held)
        self._forget(held)

    def _leave_queue(self, held: HeldPull) -> None:
        queue = self._queues.get(held.key)
        if queue is not None:
            queue.remove(held)
            self._drop_if_empty(held.key, queue)

    def _forget(self, held: HeldPull) -> Callable[[], None] | None:
        wake, held.wake = held.wake, None
        if wake is not None:
            self._all.add(-1, -held.size_bytes)
            own = self._of_peers[held.peer]
            own.add(-1, -held.size_bytes)
            if not own.pulls:
                del self._of_peers[held.peer]
        return wake

    async def wait(
        self,
        key: QueueKey,
        tags_codes: Collection[int] | None,
        timeout_ms: int,
        peer: Peer,
        size_bytes: int,
        group: str = "",
    ) -> None:
        """Holds a pull, and returns when a message for it arrives, its time ends, or `wake_group` wakes its group."""
        woken = trio.Event()
        held = self.add(key, tags_codes, timeout_ms, peer, size_bytes, group, woken.set)
        try:
            await woken.wait()
        finally:
            self.drop(held)

    def wake(self, key: QueueKey, entries: bytes) -> None:
        queue = self._queues.get(key)
        if queue is None:
            return
        woken = queue.take({code for _, _, code in ENTRY.iter_unpack(entries)})
        self._drop_if_empty(key, queue)
        self._wake_in_turns(woken)

    def wake_group(self, key: QueueKey, group: str) -> None:
        queue = self._queues.get(key)
        if queue is not None:
            woken = queue.take_group(group)
            self._drop_if_empty(key, queue)
            self._wake_in_turns(woken)

    def wake_first(self, key: QueueKey, codes: set[int] | None) -> bool:
        """Wakes the longest waiting pull that selects one of the tag hashes `codes`, or any pull if that is None.

        Returns False if there is no such pull.
        """
        queue = self._queues.get(key)
        if queue is None:
            return False
        woken = queue.take_first(codes)
        self._drop_if_empty(key, queue)
        self._wake_in_turns(woken)
        return bool(woken)

    def wake_all(self) -> None:
        queues, self._queues = self._queues, {}
        self._wake_in_turns([held for queue in queues.values() for held in queue.take_all()])

    def _wake_in_turns(self, woken: list[HeldPull]) -> None:
        for held in woken[:WOKEN_AT_ONCE]:
            self._wake(held)
        if len(woken) > WOKEN_AT_ONCE:
            self._to_wake.extend(woken[WOKEN_AT_ONCE:])
            self._has_work.set()

    def _wake(self, held: HeldPull) -> None:
        self._deadlines.remove(held)
        wake = self._forget(held)
        if wake is not None:
            wake()

    def _take_ended(self) -> None:
        for held in self._deadlines.take_ended(trio.current_time()):
            self._leave_queue(held)
            self._to_wake.append(held)

    async def run(self) -> None:
        """Wakes the pulls that `wake` left over, and pulls whose waiting time has ended, until cancelled."""
        while True:
            with trio.move_on_at(self._deadlines.next):
                await self._has_work.wait()
            self._has_work = trio.Event()
            self._take_ended()
            while self._to_wake:
                await trio.lowlevel.checkpoint()
                for _ in range(min(WOKEN_AT_ONCE, len(self._to_wake))):
                    self._wake(self._to_wake.popleft())


def held_bytes(request: Command, tags_codes: Collection[int] | None) -> int:
    ext = request.ext
    fields = len(ext.raw) if isinstance(ext, LazyFields) else sum([len(text) for text in ext.values()])
    return PULL_BYTES + len(request.body) + 4 * fields + CODE_BYTES * len(tags_codes or ())
