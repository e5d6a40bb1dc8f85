"""The one road of everything that is read: `Puller` asks one pull, or reads a whole range with many pulls under way at
once.

Queue offsets are dense, and a broker answers at most 32 messages a pull by default: a range is cut into stretches of
the broker's own answer size, several are asked for at once, and their answers are handed out in the order of their
offsets. Source: client/impl/consumer/PullAPIWrapper.java; broker's caps: store/DefaultMessageStore.java (getMessage),
5.4.0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import trio

from pyrmq_core.client.client import Client
from pyrmq_core.client.routing import reading_address
from pyrmq_core.errors import (
    BrokerNotFound,
    DataLost,
    NetworkError,
    RecordError,
    ResponseError,
    RocketMQError,
    RoutingError,
)
from pyrmq_core.filtering.sql import SqlFilter
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import MessageQueue, PullStatus
from pyrmq_core.network import open_owned_nursery
from pyrmq_core.protocol.codes import ResponseCode
from pyrmq_core.protocol.conversation import response_error
from pyrmq_core.protocol.payload import RawPull
from pyrmq_core.protocol.requests.pull_message import PULL_ANSWERS, PullAnswer, PullMessage, PullSysFlag

# A held pull is answered up to 5 s after its limit: the broker sweeps every 5 s (PullRequestHoldService.java).
HOLD_SWEEP_SECONDS: Final = 5.0
PULL_TIMEOUT_SECONDS: Final = 10.0
RETRY_PAUSE_SECONDS: Final = 0.2
ALL_TAGS: Final = TagFilter()
PASSING_CODES: Final = frozenset((ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.GO_AWAY))

Filter = TagFilter | SqlFilter


@dataclass(frozen=True, slots=True)
class ReadWindow:
    """How much a range read keeps under way: messages and bytes asked for and not handed out yet, and how long it
    waits for a broker."""

    messages: int = 4000
    bytes: int = 4 * 1024 * 1024
    max_messages_a_pull: int = 1024
    patience: float = 20.0


@dataclass(slots=True)
class _Stretch:
    """Offsets asked for together; `pulls` fill up until they cover it."""

    start: int
    end: int
    pulls: list[RawPull] = field(default_factory=list)
    covered: trio.Event = field(default_factory=trio.Event)
    error: RocketMQError | None = None


class Puller:
    """Pulls for one consumer group over a client's connections."""

    def __init__(self, client: Client, consumer_group: str) -> None:
        self._client = client
        self._consumer_group = consumer_group

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = 32,
        tags: Filter = ALL_TAGS,
        wait: float = 0.0,
        timeout: float = PULL_TIMEOUT_SECONDS,
    ) -> RawPull:
        """One request to the queue's broker, which waits up to `wait` seconds for a first message.

        Raises `ResponseError` for refusals, `NetworkError`s, and `BrokerNotFound`. Nothing is retried.
        """
        address = await self._address(queue, timeout)
        request = PullMessage(
            consumer_group=self._consumer_group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=max_messages,
            sys_flag=PullSysFlag.SUBSCRIPTION | (PullSysFlag.SUSPEND if wait > 0 else 0),
            suspend_timeout_ms=round(wait * 1000),
            subscription=tags.expression,
            expression_type=tags.KIND,
            broker_name=queue.broker_name,
        )
        hold = wait + HOLD_SWEEP_SECONDS if wait > 0 else 0.0
        answer = await self._client.call(address, request.to_command(), timeout=timeout + hold)
        if answer.code not in PULL_ANSWERS:
            raise response_error(answer, request.CODE, f"{queue.broker_name} ({address})", f"queue {queue}")
        return _raw_pull(queue, offset, PullAnswer.from_command(answer))

    @asynccontextmanager
    async def read(
        self,
        queue: MessageQueue,
        start: int,
        end: int,
        *,
        tags: Filter = ALL_TAGS,
        window: ReadWindow = ReadWindow(),
    ) -> AsyncIterator[AsyncIterator[RawPull]]:
        """The queue's records from `start` up to, without, `end`: pulls in offset order, that cover the range without
        a gap.

        Each pull's own range is `start` to `next_offset`; what its records hold outside belongs to another pull (batch
        topics). Failures of the network are waited out for `window.patience` seconds. Raises `DataLost` when the range
        is no longer kept.
        """
        async with (
            open_owned_nursery() as nursery,
            aclosing(_RangeReader(self, queue, tags, window, nursery).pulls(start, end)) as pulls,
        ):
            yield pulls

    async def _address(self, queue: MessageQueue, timeout: float) -> str:
        try:
            broker = self._client.routes.broker(queue.broker_name)
        except BrokerNotFound:
            await self._client.routes.refresh(queue.topic, timeout=timeout)
            broker = self._client.routes.broker(queue.broker_name)
        address = reading_address(broker)
        if address is None:
            raise BrokerNotFound(
                f"broker {queue.broker_name} has no address in the route of {queue.topic}",
                broker_name=queue.broker_name,
            )
        return address

    async def refresh(self, queue: MessageQueue) -> None:
        await self._client.routes.refresh(queue.topic)


class _RangeReader:
    """Reads one range: plans stretches, keeps several under way, hands their pulls out in order."""

    def __init__(
        self, puller: Puller, queue: MessageQueue, tags: Filter, window: ReadWindow, nursery: trio.Nursery
    ) -> None:
        self._puller = puller
        self._queue = queue
        self._tags = tags
        self._window = window
        self._nursery = nursery
        self._stretches: deque[_Stretch] = deque()
        self._unasked: deque[_Stretch] = deque()
        self._idle = trio.lowlevel.ParkingLot()

    async def pulls(self, start: int, end: int) -> AsyncGenerator[RawPull, None]:
        """The first stretch is asked alone: its answer tells how much the broker gives at once."""
        if start >= end:
            return
        first = await self._pull(start, end)
        yield first
        size, depth = self._plan(first)
        position = first.next_offset
        for _ in range(min(depth, -(-(end - position) // size)) if position < end else 0):
            self._nursery.start_soon(self._work)
        while position < end or self._stretches:
            while position < end and len(self._stretches) < depth:
                position = self._ask(position, min(position + size, end))
            stretch = self._stretches[0]
            await stretch.covered.wait()
            if stretch.error is not None:
                raise stretch.error
            self._stretches.popleft()
            for pull in stretch.pulls:
                yield pull

    def _plan(self, first: RawPull) -> tuple[int, int]:
        """Stretch size and number under way, from the first answer."""
        size = max(1, min(first.next_offset - first.start, self._window.max_messages_a_pull))
        by_messages = self._window.messages // size
        by_bytes = self._window.bytes // max(1, len(first.records))
        return size, max(1, min(by_messages, by_bytes, 128))

    def _ask(self, start: int, end: int) -> int:
        stretch = _Stretch(start, end)
        self._stretches.append(stretch)
        self._unasked.append(stretch)
        self._idle.unpark()  # one: waking all of them for each stretch costs more than the pull
        return end

    async def _work(self) -> None:
        while True:
            if not self._unasked:
                await self._idle.park()
                continue
            stretch = self._unasked.popleft()
            try:
                position = stretch.start
                while position < stretch.end:
                    pull = await self._pull(position, stretch.end)
                    stretch.pulls.append(pull)
                    position = pull.next_offset
            except RocketMQError as error:
                stretch.error = error
            stretch.covered.set()

    async def _pull(self, start: int, end: int) -> RawPull:
        """One answer that moves forward, clipped to the range; the network's failures are waited out."""
        deadline = trio.current_time() + self._window.patience
        wanted = min(end - start, self._window.max_messages_a_pull)
        while True:
            try:
                pull = await self._puller.pull(self._queue, start, max_messages=wanted, tags=self._tags)
                if not _nothing_yet(pull):
                    return self._checked(pull, start, end)
                if trio.current_time() >= deadline:
                    raise self._lost(start, end, pull)
            except (NetworkError, RoutingError, ResponseError) as error:
                if not _passes(error) or trio.current_time() >= deadline:
                    raise
                await self._refresh_route(deadline)
            await trio.sleep(RETRY_PAUSE_SECONDS)

    async def _refresh_route(self, deadline: float) -> None:
        with trio.move_on_at(deadline):
            try:
                await self._puller.refresh(self._queue)
            except RocketMQError:
                return

    def _checked(self, pull: RawPull, start: int, end: int) -> RawPull:
        if pull.status is PullStatus.OFFSET_ILLEGAL:
            raise self._lost(start, end, pull)
        if pull.next_offset <= start:
            raise no_progress(pull)
        if pull.status is PullStatus.NO_MATCHED_MSG and self._tags.passes_all:
            raise self._lost(start, min(pull.next_offset, end), pull)  # MESSAGE_WAS_REMOVING: the file is deleted
        return replace(pull, next_offset=min(pull.next_offset, end))

    def _lost(self, start: int, end: int, pull: RawPull) -> DataLost:
        return DataLost(
            f"offsets {start} to {end} of {self._queue} were asked for, but the broker keeps {pull.min_offset} to "
            f"{pull.max_offset}: messages expired, or the topic was deleted and made again",
            queue=self._queue,
            start=start,
            end=end,
            min_offset=pull.min_offset,
            max_offset=pull.max_offset,
        )


def _nothing_yet(pull: RawPull) -> bool:
    """A slave that lags behind says 20 where its master would say 19 or 21, and leaves the offset as it is."""
    lags = pull.status is PullStatus.NO_MATCHED_MSG and pull.next_offset == pull.start
    return lags or pull.status is PullStatus.NO_NEW_MSG


def _passes(error: RocketMQError) -> bool:
    """Whether the same question may be answered later: a refusal only of a broker that is busy, starting or ending."""
    return not isinstance(error, ResponseError) or error.code in PASSING_CODES


def no_progress(pull: RawPull) -> RecordError:
    """For an answer that would be asked for again and again."""
    return RecordError(
        f"{pull.queue.broker_name} answered a pull of {pull.queue} at {pull.start} with next offset "
        f"{pull.next_offset}, which does not go forward; the broker's queue is damaged"
    )


def _raw_pull(queue: MessageQueue, offset: int, answer: PullAnswer) -> RawPull:
    return RawPull(
        queue=queue,
        start=offset,
        next_offset=answer.next_begin_offset,
        min_offset=answer.min_offset,
        max_offset=answer.max_offset,
        status=PullStatus(answer.code),
        records=memoryview(answer.records),
    )
