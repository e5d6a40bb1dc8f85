"""`TraceDispatcher`, which keeps trace records in memory and sends them to the trace topic in the background.

Its queue has room for 2,048 records, and drops new ones while it is full. The records are sent together when there are
ten of them, or after 5 s. The tracers of producers and consumers are subclasses of it, and hooks that add the records.
An internal producer, which is not traced, sends them. Source: client/trace/AsyncTraceDispatcher.java, 5.4.0.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from pyrmq_core.client.client_session import CLOSE_SECONDS, ClientSession
from pyrmq_core.client.producer.send.send_options import AnyQueue, CommunicationMode, SendSettings
from pyrmq_core.client.producer.send.sender import Sender
from pyrmq_core.client.unique_ids import unique_ids
from pyrmq_core.errors import RocketMQError
from pyrmq_core.model import Message
from pyrmq_core.network.rare_lines import RareLine
from pyrmq_core.protocol.messages.payload import encode_one
from pyrmq_core.protocol.messages.trace import TraceRecord

log = logging.getLogger(__name__)

QUEUE_RECORDS: Final = 2048
ENOUGH_RECORDS: Final = 10
FLUSH_SECONDS: Final = 5.0
SEND_TIMEOUT_SECONDS: Final = 5.0
MAX_TRACE_BYTES: Final = 128_000
# The most bytes of a trace message's keys: they are sent as a property, whose size is limited.
MAX_KEYS_BYTES: Final = 30_000
DEFAULT_REGION: Final = "DefaultRegion"
PRODUCE: Final = "PRODUCE"
CONSUME: Final = "CONSUME"
# Part of the name of the group of each internal producer, so that each has a group of its own.
TRACE_NUMBERS: Final = itertools.count(1)


class TraceDispatcher:
    """The trace records of one producer or consumer. Hooks add them with `note`, and `run` sends them."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._records: deque[TraceRecord] = deque()
        self._dropped = 0
        self._dropped_line, self._unsent_line = RareLine(), RareLine()
        self._enough = trio.Event()
        self._sending = trio.Lock()

    def note(self, record: TraceRecord) -> None:
        if len(self._records) >= QUEUE_RECORDS:
            self._dropped += 1
            return
        self._records.append(record)
        if len(self._records) >= ENOUGH_RECORDS:
            self._enough.set()

    def has_room(self, count: int) -> bool:
        """Returns whether the queue has room for `count` more records. If not, counts these records as dropped."""
        if len(self._records) + count <= QUEUE_RECORDS:
            return True
        self._dropped += count
        return False

    async def run(self, sender: Sender) -> None:
        while True:
            with trio.move_on_after(FLUSH_SECONDS):
                await self._enough.wait()
            self._enough = trio.Event()
            await self.flush(sender)

    async def flush(self, sender: Sender) -> None:
        """Sends all queued records, after any other `flush` has ended. Drops and logs records that cannot be sent."""
        async with self._sending:
            if self._dropped and self._dropped_line.is_due():
                log.warning("%d trace records were dropped: they came faster than they were sent", self._dropped)
                self._dropped = 0
            while self._records:
                message = self._next_message()
                try:
                    payload = encode_one(message, unique_ids(1)[0])
                    await sender.send(payload, AnyQueue(), timeout=SEND_TIMEOUT_SECONDS, mode=CommunicationMode.ASYNC)
                except RocketMQError as error:
                    if self._unsent_line.is_due():
                        more = self._unsent_line.left_out()
                        log.warning("trace records were dropped, because they could not be sent: %s%s", error, more)

    def _next_message(self) -> Message:
        texts: list[str] = []
        keys: dict[str, None] = {}
        size = keys_size = 0
        while self._records:
            record = self._records[0]
            size += len(record.text.encode("utf-8", "replace"))
            keys_size += sum(len(key.encode("utf-8", "replace")) + 1 for key in record.keys)
            if texts and (size > MAX_TRACE_BYTES or keys_size > MAX_KEYS_BYTES):
                break
            self._records.popleft()
            texts.append(record.text)
            keys.update(dict.fromkeys(record.keys))
        return Message(self.topic, "".join(texts).encode("utf-8", "replace"), keys=tuple(keys))


@asynccontextmanager
async def open_tracing(
    tracer: TraceDispatcher | None, nursery: trio.Nursery, client: ClientSession, group: str, kind: str
) -> AsyncIterator[None]:
    """Sends a tracer's records during the block, and the last records when it ends. Without a tracer does nothing.

    `group` is the name of the traced producer's or consumer's group without its namespace. `kind` is PRODUCE or
    CONSUME.
    """
    if tracer is None:
        yield
        return
    sender = Sender(client, SendSettings(f"_INNER_TRACE_PRODUCER-{group}-{kind}-{next(TRACE_NUMBERS)}"))
    nursery.start_soon(tracer.run, sender)
    try:
        yield
    finally:
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await tracer.flush(sender)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
