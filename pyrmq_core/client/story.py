"""What happened to one send so far: its tries, its time, and what an earlier try stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

import trio

from pyrmq_core.client.communication_mode import CommunicationMode
from pyrmq_core.client.targets import Target
from pyrmq_core.errors import Attempt, Outcome
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.payload import Payload

R = TypeVar("R")


@dataclass(slots=True)
class SendStory(Generic[R]):
    """Begun when a send begins; `timeout` counts from then.

    `stored` is the receipt of a try that was not SEND_OK; `record_id` names a batch that is kept as one record, alike
    in every try.
    """

    payload: Payload
    to: Target
    timeout: float
    tries_allowed: int
    mode: CommunicationMode = CommunicationMode.SYNC
    started: float = field(default_factory=trio.current_time)
    attempts: list[Attempt] = field(default_factory=list)
    stored: R | None = None
    record_id: str | None = None

    @property
    def last_broker_name(self) -> str | None:
        return self.attempts[-1].broker_name if self.attempts else None

    @property
    def tries_left(self) -> int:
        return self.tries_allowed - len(self.attempts)

    def seconds_left(self) -> float:
        return max(0.0, self.started + self.timeout - trio.current_time())

    def note(self, queue: MessageQueue, address: str, seconds: float, outcome: Outcome, reason: str) -> None:
        self.attempts.append(Attempt(queue.broker_name, address, seconds, outcome, reason))
