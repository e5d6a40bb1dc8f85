"""Automatic batching: messages sent one by one travel together, when they come fast enough.

What shares topic, target, wait flag and tag shares a request; it leaves when it holds 32 KiB or is 10 ms old. Each
message has its own result. Delayed, transactional and retry messages, compressed ones and those with a timeout of
their own go alone. Source: client/producer/ProduceAccumulator.java, 5.3.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import trio

from pyrmq_core.client.communication_mode import CommunicationMode
from pyrmq_core.client.pending import PendingSend, given_up
from pyrmq_core.client.sending import Sender
from pyrmq_core.client.targets import Target
from pyrmq_core.errors import InvalidArgument, RocketMQError
from pyrmq_core.model import Message
from pyrmq_core.protocol.batch import OVERHEAD_BYTES
from pyrmq_core.protocol.message_type import MessageType, is_reply, message_type
from pyrmq_core.protocol.names import is_retry_topic
from pyrmq_core.protocol.payload import Payload, join_payloads

MAX_BATCH_BYTES: Final = 2 * 1024 * 1024
MAX_DELAY_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Batching:
    """When a batch leaves: at `max_bytes` (1 to 2 MiB), or `max_delay` seconds old (0.001 to 30)."""

    max_bytes: int = 32 * 1024
    max_delay: float = 0.010

    def __post_init__(self) -> None:
        if not 1 <= self.max_bytes <= MAX_BATCH_BYTES:
            raise InvalidArgument(f"batching: max_bytes={self.max_bytes}; from 1 to {MAX_BATCH_BYTES} are possible")
        if not 0.001 <= self.max_delay <= MAX_DELAY_SECONDS:
            raise InvalidArgument(f"batching: max_delay={self.max_delay:g} s; from 0.001 to 30 are possible")


Key = tuple[str, Target, bool, str | None]


@dataclass(slots=True, eq=False)
class _Batch:
    to: Target
    payloads: list[Payload] = field(default_factory=list)
    pendings: list[PendingSend] = field(default_factory=list)
    size_bytes: int = 0
    full: trio.Event = field(default_factory=trio.Event)


class Accumulator:
    """The batches of one producer that are still open, and those under way."""

    def __init__(self, nursery: trio.Nursery, sender: Sender, batching: Batching, *, timeout: float) -> None:
        self._nursery = nursery
        self._sender = sender
        self._batching = batching
        self._timeout = timeout
        self._open: dict[Key, _Batch] = {}

    def takes(self, payload: Payload) -> bool:
        """Whether the message may travel with others."""
        return (
            payload.sys_flag == 0
            and len(payload.body) < self._batching.max_bytes
            and message_type(payload.properties) is MessageType.NORMAL
            and not is_retry_topic(payload.topic)
            and not is_reply(payload.properties)
        )

    def add(self, message: Message, payload: Payload, to: Target) -> PendingSend:
        """Puts the message into the open batch of its kind; it is sent in the background."""
        key = (payload.topic, to, message.wait_store_msg_ok, message.tags)
        batch = self._open.get(key)
        if batch is None:
            batch = self._open[key] = _Batch(to)
            self._nursery.start_soon(self._run, key, batch)
        pending = PendingSend()
        batch.payloads.append(payload)
        batch.pendings.append(pending)
        batch.size_bytes += OVERHEAD_BYTES + len(payload.body) + len(payload.properties)
        if batch.size_bytes >= self._batching.max_bytes:
            del self._open[key]
            batch.full.set()
        return pending

    def flush(self) -> None:
        """Everything that waits leaves now."""
        for batch in self._open.values():
            batch.full.set()

    async def _run(self, key: Key, batch: _Batch) -> None:
        try:
            with trio.move_on_after(self._batching.max_delay):
                await batch.full.wait()
            if self._open.get(key) is batch:
                del self._open[key]
            receipt = await self._sender.send(
                join_payloads(batch.payloads, one_tag=True),
                batch.to,
                timeout=self._timeout,
                mode=CommunicationMode.ASYNC,
            )
            for pending, result in zip(batch.pendings, receipt.results(), strict=True):
                pending.set_result(result)
        except RocketMQError as error:
            _fail(batch, error)
        finally:
            _fail(batch, given_up(batch.payloads[0].topic))


def _fail(batch: _Batch, error: RocketMQError) -> None:
    for pending in batch.pendings:
        if not pending.is_done:
            pending.set_error(error)
