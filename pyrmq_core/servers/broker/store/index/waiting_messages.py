"""A queue of new messages that are not yet in the key index.

A step of the index adds the messages of several small sends, or a part of a large one.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from pyrmq_core.servers.broker.store.appending import Dispatched
from pyrmq_core.servers.broker.store.batch_pieces import properties_of
from pyrmq_core.servers.broker.store.index import step_bounds
from pyrmq_core.servers.broker.store.index.entries import Entries, Message, entries_of, next_part

# A send of at least this many messages enters the index in steps of its own.
BATCH: Final = 64


class WaitingMessages:
    """A queue of stored sends whose messages are not yet in the key index, in the order of the log.

    `log_bytes` is the size of these messages in the log.
    """

    def __init__(self) -> None:
        self._sends: deque[Dispatched] = deque()
        self._of_batch = 0  # how many messages of the oldest waiting batch are in the index
        self._of_message = 0  # how many entries of the next message are in the index
        self.log_bytes = 0

    def __len__(self) -> int:
        return len(self._sends)

    def add(self, messages: Dispatched) -> None:
        self._sends.append(messages)
        self.log_bytes += messages.end - messages.positions[0]

    def clear(self) -> None:
        self._sends.clear()
        self.log_bytes = self._of_batch = self._of_message = 0

    def next_entries(self) -> tuple[Entries, int]:
        """Removes the messages of the next step from the queue. Returns their index entries and a log offset.

        Once the caller has added the entries, the index has all messages before this offset.
        """
        waiting, consumed, weight = self._sends, 0, 0
        messages: list[Message] = []
        while consumed < len(waiting) and len(messages) < step_bounds.MESSAGES_AT_ONCE:
            append, positions, store_ms, _ = waiting[consumed]
            if len(positions) >= BATCH:
                break
            weight += sum([step_bounds.weight(piece.properties) for piece in append.pieces])
            if weight > step_bounds.WEIGHT_AT_ONCE:
                break
            pairs = zip(append.pieces, positions, strict=True)
            messages += [Message(append.topic, piece.properties, offset, store_ms) for piece, offset in pairs]
            consumed += 1
        if not consumed:
            return self._of_first(waiting[0])
        for _ in range(consumed):
            end = self._remove_first()
        return entries_of(messages), end

    def _remove_first(self) -> int:
        entered = self._sends.popleft()
        self.log_bytes -= entered.end - entered.positions[0]
        self._of_batch = 0
        return entered.end

    def _of_first(self, batch: Dispatched) -> tuple[Entries, int]:
        append, positions, store_ms, _ = batch
        first = self._of_batch
        like = append.pieces[first].properties
        properties = properties_of(append.pieces, first, step_bounds.count_like(like))
        count = step_bounds.count_of_step(properties)
        parts = zip(properties[:count], positions[first : first + count], strict=True)
        messages = [Message(append.topic, *part, store_ms) for part in parts]
        if count == 1:
            entries, self._of_message = next_part(messages[0], self._of_message, step_bounds.KEYS_AT_ONCE)
            if self._of_message:
                return entries, positions[first]
        else:
            entries = entries_of(messages)
        self._of_batch = first + count
        if self._of_batch == len(positions):
            return entries, self._remove_first()
        return entries, positions[self._of_batch]
