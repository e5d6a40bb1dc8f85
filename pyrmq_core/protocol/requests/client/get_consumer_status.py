"""GET_CONSUMER_STATUS_FROM_CLIENT (221): the offsets that one member of a group has in memory for a topic.

A broker sends it to each member when an administrator sends INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223,
`requests/broker/consumer_admin.py`). The answer to 223 has the tables of all members, in the same JSON form. A client
without a consumer of the group returns an empty table.
Sources: remoting/protocol/header/GetConsumerStatusRequestHeader.java,
remoting/protocol/body/GetConsumerStatusBody.java, client/impl/ClientRemotingProcessor.java (getConsumeStatus), 5.4.0
and 4.9.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self

from pyrmq_core.errors import BodyError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.fields import wire
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.java.object_keys import dump_object, load_object_keys
from pyrmq_core.protocol.messages.queue_tables import dump_queue_table, queue_offsets_from


@dataclass(frozen=True, slots=True)
class GetConsumerStatus(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    topic: str = wire("topic")
    group: str = wire("group")


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """The offsets of consumers. A client's answer to 221 fills `offsets`, a broker's answer to 223 fills `clients`."""

    offsets: Mapping[MessageQueue, int] = field(default_factory=dict)
    clients: Mapping[str, Mapping[MessageQueue, int]] = field(default_factory=dict)

    def to_command(self) -> Command:
        clients = dump_object((name, dump_queue_table(self.clients[name])) for name in sorted(self.clients))
        members = [("consumerTable", clients), ("messageQueueTable", dump_queue_table(self.offsets))]
        return success(body=dump_object(members))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        members = load_object_keys(command.body, "consumer status")
        try:
            clients = members.get("consumerTable") or {}
            return cls(
                queue_offsets_from(members.get("messageQueueTable")),
                {name: queue_offsets_from(table) for name, table in clients.items()},
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BodyError(f"consumer status: a member is missing or of the wrong type: {error!r}") from error
