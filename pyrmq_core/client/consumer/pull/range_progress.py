"""`RangeProgress`: decides which offsets of a range to pull next, and which pulls to deliver in order.

Pure: it receives answers, and returns slices to pull and pulls in offset order. `RangeReader` sends the requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import Final

from pyrmq_core.client.consumer.pull.pull_sizes import PullSizer, ReadWindow
from pyrmq_core.errors import RocketMQError
from pyrmq_core.protocol.messages.payload import RawPull


class SliceState(Enum):
    """The state of a slice of a range. ASKED: its pull is under way. COVERED: it is complete. BROKEN: it failed."""

    ASKED = "asked"  # the pull at `position` is under way, or is retried
    COVERED = "covered"  # all pulls up to the slice's end are answered
    BROKEN = "broken"  # the pull at `position` failed in all tries; the pulls before it are delivered first


# Looked up once, since access to a member of an enum costs as much as a call.
ASKED: Final = SliceState.ASKED
COVERED: Final = SliceState.COVERED
BROKEN: Final = SliceState.BROKEN


class PullSlice:
    """A slice of a range, filled by one or more pulls. `pulls` cover its offsets up to `position`."""

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
        """Sets the slice to BROKEN. The error is raised when the pulls before `position` have been delivered."""
        self.error = error
        self.state = BROKEN


class RangeProgress:
    """The progress of reading a queue from offset `start` to `end`: its slices, and the pulls to deliver."""

    def __init__(self, start: int, end: int, window: ReadWindow) -> None:
        self.is_begun = False
        self.end = end
        self.next_start = start  # all offsets before it are in a slice, or delivered
        self._next_offset = start  # all offsets before it are delivered
        self._window = window
        self._sizer = PullSizer()
        self.slices: deque[PullSlice] = deque()  # in the order of their offsets
        self._delivered: list[RawPull] = []
        self._delivered_bytes = self._delivered_messages = 0
        self._wanted_bytes = self._wanted_messages = 0

    def begin(self, first: RawPull) -> None:
        """Adds the answer to the first pull of the range. Its number of messages becomes the slice size."""
        head = PullSlice(first.start, first.next_offset)
        head.add(first)
        self.slices.append(head)
        self.is_begun = True
        self.next_start = first.next_offset
        self._sizer.begin(first)

    def narrow(self, most_bytes: int) -> None:
        self._window = replace(self._window, bytes=min(self._window.bytes, most_bytes))

    def end_at(self, pull: RawPull) -> None:
        """Ends the range early, with this pull. Pulls that were not delivered are dropped."""
        self.is_begun = True
        self.slices.clear()
        self._delivered, self.next_start = [pull], self.end

    def want(self, wanted_bytes: int, wanted_messages: int) -> None:
        """Sets how many bytes or messages are enough for `take` to return. Reaching one of the limits is enough."""
        self._wanted_bytes, self._wanted_messages = wanted_bytes, wanted_messages

    def add_answer(self, answered: PullSlice, pull: RawPull) -> SliceState:
        """Adds an answer to its slice and returns the slice's state. A slice that stays ASKED needs another pull.

        The answer also sets the size of later slices. The answer to a retry is passed to `PullSlice.add` instead.
        """
        self._sizer.learn_bytes(len(pull.records), 1)
        return self._add(answered, pull)

    def add_answers(self, answers: Sequence[tuple[PullSlice, RawPull]]) -> list[PullSlice]:
        """Adds answers to their slices. Returns the slices that need another pull."""
        sizer, to_pull, answer_bytes = self._sizer, list[PullSlice](), 0
        for pull_slice, pull in answers:
            answer_bytes += len(pull.records)
            following, end = pull.next_offset, pull_slice.end_offset
            if following > end or pull_slice.is_larger or sizer.is_batched:
                if self._add(pull_slice, pull) is ASKED:
                    to_pull.append(pull_slice)
                continue
            pull_slice.pulls.append(pull)
            pull_slice.position = following
            if following < end:
                to_pull.append(pull_slice)
            else:
                pull_slice.state = COVERED
        sizer.learn_bytes(answer_bytes, len(answers))
        return to_pull

    def _add(self, answered: PullSlice, pull: RawPull) -> SliceState:
        sizer = self._sizer
        sizer.learn(pull, answered.end_offset, answered.is_larger and not answered.pulls)
        answered.add(pull)
        if sizer.is_batched:
            # Offsets from this batch's end to the next slice come with that slice's batch, or are pulled as a gap.
            if answered is self.slices[-1]:
                self.next_start = answered.position
            answered.state = COVERED
        return answered.state

    def deliver_in_order(self) -> list[PullSlice]:
        """Makes the next pulls in offset order available to `take`. Returns the slices to pull now."""
        slices, to_pull = self.slices, list[PullSlice]()
        while slices and (head := slices[0]).state is not ASKED and not self.is_enough():
            if (gap := self._accept(head.pulls)) is not None:
                slices.appendleft(gap)
                to_pull.append(gap)
            elif head.state is COVERED:
                slices.popleft()
        self._plan_slices(to_pull)
        return to_pull

    def is_enough(self) -> bool:
        """Returns whether `take` can return now: there are enough pulls, an error is next, or the range has ended."""
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
        """Returns the pulls that are ready, or none at the range's end. Raises the error of the next pull in order."""
        pulls, self._delivered, self._delivered_bytes, self._delivered_messages = self._delivered, [], 0, 0
        if not pulls and self.slices and (error := self.slices[0].error) is not None:
            raise error
        return pulls

    def _accept(self, pulls: list[RawPull]) -> PullSlice | None:
        """Delivers in order the new part of each pull. Stops before missing offsets, and returns a slice for them.

        Returns None if no offset is missing. Pulls may overlap: a filter may skip more offsets than were requested, and
        a batch may begin before its pull's start.
        """
        while pulls:
            pull, offset = pulls[0], self._next_offset
            start, following = pull.start, pull.next_offset
            if start > offset and (first := pull.reaches_back_to) > offset:
                return PullSlice(offset, first)
            if following > offset:
                self._delivered.append(pull if start == offset else replace(pull, start=offset))
                self._delivered_bytes += len(pull.records)
                self._delivered_messages += following - offset
                self._next_offset = following
            del pulls[0]
        return None

    def _plan_slices(self, to_pull: list[PullSlice]) -> None:
        start, end, slices, sizer = self.next_start, self.end, self.slices, self._sizer
        if start >= end:
            return
        new = PullSlice.__new__  # costs a third of a call with `__init__`
        for following, is_larger in sizer.plan(start, end, sizer.slices_at_once(self._window) - len(slices)):
            planned = new(PullSlice)
            planned.position, planned.end_offset, planned.is_larger = start, following, is_larger
            planned.pulls, planned.state, planned.error = [], ASKED, None
            slices.append(planned)
            to_pull.append(planned)
            start = following
        self.next_start = start
