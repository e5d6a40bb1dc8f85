"""Checks for every conversation: the wire in both encodings, and fields that are garbage."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any, Protocol, Self

from hypothesis import strategies as st

from pyrmq_core.errors import ProtocolError
from pyrmq_core.protocol.framing.command import Command, Serialization
from pyrmq_core.protocol.framing.frame import FrameDecoder, encode_frame
from pyrmq_core.protocol.java.json_text import dumps

SERIALIZATIONS = st.sampled_from(Serialization)

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


class Said(Protocol):
    """One side of a conversation."""

    def to_command(self) -> Command: ...

    @classmethod
    def from_command(cls, command: Command) -> Self: ...


def over_the_wire(command: Command, serialization: Serialization) -> Command:
    """Returns the command as the other side decodes it from the stream."""
    decoder = FrameDecoder()
    decoder.feed(encode_frame(replace(command, serialization=serialization, opaque=5)))
    received = decoder.next_command()
    assert received is not None
    return received


def assert_survives(said: Said, serialization: Serialization) -> None:
    assert type(said).from_command(over_the_wire(said.to_command(), serialization)) == said


def assert_garbage_is_named(cls: type[Said], sample: Said, data: st.DataObject) -> None:
    """Replaces and removes fields of a valid command, and checks that it is read, or raises `ProtocolError`."""
    command = sample.to_command()
    ext = dict(command.ext)
    for name in list(ext):
        match data.draw(st.integers(0, 3)):
            case 0:
                ext[name] = data.draw(st.text(max_size=8))
            case 1:
                del ext[name]
    body = command.body if data.draw(st.booleans()) else data.draw(st.binary(max_size=30))
    with contextlib.suppress(ProtocolError):
        cls.from_command(replace(command, ext=ext, body=body)).to_command()


def with_some_member_replaced(value: Any, data: st.DataObject) -> Any:
    """Returns a JSON value in which one member, somewhere, is anything."""
    if isinstance(value, dict) and value and data.draw(st.booleans()):
        name = data.draw(st.sampled_from(sorted(value)))
        return {**value, name: with_some_member_replaced(value[name], data)}
    if isinstance(value, list) and value and data.draw(st.booleans()):
        index = data.draw(st.integers(0, len(value) - 1))
        return [*value[:index], with_some_member_replaced(value[index], data), *value[index + 1 :]]
    return data.draw(ANY_JSON)


def assert_json_garbage_is_named(cls: type[Said], code: int, members: Any, data: st.DataObject) -> None:
    body = dumps(with_some_member_replaced(members, data))
    with contextlib.suppress(ProtocolError):
        cls.from_command(Command(code, body=body)).to_command()
