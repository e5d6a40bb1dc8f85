"""Message trace of a consumer: reports each message before and after its handler to the trace topic.

`ConsumerTracer` is a hook that the consumer adds itself, and `TraceDispatcher` sends its records. It does not trace
trace messages, nor messages whose broker switched their trace off. A record has no region if the broker is older than
5.0. Source: client/trace/hook/ConsumeMessageTraceHookImpl.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyrmq_core.client.consumer.consume.hooks import ConsumeContext
from pyrmq_core.client.producer.trace_dispatcher import TraceDispatcher, now_ms
from pyrmq_core.client.unique_ids import unique_ids
from pyrmq_core.model import ConsumeReturnType, MessageExt
from pyrmq_core.protocol.messages.properties import MSG_REGION, TRACE_ON
from pyrmq_core.protocol.messages.trace import consumption_began, consumption_ended

TRACE_CONTEXT: Final = "mqTraceContext"


@dataclass(frozen=True, slots=True)
class TracedCall:
    """The traced messages of one handler call, and the id that its records before and after the call share."""

    request_id: str
    messages: tuple[MessageExt, ...]


class ConsumerTracer(TraceDispatcher):
    def consume_message_before(self, context: ConsumeContext) -> None:
        traced = tuple(message for message in context.messages if self._is_traced(message))
        if not traced or not self.has_room(2 * len(traced)):  # one record before the call, one after it
            return
        call = TracedCall(unique_ids(1)[0], traced)
        context.properties[TRACE_CONTEXT] = call
        region, began_ms = traced[-1].properties.get(MSG_REGION), now_ms()
        for message in traced:
            self.note(
                consumption_began(
                    timestamp_ms=began_ms,
                    region_id=region,
                    group=context.consumer_group,
                    request_id=call.request_id,
                    msg_id=message.msg_id,
                    retry_times=message.reconsume_times,
                    keys=message.keys,
                )
            )

    def consume_message_after(self, context: ConsumeContext) -> None:
        """Records how the call ended. The call's duration is divided evenly among its messages."""
        call = context.properties.get(TRACE_CONTEXT)
        if not isinstance(call, TracedCall):
            return
        cost_ms, ended_ms = int(context.seconds * 1000) // len(context.messages), now_ms()
        for message in call.messages:
            self.note(
                consumption_ended(
                    request_id=call.request_id,
                    msg_id=message.msg_id,
                    cost_ms=cost_ms,
                    success=context.success,
                    keys=message.keys,
                    context_code=context.status or ConsumeReturnType.SUCCESS,
                    timestamp_ms=ended_ms,
                    group=context.consumer_group,
                )
            )

    def _is_traced(self, message: MessageExt) -> bool:
        return message.topic != self.topic and message.properties.get(TRACE_ON) != "false"
