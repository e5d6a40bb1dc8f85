"""Message trace of a producer: reports sent messages and ends of transactions to a trace topic.

`Tracer` is a hook that the producer adds itself, and `TraceDispatcher` sends its records. Trace messages are not
traced. Source: client/trace/hook/SendMessageTraceHookImpl.java, 5.3.3.
"""

from __future__ import annotations

from pyrmq_core.client.producer.send.hooks import EndTransactionContext, SendContext
from pyrmq_core.client.producer.trace_dispatcher import DEFAULT_REGION, TraceDispatcher, now_ms
from pyrmq_core.model import SendStatus
from pyrmq_core.protocol.messages.batch import iterate_batch_body
from pyrmq_core.protocol.messages.properties import KEYS, TAGS, decode_properties
from pyrmq_core.protocol.messages.trace import published, recalled, transaction_ended


class Tracer(TraceDispatcher):
    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self._region = DEFAULT_REGION

    def send_message_before(self, context: SendContext) -> None:
        pass

    def send_message_after(self, context: SendContext) -> None:
        """Adds a trace record for each message of an acknowledged try.

        A failed or one-way try gets no record, since the record needs the region from the broker's answer.
        """
        if not context.results or not context.trace_on or context.topic == self.topic:
            return
        region = context.results[0].region_id
        if region is None:
            return
        self._region = region
        cost_ms = int(context.seconds * 1000)
        began_ms = now_ms() - cost_ms
        for result, (tags, keys, size) in zip(context.results, _described(context), strict=True):
            self.note(
                published(
                    timestamp_ms=began_ms,
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
        self.note(
            transaction_ended(
                timestamp_ms=now_ms(),
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
        self.note(
            recalled(
                timestamp_ms=now_ms(),
                region_id=self._region,
                group=group,
                topic=topic,
                msg_id=msg_id,
                success=True,
            )
        )


def _described(context: SendContext) -> list[tuple[str | None, str | None, int]]:
    payload = context.payload
    if payload.batch:
        batch = iterate_batch_body(payload.body)
        items = [(decode_properties(item.properties.decode()), len(item.body)) for item in batch]
    else:
        items = [(context.properties, len(payload.body))]
    return [(properties.get(TAGS), properties.get(KEYS), size) for properties, size in items]
