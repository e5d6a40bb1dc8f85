"""LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42): a group's member locks queues, so that it alone consumes them in order.

Sources: remoting/protocol/body/LockBatchRequestBody.java, LockBatchResponseBody.java, UnlockBatchRequestBody.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from pyrmq_core.errors import BodyError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.java.json_text import dumps, load_object
from pyrmq_core.protocol.messages.queue_tables import queue_members, queues_from


@dataclass(frozen=True, slots=True)
class LockQueues:
    """A request to lock queues for a client. The answer (`LockedQueues`) names the queues whose lock it has now."""

    CODE: ClassVar[RequestCode] = RequestCode.LOCK_BATCH_MQ
    consumer_group: str
    client_id: str
    queues: tuple[MessageQueue, ...]

    def to_command(self) -> Command:
        members = {
            "clientId": self.client_id,
            "consumerGroup": self.consumer_group,
            "mqSet": [queue_members(queue) for queue in self.queues],
            "onlyThisBroker": False,
        }
        return Command(self.CODE, body=dumps(members))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        members = load_object(command.body, "queue locks")
        try:
            queues = tuple(queues_from(members.get("mqSet") or ()))
            return cls(str(members["consumerGroup"]), str(members["clientId"]), queues)
        except (KeyError, TypeError, ValueError) as error:
            raise BodyError(f"queue locks: a member is missing or of the wrong type: {error!r}") from error


@dataclass(frozen=True, slots=True)
class UnlockQueues(LockQueues):
    """A request to unlock queues, answered without a body."""

    CODE: ClassVar[RequestCode] = RequestCode.UNLOCK_BATCH_MQ


@dataclass(frozen=True, slots=True)
class LockedQueues:
    queues: tuple[MessageQueue, ...]

    def to_command(self) -> Command:
        return success(body=dumps({"lockOKMQSet": [queue_members(queue) for queue in self.queues]}))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        members = load_object(command.body, "locked queues")
        try:
            return cls(tuple(queues_from(members.get("lockOKMQSet") or ())))
        except (KeyError, TypeError, ValueError) as error:
            raise BodyError(f"locked queues: a member is missing or of the wrong type: {error!r}") from error
