"""`Revival`: finds the checkpoints in a queue of the revive log whose messages must become visible again.

Entries are read in the order of the queue. A checkpoint is due once every acknowledgement for its time has been read.
That is so if the timers have delivered all entries up to that time, or if a later entry was read. Messages that
became visible again are acknowledged in the log, too. So a restarted broker, which reads from `done` on, repeats none.

Source: broker/processor/PopReviveService.java (5.4.0), in which a checkpoint is due two seconds later.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final

from pyrmq_core.servers.broker.pop.records import CheckPoint, PopKey, ReviveEntry

# An entry of the log may be this much older than an entry before it: the timers' longest slot and Java's tolerance.
DISORDER_MS: Final = 2000
# How long a checkpoint waits after its time for acknowledgements that arrived in time but are not readable yet.
GRACE_MS: Final = 200


@dataclass(slots=True)
class _Open:
    check_point: CheckPoint
    position: int
    left: set[int]


@dataclass(frozen=True, slots=True)
class Due:
    """A checkpoint whose time has come, and the offsets of its messages without an acknowledgement, in order."""

    check_point: CheckPoint
    offsets: tuple[int, ...]


class Revival:
    """The unfinished checkpoints of one queue of the revive log. `position` is the offset of the next entry to read."""

    def __init__(self, position: int) -> None:
        self.position = position
        self._seen_ms = 0  # the latest time of an entry
        self._open: dict[PopKey, _Open] = {}
        self._times: list[tuple[int, int, PopKey]] = []  # a heap: revive time, position and key of each checkpoint

    @property
    def done(self) -> int:
        """The offset in the queue before which all checkpoints are finished."""
        first = next(iter(self._open.values()), None)
        return self.position if first is None else first.position

    @property
    def next_ms(self) -> int | None:
        """The time in ms at which the next checkpoint is due, or None without checkpoints."""
        return self._times[0][0] + GRACE_MS if self._times else None

    def take(self, position: int, entry: ReviveEntry | None, deliver_ms: int = 0) -> None:
        """Adds an entry that was read at offset `position` of the queue. An unreadable one is None, and is skipped.

        `deliver_ms` is the entry's delivery time.
        """
        self.position = position + 1
        self._seen_ms = max(self._seen_ms, deliver_ms)
        if isinstance(entry, CheckPoint):
            if entry.key not in self._open:
                self._open[entry.key] = _Open(entry, position, set(entry.offsets))
                heapq.heappush(self._times, (entry.revive_ms, position, entry.key))
        elif entry is not None and (open_point := self._open.get(entry.key)) is not None:
            open_point.left.difference_update(entry.offsets)

    def due(self, delivered_ms: int) -> Due | None:
        """Returns the first checkpoint that is due, or None. It stays the first until `end` is called.

        All entries for times up to `delivered_ms` had been delivered to the queue before it was read.
        """
        until_ms = max(delivered_ms - GRACE_MS, self._seen_ms - DISORDER_MS)
        if not self._times or self._times[0][0] > until_ms:
            return None
        open_point = self._open[self._times[0][2]]
        return Due(open_point.check_point, tuple(sorted(open_point.left)))

    def end(self, due: Due) -> None:
        """Removes the checkpoint that `due` returned, since its messages are visible again."""
        _, _, key = heapq.heappop(self._times)
        assert key == due.check_point.key
        del self._open[key]
