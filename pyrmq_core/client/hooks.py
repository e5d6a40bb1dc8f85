"""Hooks: functions of yours around each request and each send.

A producer takes them by `hooks=`, a client by `rpc_hooks=`; an object counts as each kind whose methods it has. Hooks
are plain functions, never `async`: they run on the loop, between other work, and hold it up while they run. One that
takes longer than 0.1 s is named in the log. What a hook raises is logged and changes nothing, except that a
check-forbidden hook that raises refuses the send.
Sources: client/hook/SendMessageHook.java, CheckForbiddenHook.java, EndTransactionHook.java, remoting/RPCHook.java.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from pyrmq_core.client.communication_mode import CommunicationMode
from pyrmq_core.errors import InvalidArgument, RocketMQError, SendFailed, SendForbidden
from pyrmq_core.model import LocalTransactionState, MessageQueue, SendResult
from pyrmq_core.protocol.command import Command
from pyrmq_core.protocol.message_type import MessageType, message_type
from pyrmq_core.protocol.payload import Payload
from pyrmq_core.protocol.properties import decode_properties

if TYPE_CHECKING:
    from pyrmq_core.client.receipts import Receipt

log = logging.getLogger(__name__)

SLOW_SECONDS: Final = 0.1
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SendContext:
    """One try of a send, as its hooks see it (client/hook/SendMessageContext.java).

    `topic` and `queue` are without the namespace. After the try, `results` has one result a message, or `error` what
    the try failed with; a one-way send has neither. `seconds` is how long it took.
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

    def ended(self, receipt: Receipt | None, error: RocketMQError | None, seconds: float) -> SendContext:
        """After the try; an acknowledgement that does not say where is told as the error it will be."""
        if receipt is None:
            return replace(self, error=error, seconds=seconds)
        try:
            return replace(self, results=tuple(receipt.results()), trace_on=receipt.trace_on, seconds=seconds)
        except SendFailed as unreadable:
            return replace(self, error=unreadable, seconds=seconds)

    @property
    def message_type(self) -> MessageType:
        return message_type(self.payload.properties)

    @property
    def properties(self) -> dict[str, str]:
        """Those of a single message; a batch has its messages' in `payload.body`."""
        return decode_properties(self.payload.properties)


@dataclass(frozen=True, slots=True)
class EndTransactionContext:
    """The end of a transaction, as hooks see it: told to the broker, or about to be (EndTransactionContext.java)."""

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


class SendHook(Protocol):
    """Told before and after each try of a send (Java's SendMessageHook)."""

    def send_message_before(self, context: SendContext) -> None: ...

    def send_message_after(self, context: SendContext) -> None: ...


class CheckForbiddenHook(Protocol):
    """Asked before each try; what it raises refuses the send (`SendForbidden`, or its own `RocketMQError`)."""

    def check_forbidden(self, context: SendContext) -> None: ...


class EndTransactionHook(Protocol):
    """Told when a transaction's end was told to the broker."""

    def end_transaction(self, context: EndTransactionContext) -> None: ...


class RpcHook(Protocol):
    """Around each request to a NameServer or broker (Java's RPCHook), before it is signed.

    `do_before_request` may give back another request, with more header fields for example.
    """

    def do_before_request(self, address: str, request: Command) -> Command | None: ...

    def do_after_response(self, address: str, request: Command, answer: Command) -> None: ...


PRODUCER_HOOKS: Final = (("send_message_before", "send_message_after"), ("check_forbidden",), ("end_transaction",))
RPC_HOOKS: Final = (("do_before_request", "do_after_response"),)

ProducerHook = SendHook | CheckForbiddenHook | EndTransactionHook


class ProducerHooks:
    """A producer's hooks by kind, called in the order they were given."""

    def __init__(self, hooks: Sequence[ProducerHook]) -> None:
        check_hooks(hooks, PRODUCER_HOOKS)
        self._before = _methods(hooks, "send_message_before")
        self._after = _methods(hooks, "send_message_after")
        self._checks = _methods(hooks, "check_forbidden")
        self._ends = _methods(hooks, "end_transaction")

    def __bool__(self) -> bool:
        return bool(self._before or self._checks or self._ends)

    def check_forbidden(self, context: SendContext) -> None:
        """Raises what the first hook that refuses raises; foreign exceptions become `SendForbidden`."""
        for check in self._checks:
            try:
                _timed(check, context)
            except RocketMQError:
                raise
            except Exception as error:
                raise SendForbidden(
                    f"topic {context.topic}: the hook {_name(check)} refuses the message: {type(error).__name__}: "
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


class RpcHooks:
    """A client's hooks around requests."""

    def __init__(self, hooks: Sequence[RpcHook]) -> None:
        check_hooks(hooks, RPC_HOOKS)
        self._hooks = tuple(hooks)

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def before(self, address: str, request: Command) -> Command:
        for hook in self._hooks:
            changed = quietly(hook.do_before_request, address, request)
            request = changed if isinstance(changed, Command) else request
        return request

    def after(self, address: str, request: Command, answer: Command) -> None:
        for hook in self._hooks:
            quietly(hook.do_after_response, address, request, answer)


def check_hooks(hooks: Sequence[object], kinds: Sequence[Sequence[str]]) -> None:
    """Raises `InvalidArgument` for what has no hook's methods, and for async ones: those would never run."""
    for hook in hooks:
        if not any(all(callable(getattr(hook, name, None)) for name in kind) for kind in kinds):
            wanted = ", or ".join(" and ".join(kind) for kind in kinds)
            raise InvalidArgument(f"{type(hook).__name__} is no hook: it has no {wanted}")
        for name in (name for kind in kinds for name in kind):
            if inspect.iscoroutinefunction(getattr(hook, name, None)):
                raise InvalidArgument(
                    f"{type(hook).__name__}.{name} is async; a hook is a plain function that does not wait"
                )


def quietly(hook: Callable[..., T], *args: object) -> T | None:
    """What the hook returns; None when it raised, which is logged."""
    try:
        return _timed(hook, *args)
    except Exception as error:
        log.info("the hook %s failed and is passed over: %s: %s", _name(hook), type(error).__name__, error)
        return None


def _timed(hook: Callable[..., T], *args: object) -> T:
    began = time.monotonic()
    try:
        return hook(*args)
    finally:
        seconds = time.monotonic() - began
        if seconds > SLOW_SECONDS:
            log.info("the hook %s took %.1f s, and everything else waited for it", _name(hook), seconds)


def _methods(hooks: Sequence[object], name: str) -> tuple[Callable[..., object], ...]:
    return tuple(method for hook in hooks if callable(method := getattr(hook, name, None)))


def _name(hook: Callable[..., object]) -> str:
    return getattr(hook, "__qualname__", type(hook).__name__)
