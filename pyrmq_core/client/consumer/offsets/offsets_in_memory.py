"""`OffsetsInMemory`: the consumed offsets of queues, and for each the value that was last sent to a broker or file.

An offset counts as changed if it differs from the value sent last. So an offset that advances during a send is sent
again by the next send. Source: client/consumer/store/ControllableOffset.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Iterable

from pyrmq_core.model import MessageQueue


class ConsumedOffset:
    """The consumed offset of one queue, with the values last `sent` to a broker or file and last `confirmed` by it.

    Both are None during a send, when it is unknown which value is stored.
    """

    __slots__ = ("confirmed", "is_frozen", "offset", "sent")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.is_frozen = False
        self.sent: int | None = None
        self.confirmed: int | None = None

    def begin_sending(self) -> int:
        self.sent = self.confirmed = None
        return self.offset

    def end_sending(self, offset: int, *, confirmed: bool) -> None:
        self.sent = offset
        self.confirmed = offset if confirmed else None

    def is_changed(self, *, confirmed: bool) -> bool:
        return (self.confirmed if confirmed else self.sent) != self.offset


class OffsetsInMemory:
    """The consumed offsets of one consumer's queues, in memory. Subclasses store them at brokers or in a file."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, ConsumedOffset] = {}

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = True) -> None:
        """Sets the consumed offset of the queue in memory. Does nothing after `freeze`.

        With `increase_only` a lower offset is ignored. Otherwise the offset may go back, and it is sent the next time
        even if it equals the value that was sent last.
        """
        entry = self._offsets.get(queue)
        if entry is None:
            self._offsets[queue] = ConsumedOffset(offset)
        elif not entry.is_frozen:
            entry.offset = max(entry.offset, offset) if increase_only else offset
            if not increase_only:
                entry.sent = entry.confirmed = None

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        """Sets the queue's offset. `update` then does not change it until `forget` is called."""
        entry = self._offsets.setdefault(queue, ConsumedOffset(offset))
        entry.offset, entry.is_frozen = offset, True

    def known(self, queue: MessageQueue) -> int | None:
        entry = self._offsets.get(queue)
        return None if entry is None else entry.offset

    def forget(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)

    def _send_again(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            if (entry := self._offsets.get(queue)) is not None:
                entry.sent = entry.confirmed = None

    def _changed(self, queues: Iterable[MessageQueue], *, confirmed: bool) -> dict[MessageQueue, ConsumedOffset]:
        entries = {queue: self._offsets[queue] for queue in queues if queue in self._offsets}
        return {queue: entry for queue, entry in entries.items() if entry.is_changed(confirmed=confirmed)}

    def _adopt(self, queue: MessageQueue, stored: int, before: int | None) -> None:
        """Sets the offset in memory to the `stored` offset of the broker or file, unless a newer one has to be stored.

        `before` is the offset that was in memory when reading the stored offset began. If the offset in memory has
        changed since, it is kept. Java sets it, too (OffsetStore.readOffset), or a pull would commit an older value.
        """
        entry = self._offsets.get(queue)
        if entry is None and before is None:
            entry = self._offsets[queue] = ConsumedOffset(stored)
        elif entry is None or entry.is_frozen or entry.offset != before or entry.is_changed(confirmed=False):
            return
        entry.offset = stored
        entry.end_sending(stored, confirmed=True)
