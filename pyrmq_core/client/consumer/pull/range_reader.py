"""`RangeReader`: reads one range of a queue by many pulls at once over one connection.

When an answer arrives, the connection's callback records it and sends the next pulls. If one read of the socket has
several answers, the pulls that follow are sent in one write. A task for each pull would take five times as much
processor time, so only a failed pull gets a task, which retries it. `RangeProgress` decides what to pull.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from dataclasses import replace
from typing import Final, Protocol

import trio

from pyrmq_core.client.consumer.pull.pull_errors import fault_of, may_pass
from pyrmq_core.client.consumer.pull.pull_sizes import PROXY_BYTES, ReadWindow
from pyrmq_core.client.consumer.pull.range_progress import ASKED, PullSlice, RangeProgress
from pyrmq_core.client.remoting.remoting_client import PinnedConnection
from pyrmq_core.errors import BrokerNotFound, DataLost, NetworkError, ResponseError, RocketMQError, RoutingError
from pyrmq_core.filtering.sql import SqlFilter
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import MessageQueue, PullStatus
from pyrmq_core.network import BulkCall, RowCall
from pyrmq_core.protocol.framing.codes import PASSING_CODES, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.frame import RequestForm
from pyrmq_core.protocol.framing.lent_answer import AnswerForm, AnswerRow, row_command
from pyrmq_core.protocol.messages.payload import RawPull

PULL_TIMEOUT_SECONDS: Final = 10.0
RETRY_PAUSE_SECONDS: Final = 0.2

Filter = TagFilter | SqlFilter


class PullRequests(Protocol):
    """The pull requests of one queue, which differ in offset and count, and their answers: see `QueuePulls`."""

    @property
    def form(self) -> RequestForm:
        """The request without its offset and count, which each pull adds."""
        ...

    @property
    def answer_form(self) -> AnswerForm:
        """A regular expression for the header of an ordinary answer. A header that it matches is not parsed."""
        ...

    def plain_rows(self, answers: Iterable[tuple[RowCall, AnswerRow]], end: int, address: str) -> list[RawPull | None]:
        """Returns each answer of the server at `address` as a `RawPull` that ends at `end` at most, in order.

        An answer becomes None if its next offset is not after its start, or is beyond the queue's maximum offset.
        """
        ...

    def plain_answer(self, start: int, end: int, answer: Command, address: str) -> RawPull | None:
        """Returns an ordinary answer to a pull as a `RawPull` that ends at `end` at most, or None for any other answer.

        An ordinary answer has messages from `start` on, or skips offsets whose messages the filter rejects. Its next
        offset is after `start`, and not beyond the queue's maximum offset.
        """
        ...

    def any_answer(self, start: int, answer: Command, address: str) -> RawPull:
        """Returns an answer of any status, such as OFFSET_ILLEGAL, as a `RawPull`.

        Raises `ResponseError` if the broker refused the pull, and `ProtocolError` if the answer's header is faulty.
        """
        ...


class PullPath(Protocol):
    """The methods of `Puller` that a `RangeReader` uses."""

    @property
    def is_member(self) -> bool:
        """True for pulls by a group's member. A read then ends with an answer that moves the group's offset."""
        ...

    def is_proxied(self, queue: MessageQueue) -> bool: ...

    async def pull(
        self, queue: MessageQueue, offset: int, *, max_messages: int = 32, tags: Filter = ...
    ) -> RawPull: ...

    async def refresh(self, queue: MessageQueue) -> None: ...

    async def address(self, queue: MessageQueue) -> str: ...

    async def is_master(self, queue: MessageQueue, address: str) -> bool: ...

    async def connection(self, queue: MessageQueue) -> PinnedConnection: ...

    def requests(self, queue: MessageQueue, tags: Filter) -> PullRequests: ...


class _PostedPull(BulkCall):
    """A pull of a slice. `RangeReader._post` sets its attributes, since an `__init__` would cost too much time."""

    __slots__ = ("pull_slice", "reader")

    reader: RangeReader
    pull_slice: PullSlice

    def end(self, result: Command | RocketMQError) -> None:
        self.reader.answered(self.pull_slice, result)


class _BorrowingPull(RowCall):
    __slots__ = ("pull_slice",)

    reader: RangeReader
    pull_slice: PullSlice

    def end(self, result: Command | RocketMQError) -> None:
        self.reader.answered(self.pull_slice, result)


class RangeReader:
    """A reader of one queue's messages from offset `start` to before `end`. `Puller.read` makes and closes it."""

    def __init__(
        self,
        puller: PullPath,
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
        self._patience = window.patience
        self._pull_class = _BorrowingPull if window.lends_records else _PostedPull
        self._max_messages_a_pull = window.max_messages_a_pull
        self._nursery = nursery
        self._requests = puller.requests(queue, tags)
        self._connection: PinnedConnection | None = None
        self._address = ""
        self._progress = RangeProgress(start, end, window)
        self._waiting: trio.lowlevel.Task | None = None
        self._is_closed = False

    @property
    def is_ended(self) -> bool:
        return self._progress.is_ended

    async def pulls(self) -> AsyncGenerator[RawPull, None]:
        while pulls := await self.take(1, 1):
            for pull in pulls:
                yield pull

    async def joined(self, wanted_bytes: int, wanted_messages: int) -> AsyncGenerator[list[RawPull], None]:
        while pulls := await self.take(wanted_bytes, wanted_messages):
            # Lets the posted pulls be written before the caller blocks the loop by decoding.
            await trio.lowlevel.checkpoint()
            yield pulls

    async def take(self, wanted_bytes: int, wanted_messages: int) -> list[RawPull]:
        """Returns the next pulls, up to about `wanted_bytes` or `wanted_messages`, or none at the range's end.

        Before it returns, it posts the pulls that follow. Raises the error of the next pull if all its tries failed.
        """
        progress = self._progress
        if not progress.is_begun:
            await self._begin()
        await self._renew_connection()
        progress.want(wanted_bytes, wanted_messages)
        self._post(progress.deliver_in_order())
        if not progress.is_enough():
            self._waiting = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._give_up)
        return progress.take()

    def close(self) -> None:
        self._is_closed = True

    async def _begin(self) -> None:
        progress = self._progress
        if progress.next_start >= progress.end:
            return
        first = await self._pull(progress.next_start, progress.end)
        # Created after the first pull, which finds out whether this is a batch topic.
        self._requests = self._puller.requests(self._queue, self._tags)
        if self._is_moved(first):
            self._end_at(first)
            return
        progress.begin(first)
        if self._puller.is_proxied(self._queue):
            progress.narrow(PROXY_BYTES)

    async def _renew_connection(self) -> None:
        progress, connection = self._progress, self._connection
        if progress.next_start < progress.end and (connection is None or connection.is_closed):
            try:
                self._connection = await self._puller.connection(self._queue)
                self._address = self._connection.address
                if self._pull_class.borrows:
                    self._connection.lend_answers(self._requests.answer_form)
            except RocketMQError:
                self._connection = None  # `_post` then starts tasks that wait for the broker

    def _post(self, slices: list[PullSlice]) -> None:
        if not slices:
            return
        if self._connection is None:
            for pull_slice in slices:
                self._nursery.start_soon(self._retry_slice, pull_slice, None)
            return
        make, most, calls = self._pull_class, self._max_messages_a_pull, []
        for pull_slice in slices:
            call = make()
            call.reader = self
            call.pull_slice = pull_slice
            position = pull_slice.position
            wanted = pull_slice.end_offset - position
            call.numbers = (position, wanted if wanted < most else most)
            calls.append(call)
        self._connection.post_all(self._requests.form, calls, timeout=PULL_TIMEOUT_SECONDS)

    def answered(self, pull_slice: PullSlice, result: Command | RocketMQError) -> None:
        """Receives the result of a pull. If the pull failed or its answer makes no progress, a task retries it."""
        if self._is_closed:
            return
        progress = self._progress
        if isinstance(result, Command):
            pull = self._requests.plain_answer(pull_slice.position, progress.end, result, self._address)
            if pull is not None:
                if progress.add_answer(pull_slice, pull) is ASKED:
                    self._post([pull_slice])
                elif self._waiting is not None and pull_slice is progress.slices[0]:
                    self._deliver()
                return
        if not isinstance(result, Command) or result.code == ResponseCode.GO_AWAY:
            self._connection = None
        self._nursery.start_soon(self._retry_slice, pull_slice, result)

    def answered_rows(self, answers: list[tuple[_BorrowingPull, AnswerRow]]) -> None:
        """Records answers in the order of their arrival, and posts the next pulls in one write."""
        if self._is_closed:
            return
        progress, plain = self._progress, list[tuple[PullSlice, RawPull]]()
        pulls = self._requests.plain_rows(answers, progress.end, self._address)
        for (call, row), pull in zip(answers, pulls, strict=True):
            if pull is None:
                self._nursery.start_soon(self._retry_slice, call.pull_slice, row_command(row))
            else:
                plain.append((call.pull_slice, pull))
        self._post(progress.add_answers(plain))
        if self._waiting is not None and progress.slices and progress.slices[0].state is not ASKED:
            self._deliver()

    def _deliver(self) -> None:
        progress = self._progress
        self._post(progress.deliver_in_order())
        if progress.is_enough():
            task, self._waiting = self._waiting, None
            assert task is not None
            trio.lowlevel.reschedule(task)

    def _give_up(self, _: object) -> trio.lowlevel.Abort:
        self._waiting = None
        return trio.lowlevel.Abort.SUCCEEDED

    async def _retry_slice(self, pull_slice: PullSlice, result: Command | RocketMQError | None) -> None:
        try:
            while pull_slice.state is ASKED:
                pull = await self._pull(pull_slice.position, pull_slice.end_offset, result)
                if self._is_closed:
                    return
                if self._is_moved(pull):
                    self._end_at(pull)
                    return
                pull_slice.add(pull)
                result = None
        except RocketMQError as error:
            pull_slice.fail(error)
        if self._is_closed:
            return
        if self._waiting is not None and pull_slice is self._progress.slices[0]:
            self._deliver()

    def _is_moved(self, pull: RawPull) -> bool:
        return pull.status is PullStatus.OFFSET_ILLEGAL and self._puller.is_member

    def _end_at(self, moved: RawPull) -> None:
        self.close()
        self._progress.end_at(moved)
        if self._waiting is not None:
            self._deliver()

    async def _pull(self, start: int, end: int, result: Command | RocketMQError | None = None) -> RawPull:
        """Pulls until an answer makes progress, and returns it, cut at the range's end. Waits during network failures.

        `result` is the result of a first try, if there was one. `DataLost` is raised only if the registered master
        reported the loss, since a slave may lag, or have begun later than its master.
        """
        deadline = trio.current_time() + self._patience
        wanted = min(end - start, self._max_messages_a_pull)
        while True:
            try:
                if result is None:
                    address = await self._puller.address(self._queue)
                    pull = await self._puller.pull(self._queue, start, max_messages=wanted, tags=self._tags)
                else:
                    address, answer, result = self._address, result, None
                    pull = self._known(start, answer)
                if self._is_moved(pull):
                    return pull
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
    """Returns whether the same request may succeed later.

    It may, unless a broker refused it. Refusals by a broker that is busy, starting or stopping may pass, too.
    """
    return not isinstance(error, ResponseError) or error.code in PASSING_CODES
