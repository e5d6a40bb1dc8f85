"""Small values that a NameServer stores for its clients, by namespace and key.

    PUT_KV_CONFIG (100)    GET_KV_CONFIG (101)    DELETE_KV_CONFIG (102)    GET_KVLIST_BY_NAMESPACE (219)

In the namespace `ORDER_TOPIC_CONFIG`, the key is an order topic and the value its queues: `brokerName:queues;...`. Each
NameServer has its own table, so a change must be sent to all of them. Requests 100 and 102 without a namespace or key
are refused with SYSTEM_ERROR, requests 101 and 219 for an unknown namespace or key with QUERY_NOT_FOUND. Sources:
remoting/protocol/header/namesrv/PutKVConfigRequestHeader.java and its neighbours, remoting/protocol/body/KVTable.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.fields import wire
from pyrmq_core.protocol.framing.header_requests import HeaderRequest, HeaderResponse
from pyrmq_core.protocol.java.json_text import dumps, load_object

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"


@dataclass(frozen=True, slots=True)
class PutKvConfig(HeaderRequest):
    """A request to store a value for a key in a namespace. If `value` is None, it removes the key."""

    CODE: ClassVar[RequestCode] = RequestCode.PUT_KV_CONFIG
    namespace: str | None = wire("namespace", None)
    key: str | None = wire("key", None)
    value: str | None = wire("value", None)


@dataclass(frozen=True, slots=True)
class GetKvConfig(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.GET_KV_CONFIG
    namespace: str | None = wire("namespace", None)
    key: str | None = wire("key", None)


@dataclass(frozen=True, slots=True)
class KvConfig(HeaderResponse):
    value: str | None = wire("value", None)

    @classmethod
    def value_in(cls, answer: Command) -> str | None:
        return cls.from_command(answer).value if answer.code == ResponseCode.SUCCESS else None


@dataclass(frozen=True, slots=True)
class DeleteKvConfig(HeaderRequest):
    """A request to remove a key. The answer is SUCCESS also for an unknown key."""

    CODE: ClassVar[RequestCode] = RequestCode.DELETE_KV_CONFIG
    namespace: str | None = wire("namespace", None)
    key: str | None = wire("key", None)


@dataclass(frozen=True, slots=True)
class GetKvList(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.GET_KVLIST_BY_NAMESPACE
    namespace: str | None = wire("namespace", None)


@dataclass(frozen=True, slots=True)
class KvTable:
    table: Mapping[str, str]

    @classmethod
    def table_in(cls, answer: Command) -> dict[str, str]:
        return {} if answer.code else dict(cls.from_command(answer).table)

    def to_command(self) -> Command:
        return success(body=dumps({"table": dict(self.table)}))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        table = load_object(command.body, "KV table").get("table") or {}
        if not isinstance(table, dict):
            raise BodyError("KV table: table is not an object")
        return cls({key: str(value) for key, value in table.items()})
