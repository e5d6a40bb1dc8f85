"""`OrderedQueues`: the messages that ordered pops took, queue by queue, and their file `consumerOrderInfo.json`.

An ordered pop locks a queue for other pops while one of its messages is neither acknowledged nor visible again. The
file has a row for each queue, with these members:

    popTime, i   time of the pop, and invisible time, in ms
    o            offset of the first message, then for each other message its distance from the first
    cm           bits of acknowledged messages
    ot           other times at which messages become visible, in ms, by offset
    oc           how often messages were popped before, by offset
    a            attempt id of the pop
    l            time of the last pop in ms

Source: broker/pop/orderly/QueueLevelConsumerManager.java (5.4.0). In RocketMQ, an acknowledgement in a queue without a
row moves the group's offset past all messages before it. Here, an acknowledgement has an effect only if the queue's row
belongs to the pop that took the message.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias

from pyrmq_core.errors import BodyError, StoreError
from pyrmq_core.protocol.java.integers import long_member
from pyrmq_core.protocol.messages.names import is_lite_queue
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.pop.records import MOST_MESSAGES
from pyrmq_core.servers.broker.pop.waits import PopWaits
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.tables.config_files import encode_config, load_config
from pyrmq_core.servers.broker.tables.consumer_offsets import SEPARATOR, GroupOffsets

FILE_NAME: Final = "consumerOrderInfo.json"
# How long a row is kept after its messages became visible again, since it counts their tries.
KEPT_MS: Final = 86_400_000
# The heap of times is rebuilt when it has twice as many entries as there are rows, plus this many: most are outdated.
MOST_STALE: Final = 64

# Group, topic and queue id.
Queue: TypeAlias = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class OrderedPop:
    """The messages of one ordered pop, of which those at the offsets `acked` are acknowledged.

    By offset, `tries` has the number of earlier pops of a message, and `visible_ms` the time at which it becomes
    visible, if this was changed. `attempt_id` is the id with which the client may repeat the pop.
    """

    pop_time_ms: int
    invisible_ms: int
    offsets: tuple[int, ...]
    attempt_id: str | None = None
    tries: Mapping[int, int] = field(default_factory=dict)
    visible_ms: Mapping[int, int] = field(default_factory=dict)
    acked: frozenset[int] = frozenset()

    @property
    def next_offset(self) -> int:
        return min(set(self.offsets) - self.acked, default=self.offsets[-1] + 1)

    @property
    def free_ms(self) -> int:
        """The time in ms at which every message is acknowledged or visible again."""
        ends_ms = self.pop_time_ms + self.invisible_ms
        return max((self.visible_ms.get(offset, ends_ms) for offset in set(self.offsets) - self.acked), default=0)

    def members(self) -> dict[str, Any]:
        first = self.offsets[0]
        members = {
            "cm": sum(1 << at for at, offset in enumerate(self.offsets) if offset in self.acked),
            "i": self.invisible_ms,
            "l": self.pop_time_ms,
            "o": [first, *(offset - first for offset in self.offsets[1:])],
            "oc": self.tries,
            "ot": self.visible_ms,
            "popTime": self.pop_time_ms,
        }
        return members if self.attempt_id is None else {"a": self.attempt_id, **members}

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> OrderedPop:
        first, *distances = map(long_member, members["o"])
        if len(distances) >= MOST_MESSAGES:
            raise ValueError(f"a pop has {len(distances) + 1} messages")
        offsets, bits = (first, *(first + distance for distance in distances)), long_member(members.get("cm") or 0)
        return cls(
            long_member(members["popTime"]),
            long_member(members.get("i") or 0),
            offsets,
            members.get("a"),
            _by_offset(members.get("oc")),
            _by_offset(members.get("ot")),
            frozenset(offset for at, offset in enumerate(offsets) if bits >> at & 1),
        )


class OrderedQueues:
    """The last ordered pop of each queue. `next_ms` is the next time at which a queue may be free, or None."""

    def __init__(self, files: Files, offsets: GroupOffsets, waits: PopWaits) -> None:
        self._files, self._offsets, self._waits = files, offsets, waits
        self._rows: dict[Queue, OrderedPop] = {}
        self._times: list[tuple[int, Queue]] = []  # a heap of the times at which locks end
        self.is_changed = False

    def load(self) -> None:
        try:
            for key, queues in (load_config(self._files, FILE_NAME).get("table") or {}).items():
                topic, _, group = key.partition(SEPARATOR)
                for queue_id, members in queues.items():
                    self._rows[group, topic, int(queue_id)] = OrderedPop.from_members(members)
        except (BodyError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise StoreError(f"{FILE_NAME}: {error!r}") from error
        self._list_times()

    @property
    def next_ms(self) -> int | None:
        return self._times[0][0] if self._times else None

    @property
    def lite_rows(self) -> int:
        return sum(is_lite_queue(topic) for _, topic, _ in self._rows)

    def is_locked(self, queue: Queue, attempt_id: str | None, now_ms: int) -> bool:
        """Returns True if a pop locks the queue, unless its attempt id is `attempt_id`: then the client repeats it."""
        row = self._rows.get(queue)
        return row is not None and now_ms < row.free_ms and (attempt_id is None or attempt_id != row.attempt_id)

    def take(self, queue: Queue, pop: OrderedPop) -> Mapping[int, int]:
        """Locks a queue for a pop. Returns, by offset, the number of earlier pops of each message popped before."""
        before, tries = self._rows.get(queue), {}
        if before is not None and pop.attempt_id is not None and pop.attempt_id == before.attempt_id:
            tries = dict(before.tries)
        elif before is not None:
            tries = {offset: before.tries.get(offset, 0) + 1 for offset in pop.offsets if offset in before.offsets}
        self._put(queue, replace(pop, tries=tries))
        return tries

    def ack(self, queue: Queue, offset: int, pop_time_ms: int) -> bool:
        """Acknowledges a message, and moves the group's offset to the first message that is not acknowledged.

        Returns False if the pop did not take this message. An acknowledgement of an earlier pop, or of a message before
        the group's offset, has no effect and returns True.
        """
        if (row := self._current(queue, offset, pop_time_ms)) is None:
            return True
        if offset not in row.offsets:
            return False
        row = replace(row, acked=row.acked | {offset})
        self._put(queue, row)
        if not self._offsets.may_move(*queue):  # a commit would overwrite the offset of a reset
            self._offsets.commit(*queue, max(row.next_offset, self._offsets.committed(*queue) or 0))
        return True

    def change(self, queue: Queue, offset: int, pop_time_ms: int, visible_ms: int, *, undoes: bool = False) -> bool:
        """Sets the time in ms at which a message becomes visible. Returns False if the group's offset is greater.

        With `undoes`, all messages of the pop become visible at that time, and the pop does not count as a try.
        """
        if offset < (self._offsets.committed(*queue) or 0):
            return False
        row = self._current(queue, offset, pop_time_ms)
        if row is None or offset not in row.offsets:
            return True
        if undoes:
            tries = {offset: max(-1, row.tries.get(offset, 0) - 1) for offset in row.offsets}  # the next pop adds one
            invisible_ms = visible_ms - pop_time_ms
            self._put(queue, replace(row, invisible_ms=invisible_ms, attempt_id=None, tries=tries, visible_ms={}))
        else:
            self._put(queue, replace(row, visible_ms={**row.visible_ms, offset: visible_ms}))
        return True

    def forget(self, queue: Queue) -> None:
        if self._rows.pop(queue, None) is not None:
            self.is_changed = True

    def wake_freed(self, now_ms: int) -> Iterator[None]:
        """Wakes a waiting pop for each queue whose lock has ended. Yields after each queue."""
        while self._times and self._times[0][0] <= now_ms:
            queue = heapq.heappop(self._times)[1]
            if (row := self._rows.get(queue)) is not None and row.free_ms <= now_ms:
                self._waits.wake_queue(*queue)
            yield

    def unsaved(self) -> Callable[[], bytes] | None:
        """Returns a function that encodes `consumerOrderInfo.json`, or None if nothing changed since the last call.

        Any thread may call that function.
        """
        if not self.is_changed:
            return None
        self.is_changed, oldest_ms = False, clock.now_ms() - KEPT_MS
        for queue, row in list(self._rows.items()):
            if max(row.pop_time_ms, row.free_ms) < oldest_ms or self._offsets.committed(*queue) is None:
                del self._rows[queue]
        return partial(_text, dict(self._rows))

    def _current(self, queue: Queue, offset: int, pop_time_ms: int) -> OrderedPop | None:
        row, committed = self._rows.get(queue), self._offsets.committed(*queue)
        is_current = row is not None and row.pop_time_ms == pop_time_ms and offset >= (committed or 0)
        return row if is_current and committed is not None else None

    def _put(self, queue: Queue, row: OrderedPop) -> None:
        self._rows[queue] = row
        self.is_changed = True
        if row.free_ms <= clock.now_ms():
            self._waits.wake_queue(*queue)
            return
        heapq.heappush(self._times, (row.free_ms, queue))
        if len(self._times) > 2 * len(self._rows) + MOST_STALE:
            self._list_times()
        if self._times[0][1] == queue:
            self._waits.revive_arrived.set()  # the reviver waits for the heap's first time, which may have changed

    def _list_times(self) -> None:
        self._times = sorted((row.free_ms, queue) for queue, row in self._rows.items())


def _by_offset(members: Mapping[str, Any] | None) -> dict[int, int]:
    return {int(offset): long_member(value) for offset, value in (members or {}).items()}


def _text(rows: Mapping[Queue, OrderedPop]) -> bytes:
    table: dict[str, dict[int, Any]] = {}
    for (group, topic, queue_id), row in rows.items():
        table.setdefault(f"{topic}{SEPARATOR}{group}", {})[queue_id] = row.members()
    return encode_config({"orderedConsumptionLevel": "QUEUE", "table": table})
