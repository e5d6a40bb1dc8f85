"""GET_CONSUMER_LIST_BY_GROUP (38): the client ids of a consumer group's members at one broker.

A group without members is refused with code 1.
Sources: remoting/protocol/header/GetConsumerListByGroupRequestHeader.java,
remoting/protocol/body/GetConsumerListByGroupResponseBody.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.fields import wire
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.java.json_text import dumps, load_object


@dataclass(frozen=True, slots=True)
class GetConsumerList(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    consumer_group: str = wire("consumerGroup")
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True)
class ConsumerList:
    client_ids: tuple[str, ...]

    def to_command(self) -> Command:
        return success(body=dumps({"consumerIdList": list(self.client_ids)}))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        ids = load_object(command.body, "consumer list").get("consumerIdList")
        if not isinstance(ids, list) or not all(isinstance(client_id, str) for client_id in ids):
            raise BodyError("consumer list: consumerIdList is not a list of texts")
        return cls(tuple(ids))
