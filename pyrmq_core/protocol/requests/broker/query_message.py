"""Stored messages by id or key: VIEW_MESSAGE_BY_ID (33), QUERY_MESSAGE (12).

A broker answers request 33 with the record at an offset of its log. It answers request 12 with the newest records of a
key or UNIQ_KEY, stored between two times. Its index has only hashes, so a record in the answer may have another key or
topic. The index has a message only a moment after it is stored. `indexType` (5.4.0) is `K` for keys, `U` for UNIQ_KEYs,
`T` for tags. Not supported: `lastKey`, for the next page of an index in RocksDB. Sources:
remoting/protocol/header/QueryMessageRequestHeader.java, ViewMessageRequestHeader.java,
broker/processor/QueryMessageProcessor.java.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.fields import decode_fields, encode_fields, wire, wire_int
from pyrmq_core.protocol.framing.header_requests import HeaderRequest


@dataclass(frozen=True, slots=True)
class ViewMessage(HeaderRequest):
    """A request for the record at an offset of the commit log. If `topic` is given, 5.x checks the permission on it."""

    CODE: ClassVar[RequestCode] = RequestCode.VIEW_MESSAGE_BY_ID
    offset: int = wire("offset")
    topic: str | None = wire("topic", None)


@dataclass(frozen=True, slots=True)
class QueryMessage(HeaderRequest):
    """A request for at most `max_num` messages with a key, stored between two times.

    With `by_unique_key` the broker ignores `max_num`. This library's client sends `index_type` instead, since a signed
    request with the field `_UNIQUE_KEY_QUERY` fails at some brokers: 5.x signs that field, 4.9 does not
    (acl/plain/PlainAccessValidator.java).
    """

    CODE: ClassVar[RequestCode] = RequestCode.QUERY_MESSAGE
    topic: str = wire("topic")
    key: str = wire("key")
    max_num: int = wire_int("maxNum")
    begin_ms: int = wire("beginTimestamp")
    end_ms: int = wire("endTimestamp")
    by_unique_key: bool | None = wire("_UNIQUE_KEY_QUERY", None)
    index_type: str | None = wire("indexType", None)


@dataclass(frozen=True, slots=True)
class MessagesFound:
    """The answer to `QueryMessage` if the broker found a record. Otherwise the response code is QUERY_NOT_FOUND."""

    index_last_update_ms: int = wire("indexLastUpdateTimestamp")
    index_last_update_phyoffset: int = wire("indexLastUpdatePhyoffset")
    records: bytes = b""

    def to_command(self) -> Command:
        return success(encode_fields(self), self.records)

    @classmethod
    def from_command(cls, command: Command) -> Self:
        return replace(decode_fields(cls, command.ext, "the answer to QUERY_MESSAGE"), records=bytes(command.body))
