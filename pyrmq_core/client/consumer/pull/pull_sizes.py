"""`PullSizer`: how far the next pull of a range probably gets, learnt from the answers before."""

from __future__ import annotations

from collections import deque
from typing import Final

from pyrmq_core.protocol.messages.payload import RawPull

# Every so many stretches one is twice as large: so it is noticed when the broker gives more at once than at first.
LARGER_EVERY: Final = 64
# A batch topic's next answer is taken to be as large as the largest of so many before: who guesses too much asks for
# what is left out a little later, and who guesses too little is given the same batch again.
ANSWERS_LOOKED_BACK: Final = 32


class PullSizer:
    """Cuts a range into stretches of the broker's own answer size.

    A batch topic's broker answers whole batches, whatever is asked (`is_batched`): stretches as long as a batch, even
    where they begin inside one, meet each batch once.
    """

    def __init__(self) -> None:
        self.size = 0
        self.is_batched = False
        self._planned = 0
        self._recent: deque[int] = deque(maxlen=ANSWERS_LOOKED_BACK)

    def begin(self, first: RawPull) -> None:
        """The first answer, of which as much was asked as a pull may give."""
        self.size = first.next_offset - first.start
        self.is_batched = first.is_batched
        self.learn(first, end=first.next_offset, larger=False)

    def learn(self, pull: RawPull, *, end: int, larger: bool) -> None:
        """One more answer, to who asked up to `end`; `larger` when that was more than of others."""
        if pull.next_offset > end and pull.is_batched:
            self.is_batched = True
        if self.is_batched:
            self._recent.append(pull.next_offset - pull.reaches_back_to)
            self.size = max(self._recent)
        elif larger:
            # What a filter passed by beyond `end` says nothing of how much is given at once.
            self.size = max(self.size, min(pull.next_offset, end) - pull.start)

    def next_end(self, start: int) -> tuple[int, bool]:
        """Where a stretch ends that begins at `start`, and whether it is larger than others."""
        if self.is_batched:
            return start + self.size, False
        self._planned += 1
        larger = self._planned % LARGER_EVERY == 0
        return start + self.size * (2 if larger else 1), larger
