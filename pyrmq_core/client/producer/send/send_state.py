"""The state of one send: what is sent, its tries so far, its time, and what an earlier try stored."""

from __future__ import annotations

from dataclasses import replace

import trio

from pyrmq_core.client.producer.send.receipt import Receipt
from pyrmq_core.client.producer.send.send_options import CommunicationMode, Target
from pyrmq_core.client.unique_ids import unique_id
from pyrmq_core.errors import Attempt, Outcome, RocketMQError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.messages.batch_topic import record_properties
from pyrmq_core.protocol.messages.payload import Payload


class SendState:
    """The locals of RocketMQ's `sendDefaultImpl`, which `Sender` alone changes.

    Fixed: `payload`, `to`, `mode`, `tries_allowed`, and `timeout`, which counts from `started` (trio's clock).
    Of the latest try: `queue`, `address`, `code` (the request's) and `began`. Of the tries that ended: `attempts`,
    `tries_left`, `last_broker_name`, `stored` (the receipt of a try that was not SEND_OK) and `refused` (the last queue
    that its broker did not have, with the broker's answer). A plain class with slots: frozen parts would cost each send
    more than its queue selection.
    """

    __slots__ = (
        "_record_id",
        "address",
        "attempts",
        "began",
        "code",
        "last_broker_name",
        "mode",
        "payload",
        "queue",
        "refused",
        "started",
        "stored",
        "timeout",
        "to",
        "tries_allowed",
        "tries_left",
    )

    def __init__(
        self,
        payload: Payload,
        to: Target,
        timeout: float,
        tries_allowed: int,
        mode: CommunicationMode = CommunicationMode.SYNC,
        now: float | None = None,
    ) -> None:
        self.payload = payload
        self.to = to
        self.timeout = timeout
        self.tries_allowed = self.tries_left = tries_allowed
        self.mode = mode
        self.started = self.began = trio.current_time() if now is None else now
        self.attempts: tuple[Attempt, ...] = ()
        self.last_broker_name: str | None = None
        self.stored: Receipt | None = None
        self.queue: MessageQueue | None = None
        self.address = ""
        self.code = 0
        self.refused: tuple[MessageQueue, RocketMQError] | None = None
        self._record_id: str | None = None

    @property
    def tries_made(self) -> int:
        return self.tries_allowed - self.tries_left

    def seconds_left(self) -> float:
        return max(0.0, self.started + self.timeout - trio.current_time())

    def as_one_record(self) -> Payload:
        """Returns the payload with the properties that make a batch topic keep it as one record; equal in every try."""
        self._record_id = self._record_id or unique_id()
        return replace(self.payload, properties=record_properties(self.payload, self._record_id))

    def note(self, queue: MessageQueue, outcome: Outcome, reason: str) -> None:
        """Adds the latest try to `attempts`."""
        seconds = trio.current_time() - self.began
        self.attempts += (Attempt(queue.broker_name, self.address, seconds, outcome, reason),)
        self.last_broker_name = queue.broker_name
        self.tries_left -= 1

    def note_refused_queue(self, queue: MessageQueue, refusal: RocketMQError) -> None:
        """Takes the latest try back from the count: its route was old, and its broker may serve the next try."""
        self.refused = queue, refusal
        self.last_broker_name = None
        self.tries_left += 1
