"""`ProcessQueue`: the messages of one queue that were pulled and are not consumed yet. Pure: no I/O, no clock.

Messages are consumed in any order, and the offset to commit is the lowest unconsumed offset. So a slow message holds
back the committed offset, but not later messages. Source: client/impl/consumer/ProcessQueue.java, 5.4.0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from pyrmq_core.model import MessageExt, MessageQueue


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """The limits above which a process queue is full: messages, bytes of bodies, span of offsets (None: no limit)."""

    messages: int = 1000
    bytes: int = 100 * 1024 * 1024
    span: int | None = 2000


class ProcessQueue:
    """The pulled messages of one queue, until they are consumed.

    `position` is the offset of the next pull. `waiting` has the messages that no handler has yet, in their order. A
    dropped queue accepts no more messages, although the answer to its last pull may still arrive. `corrected` is the
    offset to which the broker moved the group, for example after a reset, or None.
    """

    __slots__ = (
        "_consumed",
        "_outstanding",
        "bytes",
        "corrected",
        "highest",
        "is_dropped",
        "position",
        "queue",
        "waiting",
    )

    def __init__(self, queue: MessageQueue, position: int) -> None:
        self.queue = queue
        self.position = position
        self.highest = position - 1
        self.is_dropped = False
        self.corrected: int | None = None
        self.bytes = 0
        self.waiting: deque[MessageExt] = deque()
        self._outstanding: deque[int] = deque()  # offsets of pulled messages, from the lowest unconsumed one on
        self._consumed: set[int] = set()  # consumed offsets above the lowest unconsumed one

    def __len__(self) -> int:
        return len(self._outstanding) - len(self._consumed)

    @property
    def offset_to_commit(self) -> int:
        """The lowest offset that is not consumed, or `position` if all pulled messages are consumed.

        If the broker has moved the group to another offset (`corrected`), it is that offset, even while handlers still
        finish messages.
        """
        if self.corrected is not None:
            return self.corrected
        return self._outstanding[0] if self._outstanding else self.position

    @property
    def span(self) -> int:
        return self.highest - self._outstanding[0] if self._outstanding else 0

    def has_room(self, limits: FlowLimits) -> bool:
        if len(self) > limits.messages or self.bytes > limits.bytes:
            return False
        return limits.span is None or self.span <= limits.span

    def put(self, messages: Sequence[MessageExt], position: int) -> None:
        """Adds messages in offset order, and sets `position`, the next pull's offset, unless the queue is dropped."""
        if self.is_dropped:
            return
        if messages:
            self.waiting.extend(messages)
            self._outstanding.extend([message.queue_offset for message in messages])
            self.bytes += sum([len(message.body) for message in messages])
            self.highest = messages[-1].queue_offset
        self.position = position

    def take(self, most: int) -> list[MessageExt]:
        waiting = self.waiting
        if most == 1:
            return [waiting.popleft()] if waiting else []
        return [waiting.popleft() for _ in range(min(most, len(waiting)))]

    def give_back(self, messages: Sequence[MessageExt]) -> None:
        """Puts messages back in front, so that `take` returns them next. Does nothing if the queue is dropped."""
        if not self.is_dropped:
            self.waiting.extendleft(reversed(messages))

    def finish(self, messages: Sequence[MessageExt]) -> None:
        """Records that messages are consumed. Ignores messages that were consumed before."""
        outstanding, consumed = self._outstanding, self._consumed
        if not consumed and [message.queue_offset for message in messages] == [*islice(outstanding, len(messages))]:
            self.bytes -= sum([len(message.body) for message in messages])
            for _ in messages:
                outstanding.popleft()
            return
        for message in messages:
            offset = message.queue_offset
            if not outstanding or offset < outstanding[0] or offset in consumed:
                continue
            self.bytes -= len(message.body)
            if not consumed and offset == outstanding[0]:
                outstanding.popleft()
            else:
                consumed.add(offset)
        while outstanding and outstanding[0] in consumed:
            consumed.remove(outstanding.popleft())

    def drop(self) -> None:
        """Drops the waiting messages, and refuses new ones. Handlers may still finish the messages that they have."""
        self.is_dropped = True
        self.waiting.clear()

    def correct(self, offset: int) -> None:
        self.corrected = offset
        self.drop()
