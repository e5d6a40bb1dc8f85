"""What happened to one send so far: its tries, its time, and what an earlier try stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Generic, TypeVar

import trio

from pyrmq_core.client.producer.communication_mode import CommunicationMode
from pyrmq_core.client.producer.send.targets import Target
from pyrmq_core.client.unique_ids import unique_id
from pyrmq_core.errors import Attempt, Outcome, RocketMQError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.messages.batch_topic import record_properties
from pyrmq_core.protocol.messages.payload import Payload

R = TypeVar("R")


class SendState(Generic[R]):
    """Begun when a send begins, `now` on trio's clock; `timeout` counts from then.

    `queue`, `address`, `code` (the request's) and `began` are of the latest try, `last_broker_name` of the last that
    ended. `stored` is the receipt of a try that was not SEND_OK; `refused` the last queue that its broker did not have,
    with its answer; `record_id` names a batch that is kept as one record, alike in every try.
    """

    __slots__ = (
        "address",
        "attempts",
        "began",
        "code",
        "last_broker_name",
        "mode",
        "payload",
        "queue",
        "record_id",
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
        self.stored: R | None = None
        self.queue: MessageQueue | None = None
        self.address = ""
        self.code = 0
        self.record_id: str | None = None
        self.refused: tuple[MessageQueue, RocketMQError] | None = None

    def seconds_left(self) -> float:
        return max(0.0, self.started + self.timeout - trio.current_time())

    def as_one_record(self) -> Payload:
        """Returns the payload with the properties that make a batch topic keep it as one record; equal in every try."""
        self.record_id = self.record_id or unique_id()
        return replace(self.payload, properties=record_properties(self.payload, self.record_id))

    def note(self, queue: MessageQueue, address: str, seconds: float, outcome: Outcome, reason: str) -> None:
        self.attempts += (Attempt(queue.broker_name, address, seconds, outcome, reason),)
        self.last_broker_name = queue.broker_name
        self.tries_left -= 1

    def note_refused_queue(self, queue: MessageQueue, refusal: RocketMQError) -> None:
        """The latest try met an old route: it is not counted, and its broker may be the next one too."""
        self.refused = queue, refusal
        self.last_broker_name = None
        self.tries_left += 1
