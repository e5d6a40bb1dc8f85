"""`Intake`: pulls one assigned queue, and puts its messages into the process queue, from which handlers take them.

A consumer that lags far reads ahead with many pulls at once (`Puller.read`). When no more messages are stored, one pull
waits at the broker until a message arrives. Pulling stops while the process queue is full, and pauses after failures.
Source: client/impl/consumer/DefaultMQPushConsumerImpl.java (pullMessage), 5.4.0.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Never, Protocol

import trio

from pyrmq_core.client.arguments import MAX_LONG
from pyrmq_core.client.consumer.consume.process_queue import FlowLimits, ProcessQueue
from pyrmq_core.client.consumer.consume.received import Receiver
from pyrmq_core.client.consumer.pull.pull_errors import fault_of
from pyrmq_core.client.consumer.pull.pull_sizes import ReadWindow
from pyrmq_core.client.consumer.pull.puller import Puller
from pyrmq_core.client.consumer.pull.unreadable import UnreadableRecords
from pyrmq_core.errors import DataLost, RecordError, ResponseError, RocketMQError
from pyrmq_core.model import MessageExt, PullStatus
from pyrmq_core.network.problems import Problems
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.messages.payload import RawPull

log = logging.getLogger(__name__)

# The consumer reads ahead if the queue has more messages than this. By default a broker returns at most 32 for a pull.
READ_AHEAD_MESSAGES: Final = 64
READ_AHEAD_BYTES: Final = 4 * 1024 * 1024
# The answers to pulls are collected up to this many messages. The next pulls are then sent in one write: a write for
# each pull would cost as much as ten messages.
JOINED_MESSAGES: Final = 256
READ_AHEAD_PATIENCE_SECONDS: Final = 1.0
# The most messages that are read from one queue through a proxy before another queue may be read.
TURN_MESSAGES: Final = 1000
QUICK_ANSWER_SECONDS: Final = 0.1
FIRST_PAUSE_SECONDS: Final = 0.2
FAILURE_PAUSE_SECONDS: Final = 3.0
FLOW_CONTROL_PAUSE_SECONDS: Final = 0.02
PULL: Final = "pulling"


@dataclass(frozen=True, slots=True)
class IntakeSettings:
    """The settings of pulling that all queues of a consumer share. Times are in seconds.

    A broker may hold a pull for up to `hold` while it has no message. If the answer is `timeout` later than that, the
    pull fails. `interval` is the pause after a pull.
    """

    batch_size: int = 32
    hold: float = 15.0
    timeout: float = 5.0
    interval: float = 0.0

    def times(self, failures: int) -> tuple[float, float]:
        """Returns two times in seconds: how long the broker may hold the next pull, and the pull's timeout after that.

        `failures` is the number of failed pulls in a row. After a failure the broker does not hold the pull, so that a
        hanging broker is soon noticed. For slow connections, the timeout is then doubled, and after two failures
        quadrupled.
        """
        if failures == 0:
            return self.hold, self.timeout
        return 0.0, self.timeout * 2 ** min(failures, 2)


class Arrivals(Protocol):
    """The consumer to which an `Intake` reports pulled messages and corrected offsets."""

    def arrived(self, process_queue: ProcessQueue, count: int) -> None: ...

    def offset_corrected(self, process_queue: ProcessQueue, offset: int) -> None:
        """Reports that the broker moved the group to `offset` in this queue. The consumer then drops the queue."""
        ...

    def commits_with_pulls(self) -> bool: ...


class Gate:
    """A gate at which pulling waits while it is closed. `suspend` and `pause` of a consumer close it."""

    def __init__(self) -> None:
        self._opened: trio.Event | None = None

    @property
    def is_open(self) -> bool:
        return self._opened is None

    def close(self) -> None:
        if self._opened is None:
            self._opened = trio.Event()

    def open(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.set()

    async def wait(self) -> None:
        while self._opened is not None:
            await self._opened.wait()


class Intake:
    """A task that pulls one assigned queue, and puts its messages into `process_queue` until that exceeds `limits`.

    `receiver` decodes and filters the messages. `arrivals` receives reports of new messages and of corrected offsets.
    `pulled_at` is the time of the last pull or of its answer, by trio's clock.
    """

    def __init__(
        self,
        puller: Puller,
        process_queue: ProcessQueue,
        receiver: Receiver,
        settings: IntakeSettings,
        limits: FlowLimits,
        arrivals: Arrivals,
        gate: Gate,
        problems: Problems,
    ) -> None:
        self.process_queue = process_queue
        self.receiver = receiver
        self.limits = limits
        self.pulled_at = trio.current_time()
        # True while flow control, a closed gate or a lock stops pulling, since that is no stall.
        self.is_held_back = False
        self._puller = puller
        self._settings = settings
        self._arrivals = arrivals
        self._gate = gate
        self._unreadable = UnreadableRecords()
        self._room: trio.Event | None = None
        self._failures = 0
        self._problems = problems
        self._current = trio.CancelScope()

    async def run(self) -> None:
        subject = str(self.process_queue.queue)
        try:
            while not self.process_queue.is_dropped:
                with trio.CancelScope() as self._current:
                    await self._wait_for_room()
                    try:
                        await self._pull_some()
                        self._failures = 0
                        self._problems.passed(PULL, subject)
                    except RocketMQError as error:
                        await self._pause(error)
                    if self._settings.interval:
                        await trio.sleep(self._settings.interval)
        finally:
            self._problems.forget(PULL, subject)

    def room_freed(self) -> None:
        if self._room is not None and self.process_queue.has_room(self.limits):
            self._room.set()

    def pull_anew(self, receiver: Receiver | None = None) -> None:
        """Cancels the present pull or pause, and pulls again at once. `receiver`, if set, replaces the old one."""
        self.receiver = receiver or self.receiver
        self._current.cancel()

    async def _pull_some(self) -> None:
        """Sends one pull, which the broker holds while there is no message, and reads ahead if many more are stored.

        Through a proxy, the queues of a client are pulled one after another. Only a pull that the proxy may hold,
        after a pull without messages, does not wait for other queues.
        """
        hold, timeout = self._settings.times(self._failures)
        turn = self._puller.turn(self.process_queue.queue)
        if turn is None:
            if end := await self._pull_once(hold, timeout):
                await self._read_ahead(end)
            return
        start = self.process_queue.position
        async with self._in_turn(turn):
            if end := await self._pull_once(0.0, timeout):
                await self._read_ahead(min(end, start + TURN_MESSAGES), waits=False)
        if hold and self.process_queue.position == start:
            await self._pull_once(hold, timeout)

    @asynccontextmanager
    async def _in_turn(self, turn: trio.Lock) -> AsyncIterator[None]:
        self.is_held_back = True
        try:
            await turn.acquire()
        finally:
            self.is_held_back, self.pulled_at = False, trio.current_time()
        try:
            yield
        finally:
            turn.release()

    async def _pull_once(self, hold: float, timeout: float) -> int:
        """Pulls once, and passes the messages on. The broker may hold the pull for `hold` seconds.

        The pull fails if there is no answer `timeout` seconds after that. Returns the queue's maximum offset if enough
        messages are left to read ahead, otherwise 0.
        """
        process_queue = self.process_queue
        commit = process_queue.offset_to_commit if self._arrivals.commits_with_pulls() else None
        self.pulled_at = began = trio.current_time()
        pull = await self._puller.pull(
            process_queue.queue,
            process_queue.position,
            max_messages=self._settings.batch_size,
            tags=self.receiver.filter,
            wait=hold,
            timeout=timeout,
            commit=commit or None,
        )
        self.pulled_at = trio.current_time()
        if pull.status is PullStatus.OFFSET_ILLEGAL:
            await self._follow(pull)
        if pull.status is not PullStatus.NO_NEW_MSG and (fault := fault_of(pull, MAX_LONG, filtered=True)) is not None:
            raise fault
        if pull.status is PullStatus.NO_MATCHED_MSG and self.receiver.filter.passes_all:
            self._say_gone(pull.start, pull.next_offset)
        reached = self._deliver(pull)
        if hold and pull.status is PullStatus.NO_NEW_MSG and self.pulled_at - began < QUICK_ANSWER_SECONDS:
            await trio.sleep(QUICK_ANSWER_SECONDS)  # prevents a busy loop if the broker does not hold pulls
        more = pull.max_offset - reached
        return pull.max_offset if pull.status is PullStatus.FOUND and more > READ_AHEAD_MESSAGES else 0

    async def _read_ahead(self, end: int, *, waits: bool = True) -> None:
        """Reads up to offset `end` by many pulls at once, and puts the messages into the process queue.

        While the process queue is full, it waits until handlers have consumed messages, or returns if `waits` is False.
        """
        process_queue, limits = self.process_queue, self.limits
        window = ReadWindow(
            messages=max(1, min(4000, limits.messages)),
            bytes=min(READ_AHEAD_BYTES, limits.bytes),
            max_messages_a_pull=max(32, self._settings.batch_size),
            patience=READ_AHEAD_PATIENCE_SECONDS,
        )
        start = process_queue.position
        try:
            async with self._puller.read_joined(
                process_queue.queue,
                start,
                end,
                tags=self.receiver.filter,
                window=window,
                join_bytes=READ_AHEAD_BYTES // 4,
                join_messages=max(1, min(JOINED_MESSAGES, limits.messages // 4)),
            ) as lists:
                async for pulls in lists:
                    self.pulled_at = trio.current_time()
                    for pull in pulls:
                        if pull.status is PullStatus.OFFSET_ILLEGAL:
                            await self._follow(pull)
                        if self._deliver(pull) < pull.next_offset:
                            return  # the other messages are pulled again when there is room
                    if not waits and not process_queue.has_room(limits):
                        return
                    await self._wait_for_room()
        except DataLost as lost:
            log.warning("%s: %s; the consumer goes on with what is kept", process_queue.queue, lost)

    async def _follow(self, moved: RawPull) -> Never:
        """Continues at the offset to which the broker moved the group, after a reset or because old messages expired.

        If the queue was dropped before, only the offset is stored. A short pause prevents a busy loop with a broker
        that moves the group at every pull.
        """
        process_queue = self.process_queue
        if 0 < process_queue.position < moved.min_offset:  # a new group that begins at 0 misses nothing
            self._say_gone(process_queue.position, moved.min_offset)
        was_dropped = process_queue.is_dropped
        process_queue.correct(moved.next_offset)
        await trio.sleep(QUICK_ANSWER_SECONDS)
        if not was_dropped:
            self._arrivals.offset_corrected(process_queue, moved.next_offset)
        await trio.sleep_forever()  # this task ends when the queue is dropped

    def _say_gone(self, start: int, end: int) -> None:
        log.warning(
            "offsets %d to %d of %s are gone, they were not consumed: the broker removed old messages; "
            "the consumer goes on at %d",
            start,
            end,
            self.process_queue.queue,
            end,
        )

    def _deliver(self, pull: RawPull) -> int:
        """Puts the messages of a pull into the process queue, unless it is dropped. Returns the next pull's offset."""
        process_queue = self.process_queue
        if process_queue.is_dropped:
            return process_queue.position
        if pull.next_offset <= process_queue.position and pull.status is not PullStatus.FOUND:
            return process_queue.position
        messages, following = self._messages(pull)
        process_queue.put(messages, max(process_queue.position, following))
        if messages:
            self._arrivals.arrived(process_queue, len(messages))
        return process_queue.position

    def _messages(self, pull: RawPull) -> tuple[list[MessageExt], int]:
        try:
            return self.receiver.messages(pull)
        except DataLost as lost:
            log.warning("%s: %s; the consumer goes on with what is kept", pull.queue, lost)
            return self.receiver.messages(pull, allow_gaps=True)
        except RecordError as error:
            part = self._unreadable.pass_over(pull, error, self.receiver.rules)
            return self.receiver.wanted(pull, part.messages), part.next_offset

    async def _wait_for_room(self) -> None:
        while not self._gate.is_open or not self.process_queue.has_room(self.limits):
            self.is_held_back = True
            try:
                await self._gate.wait()
                if not self.process_queue.has_room(self.limits):
                    self._room = trio.Event()
                    await self._room.wait()
            finally:
                self._room, self.is_held_back, self.pulled_at = None, False, trio.current_time()

    async def _pause(self, error: RocketMQError) -> None:
        """Waits before the next try: briefly if the broker is only busy, else longer and with a new route."""
        queue = self.process_queue.queue
        if isinstance(error, ResponseError) and error.code == ResponseCode.FLOW_CONTROL:
            await trio.sleep(FLOW_CONTROL_PAUSE_SECONDS)
            return
        self._puller.forget(queue)
        self._failures += 1
        self._problems.failed(PULL, str(queue), error, line=(queue.topic, queue.broker_name))
        try:
            await self._puller.refresh(queue)
        except RocketMQError as unreachable:
            log.debug("the route of %s could not be refreshed: %s", queue.topic, unreachable)
        await trio.sleep(min(FAILURE_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(self._failures, 10)))
