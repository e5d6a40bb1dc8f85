"""The senders of a run: each message's send is recorded with its end.

The ends of transactions are in their messages: a broker that checks one receives the same answer.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum, auto
from functools import partial
from itertools import count

import trio

from pyrmq_core import (
    LocalTransactionState,
    Message,
    MessageExt,
    Producer,
    RocketMQError,
    SendResult,
    SendStatus,
    TransactionSendResult,
)
from pyrmq_core.errors import Outcome as SendOutcome
from tests.chaos.history import Event, Outcome, Send
from tests.chaos.plan import PACKED, PLAIN

# That of the defaults: a pause of a plan is longer than a third of it, and shorter than the whole.
SEND_SECONDS = 3.0
# Levels and times of delayed messages.
LEVEL, LEVEL_SECONDS, TIMER_SECONDS = 1, 1.0, 2.0
KEYS = ("key-1", "key-2", "key-3")
COMMITTED, ROLLED_BACK, UNKNOWN = "committed", "rolled back", "unknown at first"
OUTCOMES = {SendOutcome.NOT_STORED: Outcome.NOT_STORED, SendOutcome.STORED: Outcome.STORED}


class Sending(StrEnum):
    """A kind of sends."""

    SINGLE = auto()
    BATCH = auto()
    SOON = auto()  # in the background, automatically batched
    TRANSACTION = auto()  # committed, rolled back, or one of both when the broker checks it
    DELAYED = auto()  # by a level, and by a time
    KEYED = auto()  # to the queues of keys, one message of each key after the other


FIRST_SENDINGS = (Sending.SINGLE, Sending.BATCH)
EVERY_SENDING = tuple(Sending)


@dataclass(frozen=True, slots=True)
class Load:
    """The numbers of what is sent: by the senders of single messages, that of batches, in a burst, and by others."""

    single_senders: int = 3
    single_gap_seconds: float = 0.02
    batch_gap_seconds: float = 0.1
    batch_messages: int = 10
    burst_batches: int = 160
    burst_batch_messages: int = 25
    soon_messages: int = 20
    other_gap_seconds: float = 0.2


class Checks:
    """The answers to the checks of transactions."""

    async def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        return _state_of(message.body.decode(), is_check=True)


class Traffic:
    """One producer, which sends until `stop`, and bursts; `events` has each send."""

    def __init__(
        self,
        producer: Producer,
        draw: random.Random,
        load: Load = Load(),
        sendings: Collection[Sending] = FIRST_SENDINGS,
    ) -> None:
        self.events: list[Event] = []
        self.burst_began: dict[str, datetime] = {}
        self._producer = producer
        self._draw = draw
        self._load = load
        self._sendings = sendings
        self._numbers = count(1)
        self._is_over = False

    def stop(self) -> None:
        self._is_over = True

    async def run(self) -> None:
        """Sends until `stop`, and returns when each send under way has ended."""
        async with trio.open_nursery() as nursery:
            for _ in range(self._load.single_senders if Sending.SINGLE in self._sendings else 0):
                nursery.start_soon(self._send_singles)
            if Sending.BATCH in self._sendings:
                nursery.start_soon(self._send_batches)
            for sending, send in (
                (Sending.SOON, self._send_soon),
                (Sending.TRANSACTION, self._send_in_transaction),
                (Sending.DELAYED, self._send_delayed),
                (Sending.KEYED, self._send_keyed),
            ):
                if sending in self._sendings:
                    nursery.start_soon(self._repeat, send)

    async def burst(self, topic: str) -> None:
        """Sends many messages to a topic, faster than its members consume them."""
        self.burst_began[topic] = datetime.fromtimestamp(time.time(), UTC)
        for _ in range(self._load.burst_batches):
            await self._send(topic, self._load.burst_batch_messages)

    async def send_some(self, topic: str, messages: int) -> None:
        """Sends messages, one at a time."""
        for _ in range(messages):
            await self._send(topic, 1)

    async def _send_singles(self) -> None:
        while not self._is_over:
            await self._send(PLAIN, 1)
            await trio.sleep(self._load.single_gap_seconds * self._draw.uniform(0.5, 1.5))

    async def _send_batches(self) -> None:
        while not self._is_over:
            await self._send(PACKED, self._load.batch_messages)
            await trio.sleep(self._load.batch_gap_seconds * self._draw.uniform(0.5, 1.5))

    async def _repeat(self, send: Callable[[], Awaitable[None]]) -> None:
        while not self._is_over:
            await send()
            await trio.sleep(self._load.other_gap_seconds * self._draw.uniform(0.5, 1.5))

    async def _send(self, topic: str, messages: int) -> None:
        ids = [f"{topic}-{next(self._numbers)}" for _ in range(messages)]
        began = time.monotonic()
        if messages == 1:
            outcome = await _outcome(partial(self._producer.send, Message(topic, ids[0].encode())))
        else:
            batch = [Message(topic, id_.encode()) for id_ in ids]
            outcome = await _outcome(partial(self._producer.send_batch, batch))
        ended = time.monotonic()
        self.events += [Send(began, ended, topic, id_, outcome) for id_ in ids]

    async def _send_soon(self) -> None:
        async def end(id_: str) -> None:
            began = time.monotonic()
            outcome = await _outcome(partial(self._wait_sent, Message(PLAIN, id_.encode())))
            self.events.append(Send(began, time.monotonic(), PLAIN, id_, outcome))

        async with trio.open_nursery() as nursery:
            for _ in range(self._load.soon_messages):
                nursery.start_soon(end, f"soon-{next(self._numbers)}")

    async def _wait_sent(self, message: Message) -> SendResult:
        return await (await self._producer.send_soon(message)).wait()

    async def _send_in_transaction(self) -> None:
        async def execute(message: Message, _: SendResult) -> LocalTransactionState:
            return _state_of(message.body.decode(), is_check=False)

        end = self._draw.choice((COMMITTED, ROLLED_BACK))
        id_ = f"transaction-{next(self._numbers)} {self._draw.choice(('', UNKNOWN))} {end}"
        began = time.monotonic()
        outcome = await _outcome(partial(self._producer.send_in_transaction, Message(PLAIN, id_.encode()), execute))
        ended = time.monotonic()
        outcome = Outcome.ROLLED_BACK if end == ROLLED_BACK else outcome
        self.events.append(Send(began, ended, PLAIN, id_, outcome, is_in_transaction=True))

    async def _send_delayed(self) -> None:
        id_ = f"delayed-{next(self._numbers)}"
        seconds = self._draw.choice((LEVEL_SECONDS, TIMER_SECONDS))
        message = Message(PLAIN, id_.encode(), delay=timedelta(seconds=seconds))
        if seconds == LEVEL_SECONDS:
            message = Message(PLAIN, id_.encode(), delay_level=LEVEL)
        began = time.monotonic()
        outcome = await _outcome(partial(self._producer.send, message))
        self.events.append(Send(began, time.monotonic(), PLAIN, id_, outcome, seconds))

    async def _send_keyed(self) -> None:
        for key in KEYS:
            id_ = f"{key} {next(self._numbers)}"
            began = time.monotonic()
            message = Message(PLAIN, id_.encode(), sharding_key=key)
            outcome = await _outcome(partial(self._producer.send, message))
            self.events.append(Send(began, time.monotonic(), PLAIN, id_, outcome, key=key))


async def _outcome(send: Callable[[], Awaitable[TransactionSendResult | SendResult | Sequence[SendResult]]]) -> str:
    """Returns how a send ended; a message that is not yet on the medium, or not at a slave, is perhaps stored."""
    try:
        ended = await send()
    except RocketMQError as error:
        return OUTCOMES.get(getattr(error, "outcome", None), Outcome.PERHAPS_STORED)  # type: ignore[arg-type]
    match ended:
        case TransactionSendResult():
            statuses = {ended.result.status}
        case SendResult():
            statuses = {ended.status}
        case _:
            statuses = {result.status for result in ended}
    return Outcome.STORED if statuses == {SendStatus.SEND_OK} else Outcome.PERHAPS_STORED


def _state_of(id_: str, *, is_check: bool) -> LocalTransactionState:
    if UNKNOWN in id_ and not is_check:
        return LocalTransactionState.UNKNOW
    return LocalTransactionState.COMMIT_MESSAGE if id_.endswith(COMMITTED) else LocalTransactionState.ROLLBACK_MESSAGE
