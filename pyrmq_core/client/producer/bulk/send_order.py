"""Limits the payloads in a `SendWindow` (`WindowRoom`), and chooses the next payload to send (`SendOrder`). Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from pyrmq_core.client.producer.send.send_options import AnyQueue, KeyedQueue, Target
from pyrmq_core.errors import RocketMQError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.messages.payload import Payload


class WindowRoom:
    """The number and bytes of a window's payloads, with their limits. A single payload may exceed the byte limit."""

    def __init__(self, max_payloads: int, max_bytes: int) -> None:
        self.payloads = 0
        self.bytes = 0
        self._max_payloads = max_payloads
        self._max_bytes = max_bytes

    def enter(self, size: int) -> bool:
        if not self._fits(size, self._max_payloads - 1, self._max_bytes):
            return False
        self.payloads += 1
        self.bytes += size
        return True

    def leave(self, size: int) -> None:
        self.payloads -= 1
        self.bytes -= size

    def is_half_empty(self, size: int) -> bool:
        return self._fits(size, self._max_payloads // 2, self._max_bytes // 2)

    def _fits(self, size: int, most: int, most_bytes: int) -> bool:
        if not self.payloads:
            return True
        return self.payloads <= most and self.bytes <= most_bytes and self.bytes + size <= self._max_bytes


class SendOrder:
    """The waiting payloads of a window, in the order in which they are sent, and the number of open requests.

    At most `max_requests` requests are open, and only one for an ordered target. The other payloads of such a target
    wait in a queue for it (a lane), and are sent first when the request has ended. After a failure nothing more is
    sent.
    """

    def __init__(self, max_requests: int) -> None:
        self.requests = 0
        self.failure: RocketMQError | None = None
        self._max_requests = max_requests
        self._handed: deque[tuple[Payload, Target]] = deque()
        self._lanes: dict[Target, deque[Payload]] = {}
        self._ready: deque[Target] = deque()
        self._followed: dict[Target, Target] = {}

    def add(self, payload: Payload, to: Target) -> bool:
        """Adds a payload, from any thread. Returns False if it has to wait until an open request ends."""
        self._handed.append((payload, to))
        return self.requests < self._max_requests and to not in self._lanes

    def next_send(self) -> tuple[Payload, Target] | None:
        """Returns the next payload and its target, and adds its request to the open ones, or returns None."""
        if self.failure is not None:
            return None
        while self._ready:
            to = self._ready.popleft()
            if behind := self._lanes[to]:
                self.requests += 1
                return behind.popleft(), to
            del self._lanes[to]
        while self._handed and self.requests < self._max_requests:
            payload, to = self._handed.popleft()
            if is_ordered(to):
                if (lane := self._lanes.get(to)) is not None:
                    lane.append(payload)
                    continue
                self._lanes[to] = deque()
            self.requests += 1
            return payload, to
        return None

    def destination(self, to: Target) -> Target:
        """Returns the next payload's target: `to`, or the queue to which earlier payloads moved after a failure."""
        return self._followed.get(to, to)

    def end(self, to: Target, stored_in: MessageQueue | None) -> None:
        """Records that a request to the target `to` has ended, so that the target's next payload may be sent.

        `stored_in` is the queue that stored the request's messages, or None.
        """
        self.requests -= 1
        if is_ordered(to):
            if stored_in is not None:
                self._keep_to(to, stored_in)
            self._ready.append(to)

    def fail(self, error: RocketMQError) -> None:
        """Stops sending. Keeps `error`, unless there was an earlier failure."""
        self.failure = self.failure or error

    def drop(self) -> list[Payload]:
        """Removes and returns the waiting payloads after a failure, since they are not sent. Otherwise returns none.

        Payloads of an ordered target with an open request stay until that request has ended.
        """
        dropped: list[Payload] = []
        if self.failure is not None:
            while self._ready:
                dropped += self._lanes.pop(self._ready.popleft())
            while self._handed:
                dropped.append(self._handed.popleft()[0])
        return dropped

    def _keep_to(self, to: Target, stored_in: MessageQueue) -> None:
        if isinstance(to, AnyQueue):
            self._followed[to] = replace(to, first=stored_in)
        elif isinstance(to, KeyedQueue) and to.queues and stored_in not in to.queues:
            self._followed[to] = replace(to, queues=(stored_in,))


def is_ordered(to: Target) -> bool:
    return not isinstance(to, AnyQueue) or to.keep
