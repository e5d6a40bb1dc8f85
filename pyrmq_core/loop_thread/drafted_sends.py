"""Sends that another thread prepares and the loop starts: checked and encoded there, written here."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import NamedTuple

from pyrmq_core.client.producer.batch_member import BatchMember, message_of
from pyrmq_core.client.producer.bulk.pending_sends import PendingSend
from pyrmq_core.client.producer.producer import Producer
from pyrmq_core.client.producer.running_producer import RunningProducer
from pyrmq_core.client.producer.send.targets import Target
from pyrmq_core.client.producer.settings import CommunicationMode
from pyrmq_core.errors import InvalidState
from pyrmq_core.loop_thread.portal import Portal
from pyrmq_core.model import Message, MessageQueue
from pyrmq_core.network import LoopAccess
from pyrmq_core.protocol.messages.payload import Payload


class Draft(NamedTuple):
    """A send on its way to the loop; its time runs since `began`."""

    parts: RunningProducer
    payload: Payload | BatchMember
    to: Target
    timeout: float
    began: float

    @property
    def body_bytes(self) -> int:
        return len(message_of(self.payload).body)

    def seconds_left(self) -> float:
        return max(0.0, self.timeout - (time.monotonic() - self.began))


def drafted(producer: Producer, message: Message, timeout: float | None, queue: MessageQueue | None) -> Draft:
    """Checks and encodes the message in the calling thread."""
    began = time.monotonic()
    return Draft(*producer._prepare(message, timeout, queue), began)


def start_waited_for(draft: Draft, pending: PendingSend, loop: LoopAccess) -> bool:
    """Starts a send that a caller waits for; on the loop, or in that thread if the loop is idle and allows it."""
    in_flight = draft.parts.in_flight
    timeout, payload = draft.timeout if loop.writes_here else draft.seconds_left(), draft.payload
    assert isinstance(payload, Payload), "with automatic batching the trio face sends"
    return in_flight.start(payload, draft.to, timeout, (pending,), CommunicationMode.SYNC, loop)


def begin_soon(draft: Draft, pending: PendingSend) -> None:
    """Starts a send on the loop, for which no caller waits yet."""
    draft.parts.begin(draft.payload, draft.to, draft.seconds_left(), pending)


def give_up(loop: Portal, draft: Draft, pending: PendingSend) -> None:
    """Gives up the send, after the loop's earlier work for it, if any came before the interrupt."""
    with suppress(InvalidState):
        loop.soon(draft.parts.in_flight.give_up, pending, message_of(draft.payload).topic)
