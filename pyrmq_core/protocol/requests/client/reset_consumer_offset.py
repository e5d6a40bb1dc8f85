"""RESET_CONSUMER_CLIENT_OFFSET (220): a broker sends the members of a group new offsets, from which they continue.

It is sent one-way. Brokers of 5.1 or later send it only with useServerSideResetOffset=false. Otherwise they return the
new offset in the answer to the next pull. The body is a table by queue, or a list if a C++ client requested the reset.
This library reads both and writes the table. Sources:
remoting/protocol/header/ResetOffsetRequestHeader.java, remoting/protocol/body/ResetOffsetBody.java,
ResetOffsetBodyForC.java, broker/client/net/Broker2Client.java (resetOffset), 5.4.0 and 4.9.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.fields import decode_fields, encode_fields, wire, wire_int
from pyrmq_core.protocol.messages.queue_tables import offset_table_body, read_offset_table


@dataclass(frozen=True, slots=True)
class ResetConsumerOffset:
    """A broker's notice to the members of a group that `offsets` are the new offsets of its queues.

    `timestamp_ms` is the store time for which the broker searched these offsets.
    """

    CODE: ClassVar[RequestCode] = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    topic: str = wire("topic")
    group: str = wire("group")
    timestamp_ms: int = wire("timestamp", 0)
    is_force: bool = wire("isForce", False)
    queue_id: int | None = wire_int("queueId", None)
    offsets: Mapping[MessageQueue, int] = field(default_factory=dict)

    def to_command(self) -> Command:
        return Command(self.CODE, encode_fields(self), offset_table_body(self.offsets))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        header = decode_fields(cls, command.ext, "RESET_CONSUMER_CLIENT_OFFSET (220)")
        return replace(header, offsets=read_offset_table(command.body) if len(command.body) else {})
