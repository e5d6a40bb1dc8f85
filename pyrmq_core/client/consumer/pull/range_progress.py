"""`RangeProgress`: decides which offsets of a range to pull next, and which pulls to deliver in order.

Pure: answers go in, slices to pull and pulls in order come out. `RangeReader` posts, waits and wakes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from enum import Enum
from typing import Final

from pyrmq_core.client.consumer.pull.pull_sizes import PullSizer, ReadWindow
from pyrmq_core.errors import RocketMQError
from pyrmq_core.protocol.messages.payload import RawPull


class SliceState(Enum):
    """The state of a slice. It begins as ASKED and changes once."""

    ASKED = "asked"  # the slice's pull at `position` is under way, or retried
    COVERED = "covered"  # its pulls reach its end
    BROKEN = "broken"  # its pull at `position` failed for good; the pulls before it are delivered first


# Looked up once: an enum's attribute costs as much as a call.
ASKED: Final = SliceState.ASKED
COVERED: Final = SliceState.COVERED
BROKEN: Final = SliceState.BROKEN


class PullSlice:
    """Offsets that are pulled one answer after another: `pulls` cover them up to `position`."""

    __slots__ = ("end_offset", "error", "is_larger", "position", "pulls", "state")

    def __init__(self, start: int, end: int, is_larger: bool = False) -> None:
        self.position = start
        self.end_offset = end
        self.is_larger = is_larger
        self.pulls: list[RawPull] = []
        self.state = ASKED
        self.error: RocketMQError | None = None

    def add(self, pull: RawPull) -> None:
        self.pulls.append(pull)
        self.position = pull.next_offset
        if self.position >= self.end_offset:
            self.state = COVERED

    def fail(self, error: RocketMQError) -> None:
        """Breaks the slice: the error is raised once the pulls before `position` are delivered."""
        self.error = error
        self.state = BROKEN


class RangeProgress:
    """The progress of reading `start` to `end` of one queue, within a window."""

    def __init__(self, start: int, end: int, window: ReadWindow) -> None:
        self.is_begun = False
        self.end = end
        self.next_start = start  # everything before it is in a slice, or delivered
        self._next_offset = start  # everything before it is delivered
        self._window = window
        self._sizer = PullSizer()
        self.slices: deque[PullSlice] = deque()  # slices in the order of their offsets
        self._delivered: list[RawPull] = []
        self._delivered_bytes = self._delivered_messages = 0
        self._wanted_bytes = self._wanted_messages = 0

    def begin(self, first: RawPull) -> None:
        """Adds the answer to the first pull, for the whole range: its size shows how much a broker returns at once."""
        head = PullSlice(first.start, first.next_offset)
        head.add(first)
        self.slices.append(head)
        self.is_begun = True
        self.next_start = first.next_offset
        self._sizer.begin(first)

    def narrow(self, most_bytes: int) -> None:
        self._window = replace(self._window, bytes=min(self._window.bytes, most_bytes))

    def end_at(self, pull: RawPull) -> None:
        """Ends the range with this pull, which replaces all pulls that no caller has received."""
        self.is_begun = True
        self.slices.clear()
        self._delivered, self.next_start = [pull], self.end

    def want(self, wanted_bytes: int, wanted_messages: int) -> None:
        """Sets how many bytes or messages are enough to deliver together."""
        self._wanted_bytes, self._wanted_messages = wanted_bytes, wanted_messages

    def add_answer(self, answered: PullSlice, pull: RawPull) -> SliceState:
        """Adds an answer to its slice and returns the slice's state. A slice that stays ASKED needs another pull.

        The answer also sets the size of later slices. The answer to a retry goes to `PullSlice.add` instead.
        """
        sizer = self._sizer
        sizer.learn(pull, answered.end_offset, answered.is_larger and not answered.pulls)
        answered.add(pull)
        if sizer.is_batched:
            # Offsets between its batch and the next slice come with that slice's batch, or are pulled as a gap.
            if answered is self.slices[-1]:
                self.next_start = answered.position
            answered.state = COVERED
        return answered.state

    def deliver_in_order(self) -> list[PullSlice]:
        """Delivers the next pulls in order, up to the wanted amount. Returns the slices to pull now."""
        slices = self.slices
        to_pull: list[PullSlice] = []
        while slices and (head := slices[0]).state is not ASKED and not self.is_enough():
            pulls = head.pulls
            while pulls:
                gap = self._accept(pulls[0])
                if gap is not None:
                    slices.appendleft(gap)
                    to_pull.append(gap)
                    break
                del pulls[0]
            if not pulls and head.state is COVERED:
                slices.popleft()
        self._plan_slices(to_pull)
        return to_pull

    def is_enough(self) -> bool:
        """Returns whether `take` need not wait: the wanted pulls are there, an error is next, or the range ended."""
        slices = self.slices
        if not slices:
            return self.next_start >= self.end
        if self._delivered:
            return (
                self._delivered_bytes >= self._wanted_bytes
                or self._delivered_messages >= self._wanted_messages
                or slices[0].state is BROKEN
            )
        head = slices[0]
        return head.state is BROKEN and not head.pulls

    @property
    def is_ended(self) -> bool:
        return not self.slices and not self._delivered and self.next_start >= self.end

    def take(self) -> list[RawPull]:
        """Returns the delivered pulls, none at the range's end. Raises the error of a broken slice that is next."""
        pulls, self._delivered, self._delivered_bytes, self._delivered_messages = self._delivered, [], 0, 0
        if not pulls and self.slices and (error := self.slices[0].error) is not None:
            raise error
        return pulls

    def _accept(self, pull: RawPull) -> PullSlice | None:
        """Delivers the new part of the pull. If offsets before it are missing, returns their slice instead.

        A filter may skip more offsets than were requested. A pull of a batch topic has complete batches, which may
        begin before its start.
        """
        offset, start, following = self._next_offset, pull.start, pull.next_offset
        if start > offset and (first := pull.reaches_back_to) > offset:
            return PullSlice(offset, first)
        if following > offset:
            self._delivered.append(pull if start == offset else replace(pull, start=offset))
            self._delivered_bytes += len(pull.records)
            self._delivered_messages += following - offset
            self._next_offset = following
        return None

    def _plan_slices(self, to_pull: list[PullSlice]) -> None:
        start, end, slices, sizer = self.next_start, self.end, self.slices, self._sizer
        if start >= end:
            return
        for _ in range(sizer.slices_at_once(self._window) - len(slices)):
            following, is_larger = sizer.next_end(start)
            if following > end:
                following = end
            planned = PullSlice(start, following, is_larger)
            slices.append(planned)
            to_pull.append(planned)
            start = following
            if start >= end:
                break
        self.next_start = start
