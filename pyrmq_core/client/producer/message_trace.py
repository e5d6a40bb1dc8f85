"""Message trace: each message with its queue and time, sent to RMQ_SYS_TRACE_TOPIC in the background.

A hook like any other, which the producer adds itself. Records wait in a bounded queue, which drops those that do not
fit; at least ten are sent together, or fewer after 5 s. Trace messages are not traced.
Sources: client/trace/AsyncTraceDispatcher.java, client/trace/hook/SendMessageTraceHookImpl.java, 5.3.3.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import Final

import trio

from pyrmq_core.client.producer.communication_mode import CommunicationMode
from pyrmq_core.client.producer.send.hooks import EndTransactionContext, SendContext
from pyrmq_core.client.producer.send.sender import Sender
from pyrmq_core.client.producer.send.targets import AnyQueue
from pyrmq_core.client.unique_ids import unique_ids
from pyrmq_core.errors import RocketMQError
from pyrmq_core.model import Message, SendStatus
from pyrmq_core.protocol.messages.batch import iterate_batch_body
from pyrmq_core.protocol.messages.payload import encode_one
from pyrmq_core.protocol.messages.properties import KEYS, TAGS, decode_properties
from pyrmq_core.protocol.messages.trace import TraceRecord, published, recalled, transaction_ended

log = logging.getLogger(__name__)

QUEUE_RECORDS: Final = 2048
ENOUGH_RECORDS: Final = 10
FLUSH_SECONDS: Final = 5.0
SEND_TIMEOUT_SECONDS: Final = 5.0
MAX_TRACE_BYTES: Final = 128_000
# Keys travel as a property, which has a limit of its own.
MAX_KEYS_BYTES: Final = 30_000
DEFAULT_REGION: Final = "DefaultRegion"


class Tracer:
    """The trace of one producer; `run` sends what the hooks noted."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._records: deque[TraceRecord] = deque()
        self._dropped = 0
        self._enough = trio.Event()
        self._region = DEFAULT_REGION

    def send_message_before(self, context: SendContext) -> None:
        pass

    def send_message_after(self, context: SendContext) -> None:
        """Notes each message of a try that was acknowledged; a failed try has no region to tell of."""
        if not context.results or not context.trace_on or context.topic == self._topic:
            return
        region = context.results[0].region_id
        if region is None:
            return
        self._region = region
        cost_ms = int(context.seconds * 1000)
        now_ms = _now_ms() - cost_ms
        for result, (tags, keys, size) in zip(context.results, _described(context), strict=True):
            self._note(
                published(
                    timestamp_ms=now_ms,
                    region_id=region,
                    group=context.producer_group,
                    topic=context.topic,
                    msg_id=result.msg_id,
                    tags=tags,
                    keys=keys,
                    store_host=context.broker_address,
                    body_length=size,
                    cost_ms=cost_ms // len(context.results),
                    message_type=context.message_type,
                    offset_msg_id=result.offset_msg_id,
                    success=result.status is SendStatus.SEND_OK,
                )
            )

    def end_transaction(self, context: EndTransactionContext) -> None:
        self._note(
            transaction_ended(
                timestamp_ms=_now_ms(),
                region_id=self._region,
                group=context.producer_group,
                topic=context.topic,
                msg_id=context.msg_id,
                tags=context.tags,
                keys=context.keys,
                store_host=context.broker_address,
                transaction_id=context.transaction_id,
                state=context.state.name,
                from_check=context.from_check,
            )
        )

    def recall(self, group: str, topic: str, msg_id: str) -> None:
        self._note(
            recalled(
                timestamp_ms=_now_ms(),
                region_id=self._region,
                group=group,
                topic=topic,
                msg_id=msg_id,
                success=True,
            )
        )

    async def run(self, sender: Sender) -> None:
        """Sends records for the life of the producer."""
        while True:
            with trio.move_on_after(FLUSH_SECONDS):
                await self._enough.wait()
            self._enough = trio.Event()
            await self.flush(sender)

    async def flush(self, sender: Sender) -> None:
        """Sends what is noted; what cannot be sent is dropped, and the log says so."""
        if self._dropped:
            log.info("%d trace records were dropped: they came faster than they were sent", self._dropped)
            self._dropped = 0
        while self._records:
            message = self._next_message()
            try:
                payload = encode_one(message, unique_ids(1)[0])
                await sender.send(payload, AnyQueue(), timeout=SEND_TIMEOUT_SECONDS, mode=CommunicationMode.ASYNC)
            except RocketMQError as error:
                log.info("trace records were dropped, because they could not be sent: %s", error)

    def _note(self, record: TraceRecord) -> None:
        if len(self._records) >= QUEUE_RECORDS:
            self._dropped += 1
            return
        self._records.append(record)
        if len(self._records) >= ENOUGH_RECORDS:
            self._enough.set()

    def _next_message(self) -> Message:
        """Returns a message of as many records as fit, at least one."""
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
        return Message(self._topic, "".join(texts).encode("utf-8", "replace"), keys=tuple(keys))


def _described(context: SendContext) -> list[tuple[str | None, str | None, int]]:
    """Tags, keys and body length of each message."""
    payload = context.payload
    if payload.batch:
        batch = iterate_batch_body(payload.body)
        items = [(decode_properties(item.properties.decode()), len(item.body)) for item in batch]
    else:
        items = [(context.properties, len(payload.body))]
    return [(properties.get(TAGS), properties.get(KEYS), size) for properties, size in items]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
