"""QUERY_ASSIGNMENT (400) and SET_MESSAGE_REQUEST_MODE (401): whether members of a group pull or pop, and their queues.

In an assignment, the queue id -1 means any queue of the broker. For a client that sent no heartbeat of the group, the
answer is an empty object. Sources: remoting/protocol/body/QueryAssignmentRequestBody.java,
QueryAssignmentResponseBody.java, SetMessageRequestModeRequestBody.java, common/message/MessageQueueAssignment.java,
5.4.0.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar, Self

from pyrmq_core.errors import BodyError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.java.integers import int_member
from pyrmq_core.protocol.java.json_text import dumps, load_object
from pyrmq_core.protocol.messages.queue_tables import queue_from, queue_members


class RequestMode(enum.StrEnum):
    PULL = "PULL"
    POP = "POP"


@dataclass(frozen=True, slots=True)
class QueryAssignment:
    """A request for the queues that one client has to read. `strategy` is Java's name of the way to assign queues."""

    CODE: ClassVar[RequestCode] = RequestCode.QUERY_ASSIGNMENT
    topic: str
    consumer_group: str
    client_id: str
    strategy: str = "AVG"
    message_model: str = "CLUSTERING"

    def to_command(self) -> Command:
        members = {
            "clientId": self.client_id,
            "consumerGroup": self.consumer_group,
            "messageModel": self.message_model,
            "strategyName": self.strategy,
            "topic": self.topic,
        }
        return Command(self.CODE, body=dumps(members))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        members = load_object(command.body, "query of an assignment")
        try:
            return cls(
                topic=str(members["topic"]),
                consumer_group=str(members["consumerGroup"]),
                client_id=str(members["clientId"]),
                strategy=str(members.get("strategyName") or "AVG"),
                message_model=str(members.get("messageModel") or "CLUSTERING"),
            )
        except KeyError as error:
            raise BodyError(f"query of an assignment: the member {error} is missing") from error


@dataclass(frozen=True, slots=True)
class QueueAssignment:
    queue: MessageQueue
    mode: RequestMode


@dataclass(frozen=True, slots=True)
class Assignments:
    """The answer to `QueryAssignment`. `queues` is None if the broker sends no list."""

    queues: tuple[QueueAssignment, ...] | None = None

    def to_command(self) -> Command:
        if self.queues is None:
            return success(body=dumps({}))
        rows = [{"messageQueue": queue_members(row.queue), "mode": row.mode.value} for row in self.queues]
        return success(body=dumps({"messageQueueAssignments": rows}))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        members = load_object(command.body, "assignments")
        rows = members.get("messageQueueAssignments")
        try:
            if rows is None:
                return cls()
            return cls(
                tuple(
                    QueueAssignment(queue_from(row["messageQueue"]), RequestMode(row.get("mode") or RequestMode.PULL))
                    for row in rows
                )
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BodyError(f"assignments: a member is missing or of the wrong type: {error!r}") from error


@dataclass(frozen=True, slots=True)
class SetRequestMode:
    """A request to set whether a group pulls or pops the messages of a topic.

    When the group pops, a member also reads the queues assigned to the next `share_queues` members, in the order of
    client ids. With `share_queues` 0, each member reads all queues.
    """

    CODE: ClassVar[RequestCode] = RequestCode.SET_MESSAGE_REQUEST_MODE
    topic: str
    consumer_group: str
    mode: RequestMode
    share_queues: int = 0

    def to_command(self) -> Command:
        members = {
            "consumerGroup": self.consumer_group,
            "mode": self.mode.value,
            "popShareQueueNum": self.share_queues,
            "topic": self.topic,
        }
        return Command(self.CODE, body=dumps(members))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        members = load_object(command.body, "request mode")
        try:
            return cls(
                topic=str(members["topic"]),
                consumer_group=str(members["consumerGroup"]),
                mode=RequestMode(members.get("mode") or RequestMode.PULL),
                share_queues=int_member(members.get("popShareQueueNum") or 0),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BodyError(f"request mode: a member is missing or of the wrong type: {error!r}") from error
