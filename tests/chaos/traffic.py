"""The senders of a run: each message's send is recorded with its end."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count

import trio

from pyrmq_core import Message, Producer, RocketMQError
from pyrmq_core.errors import Outcome as SendOutcome
from tests.chaos.history import Event, Outcome, Send
from tests.chaos.plan import PACKED, PLAIN

# That of the defaults: a pause of a plan is longer than a third of it, and shorter than the whole.
SEND_SECONDS = 3.0
OUTCOMES = {SendOutcome.NOT_STORED: Outcome.NOT_STORED, SendOutcome.STORED: Outcome.STORED}


@dataclass(frozen=True, slots=True)
class Load:
    """The numbers of what is sent: by the senders of single messages, that of batches, and in a burst."""

    single_senders: int = 3
    single_gap_seconds: float = 0.02
    batch_gap_seconds: float = 0.1
    batch_messages: int = 10
    burst_batches: int = 160
    burst_batch_messages: int = 25


class Traffic:
    """One producer, which sends single messages and batches until `stop`, and bursts; `events` has each send."""

    def __init__(self, producer: Producer, draw: random.Random, load: Load = Load()) -> None:
        self.events: list[Event] = []
        self.burst_began: dict[str, datetime] = {}
        self._producer = producer
        self._draw = draw
        self._load = load
        self._numbers = count(1)
        self._is_over = False

    def stop(self) -> None:
        self._is_over = True

    async def run(self) -> None:
        """Sends until `stop`, and returns when each send under way has ended."""
        async with trio.open_nursery() as nursery:
            for _ in range(self._load.single_senders):
                nursery.start_soon(self._send_singles)
            nursery.start_soon(self._send_batches)

    async def burst(self, topic: str) -> None:
        """Sends many messages to a topic, faster than its members consume them."""
        self.burst_began[topic] = datetime.fromtimestamp(time.time(), UTC)
        for _ in range(self._load.burst_batches):
            await self._send(topic, self._load.burst_batch_messages)

    async def _send_singles(self) -> None:
        while not self._is_over:
            await self._send(PLAIN, 1)
            await trio.sleep(self._load.single_gap_seconds * self._draw.uniform(0.5, 1.5))

    async def _send_batches(self) -> None:
        while not self._is_over:
            await self._send(PACKED, self._load.batch_messages)
            await trio.sleep(self._load.batch_gap_seconds * self._draw.uniform(0.5, 1.5))

    async def _send(self, topic: str, messages: int) -> None:
        ids = [f"{topic}-{next(self._numbers)}" for _ in range(messages)]
        began = time.monotonic()
        outcome = await self._outcome([Message(topic, id_.encode()) for id_ in ids])
        ended = time.monotonic()
        self.events += [Send(began, ended, topic, id_, outcome) for id_ in ids]

    async def _outcome(self, messages: Sequence[Message]) -> str:
        try:
            if len(messages) == 1:
                await self._producer.send(messages[0])
            else:
                await self._producer.send_batch(messages)
        except RocketMQError as error:
            return OUTCOMES.get(getattr(error, "outcome", None), Outcome.PERHAPS_STORED)  # type: ignore[arg-type]
        return Outcome.STORED
