"""RECALL_MESSAGE (370): withdraws a message that waits for its delivery time. It needs a broker of 5.3 or later.

Brokers refuse it with code 16 unless `recallMessageEnable` is set, and refuse an unreadable handle with code 604.

    handle = URL-safe base64 of   v1 topic broker deliverMs uniqKey   (five words)

Sources: remoting/protocol/header/RecallMessageRequestHeader.java, common/producer/RecallMessageHandle.java, 5.3.3.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.fields import wire
from pyrmq_core.protocol.framing.header_requests import HeaderRequest, HeaderResponse

VERSION: Final = "v1"


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """The parts of a handle: the broker where the message waits, its delivery time (ms since 1970), its UNIQ_KEY."""

    topic: str
    broker_name: str
    deliver_ms: int
    unique_id: str

    def encode(self) -> str:
        text = f"{VERSION} {self.topic} {self.broker_name} {self.deliver_ms} {self.unique_id}"
        return base64.urlsafe_b64encode(text.encode()).decode("ascii")

    @classmethod
    def decode(cls, handle: str) -> Self:
        padding = "" if "=" in handle else "=" * (-len(handle) % 4)
        try:
            if len(handle + padding) % 4:
                raise ValueError("its padding has another length")
            text = base64.b64decode((handle + padding).encode("ascii"), altchars=b"-_", validate=True).decode()
            version, topic, broker_name, deliver_ms, unique_id = text.split(" ")
            if version != VERSION:
                raise ValueError(f"version {version}")
            return cls(topic, broker_name, int(deliver_ms), unique_id)
        except (ValueError, binascii.Error) as error:
            raise InvalidArgument(
                f"recall handle is invalid: {handle[:80]!r} ({error}); take the recall_handle of a delayed SendResult"
            ) from None


@dataclass(frozen=True, slots=True)
class RecallMessage(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.RECALL_MESSAGE
    producer_group: str = wire("producerGroup")
    topic: str = wire("topic")
    recall_handle: str = wire("recallHandle")
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True)
class MessageRecalled(HeaderResponse):
    """The answer to `RecallMessage`. `msg_id` is the UNIQ_KEY of the message, which will not be delivered."""

    msg_id: str = wire("msgId")
