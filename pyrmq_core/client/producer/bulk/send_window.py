"""`SendWindow`: sends many payloads at once, limited in number and bytes, for bulk writes.

Payloads for one ordered target are sent one after another, in the order of the calls of `put`. A failure stops the
window. `WindowRoom` decides if there is room for a payload, and `SendOrder` chooses the next payload to send.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import trio

from pyrmq_core.client.producer.bulk.send_order import SendOrder, WindowRoom
from pyrmq_core.client.producer.send.background_sends import BackgroundSends
from pyrmq_core.client.producer.send.receipt import Receipt, given_up
from pyrmq_core.client.producer.send.retry_policy import is_refused_for_good
from pyrmq_core.client.producer.send.send_options import AnyQueue, CommunicationMode, Target
from pyrmq_core.client.producer.send.sender import Sender
from pyrmq_core.committed.records import StoredRange
from pyrmq_core.errors import InvalidArgument, ResponseError, RocketMQError, SendFailed
from pyrmq_core.model import MessageQueue, SendStatus
from pyrmq_core.network import open_owned_nursery
from pyrmq_core.protocol.messages.payload import Payload
from pyrmq_core.protocol.messages.split_payload import halves

log = logging.getLogger(__name__)

# The most payloads in a window, as a multiple of the most open requests.
HANDED_OVER: Final = 8


@dataclass(slots=True)
class WriteSummary:
    """The acknowledged messages of a window, by queue and status, and counts of retries and possible duplicates.

    In a window with `list_ranges`, `ranges` has the queue offsets of each request.
    """

    messages: int = 0
    bytes: int = 0
    requests: int = 0
    retries: int = 0
    perhaps_repeated: int = 0
    messages_by_queue: dict[MessageQueue, int] = field(default_factory=dict)
    messages_by_status: dict[SendStatus, int] = field(default_factory=dict)
    ranges: list[StoredRange] = field(default_factory=list)

    def add(self, receipt: Receipt, size: int) -> None:
        """Adds one acknowledged request, whose body has `size` bytes."""
        self.messages += receipt.count
        self.bytes += size
        self.requests += 1
        self.retries += len(receipt.attempts)
        if receipt.attempts and receipt.perhaps_repeated:
            self.perhaps_repeated += receipt.count
        queue = receipt.queue
        self.messages_by_queue[queue] = self.messages_by_queue.get(queue, 0) + receipt.count
        self.messages_by_status[receipt.status] = self.messages_by_status.get(receipt.status, 0) + receipt.count


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """A payload of one message that a broker refused because of its content or its sender. It is not stored."""

    payload: Payload
    error: SendFailed

    @property
    def code(self) -> int:
        """The broker's response code, or 0 if there is none."""
        return self.error.__cause__.code if isinstance(self.error.__cause__, ResponseError) else 0


class SendWindow:
    """The payloads of a bulk write, of which a limited number and size is sent at once. See `open_send_window`.

    Unsent payloads wait here, so that the next request follows each acknowledgement at once, even if the caller is
    busy. Another thread calls `enter_nowait` and `hand_over` in place of `put`. If `hand_over` returns True, it also
    has to call `start_more` on the loop.
    """

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
        list_ranges: bool = False,
    ) -> None:
        self._sender = sender
        self._nursery = nursery
        self._under_way = BackgroundSends(nursery, sender)
        self._timeout = timeout
        self._keep_refused = keep_refused
        self._list_ranges = list_ranges
        self._refused: deque[RefusedMessage] = deque()  # appended on the loop, taken by any thread
        self._room_lock = threading.Lock()
        self._room = WindowRoom(HANDED_OVER * max_requests, max_bytes)
        self._order = SendOrder(max_requests)
        self._changed: trio.Event | None = None
        self._has_raised = False  # whether a caller got the failure or an interrupt
        self.summary = WriteSummary()

    async def put(self, payload: Payload, to: Target) -> None:
        """Waits until the window has room for the payload, then sends it in the background.

        Raises the first failure of any earlier payload.
        """
        while not self.enter_nowait(payload):
            await self.wait_for_room(payload)
        if self.hand_over(payload, to):
            self.start_more()

    def enter_nowait(self, payload: Payload) -> bool:
        """Reserves room for the payload, or returns False. Raises the first failure of earlier payloads."""
        self._raise_failure()
        with self._room_lock:
            return self._room.enter(len(payload.body))

    def hand_over(self, payload: Payload, to: Target) -> bool:
        """Adds a payload for which room is reserved. Returns True if the caller has to call `start_more` now."""
        return self._order.add(payload, to)

    def interrupted(self, topic: str) -> None:
        """Fails the window after an interrupted `put` to `topic`, since it is unknown whether its payload is sent."""
        self._order.fail(given_up(topic))
        self._has_raised = True
        self.start_more()
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()

    async def wait_for_room(self, payload: Payload) -> None:
        """Waits until half of the window is empty and `payload` fits. Waking the caller more often would cost time."""
        await self._until(lambda: self._room.is_half_empty(len(payload.body)))

    async def drain(self) -> WriteSummary:
        """Waits until every payload is acknowledged. If some failed, raises the first failure at the end."""
        room, order = self._room, self._order
        await self._until(lambda: not room.payloads or (order.failure is not None and not order.requests))
        self._raise_failure()
        return self.summary

    def take_refused(self) -> list[RefusedMessage]:
        """Removes and returns the messages that brokers refused since the last call, if `keep_refused` is set.

        The other messages of their batches are stored.
        """
        return [self._refused.popleft() for _ in range(len(self._refused))]

    def abandon(self) -> None:
        """Gives up the open requests, and sends nothing more. Logs an earlier failure that was never raised."""
        if self._order.failure is not None and not self._has_raised:
            log.warning("a window was left with a failure that neither put nor drain raised: %s", self._order.failure)
        self._under_way.abandon()

    async def _until(self, has_come: Callable[[], bool]) -> None:
        while not has_come():
            if self._changed is None:
                self._changed = trio.Event()
            await self._changed.wait()

    def start_more(self) -> None:
        """Sends waiting payloads up to the limits. After a failure, drops the waiting payloads."""
        order = self._order
        # One payload at a time, since a send may fail within `start`, and then change the next payload.
        while (following := order.next_send()) is not None:
            payload, to = following
            ended = partial(self._ended, payload, to)
            self._under_way.start(payload, order.destination(to), self._timeout, CommunicationMode.SYNC, ended)
        for dropped in order.drop():
            self._leave(dropped)

    def _ended(self, payload: Payload, to: Target, end: Receipt | RocketMQError) -> None:
        if isinstance(end, Receipt):
            try:
                self._add(payload, end)
            except SendFailed as error:
                self._order.fail(error)
            self._over(payload, to, end.requested)
        elif self._keep_refused and isinstance(end, SendFailed) and is_refused_for_good(end):
            self._nursery.start_soon(self._divide, payload, to, end)
        else:
            self._order.fail(end)
            self._over(payload, to, None)

    def _add(self, payload: Payload, receipt: Receipt) -> None:
        self.summary.add(receipt, len(payload.body))
        if self._list_ranges:
            ids = payload.unique_ids or ("", "")
            self.summary.ranges.append(StoredRange(receipt.queue, receipt.queue_offset, receipt.count, ids[0], ids[-1]))

    def _over(self, payload: Payload, to: Target, stored_in: MessageQueue | None) -> None:
        self._order.end(to, stored_in)
        self._leave(payload)
        self.start_more()

    def _leave(self, payload: Payload) -> None:
        with self._room_lock:
            self._room.leave(len(payload.body))
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()

    async def _divide(self, payload: Payload, to: Target, refusal: SendFailed) -> None:
        stored_in = None
        try:
            stored_in = await self._send_halves(payload, self._order.destination(to), refusal)
        except RocketMQError as error:
            self._order.fail(error)
        self._over(payload, to, stored_in)

    async def _send_halves(self, payload: Payload, to: Target, refusal: SendFailed) -> MessageQueue | None:
        """Sends the two halves of a refused batch in order. A half that is refused as well is divided again.

        A single message is not sent, but listed as refused. Returns the queue of the last stored message, or None.
        """
        if payload.count == 1:
            self._refused.append(RefusedMessage(payload, refusal))
            return None
        stored_in: MessageQueue | None = None
        for half in halves(payload):
            try:
                receipt = await self._sender.send(half, to, timeout=self._timeout)
            except SendFailed as error:
                if not is_refused_for_good(error):
                    raise
                now = await self._send_halves(half, to, error)
            else:
                self._add(half, receipt)
                now = receipt.requested
            if now is not None and isinstance(to, AnyQueue) and to.keep:
                to = replace(to, first=now)
            stored_in = now or stored_in
        return stored_in

    def _raise_failure(self) -> None:
        if self._order.failure is not None:
            self._has_raised = True
            raise self._order.failure


@asynccontextmanager
async def open_send_window(
    sender: Sender,
    *,
    max_requests: int = 4,
    max_bytes: int = 16 * 1024 * 1024,
    timeout: float = 30.0,
    keep_refused: bool = False,
    list_ranges: bool = False,
) -> AsyncIterator[SendWindow]:
    """Opens a window, which sends payloads by `sender` without waiting for each acknowledgement.

    Up to `max_requests` requests with `max_bytes` bytes wait for their acknowledgement at a time. Each may take
    `timeout` seconds after it is sent. Leaving the block without `drain` abandons the open requests.

    `keep_refused` is for messages that brokers refuse because of their content (MESSAGE_ILLEGAL, INVALID_PARAMETER) or
    sender (NO_PERMISSION). They then do not stop the window: their batch is divided until each of them is alone, and
    `take_refused` returns them. With `list_ranges` the summary has, for each request, its queue and offsets, and the
    ids of its first and last message. Each payload must then have `unique_ids`.
    """
    if max_requests < 1 or max_bytes < 1:
        raise InvalidArgument(f"a window needs room: max_requests={max_requests}, max_bytes={max_bytes}")
    async with open_owned_nursery() as nursery:
        window = SendWindow(
            sender,
            nursery,
            max_requests=max_requests,
            max_bytes=max_bytes,
            timeout=timeout,
            keep_refused=keep_refused,
            list_ranges=list_ranges,
        )
        try:
            yield window
        finally:
            window.abandon()
