"""`SendWindow`: many payloads under way at once, bounded in number and bytes; what a bulk write stands on.

Payloads for one ordered queue go one after another, in the order of their `put`s; a failure stops the window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from pyrmq_core.client.retrying import is_refused_for_good
from pyrmq_core.client.sending import Receipt, Sender
from pyrmq_core.client.targets import AnyQueue, Target
from pyrmq_core.errors import InvalidArgument, ResponseError, RocketMQError, SendFailed
from pyrmq_core.model import MessageQueue, SendStatus
from pyrmq_core.network import open_owned_nursery
from pyrmq_core.protocol.dividing import halves
from pyrmq_core.protocol.payload import Payload


@dataclass(slots=True)
class WriteSummary:
    """What a window wrote so far: acknowledged messages, by queue, and what was not plain about them."""

    messages: int = 0
    bytes: int = 0
    requests: int = 0
    retries: int = 0
    perhaps_repeated: int = 0
    messages_by_queue: dict[MessageQueue, int] = field(default_factory=dict)
    messages_by_status: dict[SendStatus, int] = field(default_factory=dict)

    def add(self, receipt: Receipt, size: int) -> None:
        self.messages += receipt.count
        self.bytes += size
        self.requests += 1
        self.retries += len(receipt.attempts)
        self.perhaps_repeated += receipt.count if receipt.perhaps_repeated else 0
        self.messages_by_queue[receipt.queue] = self.messages_by_queue.get(receipt.queue, 0) + receipt.count
        self.messages_by_status[receipt.status] = self.messages_by_status.get(receipt.status, 0) + receipt.count


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """A payload of one message that a broker refused for what it is, or for who sent it; nothing of it is stored."""

    payload: Payload
    error: SendFailed

    @property
    def code(self) -> int:
        """The broker's."""
        return self.error.__cause__.code if isinstance(self.error.__cause__, ResponseError) else 0


class SendWindow:
    """Made by `open_send_window`."""

    summary: WriteSummary

    def __init__(
        self,
        sender: Sender,
        nursery: trio.Nursery,
        *,
        max_requests: int,
        max_bytes: int,
        timeout: float,
        keep_refused: bool = False,
    ) -> None:
        self._sender = sender
        self._nursery = nursery
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._keep_refused = keep_refused
        self._refused: deque[RefusedMessage] = deque()  # taken from another thread too
        self._requests = 0
        self._bytes = 0
        self._changed = trio.Event()
        self._lanes: dict[Target, deque[Payload]] = {}
        self._kept: dict[Target, Target] = {}
        self._failure: RocketMQError | None = None
        self.summary = WriteSummary()

    async def put(self, payload: Payload, to: Target) -> None:
        """Waits for room, then sends in the background. Raises the first failure of any earlier payload."""
        size = len(payload.body)
        while self._requests and (self._requests >= self._max_requests or self._bytes + size > self._max_bytes):
            self._raise_failure()
            await self._changed.wait()
        self._raise_failure()
        self._requests += 1
        self._bytes += size
        if isinstance(to, AnyQueue) and not to.keep:
            self._nursery.start_soon(self._send, payload, to)
        elif to in self._lanes:
            self._lanes[to].append(payload)
        else:
            self._lanes[to] = deque([payload])
            self._nursery.start_soon(self._send_lane, to)

    async def drain(self) -> WriteSummary:
        """Waits until every payload is acknowledged; raises the first failure, when all the others have ended too."""
        while self._requests:
            await self._changed.wait()
        self._raise_failure()
        return self.summary

    def take_refused(self) -> list[RefusedMessage]:
        """What brokers refused since the last call (with `keep_refused`); the messages beside it are stored."""
        return [self._refused.popleft() for _ in range(len(self._refused))]

    async def _send_lane(self, lane: Target) -> None:
        """The payloads of one ordered target, one under way at a time; after a failure the rest is not sent."""
        payloads = self._lanes[lane]
        while payloads:
            payload = payloads.popleft()
            if self._failure is None:
                receipt = await self._send(payload, self._kept.get(lane, lane))
                if receipt is not None and isinstance(lane, AnyQueue):
                    self._kept[lane] = AnyQueue(receipt.queue, keep=True)
            else:
                self._done(payload)
        del self._lanes[lane]

    async def _send(self, payload: Payload, to: Target) -> Receipt | None:
        try:
            return await self._send_in_parts(payload, to)
        except RocketMQError as error:
            self._failure = self._failure or error
            return None
        finally:
            self._done(payload)

    async def _send_in_parts(self, payload: Payload, to: Target) -> Receipt | None:
        """Whole, or, with `keep_refused`, a refused batch by halves in order; None when nothing of it was taken."""
        try:
            receipt = await self._sender.send(payload, to, timeout=self._timeout)
        except SendFailed as error:
            if not self._keep_refused or not is_refused_for_good(error):
                raise
            if payload.count == 1:
                self._refused.append(RefusedMessage(payload, error))
                return None
            first, second = halves(payload)
            before = await self._send_in_parts(first, to)
            if before is not None and isinstance(to, AnyQueue) and to.keep:
                to = AnyQueue(before.queue, keep=True)
            return await self._send_in_parts(second, to) or before
        self.summary.add(receipt, len(payload.body))
        return receipt

    def _done(self, payload: Payload) -> None:
        self._requests -= 1
        self._bytes -= len(payload.body)
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


@asynccontextmanager
async def open_send_window(
    sender: Sender,
    *,
    max_requests: int = 4,
    max_bytes: int = 16 * 1024 * 1024,
    timeout: float = 30.0,
    keep_refused: bool = False,
) -> AsyncIterator[SendWindow]:
    """A window over `sender`; `timeout` is each payload's own. Leaving without `drain` abandons what is under way.

    With `keep_refused` a message that brokers refuse for what it is (MESSAGE_ILLEGAL, INVALID_PARAMETER) or for who
    sends it (NO_PERMISSION) does not stop the window: it is found by halving its batch, and waits in `take_refused`.
    """
    if max_requests < 1 or max_bytes < 1:
        raise InvalidArgument(f"a window needs room: max_requests={max_requests}, max_bytes={max_bytes}")
    async with open_owned_nursery() as nursery:
        yield SendWindow(
            sender,
            nursery,
            max_requests=max_requests,
            max_bytes=max_bytes,
            timeout=timeout,
            keep_refused=keep_refused,
        )
