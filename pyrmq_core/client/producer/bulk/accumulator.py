"""Automatic batching: messages that are sent one by one in quick succession share a request.

Messages share a request if they have the same topic, tag, target (a queue, a sharding key, or any queue) and
`wait_store_msg_ok`. By default the request is sent at 32 KiB or after 10 ms. Each message has its own result. A message
is sent alone if it is delayed, compressed, transactional or a retry, or if the caller set a timeout for it. Source:
client/producer/ProduceAccumulator.java, 5.3.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import trio

from pyrmq_core.client.producer.batch_member import BatchMember, MemberParts, join_members
from pyrmq_core.client.producer.bulk.pending_sends import InFlight, PendingSend
from pyrmq_core.client.producer.send.receipt import given_up, unexpected
from pyrmq_core.client.producer.send.send_options import Target
from pyrmq_core.client.unique_ids import unique_ids
from pyrmq_core.errors import InvalidArgument

MAX_BATCH_BYTES: Final = 2 * 1024 * 1024
MAX_DELAY_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Batching:
    """The limits at which a batch is sent: `max_bytes` (1 to 2 MiB), or an age of `max_delay` seconds (0.001 to 30)."""

    max_bytes: int = 32 * 1024
    max_delay: float = 0.010

    def __post_init__(self) -> None:
        if not 1 <= self.max_bytes <= MAX_BATCH_BYTES:
            raise InvalidArgument(f"batching: max_bytes={self.max_bytes}; from 1 to {MAX_BATCH_BYTES} are possible")
        if not 0.001 <= self.max_delay <= MAX_DELAY_SECONDS:
            raise InvalidArgument(f"batching: max_delay={self.max_delay:g} s; from 0.001 to 30 are possible")


Key = tuple[str, Target, bool, str | None]


class _Batch:
    __slots__ = ("key", "leaves_at", "members", "pendings", "size_bytes", "tags", "to", "topic", "waits")

    def __init__(self, key: Key, leaves_at: float) -> None:
        self.key = key
        self.topic, self.to, self.waits, self.tags = key
        self.leaves_at = leaves_at
        self.members: list[MemberParts] = []
        self.pendings: list[PendingSend] = []
        self.size_bytes = 0


class Accumulator:
    """The batches of one producer that are being filled. A full or old batch is sent through `in_flight`."""

    def __init__(self, in_flight: InFlight, batching: Batching, *, timeout: float) -> None:
        self._in_flight = in_flight
        self._max_bytes = batching.max_bytes
        self._max_delay = batching.max_delay
        self._timeout = timeout
        self._open: dict[Key, _Batch] = {}  # in the order of their creation
        self._last: _Batch | None = None  # the batch of the last message, which the next message often shares
        self._begun = trio.Event()

    def add(self, member: BatchMember, to: Target, pending: PendingSend) -> None:
        """Adds a message to the open batch of its topic, target, `wait_store_msg_ok` and tag. Sends a full batch.

        `pending` receives the message's result. The caller has to reserve room for the message in `in_flight` before.
        """
        message, before, after, size = member
        batch = self._last
        if (
            batch is None
            or batch.topic != message.topic
            or batch.tags != message.tags
            or (batch.to is not to and batch.to != to)
            or batch.waits is not message.wait_store_msg_ok
        ):
            batch = self._batch_of((message.topic, to, message.wait_store_msg_ok, message.tags))
        batch.members.append((message.flag, message.body, before, after))
        batch.pendings.append(pending)
        batch.size_bytes = size = batch.size_bytes + size
        if size >= self._max_bytes:
            self._send(batch)

    async def run(self) -> None:
        while True:
            if not self._open:
                self._begun = trio.Event()
                await self._begun.wait()
            leaves_at = next((batch.leaves_at for batch in self._open.values()), None)  # the time of the oldest batch
            if leaves_at is not None:
                await trio.sleep_until(leaves_at)
                self._flush(trio.current_time())

    def flush(self) -> None:
        self._flush(math.inf)

    def abandon(self) -> None:
        for batch in self._open.values():
            self._in_flight.leave(batch.pendings)
            for pending in batch.pendings:
                pending.set_error(given_up(batch.topic))
        self._open.clear()
        self._last = None

    def _flush(self, now: float) -> None:
        for batch in list(self._open.values()):
            if batch.leaves_at > now:
                break
            self._send(batch)

    def _batch_of(self, key: Key) -> _Batch:
        batch = self._open.get(key)
        if batch is None:
            batch = self._open[key] = _Batch(key, trio.current_time() + self._max_delay)
            self._begun.set()
        self._last = batch
        return batch

    def _send(self, batch: _Batch) -> None:
        del self._open[batch.key]
        self._last = None
        try:
            ids = unique_ids(len(batch.members))
            joined = join_members(batch.topic, batch.waits, batch.members, ids, single_tag=True)
        except Exception as error:
            self._in_flight.end(batch.pendings, unexpected(batch.topic, error))
        else:
            self._in_flight.start(joined, batch.to, self._timeout, batch.pendings)
