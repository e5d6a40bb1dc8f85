"""SEND_MESSAGE (10), its V2 (310) and SEND_BATCH_MESSAGE (320), and SEND_REPLY_MESSAGE (324) and its V2 (325).

The first three store one message, or a batch of one topic, in one queue. The last two send a reply, which the broker
pushes to the client that waits for it.

Supported: both spellings of the header. The field `batch`, not the code, says that the body is a batch. Sources:
remoting/protocol/header/SendMessageRequestHeader.java, SendMessageRequestHeaderV2.java, SendMessageResponseHeader.java.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.fast_dataclass import maker_of
from pyrmq_core.protocol.framing.fields import decode_fields, encode_fields, wire, wire_int
from pyrmq_core.protocol.framing.frame import RequestForm
from pyrmq_core.protocol.framing.header_requests import HeaderResponse
from pyrmq_core.protocol.framing.headers import LazyFields
from pyrmq_core.protocol.messages.properties import (
    MAX_RECONSUME_TIMES,
    RECONSUME_TIME,
    decode_properties,
    encode_properties,
    is_reply,
)

# The field names of header V1, by the letters that replace them in V2.
V1_NAMES: Final = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",
    "m": "batch",
    "n": "bname",
}


@dataclass(frozen=True, slots=True)
class SendMessage:
    """A request to store one message or a batch in one queue. With a negative queue id the broker chooses the queue."""

    producer_group: str = wire("a")
    topic: str = wire("b")
    default_topic: str = wire("c")
    default_topic_queue_nums: int = wire_int("d")
    queue_id: int = wire_int("e")
    sys_flag: int = wire_int("f")
    born_timestamp_ms: int = wire("g")
    flag: int = wire_int("h")
    properties: str | None = wire("i", None)
    reconsume_times: int | None = wire_int("j", 0)
    unit_mode: bool | None = wire("k", False)
    max_reconsume_times: int | None = wire_int("l", None)
    batch: bool | None = wire("m", False)
    broker_name: str | None = wire("n", None)
    body: bytes | memoryview = b""

    CODES: ClassVar = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
    V1_CODES: ClassVar = (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)

    def to_command(self) -> Command:
        """Returns the request with header V2, Java's default.

        The request code is SEND_BATCH_MESSAGE for a batch, otherwise SEND_MESSAGE_V2.
        """
        code = RequestCode.SEND_BATCH_MESSAGE if self.batch else RequestCode.SEND_MESSAGE_V2
        return Command(code, encode_fields(self), self.body)

    def to_form(self) -> RequestForm:
        """Returns a template for requests that differ from this one only in born timestamp, properties and body."""
        return RequestForm(self.to_command(), ("g",), "i")

    def to_reply_command(self) -> Command:
        """Returns the request that sends a reply. The broker pushes it to the client named in its properties."""
        return Command(RequestCode.SEND_REPLY_MESSAGE_V2, encode_fields(self), self.body)

    def to_special_command(self) -> Command:
        """Returns the request for a reply, or for a message to a retry topic.

        As in Java's client, the numbers of retries of a message to a retry topic are moved from its properties to the
        header (DefaultMQProducerImpl.sendKernelImpl).
        """
        if is_reply(self.properties or ""):
            return self.to_reply_command()
        named = decode_properties(self.properties or "")
        times, most = named.pop(RECONSUME_TIME, "0"), named.pop(MAX_RECONSUME_TIMES, None)
        return dataclasses.replace(
            self,
            properties=encode_properties(named),
            reconsume_times=int(times),
            max_reconsume_times=None if most is None else int(most),
        ).to_command()

    @classmethod
    def from_command(cls, command: Command) -> Self:
        ext = command.ext
        if command.code in cls.V1_CODES:  # access control reads only these long names, so the letters of V2 are ignored
            ext = {letter: ext[name] for letter, name in V1_NAMES.items() if name in ext}
        request = decode_fields(cls, ext, "SEND_MESSAGE")
        # Allowed, since no other code has the new request yet.
        object.__setattr__(request, "body", command.body)
        return request


# The header fields of an answer as brokers of 5.x write them for a single message. No matched value has an escape. This
# takes a fifth of the time of `decode_fields`.
_USUAL: Final = re.compile(
    r'\{"queueId":"(\d{1,9})","transactionId":"(\w*)","msgId":"(\w*)","TRACE_ON":"(\w*)","MSG_REGION":"([\w-]*)",'
    r'"queueOffset":"(\d{1,18})"\}',
    re.ASCII,
)


_QUEUE_ID: Final = b'"queueId":"'
_QUEUE_OFFSET: Final = b'"queueOffset":"'
USUAL_DIGITS: Final = 18
QUEUE_ID_DIGITS: Final = 9


@dataclass(frozen=True, slots=True)
class MessageStored(HeaderResponse):
    """The answer to a send: the message's queue and offset. `msg_ids` are offset message ids, separated by commas."""

    msg_ids: str = wire("msgId")
    queue_id: int = wire_int("queueId")
    queue_offset: int = wire("queueOffset")
    transaction_id: str | None = wire("transactionId", None)
    batch_uniq_id: str | None = wire("batchUniqId", None)
    region_id: str | None = wire("MSG_REGION", None)
    trace_on: str | None = wire("TRACE_ON", None)
    recall_handle: str | None = wire("recallHandle", None)

    @classmethod
    def from_command(cls, command: Command) -> MessageStored:
        ext = command.ext
        match = _USUAL.fullmatch(ext.raw.decode("latin-1")) if type(ext) is LazyFields else None
        if match is None:
            return decode_fields(cls, ext, cls.__name__)
        queue_id, transaction_id, msg_id, trace_on, region_id, queue_offset = match.groups()
        return _make_stored(msg_id, int(queue_id), int(queue_offset), transaction_id, None, region_id, trace_on, None)

    @classmethod
    def queue_offset_of(cls, command: Command) -> int:
        """Returns the queue offset in the answer to a send, without parsing the other fields.

        Parsing an answer that names 4,000 messages takes 200 us, a tenth of the time to write these messages. A search
        for the quoted name of the field is safe, since quotes in values are escaped.
        """
        offset = _number_in(command, _QUEUE_OFFSET, USUAL_DIGITS)
        return cls.from_command(command).queue_offset if offset is None else offset

    @classmethod
    def queue_id_of(cls, command: Command) -> int:
        queue_id = _number_in(command, _QUEUE_ID, QUEUE_ID_DIGITS)
        return cls.from_command(command).queue_id if queue_id is None else queue_id


def _number_in(command: Command, name: bytes, most_digits: int) -> int | None:
    ext = command.ext
    if type(ext) is not LazyFields:
        return None
    start = ext.raw.rfind(name) + len(name)
    digits, quote, _ = ext.raw[start : start + most_digits + 1].partition(b'"')
    return int(digits) if start >= len(name) and quote and digits.isdigit() else None


# A fast constructor (`fast_dataclass`), called for every message sent.
_make_stored: Final = maker_of(MessageStored)
