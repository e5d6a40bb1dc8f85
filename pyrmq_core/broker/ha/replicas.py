"""`Replicas`: the slaves that follow this master, and the sends that wait until enough of them have a message."""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from dataclasses import dataclass, field

import trio


@dataclass(eq=False, slots=True)
class Replica:
    """One slave's connection. Offsets are of the commit log; `acknowledged` is -1 before the first report."""

    address: str
    acknowledged: int = -1
    sent: int = 0
    transferred: int = 0  # bytes since the connection began
    began: float = field(default_factory=trio.current_time)

    def bytes_per_second(self) -> int:
        """Returns the rate since the connection began."""
        return int(self.transferred / max(1.0, trio.current_time() - self.began))


class Replicas:
    """The connected slaves of a master.

    `copies` is inSyncReplicas, this master included: so many have a message before `wait` ends.
    """

    def __init__(self, copies: int) -> None:
        self.copies = copies
        self.connected: dict[Replica, None] = {}
        # By the log's end they wait for, ascending; a number makes equal ones differ.
        self._waiting: list[tuple[int, int, trio.Event]] = []
        self._numbers = itertools.count()

    def join(self, address: str) -> Replica:
        replica = Replica(address)
        self.connected[replica] = None
        return replica

    def leave(self, replica: Replica) -> None:
        self.connected.pop(replica, None)

    def acknowledge(self, replica: Replica, offset: int) -> None:
        """Notes that a slave has the log up to an offset, and ends the waits that were for it."""
        replica.acknowledged = max(replica.acknowledged, offset)
        ended = 0
        for end, _, copied in self._waiting:
            if not self.is_copied(end):
                break
            copied.set()
            ended += 1
        del self._waiting[:ended]

    def is_copied(self, end: int) -> bool:
        """Returns True if enough slaves have the log up to `end`."""
        return self._count(end) >= self.copies - 1

    def in_sync(self, log_end: int, most_gap: int) -> list[Replica]:
        """Returns the slaves that are less than `most_gap` bytes behind the log's end."""
        return [one for one in self.connected if one.acknowledged >= 0 and log_end - one.acknowledged < most_gap]

    async def wait(self, end: int, timeout: float) -> bool:
        """Returns True if enough slaves have the log up to `end` within `timeout` seconds."""
        if self.is_copied(end):
            return True
        waiting = (end, next(self._numbers), trio.Event())
        insort(self._waiting, waiting)
        try:
            with trio.move_on_after(timeout):
                await waiting[2].wait()
        finally:
            place = bisect_left(self._waiting, waiting[:2], key=lambda one: one[:2])
            if self._waiting[place : place + 1] == [waiting]:
                del self._waiting[place]
        return waiting[2].is_set()

    def _count(self, end: int) -> int:
        return sum([one.acknowledged >= end for one in self.connected])
