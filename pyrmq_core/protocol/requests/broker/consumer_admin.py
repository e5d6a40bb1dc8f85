"""An administrator's requests about a group's offsets: INVOKE_BROKER_TO_RESET_OFFSET (222) and ..._STATUS (223).

The answer to request 222 has the new offsets by queue. The answer to request 223 has a table of offsets for each client
(`ConsumerStatus` in `client/get_consumer_status.py`). 4.9 ignores `queueId` and `offset` in request 222, and resets all
queues of the topic by time. Sources: remoting/protocol/header/ResetOffsetRequestHeader.java,
remoting/protocol/body/ResetOffsetBody.java, broker/processor/AdminBrokerProcessor.java (resetOffset,
getConsumerStatus), 5.4.0 and 4.9.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Self

from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.fields import wire, wire_int
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.messages.queue_tables import offset_table_body, read_offset_table

ALL_QUEUES: Final = -1
NO_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class ResetOffset(HeaderRequest):
    """A request to reset a group's offsets: to the first messages stored at or after a time, or to one offset.

    A time below 0 means the end of each queue. `offset` needs a `queue_id`. A broker that leaves the reset to
    the group's connected clients moves an offset forward only with `is_force`.
    """

    CODE: ClassVar[RequestCode] = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    topic: str = wire("topic")
    group: str = wire("group")
    timestamp_ms: int = wire("timestamp", 0)
    is_force: bool = wire("isForce", False)
    queue_id: int = wire_int("queueId", ALL_QUEUES)
    offset: int | None = wire("offset", None)


@dataclass(frozen=True, slots=True)
class OffsetsReset:
    offsets: Mapping[MessageQueue, int] = field(default_factory=dict)

    def to_command(self) -> Command:
        return success(body=offset_table_body(self.offsets))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        return cls(read_offset_table(command.body))


@dataclass(frozen=True, slots=True)
class GetStatusOfConsumers(HeaderRequest):
    """A request for the offsets that a group's members, or only the client `client_address`, have in memory."""

    CODE: ClassVar[RequestCode] = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    topic: str = wire("topic")
    group: str = wire("group")
    client_address: str | None = wire("clientAddr", None)
