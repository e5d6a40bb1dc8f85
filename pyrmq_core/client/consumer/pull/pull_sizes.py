"""`PullSizer`: predicts from earlier answers how many messages the next pull of a range returns. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from pyrmq_core.protocol.messages.payload import RawPull

MAX_UNDER_WAY: Final = 128
# One of this many pulls requests twice the size, to detect that the broker now returns more messages at once.
LARGER_EVERY: Final = 64
# The next answer of a batch topic is expected to be as large as the largest of this many answers. If it is smaller, a
# gap is left and pulled a little later. If it is larger, the same batch is pulled twice.
ANSWERS_LOOKED_BACK: Final = 32
# Each answer moves the running mean of the answers' bytes by one part in 16 of the difference.
BYTES_SHARE: Final = 16
# The most bytes that are requested from a proxy at once. A proxy drops an answer while 64 KiB wait to be written to the
# connection (AbstractRemotingActivity.writeResponse and Netty's default water mark), and the client would wait in vain.
PROXY_BYTES: Final = 48 * 1024


@dataclass(frozen=True, slots=True)
class ReadWindow:
    """The limits of a range read.

    `messages` and `bytes` limit the messages that are requested and not delivered yet. `patience` is how many seconds
    to wait for a failing broker. With `lends_records` the records of pulls are views of received bytes instead of
    copies. Each such pull keeps a MiB or more alive, so use this only if you decode each pull at once.
    """

    messages: int = 4000
    bytes: int = 4 * 1024 * 1024
    max_messages_a_pull: int = 1024
    patience: float = 20.0
    lends_records: bool = False


class PullSizer:
    """A forecast of how many messages the broker returns at once, and the division of a range into slices of that size.

    `is_batched` is for a batch topic, whose broker returns complete batches, whatever number is requested. Slices of a
    batch's length pull each batch once, even if they begin inside a batch.
    """

    def __init__(self) -> None:
        self.size = 0
        self.is_batched = False
        self._answer_bytes = 0.0
        self._planned = 0
        self._recent: deque[int] = deque(maxlen=ANSWERS_LOOKED_BACK)

    def begin(self, first: RawPull) -> None:
        """Sets the slice size from the answer to the first pull, which requested as many messages as a pull may."""
        self.size = first.next_offset - first.start
        self.is_batched = first.is_batched
        self._answer_bytes = float(len(first.records))
        self.learn(first, first.next_offset, larger=False)

    def learn(self, pull: RawPull, end: int, larger: bool) -> None:
        """Adjusts the slice size to the answer to a pull of a slice that ended at offset `end`.

        `larger` is True for a slice of double size, whose answer shows whether the broker returns more than `size`
        messages.
        """
        if pull.next_offset > end and pull.is_batched:
            self.is_batched = True
        if self.is_batched:
            self._recent.append(pull.next_offset - pull.reaches_back_to)
            self.size = max(self._recent)
        elif larger:
            # Only up to `end`: a filter may skip more, which does not show how many messages are returned at once.
            self.size = max(self.size, min(pull.next_offset, end) - pull.start)

    def learn_bytes(self, answer_bytes: int, count: int) -> None:
        if count:
            self._answer_bytes += (answer_bytes / count - self._answer_bytes) * (1 - (1 - 1 / BYTES_SHARE) ** count)

    def plan(self, start: int, end: int, count: int) -> list[tuple[int, bool]]:
        """Returns up to `count` slices of the range from `start` on: each one's end, and whether it has double size.

        From time to time, a slice of double size finds out whether the broker now returns more than `size` messages at
        once.
        """
        size, is_batched, planned, slices = self.size, self.is_batched, self._planned, list[tuple[int, bool]]()
        for number in range(planned + 1, planned + count + 1):
            is_larger = number % LARGER_EVERY == 0 and not is_batched
            start += 2 * size if is_larger else size
            if start >= end:
                slices.append((end, is_larger))
                break
            slices.append((start, is_larger))
        self._planned += len(slices)
        return slices

    def slices_at_once(self, window: ReadWindow) -> int:
        room = window.messages // self.size
        if self.is_batched and room < 2:
            # A batch cannot be divided. With two slices, the broker reads a batch while the client decodes another.
            room = 2
        if room * self._answer_bytes > window.bytes:
            room = int(window.bytes / self._answer_bytes)
        if room > MAX_UNDER_WAY:
            return MAX_UNDER_WAY
        return room if room > 1 else 1
