"""A producer's hooks: functions of the user around each try of a send and each end of a transaction.

They are the producer's parameter `hooks`. An object with the methods of several kinds is a hook of each of these kinds
(`hook_calls`). Sources: client/hook/SendMessageHook.java, CheckForbiddenHook.java, EndTransactionHook.java.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from pyrmq_core.client.hook_calls import check_hooks, hook_name, methods_of, quietly, timed
from pyrmq_core.client.producer.send.send_options import CommunicationMode
from pyrmq_core.errors import RocketMQError, SendFailed, SendForbidden
from pyrmq_core.model import LocalTransactionState, Message, MessageQueue, SendResult
from pyrmq_core.protocol.messages.payload import Payload
from pyrmq_core.protocol.messages.properties import MessageType, decode_properties, message_type

if TYPE_CHECKING:
    from pyrmq_core.client.producer.send.receipt import Receipt


@dataclass(frozen=True, slots=True)
class SendContext:
    """One try of a send, for hooks (client/hook/SendMessageContext.java).

    `topic` and `queue` are without the namespace. After the try, `queue` is the queue in the broker's answer, `results`
    has one result for each message, and `seconds` is the duration. If the try failed, `error` is the exception. A
    one-way send has neither results nor an error. `attempt` is the number of the try, from 1.
    """

    producer_group: str
    namespace: str | None
    topic: str
    queue: MessageQueue
    broker_address: str
    mode: CommunicationMode
    payload: Payload
    results: tuple[SendResult, ...] = ()
    error: RocketMQError | None = None
    seconds: float = 0.0
    trace_on: bool = True
    attempt: int = 1

    def ended(self, receipt: Receipt | None, error: RocketMQError | None, seconds: float) -> SendContext:
        """Returns a copy of this context with the result or error of the try.

        If the broker's acknowledgement lacks the queue or offset, the error is a `SendFailed`.
        """
        if receipt is None:
            return replace(self, error=error, seconds=seconds)
        try:
            return replace(
                self,
                queue=receipt.queue,
                results=tuple(receipt.results()),
                trace_on=receipt.trace_on,
                seconds=seconds,
            )
        except SendFailed as unreadable:
            return replace(self, error=unreadable, seconds=seconds)

    @property
    def message_type(self) -> MessageType:
        """The type of the message, as in trace records."""
        return message_type(self.payload.properties)

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a single message. Those of a batch's messages are in `payload.body`."""
        return decode_properties(self.payload.properties)


@dataclass(frozen=True, slots=True)
class EndTransactionContext:
    """The request that ends a transaction at its broker, for hooks (EndTransactionContext.java).

    `from_check` is True if it answers the broker's check of the transaction's state.
    """

    producer_group: str
    namespace: str | None
    topic: str
    broker_address: str
    msg_id: str
    transaction_id: str
    state: LocalTransactionState
    from_check: bool
    tags: str | None = None
    keys: str | None = None


class MessageHook(Protocol):
    """A hook that is called with each message that is passed to the producer, in the caller's thread and context.

    It may return another message, with more properties for example. It is not called for the rows of `send_arrow`.
    """

    def message_created(self, message: Message) -> Message | None:
        """Returns None, or the message to send in place of this one."""


class SendHook(Protocol):
    """A hook that is called before and after each try of a send (Java's SendMessageHook)."""

    def send_message_before(self, context: SendContext) -> None:
        """Runs before each try of a send."""

    def send_message_after(self, context: SendContext) -> None:
        """Runs after each try, with its result or its error in the context."""


class CheckForbiddenHook(Protocol):
    """A hook that is called before each try. If it raises an exception, the send is refused (`SendForbidden`)."""

    def check_forbidden(self, context: SendContext) -> None:
        """Raises an exception to refuse the send. Nothing is sent then."""


class EndTransactionHook(Protocol):
    """A hook that is called when END_TRANSACTION was sent to the broker."""

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Runs when END_TRANSACTION was sent to the broker."""


PRODUCER_HOOKS: Final = (
    ("send_message_before", "send_message_after"),
    ("check_forbidden",),
    ("end_transaction",),
    ("message_created",),
)
ProducerHook = MessageHook | SendHook | CheckForbiddenHook | EndTransactionHook


class ProducerHooks:
    """A producer's hooks by kind, called in the order of the parameter `hooks`."""

    def __init__(self, hooks: Sequence[ProducerHook]) -> None:
        check_hooks(hooks, PRODUCER_HOOKS)
        self._before = methods_of(hooks, "send_message_before")
        self._after = methods_of(hooks, "send_message_after")
        self._checks = methods_of(hooks, "check_forbidden")
        self._ends = methods_of(hooks, "end_transaction")

    def __bool__(self) -> bool:
        return bool(self._before or self._checks or self._ends)

    def check_forbidden(self, context: SendContext) -> None:
        """Raises the first refusal of a hook. An exception other than a `RocketMQError` becomes `SendForbidden`."""
        for check in self._checks:
            try:
                timed(check, context)
            except RocketMQError:
                raise
            except Exception as error:
                raise SendForbidden(
                    f"topic {context.topic}: the hook {hook_name(check)} refuses the message: {type(error).__name__}: "
                    f"{error}"
                ) from error

    def before(self, context: SendContext) -> None:
        for tell in self._before:
            quietly(tell, context)

    def after(self, context: SendContext) -> None:
        for tell in self._after:
            quietly(tell, context)

    def end_transaction(self, context: EndTransactionContext) -> None:
        for tell in self._ends:
            quietly(tell, context)
