"""The lines that `pyrmq send` reads: each is a body, or a JSON object with the members of a message.

    body, bodyBase64        a text, or bytes in base 64, which win if both are there
    tags, shardingKey, liteTopic   texts
    keys                    a text of words, or a list of texts
    properties              an object of texts
    flag, delayLevel, priority   whole numbers
    delay                   seconds
    deliverAt               an ISO-8601 time

Lines that `pyrmq tail -o json` printed can be sent, too. Members that say where a message was stored are ignored, and
so are the properties that RocketMQ set itself.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson
import trio

from pyrmq_core import InvalidMessage, Message
from pyrmq_core.model import SYSTEM_NAMES
from pyrmq_core.protocol.framing.fast_dataclass import maker_of
from pyrmq_core.protocol.messages.batch_payloads import checked_ends
from pyrmq_core.protocol.messages.payload import check_message
from pyrmq_core.protocol.messages.properties import LITE_TOPIC, PRIORITY, SHARDING_KEY
from pyrmq_core.tools.search.json_output import shortened

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

CHUNK_BYTES: Final = 1024 * 1024
# The most bytes of a line, more than the 4 MiB of a message; a longer line is not read to its end.
MAX_LINE_BYTES: Final = 8 * 1024 * 1024
PIPE_BYTES: Final = 1024 * 1024
# The members of a line of `pyrmq tail` that describe the stored message. They are ignored.
PLACE_MEMBERS: Final = frozenset(
    ("topic", "brokerName", "queueId", "queueOffset", "msgId", "storeTimestamp", "bornTimestamp", "reconsumeTimes")
)

# A faster form of `Message(...)`, since it is called for every line (`fast_dataclass`).
make_message: Final = maker_of(Message)
MESSAGE_FIELDS: Final = tuple(field.name for field in fields(Message))

# Lines with their numbers, which begin with 1.
Lines = list[tuple[int, bytes]]


class LineForm:
    """A parser of lines into messages. `fields` are defaults that a line may override.

    Raises `InvalidMessage` if a message cannot have these defaults. `hint` is added to the error of a line that is not
    JSON.
    """

    def __init__(self, topic: str, fields: Mapping[str, Any], *, as_json: bool = False, hint: str = "") -> None:
        self.topic = topic
        self._fields = fields
        self._as_json = as_json
        self._hint = hint
        model = Message(topic, b"x", **fields)
        checked_message(model)
        self._rest = tuple(getattr(model, name) for name in MESSAGE_FIELDS[2:])
        self._tags, self._keys, self._sharding_key, self._properties = self._rest[:4]
        self._last_fields = self._rest[4:]

    def message(self, line: bytes) -> Message:
        """Returns the checked message of a line. Raises `InvalidMessage` with the reason."""
        if not self._as_json:
            return checked_message(self.unchecked_message(line))
        with contextlib.suppress(InvalidMessage):  # `_fields_of` has the better error
            if (message := self._common_message(members_of_line(line, self._hint))) is not None:
                return checked_message(message)
        return checked_message(Message(self.topic, **{**self._fields, **_fields_of(members_of_line(line, self._hint))}))

    def unchecked_message(self, line: bytes) -> Message:
        """Returns the message of a line, mostly unchecked, for a caller that encodes it next.

        Encoding makes the same checks. If it fails, the caller calls `message` for a clearer error.
        """
        if not self._as_json:
            return make_message(self.topic, line, *self._rest)
        try:
            members = orjson.loads(line)
        except ValueError:
            members = members_of_line(line, self._hint)
        message = self._common_message(members)
        return self.message(line) if message is None else message

    def _common_message(self, members: Any) -> Message | None:
        """Returns the message of an object with common members only, faster than `_fields_of`, or else None."""
        if members.__class__ is not dict:
            return None
        take = members.pop
        body = take("body", None)
        if (tags := take("tags", None)) is None:
            tags = self._tags
        if (keys := take("keys", None)) is None:
            keys = self._keys
        elif keys.__class__ is not str and keys.__class__ is not list:
            return None
        if (properties := take("properties", None)) is None:
            properties = self._properties
        elif properties.__class__ is not dict:
            return None
        if (sharding_key := take("shardingKey", None)) is None:
            sharding_key = self._sharding_key
        if members or body.__class__ is not str:
            return None
        try:
            content = body.encode()
        except UnicodeEncodeError:  # half of a surrogate pair
            return None
        return make_message(self.topic, content, tags, keys, sharding_key, properties, *self._last_fields)


def checked_message(message: Message) -> Message:
    """Returns the message. Raises `InvalidMessage` if a producer would refuse it."""
    check_message(message)
    checked_ends(message)
    return message


async def read_lines(descriptor: int) -> AsyncGenerator[Lines, None]:
    """Yields lists of numbered lines, without line ends, as soon as they can be read from a file descriptor.

    A thread reads them. If the caller is cancelled, it does not wait for the thread.
    """
    tail, number = b"", 1
    _widen_pipe(descriptor)
    while chunk := await trio.to_thread.run_sync(os.read, descriptor, CHUNK_BYTES, abandon_on_cancel=True):
        *lines, tail = (tail + chunk).split(b"\n")
        if lines:
            if b"\r" in chunk or lines[0].endswith(b"\r"):  # one search is cheaper than `rstrip` for each line
                lines = [line.rstrip(b"\r") for line in lines]
            yield list(enumerate(lines, number))
            number += len(lines)
        if len(tail) > MAX_LINE_BYTES:  # too long for a message, so it is refused
            break
    if tail:
        yield [(number, tail.rstrip(b"\r"))]


def _widen_pipe(descriptor: int) -> None:
    """Enlarges a pipe's buffer if the system allows, so that one read has enough lines for a full request."""
    if (resize := getattr(fcntl, "F_SETPIPE_SZ", None)) is not None:  # Linux
        with contextlib.suppress(OSError):  # the file is no pipe, or the size exceeds this user's limit
            fcntl.fcntl(descriptor, resize, PIPE_BYTES)


def members_of_line(line: bytes, hint: str = "") -> object:
    """Parses a line as JSON, in any encoding that `json` reads. Raises `InvalidMessage` with the reason and `hint`."""
    try:
        return orjson.loads(line)
    except ValueError:
        pass
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidMessage(f"it is no JSON ({error}){hint}") from None


def _fields_of(members: object) -> dict[str, Any]:
    if not isinstance(members, dict):
        raise InvalidMessage('it is no JSON object; write one such as {"body": "text"}')
    fields: dict[str, Any] = {}
    for name, value in members.items():
        member = MEMBERS.get(name)
        if value is None or (member is None and name in PLACE_MEMBERS):
            continue
        if member is None:
            raise InvalidMessage(f"there is no member {name!r}; there are {', '.join(MEMBERS)}")
        field, read = member
        if name != "body" or "bodyBase64" not in members:
            fields[field] = read(name, value)
    if "body" not in fields:
        raise InvalidMessage("it has neither body nor bodyBase64; a message needs one")
    if "msgId" in members and "properties" in fields:  # printed by `pyrmq tail`, with RocketMQ's own properties
        priority = fields["properties"].get(PRIORITY)
        if priority is not None:
            fields.setdefault("priority", int(priority) if priority.isdecimal() else None)
        if (lite_topic := fields["properties"].get(LITE_TOPIC)) is not None:
            fields.setdefault("lite_topic", lite_topic)
        properties = {name: text for name, text in fields["properties"].items() if name not in SYSTEM_NAMES}
        if (key := properties.pop(SHARDING_KEY, None)) is not None:
            fields.setdefault("sharding_key", key)
        fields["properties"] = properties
    return fields


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidMessage(f"{name} is {shortened(value)}; it has to be a text")
    return value


def _body(name: str, value: object) -> bytes:
    try:
        return _text(name, value).encode()
    except UnicodeEncodeError:
        raise InvalidMessage(f"{name} holds half of a surrogate pair; give such bytes by bodyBase64") from None


def _bytes(name: str, value: object) -> bytes:
    try:
        return base64.b64decode(_text(name, value), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidMessage(f"{name} is not in base 64: {error}") from None


def _words(name: str, value: object) -> object:
    return value if isinstance(value, list) else _text(name, value)


def _object(name: str, value: object) -> object:
    if not isinstance(value, dict):
        raise InvalidMessage(f"{name} is {shortened(value)}; it has to be an object of texts")
    return value


def _whole(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidMessage(f"{name} is {shortened(value)}; it has to be a whole number")
    return value


def _seconds(name: str, value: object) -> timedelta:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return timedelta(seconds=value)
    except (ValueError, OverflowError):
        pass
    raise InvalidMessage(f"{name} is {shortened(value)}; it has to be a number of seconds")


def _time(name: str, value: object) -> datetime:
    try:
        when = datetime.fromisoformat(_text(name, value))
    except ValueError:
        raise InvalidMessage(f"{name} is {shortened(value)}; it has to be an ISO-8601 time") from None
    return when if when.tzinfo else when.astimezone(UTC)


# By the name of a member: the field of the message, and the function that reads its value.
MEMBERS: Final[Mapping[str, tuple[str, Callable[[str, Any], object]]]] = {
    "body": ("body", _body),
    "bodyBase64": ("body", _bytes),
    "tags": ("tags", _text),
    "keys": ("keys", _words),
    "shardingKey": ("sharding_key", _text),
    "properties": ("properties", _object),
    "flag": ("flag", _whole),
    "delayLevel": ("delay_level", _whole),
    "delay": ("delay", _seconds),
    "deliverAt": ("deliver_at", _time),
    "priority": ("priority", _whole),
    "liteTopic": ("lite_topic", _text),
}
