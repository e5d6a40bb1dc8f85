"""The parser of trace records, which returns the events in the body of a trace message from any client.

The records are described in `trace.py`. As in Java, the number of fields decides how a record is read: older clients
write Pub without `offsetMsgId`, later ones may add a field at the end of a record, and clients of hosted RocketMQ leave
out the last two fields of SubAfter. An unreadable record is skipped, so that the others are still returned. Source:
client/trace/TraceDataEncoder.java (decoderFromTraceDataString), 5.4.0 and 4.9.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyrmq_core.protocol.java.integers import parse_int, parse_long
from pyrmq_core.protocol.messages.properties import MessageType
from pyrmq_core.protocol.messages.trace import FIELD_END, RECORD_END


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One event in the life of a message. Fields that its kind does not have are None.

    `kind` is Pub, SubBefore, SubAfter, EndTransaction or Recall. A SubBefore and its SubAfter have the same
    `request_id`.
    """

    kind: str
    msg_id: str
    timestamp_ms: int | None = None
    region_id: str | None = None
    group: str | None = None
    topic: str | None = None
    tags: str | None = None
    keys: str | None = None
    store_host: str | None = None
    body_length: int | None = None
    cost_ms: int | None = None
    message_type: MessageType | None = None
    offset_msg_id: str | None = None
    success: bool | None = None
    request_id: str | None = None
    retry_times: int | None = None
    context_code: int | None = None
    transaction_id: str | None = None
    state: str | None = None
    from_check: bool | None = None


PUBLISHED: Final = ("timestamp_ms", "region_id", "group", "topic", "msg_id", "tags", "keys", "store_host")
LAYOUTS: Final[Mapping[str, tuple[str, ...]]] = {
    "Pub": (*PUBLISHED, "body_length", "cost_ms", "message_type", "offset_msg_id", "success"),
    "EndTransaction": (*PUBLISHED, "message_type", "transaction_id", "state", "from_check"),
    "Recall": ("timestamp_ms", "region_id", "group", "topic", "msg_id", "success"),
    "SubBefore": ("timestamp_ms", "region_id", "group", "request_id", "msg_id", "retry_times", "keys"),
    "SubAfter": ("request_id", "msg_id", "cost_ms", "success", "keys", "context_code", "timestamp_ms", "group"),
}
# The fields of a Pub record from older clients, and the fewest fields of a SubAfter record.
OLD_PUB: Final = (*LAYOUTS["Pub"][:-2], "success")
SUB_AFTER_LEAST: Final = 5
READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "timestamp_ms": parse_long,
    "body_length": parse_int,
    "cost_ms": parse_int,
    "message_type": lambda text: MessageType(parse_int(text)),
    "success": lambda text: text == "true",
    "retry_times": parse_int,
    "context_code": parse_int,
    "from_check": lambda text: text == "true",
}


def trace_events(text: str) -> Iterator[TraceEvent]:
    for record in text.split(RECORD_END):
        kind, *fields = record.split(FIELD_END)
        layout = _layout(kind, len(fields))
        if layout is None:
            continue
        try:
            yield TraceEvent(kind, **_values(layout, fields))
        except (TypeError, ValueError):
            continue


def _layout(kind: str, count: int) -> tuple[str, ...] | None:
    layout = LAYOUTS.get(kind)
    if kind == "Pub" and count == len(OLD_PUB):
        return OLD_PUB
    if kind == "SubAfter" and layout is not None and SUB_AFTER_LEAST <= count < len(layout):
        return layout[:count]
    return layout if layout is not None and count >= len(layout) else None


def _values(layout: tuple[str, ...], fields: list[str]) -> dict[str, Any]:
    return {name: READERS.get(name, str)(text) for name, text in zip(layout, fields, strict=False) if text != "null"}
