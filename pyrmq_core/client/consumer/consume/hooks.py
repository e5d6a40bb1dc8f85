"""A consumer's hooks: functions of the user before and after each call of its handler.

They are the consumer's parameter `hooks`. Their exceptions are logged and change nothing (`hook_calls`). Source:
client/hook/ConsumeMessageHook.java, 5.4.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from pyrmq_core.client.hook_calls import check_hooks, methods_of, quietly
from pyrmq_core.model import ConsumeReturnType, MessageExt, MessageQueue

# The key in `properties` of the status with which a call ended (common/MixAll.java).
CONSUME_CONTEXT_TYPE: Final = "ConsumeContextType"


@dataclass(frozen=True, slots=True)
class ConsumeContext:
    """One call of the handler, with its messages, all of one queue (client/hook/ConsumeMessageContext.java).

    `queue`, the messages' topics and the group are without the namespace. `status`, `success` (whether the messages
    count as consumed), `seconds` and the handler's `error` are set after the call. A hook may keep values in the dict
    `properties`, which the contexts before and after the call share.
    """

    consumer_group: str
    namespace: str | None
    messages: tuple[MessageExt, ...]
    queue: MessageQueue
    status: ConsumeReturnType | None = None
    success: bool = False
    seconds: float = 0.0
    error: Exception | None = None
    properties: dict[str, object] = field(default_factory=dict, compare=False)

    def ended(
        self,
        status: ConsumeReturnType,
        seconds: float,
        *,
        error: Exception | None = None,
    ) -> ConsumeContext:
        """Returns the context after the call. TIME_OUT means that the handler took longer than the limit."""
        self.properties[CONSUME_CONTEXT_TYPE] = status.name
        success = status is ConsumeReturnType.SUCCESS
        return replace(self, status=status, success=success, seconds=seconds, error=error)


class ConsumeMessageHook(Protocol):
    """A hook that is called before and after each call of the handler (Java's ConsumeMessageHook)."""

    def consume_message_before(self, context: ConsumeContext) -> None:
        """Runs before the handler gets the messages."""

    def consume_message_after(self, context: ConsumeContext) -> None:
        """Runs after the handler's call, with its result in the context."""


CONSUMER_HOOKS: Final = (("consume_message_before", "consume_message_after"),)


class ConsumerHooks:
    """A consumer's hooks, called in their order.

    The object is false if there are no hooks, so that callers need not create a `ConsumeContext`.
    """

    def __init__(self, hooks: Sequence[ConsumeMessageHook]) -> None:
        check_hooks(hooks, CONSUMER_HOOKS)
        self._before = methods_of(hooks, "consume_message_before")
        self._after = methods_of(hooks, "consume_message_after")

    def __bool__(self) -> bool:
        return bool(self._before)

    def before(self, context: ConsumeContext) -> None:
        for notify in self._before:
            quietly(notify, context)

    def after(self, context: ConsumeContext) -> None:
        for notify in self._after:
            quietly(notify, context)
