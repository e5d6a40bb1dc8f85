"""PUSH_REPLY_MESSAGE_TO_CLIENT (326): a broker sends a reply to the client that sent the request message.

The broker sends it over the connection on which that client sent its heartbeat. The answer is SUCCESS. The body is as
the reply's sender sent it, perhaps compressed.
Sources: remoting/protocol/header/ReplyMessageRequestHeader.java, broker/processor/ReplyMessageProcessor.java,
client/impl/ClientRemotingProcessor.java (receiveReplyMessage), 5.3.3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from pyrmq_core.model import MessageExt
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.fields import decode_fields, encode_fields, wire, wire_int
from pyrmq_core.protocol.messages.bodies import MAX_BODY_BYTES
from pyrmq_core.protocol.messages.compression import decompress
from pyrmq_core.protocol.messages.properties import UNIQ_KEY, decode_properties


@dataclass(frozen=True, slots=True)
class PushReply:
    """A reply that a broker pushes to the client that waits for it.

    `born_host` is the address of the reply's sender, `store_host` the address of the broker. Most other fields are
    those of the reply's send request.
    """

    CODE: ClassVar[RequestCode] = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    producer_group: str = wire("producerGroup")
    topic: str = wire("topic")
    default_topic: str = wire("defaultTopic")
    default_topic_queue_nums: int = wire_int("defaultTopicQueueNums")
    queue_id: int = wire_int("queueId")
    sys_flag: int = wire_int("sysFlag")
    born_timestamp_ms: int = wire("bornTimestamp")
    flag: int = wire_int("flag")
    properties: str | None = wire("properties", None)
    reconsume_times: int | None = wire_int("reconsumeTimes", None)
    unit_mode: bool | None = wire("unitMode", None)
    born_host: str | None = wire("bornHost", None)
    store_host: str | None = wire("storeHost", None)
    store_timestamp_ms: int | None = wire("storeTimestamp", None)
    body: bytes = b""

    def to_command(self) -> Command:
        return Command(self.CODE, encode_fields(self), self.body)

    @classmethod
    def from_command(cls, command: Command) -> Self:
        return replace(decode_fields(cls, command.ext, "PUSH_REPLY_MESSAGE_TO_CLIENT (326)"), body=bytes(command.body))

    def message(self) -> MessageExt:
        """Returns the reply. It is not stored, so its offsets are 0. Raises `RecordError` if the body is unreadable."""
        properties = decode_properties(self.properties or "")
        return MessageExt(
            topic=self.topic,
            broker_name="",
            queue_id=self.queue_id,
            queue_offset=0,
            body=decompress(self.body, self.sys_flag, max_bytes=MAX_BODY_BYTES),
            properties=properties,
            flag=self.flag,
            sys_flag=self.sys_flag,
            born_timestamp_ms=self.born_timestamp_ms,
            born_host=(self.born_host or "").lstrip("/"),
            store_timestamp_ms=self.store_timestamp_ms or 0,
            store_host=(self.store_host or "").lstrip("/"),
            commit_log_offset=0,
            store_size=0,
            body_crc=0,
            reconsume_times=self.reconsume_times or 0,
            prepared_transaction_offset=0,
            msg_id=properties.get(UNIQ_KEY, ""),
            offset_msg_id="",
        )
