"""CloudEvents (a standard form of events) in messages, read and written in the dialects that Java programs use.

CloudEvents has no standard form for RocketMQ: its Java SDK, Spring and EventMesh each name the attributes in their own
way. `read_event` reads all of them, and `event_message` writes one of them.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import Message, MessageExt
from pyrmq_core.protocol.shown_values import shown

__all__ = ["CloudEvent", "Dialect", "event_in", "event_message", "read_event"]

Dialect = Literal["java", "spring", "eventmesh", "structured"]

STRUCTURED: Final = "application/cloudevents"
STRUCTURED_JSON: Final = "application/cloudevents+json"
# The body that the Java SDK writes for an event without data, since brokers refuse an empty body.
NO_DATA: Final = b"\0"
# By dialect: the prefix of the properties with attributes, and the property with the content type.
NAMES: Final = {
    "java": ("CE_", "CE_contenttype"),
    "spring": ("ce_", "contentType"),
    "eventmesh": ("", "datacontenttype"),
}
# Numbers are kept as texts, so that they keep all their digits.
JSON: Final = json.JSONDecoder(parse_int=str, parse_float=str)
BLANKS: Final = re.compile(r"[ \t\n\r]*")
EXTENSION: Final = re.compile(r"[a-z0-9]+")
REQUIRED: Final = ("id", "source", "type")


@dataclass(frozen=True, slots=True)
class CloudEvent:
    """An event of CloudEvents 1.0. `time` is an RFC 3339 text, unparsed. `data` is None if there is none."""

    id: str
    source: str
    type: str
    time: str | None = None
    subject: str | None = None
    datacontenttype: str | None = None
    dataschema: str | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)
    data: bytes | None = None
    specversion: str = "1.0"


ATTRIBUTES: Final = tuple(each.name for each in fields(CloudEvent) if each.name not in ("extensions", "data"))


def read_event(message: MessageExt) -> CloudEvent | None:
    """Returns the event in a message, or None if it has none.

    If the body is one JSON text (a structured event), the event's data keep their spelling, such as the digits of
    numbers. Raises `InvalidArgument` if a required attribute is missing, or if the JSON text cannot be parsed.
    """
    queue = f"{message.topic}/{message.broker_name}/{message.queue_id}"
    return event_in(message.user_properties, message.body, f"message {message.queue_offset} of {queue}")


def event_in(properties: Mapping[str, str], body: bytes, place: str = "the message") -> CloudEvent | None:
    """Returns the event in a message's properties and body, like `read_event`. `place` names the message in errors."""
    if any(properties.get(name, "").startswith(STRUCTURED) for _, name in NAMES.values()):
        return _from_json(body, place)
    for dialect, (before, content_type) in NAMES.items():
        if f"{before}specversion" in properties:
            extended = "" if dialect == "java" else before
            return _from_properties(properties, body, place, before, extended, content_type)
    return None


def event_message(topic: str, event: CloudEvent, *, dialect: Dialect = "java", keys: str | None = None) -> Message:
    """Returns a message with the event, for `Producer.send`. `keys` become the message's keys.

    Dialect `java` is that of CloudEvents' Java SDK. Like `spring` and `eventmesh`, it has the attributes as properties,
    under names of its own. `structured` is one JSON text as the body. Raises `InvalidArgument` for an event that cannot
    be written.
    """
    if dialect != "structured" and dialect not in NAMES:
        raise InvalidArgument(f"dialect={shown(dialect)}: it is one of {', '.join((*NAMES, 'structured'))}")
    for name in REQUIRED:
        if not getattr(event, name):
            raise InvalidArgument(f"the event has no {name}")
    for name in event.extensions:
        if not EXTENSION.fullmatch(name) or name in (*ATTRIBUTES, "data"):
            raise InvalidArgument(f"extension {shown(name)}: names have a to z and 0 to 9, and are no attribute's")
    if dialect == "structured":
        return Message(topic, _as_json(event), keys=keys, properties={"CE_contenttype": STRUCTURED_JSON})
    before, content_type = NAMES[dialect]
    plain = {name: getattr(event, name) for name in ATTRIBUTES if name != "datacontenttype"}
    properties = {f"{before}{name}": text for name, text in plain.items() if text}
    if event.datacontenttype:
        properties[content_type] = event.datacontenttype
    before_extension = "" if dialect == "java" else before
    properties |= {f"{before_extension}{name}": text for name, text in event.extensions.items()}
    return Message(topic, event.data or NO_DATA, keys=keys, properties=properties)


def _from_properties(
    properties: Mapping[str, str], body: bytes, place: str, before: str, extended: str, content_type: str
) -> CloudEvent:
    attributes = {name: properties[before + name] for name in ATTRIBUTES if before + name in properties}
    if content_type in properties:
        attributes["datacontenttype"] = properties[content_type]
    names = {name: name.removeprefix(extended) for name in properties if name.startswith(extended)}
    extensions = {
        own: properties[name]
        for name, own in names.items()
        if EXTENSION.fullmatch(own) and name not in (content_type, *(before + each for each in ATTRIBUTES))
    }
    return _event(place, attributes, extensions, None if body in (b"", NO_DATA) else body)


def _from_json(body: bytes, place: str) -> CloudEvent:
    try:
        members = {name: (value, text) for name, value, text in _members(body.decode())}
        texts = {name: value if isinstance(value, str) else text for name, (value, text) in members.items()}
        null = [name for name, (value, _) in members.items() if value is None]
        attributes = {name: texts[name] for name in ATTRIBUTES if name in texts and name not in null}
        extensions = {name: texts[name] for name in texts.keys() - {*ATTRIBUTES, *null, "data", "data_base64"}}
        data = None
        if "data_base64" in members and "data_base64" not in null:
            data = base64.b64decode(texts["data_base64"], validate=True)
        elif "data" in members and "data" not in null:
            data = (
                members["data"][1].encode() if _is_json(attributes.get("datacontenttype")) else texts["data"].encode()
            )
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{place} says that it is a structured event, and is not: {error}") from error
    return _event(place, attributes, extensions, data)


def _event(place: str, attributes: Mapping[str, str], extensions: Mapping[str, str], data: bytes | None) -> CloudEvent:
    if missing := [name for name in REQUIRED if not attributes.get(name)]:
        raise InvalidArgument(f"the event in {place} has no {', '.join(missing)}")
    return CloudEvent(**attributes, extensions=extensions, data=data)


def _as_json(event: CloudEvent) -> bytes:
    attributes = {name: getattr(event, name) for name in ("specversion", *ATTRIBUTES) if getattr(event, name)}
    text = json.dumps(attributes | dict(event.extensions), ensure_ascii=False, separators=(",", ":"))
    if event.data is None:
        return text.encode()
    if _is_json(event.datacontenttype):
        try:
            JSON.decode(event.data.decode())
        except ValueError as error:
            raise InvalidArgument(f"the data of event {event.id} is no {event.datacontenttype}: {error}") from error
        member = b'"data":' + event.data
    else:
        member = b'"data_base64":"' + base64.b64encode(event.data) + b'"'
    return text[:-1].encode() + b"," + member + b"}"


def _members(text: str) -> Iterator[tuple[str, Any, str]]:
    JSON.decode(text)  # raises for a text that is not JSON, since the loop below does not check it
    position = _next(text, 0)
    if text[position] != "{":
        raise ValueError("it is no object")
    while text[position] != "}":
        position = _next(text, position + 1)
        if text[position] == "}":
            return
        name, position = JSON.raw_decode(text, position)
        begin = _next(text, _next(text, position) + 1)
        value, end = JSON.raw_decode(text, begin)
        yield name, value, text[begin:end]
        position = _next(text, end)


def _next(text: str, position: int) -> int:
    match = BLANKS.match(text, position)
    return match.end() if match else position


def _is_json(content_type: str | None) -> bool:
    """Returns whether the data of a structured event is a JSON value, as its content type says. None means JSON."""
    kind = (content_type or "application/json").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json") or kind == "text/json"
