"""Trace records, which Java's console and `mqadmin queryMsgTraceById` read from RMQ_SYS_TRACE_TOPIC.

Fields are joined by U+0001, a record ends with U+0002, and a missing value is written `null`.

    Pub             time region group topic msgId tags keys storeHost bodyLength costMs msgType offsetMsgId success
    EndTransaction  time region group topic msgId tags keys storeHost msgType transactionId state fromCheck
    Recall          time region group topic msgId success
    SubBefore       time region group requestId msgId retryTimes keys
    SubAfter        requestId msgId costMs success keys contextCode time group

For each message, a consumer writes a SubBefore before it calls the handler, and a SubAfter after it. Both have the same
`requestId`. For hosted RocketMQ (AccessChannel.CLOUD) Java leaves out the last two fields of SubAfter, which this
library always writes. Source: client/trace/TraceDataEncoder.java, 5.4.0. 4.9.7 writes the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyrmq_core.protocol.messages.properties import MessageType

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
FIELD_END: Final = "\x01"
RECORD_END: Final = "\x02"


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One trace record, and the keys by which it can be queried: the message's id and the message's keys."""

    text: str
    keys: tuple[str, ...]


def published(
    *,
    timestamp_ms: int,
    region_id: str,
    group: str,
    topic: str,
    msg_id: str,
    tags: str | None,
    keys: str | None,
    store_host: str,
    body_length: int,
    cost_ms: int,
    message_type: MessageType,
    offset_msg_id: str,
    success: bool,
) -> TraceRecord:
    """Returns the Pub record of one send. `success` says whether a broker acknowledged the message."""
    fields = ("Pub", timestamp_ms, region_id, group, topic, msg_id, tags, keys, store_host)
    more = (body_length, cost_ms, message_type.value, offset_msg_id, success)
    return _record((*fields, *more), msg_id, keys)


def transaction_ended(
    *,
    timestamp_ms: int,
    region_id: str,
    group: str,
    topic: str,
    msg_id: str,
    tags: str | None,
    keys: str | None,
    store_host: str,
    transaction_id: str | None,
    state: str,
    from_check: bool,
) -> TraceRecord:
    fields = ("EndTransaction", timestamp_ms, region_id, group, topic, msg_id, tags, keys, store_host)
    commit = MessageType.TRANSACTION_COMMIT.value
    return _record((*fields, commit, transaction_id, state, from_check), msg_id, keys)


def recalled(*, timestamp_ms: int, region_id: str, group: str, topic: str, msg_id: str, success: bool) -> TraceRecord:
    return _record(("Recall", timestamp_ms, region_id, group, topic, msg_id, success), msg_id, None)


def consumption_began(
    *,
    timestamp_ms: int,
    region_id: str | None,
    group: str,
    request_id: str,
    msg_id: str,
    retry_times: int,
    keys: str | None,
) -> TraceRecord:
    fields = ("SubBefore", timestamp_ms, region_id, group, request_id, msg_id, retry_times, keys or None)
    return _record(fields, msg_id, keys)


def consumption_ended(
    *,
    request_id: str,
    msg_id: str,
    cost_ms: int,
    success: bool,
    keys: str | None,
    context_code: int,
    timestamp_ms: int,
    group: str,
) -> TraceRecord:
    """Returns the SubAfter record of a message after its handler's call. `context_code` is a `ConsumeReturnType`."""
    fields = ("SubAfter", request_id, msg_id, cost_ms, success, keys or None, int(context_code), timestamp_ms, group)
    return _record(fields, msg_id, keys)


def _record(fields: tuple[object, ...], msg_id: str, keys: str | None) -> TraceRecord:
    text = FIELD_END.join(_text(field) for field in fields) + RECORD_END
    return TraceRecord(text, tuple(dict.fromkeys(key for key in (msg_id, *(keys or "").split(" ")) if key)))


def _text(field: object) -> str:
    """Returns a field as Java writes it. A separator inside its text would end the field, and becomes a blank."""
    if field is None:
        return "null"
    if isinstance(field, bool):
        return "true" if field else "false"
    return str(field).replace(FIELD_END, " ").replace(RECORD_END, " ")
