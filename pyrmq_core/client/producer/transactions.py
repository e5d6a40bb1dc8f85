"""Transactions: a producer sends a half message, hidden from consumers, and later whether to deliver or drop it.

    begin                 the half message is stored, and consumers do not see it
    your local work       its result is COMMIT_MESSAGE, ROLLBACK_MESSAGE, or UNKNOW
    end                   one-way request END_TRANSACTION: the message is delivered, dropped, or checked later
    check                 the broker queries any producer of the group (CHECK_TRANSACTION_STATE), until it knows

Sources: client/impl/producer/DefaultMQProducerImpl.java (sendMessageInTransaction, endTransaction,
checkTransactionState), client/impl/ClientRemotingProcessor.java, 5.3.3.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol, TypeVar

import trio

from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.producer.send.hooks import EndTransactionContext, ProducerHooks
from pyrmq_core.client.producer.send.receipt import Receipt
from pyrmq_core.client.producer.send.send_options import Target
from pyrmq_core.client.producer.send.sender import Sender
from pyrmq_core.errors import InvalidMessage, InvalidState, RocketMQError
from pyrmq_core.model import LocalTransactionState, Message, MessageExt, SendResult, SendStatus
from pyrmq_core.network import Handler, Peer
from pyrmq_core.network.rare_lines import RareLines
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.message_id import decode_offset_msg_id
from pyrmq_core.protocol.messages.namespaces import with_namespace, without_namespace
from pyrmq_core.protocol.messages.payload import Payload
from pyrmq_core.protocol.messages.properties import PGROUP, TRAN_MSG, UNIQ_KEY, is_delayed
from pyrmq_core.protocol.messages.sysflag import TRANSACTION_PREPARED
from pyrmq_core.protocol.requests.broker.end_transaction import EndTransaction
from pyrmq_core.protocol.requests.client.check_transaction_state import CheckTransactionState
from pyrmq_core.protocol.shown_values import shown

log = logging.getLogger(__name__)

TakeCheck = Callable[[CheckTransactionState, MessageExt, Peer], None]


class TransactionChecks:
    """The handler of brokers' transaction checks. It passes each check to the client's producer of the named group."""

    def __init__(self) -> None:
        self._by_group: dict[str, TakeCheck] = {}

    def register(self, group: str, check: TakeCheck) -> None:
        self._by_group[group] = check

    def unregister(self, group: str) -> None:
        self._by_group.pop(group, None)

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.CHECK_TRANSACTION_STATE: self._pass_on}

    def _pass_on(self, request: Command, peer: Peer) -> None:
        header = CheckTransactionState.from_command(request)
        message = header.message()
        group = message.properties.get(PGROUP, "")
        check = self._by_group.get(group)
        if check is None:
            log.info("%s asks for a transaction of group %r, which has no producer here", peer.address, group)
        else:
            check(header, message, peer)


# How many checks run at a time, and how many may run or wait (TransactionMQProducer: checkThreadPoolMaxSize,
# checkRequestHoldMax).
CHECKS_AT_ONCE: Final = 1
CHECKS_HELD: Final = 2000
END_TIMEOUT_SECONDS: Final = 3.0
_FAILED: Final = RareLines()

T = TypeVar("T")
State = LocalTransactionState
ExecuteLocalTransaction = Callable[[Message, SendResult], State | Awaitable[State]]


class TransactionListener(Protocol):
    """The user's answer to brokers' checks of transactions whose end was lost, or whose state was unknown.

    `check_local_transaction` may be async. Otherwise it is called in a worker thread, one call at a time. An exception
    counts as UNKNOW. A broker may query any producer of the group, even after a restart. So decide by stored results of
    your local transaction.
    """

    def check_local_transaction(self, message: MessageExt) -> State | Awaitable[State]:
        """Returns the state of the local transaction to which a half message belongs."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """A stored half message. If it is committed, consumers read it at another offset than that in `result`."""

    message: Message
    result: SendResult
    broker_address: str
    commit_log_offset: int

    @property
    def is_safe(self) -> bool:
        """True if the broker stored the half message with SEND_OK. Otherwise it can only be rolled back."""
        return self.result.status is SendStatus.SEND_OK


class Transactions:
    def __init__(
        self,
        client: ClientSession,
        sender: Sender,
        nursery: trio.Nursery,
        listener: TransactionListener | None,
        hooks: ProducerHooks,
    ) -> None:
        self._client = client
        self._sender = sender
        self._nursery = nursery
        self._listener = listener
        self._hooks = hooks
        self._group = sender.settings.producer_group
        self._namespace = sender.settings.namespace
        self._limiter = trio.CapacityLimiter(CHECKS_AT_ONCE)
        self._held = 0
        self._checks = client.callbacks(TransactionChecks)
        if listener is not None:
            self._checks.register(self._group, self._take_check)

    def close(self) -> None:
        self._checks.unregister(self._group)

    def properties(self, message: Message) -> dict[str, str]:
        """Returns the properties that make a message a half message, which the producer adds to it.

        Raises `InvalidMessage` if the message has a delay, a priority or a lite topic, and `InvalidState` if the
        producer has no transaction listener.
        """
        if self._listener is None:
            raise InvalidState(
                f"producer {self._group} has no transaction_listener: brokers would ask it about lost ends in vain; "
                "give Producer(..., transaction_listener=...)"
            )
        if is_delayed(message):
            raise InvalidMessage(f"topic {message.topic}: a message in a transaction cannot be delayed")
        if message.priority is not None:
            raise InvalidMessage(
                f"topic {message.topic}: a message in a transaction has no priority, brokers remove it"
            )
        if message.lite_topic is not None:  # 5.5.0 would deliver it before the commit
            raise InvalidMessage(
                f"topic {message.topic}: a message in a transaction has no lite topic, which would show it before the "
                "commit and after a rollback"
            )
        return {TRAN_MSG: "true", PGROUP: self._group}

    async def begin(self, message: Message, payload: Payload, to: Target, *, timeout: float) -> Transaction:
        """Sends the half message. If its status is not SEND_OK, `end` will roll it back, as in Java."""
        half = replace(payload, sys_flag=payload.sys_flag | TRANSACTION_PREPARED)
        receipt: Receipt = await self._sender.send(half, to, timeout=timeout)
        result = receipt.result()
        queue, seconds = result.message_queue, END_TIMEOUT_SECONDS
        address = await self._client.master_address(queue, timeout=seconds, namespace=self._namespace)
        return Transaction(message, result, address, decode_offset_msg_id(result.offset_msg_id).offset)

    async def end(self, transaction: Transaction, state: State, reason: str = "") -> State:
        """Sends the broker the local transaction's state (END_TRANSACTION), and returns the state that was sent.

        A half message that was not stored with SEND_OK is always rolled back. If the request fails, this is only
        logged, since the broker checks the transaction later.
        """
        result = transaction.result
        if not transaction.is_safe:
            state = State.ROLLBACK_MESSAGE
        request = EndTransaction(
            producer_group=self._group,
            tran_state_table_offset=result.queue_offset,
            commit_log_offset=transaction.commit_log_offset,
            commit_or_rollback=state,
            msg_id=result.msg_id,
            transaction_id=result.transaction_id,
            topic=with_namespace(transaction.message.topic, self._namespace),
            broker_name=result.message_queue.broker_name,
            remark=reason or None,
        )
        try:
            await self._client.send_oneway(
                transaction.broker_address, request.to_command(), timeout=END_TIMEOUT_SECONDS
            )
        except RocketMQError as error:
            log.info("the end of transaction %s did not reach the broker, which checks it: %s", result.msg_id, error)
        message = transaction.message
        keys = message.keys if isinstance(message.keys, str | None) else " ".join(message.keys)
        self._tell_hooks(request, transaction.broker_address, message.topic, message.tags, keys)
        return state

    def _take_check(self, header: CheckTransactionState, message: MessageExt, peer: Peer) -> None:
        if self._held >= CHECKS_HELD:
            log.info("a transaction check of %s is passed over, because %d wait", peer.address, self._held)
            return
        self._held += 1
        self._nursery.start_soon(self._check, header, message, peer)

    async def _check(self, header: CheckTransactionState, message: MessageExt, peer: Peer) -> None:
        try:
            seen = replace(message, topic=without_namespace(message.topic, self._namespace))
            assert self._listener is not None
            state, error = await decided(self._listener.check_local_transaction, seen, limiter=self._limiter)
            request = EndTransaction(
                producer_group=self._group,
                tran_state_table_offset=header.tran_state_table_offset,
                commit_log_offset=header.commit_log_offset,
                commit_or_rollback=state,
                from_transaction_check=True,
                msg_id=message.properties.get(UNIQ_KEY, header.msg_id),
                transaction_id=header.transaction_id,
                topic=header.topic,
                broker_name=header.broker_name,
                remark=None if error is None else f"checkLocalTransactionState Exception: {error!r}",
            )
            await self._client.send_oneway_over(peer, request.to_command(), timeout=END_TIMEOUT_SECONDS)
            self._tell_hooks(request, peer.address, seen.topic, seen.tags, seen.keys)
        except RocketMQError as failure:
            log.info("a transaction check of %s could not be answered, it will ask again: %s", peer.address, failure)
        finally:
            self._held -= 1

    def _tell_hooks(
        self, request: EndTransaction, address: str, topic: str, tags: str | None, keys: str | None
    ) -> None:
        self._hooks.end_transaction(
            EndTransactionContext(
                producer_group=without_namespace(self._group, self._namespace),
                namespace=self._namespace,
                topic=topic,
                broker_address=address,
                msg_id=request.msg_id or "",
                transaction_id=request.transaction_id or "",
                state=State(request.commit_or_rollback),
                from_check=bool(request.from_transaction_check),
                tags=tags,
                keys=keys,
            )
        )


async def decided(
    function: Callable[..., State | Awaitable[State]], *args: object, limiter: trio.CapacityLimiter | None = None
) -> tuple[State, Exception | None]:
    """Calls a user's function that decides a transaction. Returns its state and None, or UNKNOW and its exception.

    An async function runs in this task. Any other function may block, so it runs in a worker thread, at most as many as
    `limiter` permits.
    """
    return await decided_by(partial(trio.to_thread.run_sync, limiter=limiter), function, *args)


async def decided_by(
    in_thread: Callable[..., Awaitable[object]], function: Callable[..., State | Awaitable[State]], *args: object
) -> tuple[State, Exception | None]:
    """Calls a user's function as `decided` does. A function that is not async is called by `in_thread`."""
    try:
        if inspect.iscoroutinefunction(function):
            return _checked(await function(*args)), None
        returned = await in_thread(function, *args)
        return _checked(await returned if inspect.isawaitable(returned) else returned), None
    except Exception as error:
        return unknown(error)


def decided_here(function: Callable[..., State], *args: object) -> tuple[State, Exception | None]:
    try:
        return _checked(function(*args)), None
    except Exception as error:
        return unknown(error)


def unknown(error: Exception) -> tuple[State, Exception]:
    text = f"a local transaction's state is unknown, the broker will ask: {type(error).__name__}: {error}"
    if (line := _FAILED.of(text)).is_due():
        log.warning("%s%s", text, line.left_out(), exc_info=error)
    return State.UNKNOW, error


def local_failure(error: Exception | None) -> str:
    return "" if error is None else f"executeLocalTransactionBranch exception: {error!r}"


def _checked(state: object) -> State:
    if not isinstance(state, State):
        raise TypeError(f"a local transaction ends as a LocalTransactionState, not as {shown(state)}")
    return state
