"""PUT_KV_CONFIG (100), GET_KV_CONFIG (101), DELETE_KV_CONFIG (102), GET_KVLIST_BY_NAMESPACE (219): small values a
NameServer keeps for others.

Namespace `ORDER_TOPIC_CONFIG` holds what order topics have of queues where: topic to `brokerName:queues;...`. Each
NameServer has its own table, so whoever changes it tells all of them. A missing namespace or key is refused by 100 and
102 with SYSTEM_ERROR; 101 and 219 answer QUERY_NOT_FOUND for what is not there.
Sources: remoting/protocol/header/namesrv/PutKVConfigRequestHeader.java and its neighbours,
remoting/protocol/body/KVTable.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.fields import wire
from pyrmq_core.protocol.framing.header_requests import HeaderRequest, HeaderResponse
from pyrmq_core.protocol.java.json_text import dumps, load_object

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"


@dataclass(frozen=True, slots=True)
class PutKvConfig(HeaderRequest):
    """Keep this value; answered without fields. No value takes the key away and keeps the namespace."""

    CODE: ClassVar[RequestCode] = RequestCode.PUT_KV_CONFIG
    namespace: str | None = wire("namespace", None)
    key: str | None = wire("key", None)
    value: str | None = wire("value", None)


@dataclass(frozen=True, slots=True)
class GetKvConfig(HeaderRequest):
    """One value, please."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_KV_CONFIG
    namespace: str | None = wire("namespace", None)
    key: str | None = wire("key", None)


@dataclass(frozen=True, slots=True)
class KvConfig(HeaderResponse):
    """The answer of 101."""

    value: str | None = wire("value", None)


@dataclass(frozen=True, slots=True)
class DeleteKvConfig(HeaderRequest):
    """Forget this key; answered without fields, also when there is none."""

    CODE: ClassVar[RequestCode] = RequestCode.DELETE_KV_CONFIG
    namespace: str | None = wire("namespace", None)
    key: str | None = wire("key", None)


@dataclass(frozen=True, slots=True)
class GetKvList(HeaderRequest):
    """All values of a namespace."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_KVLIST_BY_NAMESPACE
    namespace: str | None = wire("namespace", None)


@dataclass(frozen=True, slots=True)
class KvTable:
    """The answer of 219."""

    table: Mapping[str, str]

    def to_command(self) -> Command:
        return success(body=dumps({"table": dict(self.table)}))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        table = load_object(command.body, "KV table").get("table") or {}
        if not isinstance(table, dict):
            raise BodyError("KV table: table is not an object")
        return cls({key: str(value) for key, value in table.items()})
