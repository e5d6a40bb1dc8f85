"""`RangeReader`: one range of a queue by many pulls under way over one connection, their answers put in order.

No task stands behind a pull: its answer, when it comes, is noted, and what follows is posted from there, joined with
what other answers of the same moment lead to. Only what does not go plainly is mended by a task. A task for each pull
costs five times as much of this process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Final, Protocol

import trio

from pyrmq_core.client.consumer.pull.pull_errors import fault_of, may_pass
from pyrmq_core.client.consumer.pull.pull_sizes import PullSizer
from pyrmq_core.client.remoting.remoting_client import PinnedConnection
from pyrmq_core.errors import BrokerNotFound, DataLost, NetworkError, ResponseError, RocketMQError, RoutingError
from pyrmq_core.filtering.sql import SqlFilter
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import MessageQueue
from pyrmq_core.network import BulkCall
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.frame import RequestForm
from pyrmq_core.protocol.messages.payload import RawPull

PULL_TIMEOUT_SECONDS: Final = 10.0
RETRY_PAUSE_SECONDS: Final = 0.2
MAX_UNDER_WAY: Final = 128
PASSING_CODES: Final = frozenset((ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.GO_AWAY))


Filter = TagFilter | SqlFilter


class PullRequests(Protocol):
    """Pulls of one queue that differ in offset and count."""

    @property
    def form(self) -> RequestForm:
        """Of their offset and count."""
        ...

    def plain_answer(self, start: int, end: int, answer: Command, address: str) -> RawPull | None:
        """The pull, if it goes forward as wished; clipped to `end`."""
        ...

    def any_answer(self, start: int, answer: Command, address: str) -> RawPull:
        """The pull; `ResponseError` or `ProtocolError` when it is none."""
        ...


class PullRoad(Protocol):
    """What a `Puller` does for a range: pulls one by one, and requests with a line to post them to."""

    async def pull(
        self, queue: MessageQueue, offset: int, *, max_messages: int = 32, tags: Filter = ...
    ) -> RawPull: ...

    async def refresh(self, queue: MessageQueue) -> None: ...

    async def address(self, queue: MessageQueue) -> str: ...

    async def is_master(self, queue: MessageQueue, address: str) -> bool: ...

    async def line(self, queue: MessageQueue) -> PinnedConnection: ...

    def requests(self, queue: MessageQueue, tags: Filter) -> PullRequests: ...


@dataclass(frozen=True, slots=True)
class ReadWindow:
    """How much a range read keeps under way: messages and bytes asked for and not handed out yet, and how long it
    waits for a broker."""

    messages: int = 4000
    bytes: int = 4 * 1024 * 1024
    max_messages_a_pull: int = 1024
    patience: float = 20.0


class _PullSlice(BulkCall):
    """Offsets asked for together: `pulls` cover it up to `position`, from where the rest is asked for."""

    __slots__ = ("covered", "end_offset", "error", "larger", "position", "pulls", "reader")

    def __init__(self, reader: RangeReader, start: int, end: int, *, larger: bool = False) -> None:
        self.reader = reader
        self.position = start
        self.end_offset = end
        self.larger = larger
        self.pulls: list[RawPull] = []
        self.covered = False
        self.error: RocketMQError | None = None

    def numbers(self) -> tuple[int, int]:
        """The next pull's offset and count."""
        position, most = self.position, self.reader.max_messages_a_pull
        wanted = self.end_offset - position
        return position, wanted if wanted < most else most

    def end(self, result: Command | RocketMQError) -> None:
        self.reader.answered(self, result)


class RangeReader:
    """Reads `start` to `end` of a queue; made and closed by `Puller.read`."""

    def __init__(
        self,
        puller: PullRoad,
        queue: MessageQueue,
        start: int,
        end: int,
        *,
        tags: Filter,
        window: ReadWindow,
        nursery: trio.Nursery,
    ) -> None:
        self._puller = puller
        self._queue = queue
        self._tags = tags
        self._window = window
        self.max_messages_a_pull = window.max_messages_a_pull
        self._nursery = nursery
        self._requests = puller.requests(queue, tags)
        self._line: PinnedConnection | None = None
        self._address = ""
        self._handed = self._asked = start
        self._end = end
        self._plan = PullSizer()
        self._answer_bytes = 0.0
        self._stretches: deque[_PullSlice] = deque()
        self._taken: list[RawPull] = []
        self._taken_bytes = self._taken_messages = 0
        self._most_bytes = self._most_messages = 0
        self._waiting: trio.lowlevel.Task | None = None
        self._is_closed = False

    async def pulls(self) -> AsyncGenerator[RawPull, None]:
        """One pull after another."""
        while pulls := await self.take(1, 1):
            for pull in pulls:
                yield pull

    async def joined(self, most_bytes: int, most_messages: int) -> AsyncGenerator[list[RawPull], None]:
        """Lists of pulls, each of about so many bytes or messages."""
        while pulls := await self.take(most_bytes, most_messages):
            # What follows is asked for already: let it be written before the taker holds up the loop with decoding.
            await trio.lowlevel.checkpoint()
            yield pulls

    async def take(self, most_bytes: int, most_messages: int) -> list[RawPull]:
        """The next pulls, until they have so many bytes or messages, or the range ends; none at its end.

        What follows is asked for before this returns. Raises what stands in the way of the next pull.
        """
        if not self._plan.size:
            await self._begin()
        await self._renew_line()
        self._most_bytes, self._most_messages = most_bytes, most_messages
        self._deliver_in_order()
        if not self._is_enough():
            self._waiting = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._give_up)
        taken, self._taken, self._taken_bytes, self._taken_messages = self._taken, [], 0, 0
        if not taken and self._stretches and (error := self._stretches[0].error) is not None:
            raise error
        return taken

    def close(self) -> None:
        """Ends the interest in what is under way."""
        self._is_closed = True

    async def _begin(self) -> None:
        """The first stretch is asked alone: its answer tells how much the broker gives at once."""
        if self._asked >= self._end:
            return
        first = await self._pull(self._asked, self._end)
        self._requests = self._puller.requests(self._queue, self._tags)  # the first pull found out what can be asked
        head = _PullSlice(self, first.next_offset, first.next_offset)
        head.pulls.append(first)
        head.covered = True
        self._stretches.append(head)
        self._asked = first.next_offset
        self._plan.begin(first)
        self._answer_bytes = float(len(first.records))

    async def _renew_line(self) -> None:
        if self._asked < self._end and (self._line is None or self._line.is_closed):
            try:
                self._line = await self._puller.line(self._queue)
                self._address = self._line.address
            except RocketMQError:
                self._line = None  # each stretch is mended, with patience

    def _deliver_in_order(self) -> None:
        """Moves what has come in order to the taker, and asks for more in its place."""
        stretches = self._stretches
        while stretches and stretches[0].covered and not self._is_enough():
            head = stretches[0]
            while head.pulls and self._accept(head.pulls[0]):
                del head.pulls[0]
            if not head.pulls and head.error is None:
                stretches.popleft()
        self._fill()

    def _accept(self, pull: RawPull) -> bool:
        """Gives what is new of it to the taker. False when something lies before it: that is asked for first.

        A filter may pass by more than was asked. A batch topic gives whole batches, from before the stretch, too.
        """
        handed = self._handed
        if pull.start > handed and (first := pull.reaches_back_to) > handed:
            gap = _PullSlice(self, handed, first)
            self._stretches.appendleft(gap)
            self._post([gap])
            return False
        if pull.next_offset > handed:
            self._taken.append(pull if pull.start == handed else replace(pull, start=handed))
            self._taken_bytes += len(pull.records)
            self._taken_messages += pull.next_offset - handed
            self._handed = pull.next_offset
        return True

    def _is_enough(self) -> bool:
        if not self._stretches:
            return self._asked >= self._end
        if not self._taken:
            head = self._stretches[0]
            return head.error is not None and not head.pulls
        return (
            self._taken_bytes >= self._most_bytes
            or self._taken_messages >= self._most_messages
            or self._stretches[0].error is not None
        )

    def _fill(self) -> None:
        """Asks for as many stretches as the window has room for."""
        window, plan = self._window, self._plan
        # A batch has as many messages as it has: two may be under way though one fills the window.
        by_count = max(2 if plan.is_batched else 1, window.messages // max(1, plan.size))
        room = max(1, min(by_count, int(window.bytes / max(1.0, self._answer_bytes)), MAX_UNDER_WAY))
        more: list[_PullSlice] = []
        room -= len(self._stretches)
        while self._asked < self._end and len(more) < room:
            end, larger = plan.next_end(self._asked)
            end = min(end, self._end)
            more.append(_PullSlice(self, self._asked, end, larger=larger))
            self._asked = end
        if more:
            self._stretches += more
            self._post(more)

    def _post(self, stretches: list[_PullSlice]) -> None:
        if self._line is not None:
            self._line.post_all(self._requests.form, stretches, timeout=PULL_TIMEOUT_SECONDS)
            return
        for stretch in stretches:
            self._nursery.start_soon(self._retry_slice, stretch, None)

    def answered(self, stretch: _PullSlice, result: Command | RocketMQError) -> None:
        """Called by the connection; what is not a plain answer is asked for again by a task, with patience."""
        if self._is_closed:
            return
        pull = None
        if isinstance(result, Command):
            pull = self._requests.plain_answer(stretch.position, self._end, result, self._address)
        if pull is None:
            if not isinstance(result, Command) or result.code == ResponseCode.GO_AWAY:
                self._line = None
            self._nursery.start_soon(self._retry_slice, stretch, result)
            return
        plan = self._plan
        plan.learn(pull, end=stretch.end_offset, larger=stretch.larger and not stretch.pulls)
        self._answer_bytes += (len(pull.records) - self._answer_bytes) / 16
        stretch.pulls.append(pull)
        stretch.position = pull.next_offset
        if plan.is_batched:
            # What lies between its batch and the next stretch comes with that one's batch, or is asked for in its turn.
            if stretch is self._stretches[-1]:
                self._asked = stretch.position
            self._slice_complete(stretch)
        elif stretch.position < stretch.end_offset:
            self._post([stretch])
        else:
            self._slice_complete(stretch)

    def _slice_complete(self, stretch: _PullSlice) -> None:
        stretch.covered = True
        if self._waiting is not None and stretch is self._stretches[0]:
            self._deliver_in_order()
            if self._is_enough():
                task, self._waiting = self._waiting, None
                trio.lowlevel.reschedule(task)

    def _give_up(self, _: object) -> trio.lowlevel.Abort:
        self._waiting = None
        return trio.lowlevel.Abort.SUCCEEDED

    async def _retry_slice(self, stretch: _PullSlice, result: Command | RocketMQError | None) -> None:
        try:
            while stretch.position < stretch.end_offset:
                pull = await self._pull(stretch.position, stretch.end_offset, result)
                result = None
                stretch.pulls.append(pull)
                stretch.position = pull.next_offset
        except RocketMQError as error:
            stretch.error = error
        self._slice_complete(stretch)

    async def _pull(self, start: int, end: int, result: Command | RocketMQError | None = None) -> RawPull:
        """One answer that moves forward, clipped to the range; the network's failures are waited out.

        `result` is what the first try came to, if it was made already. A loss is believed of the registered master
        alone: a slave may lag behind, or have begun later.
        """
        deadline = trio.current_time() + self._window.patience
        wanted = min(end - start, self.max_messages_a_pull)
        while True:
            try:
                if result is None:
                    address = await self._puller.address(self._queue)
                    pull = await self._puller.pull(self._queue, start, max_messages=wanted, tags=self._tags)
                else:
                    address, known, result = self._address, result, None
                    pull = self._known(start, known)
                fault = fault_of(pull, end, filtered=not self._tags.passes_all and pull.passes is None)
                if fault is None:
                    return replace(pull, next_offset=min(pull.next_offset, end))
                is_over = trio.current_time() >= deadline
                if is_over or not may_pass(pull, end):
                    if not isinstance(fault, DataLost) or await self._puller.is_master(self._queue, address):
                        raise fault
                    if is_over:
                        raise self._masterless(address, fault)
            except (NetworkError, RoutingError, ResponseError) as error:
                if not passes(error) or trio.current_time() >= deadline:
                    raise
            await self._refresh_route(deadline)
            await trio.sleep(RETRY_PAUSE_SECONDS)

    def _known(self, start: int, result: Command | RocketMQError) -> RawPull:
        if isinstance(result, RocketMQError):
            raise result
        return self._requests.any_answer(start, result, self._address)

    async def _refresh_route(self, deadline: float) -> None:
        with trio.move_on_at(deadline):
            try:
                await self._puller.refresh(self._queue)
            except RocketMQError:
                return

    def _masterless(self, address: str, fault: DataLost) -> BrokerNotFound:
        name = self._queue.broker_name
        return BrokerNotFound(
            f"{name} has no master, and nothing is given up for what {address} says in its place: {fault}; start the "
            "master again",
            broker_name=name,
        )


def passes(error: RocketMQError) -> bool:
    """Whether the same question may be answered later: a refusal only of a broker that is busy, starting or ending."""
    return not isinstance(error, ResponseError) or error.code in PASSING_CODES
