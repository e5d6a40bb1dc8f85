"""Observers, which report a consumer's handler calls or polls to its hooks. Polls are also counted.

In a lite pull consumer, the time from the end of one poll to the beginning of the next is reported as a handler call.
Java reports it as begun and ended before the poll returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import trio

from pyrmq_core.client.consumer.consume.assigned_queues import AssignedQueue
from pyrmq_core.client.consumer.consume.handler_calls import Outcome
from pyrmq_core.client.consumer.consume.hooks import ConsumeContext, ConsumerHooks
from pyrmq_core.model import ConsumeReturnType, MessageExt, MessageQueue
from pyrmq_core.protocol.messages.namespaces import without_namespace


class CallObserver:
    """An object that reports one consumer's handler calls to its hooks. `group` is without the namespace."""

    def __init__(self, hooks: ConsumerHooks, group: str, namespace: str | None) -> None:
        self.has_hooks = bool(hooks)
        self._hooks = hooks
        self._group = group
        self._namespace = namespace

    def begin(self, queue: MessageQueue, messages: Sequence[MessageExt]) -> ConsumeContext | None:
        if not self.has_hooks:
            return None
        bare = replace(queue, topic=without_namespace(queue.topic, self._namespace))
        context = ConsumeContext(self._group, self._namespace, tuple(messages), bare)
        self._hooks.before(context)
        return context

    def end(self, context: ConsumeContext, outcome: Outcome, seconds: float) -> None:
        error = outcome.reason if isinstance(outcome.reason, Exception) else None
        self._hooks.after(context.ended(_status(outcome), seconds, error=error))


def _status(outcome: Outcome) -> ConsumeReturnType:
    if outcome.timed_out:
        return ConsumeReturnType.TIME_OUT
    if outcome.reason is None:
        return ConsumeReturnType.SUCCESS
    ordered = outcome.later is not None or outcome.suspend is not None or outcome.left
    return ConsumeReturnType.FAILED if ordered else ConsumeReturnType.EXCEPTION


class PollObserver:
    """An object that reports one consumer's polls to its hooks, and counts them. `group` is without the namespace."""

    def __init__(self, hooks: ConsumerHooks, group: str, namespace: str | None) -> None:
        self._hooks = hooks
        self._group = group
        self._namespace = namespace
        self._context: ConsumeContext | None = None
        self._began = 0.0

    def returned(self, assigned: AssignedQueue, messages: Sequence[MessageExt]) -> None:
        self._began = trio.current_time()
        if self._hooks:
            queue = assigned.queue
            bare = replace(queue, topic=without_namespace(queue.topic, self._namespace))
            self._context = ConsumeContext(self._group, self._namespace, tuple(messages), bare)
            self._hooks.before(self._context)

    def ended(self, assigned: AssignedQueue, messages: int, *, success: bool) -> None:
        seconds = trio.current_time() - self._began
        assigned.note_calls(1, messages, 0 if success else messages, seconds)
        context, self._context = self._context, None
        if context is not None:
            status = ConsumeReturnType.SUCCESS if success else ConsumeReturnType.FAILED
            self._hooks.after(context.ended(status, seconds))
