"""The mapping of a request's or response's dataclass to header fields and back.

`wire("queueId")` declares a field of the dataclass, and gives its name in RocketMQ's header.

A field's type decides its text (remoting/protocol/RemotingCommand.java, makeCustomHeaderToNet): numbers are decimal,
booleans are `true` and `false`, None is left out. A field without a default is required. A number declared by `wire` is
a Long in Java (64 bits), one declared by `wire_int` an Integer (32 bits). Reading checks this range, since a larger
number would only fail later, in a record or a header.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from pyrmq_core.errors import HeaderError
from pyrmq_core.protocol.framing.headers import LazyFields
from pyrmq_core.protocol.java.integers import parse_int, parse_long

T = TypeVar("T")
MISSING: Final = dataclasses.MISSING
Writer = Callable[[Any], str]
Reader = Callable[[str], Any]
# One row for each field: attribute, name in the header, function to text, function from text, whether it is required.
Plan = tuple[tuple[str, str, Writer, Reader, bool], ...]


def wire(name: str, default: Any = MISSING) -> Any:
    return dataclasses.field(default=default, metadata={"wire": name})


def wire_int(name: str, default: Any = MISSING) -> Any:
    """Declares a field as `wire` does, for a whole number of 32 bits. A field without a default is required."""
    return dataclasses.field(default=default, metadata={"wire": name, "read": parse_int})


def encode_fields(value: Any) -> dict[str, str]:
    """Returns the header fields of a dataclass instance: its fields made by `wire`, except those that are None."""
    fields: dict[str, str] = {}
    for attribute, name, write, _, _ in _plan(type(value)):
        member = getattr(value, attribute)
        if member is not None:
            fields[name] = write(member)
    return fields


def decode_fields(cls: type[T], ext: Mapping[str, str], what: str = "") -> T:
    """Returns an instance of the dataclass `cls`, read from the header fields `ext`.

    Raises `HeaderError` for a missing or bad field. The error's text begins with `what`, by default the name of `cls`.
    """
    members: dict[str, Any] = {}
    if isinstance(ext, LazyFields):
        ext = ext.fields()
    for attribute, name, _, read, required in _plan(cls):
        text = ext.get(name)
        if text is not None:
            try:
                members[attribute] = read(text)
            except ValueError as error:
                raise HeaderError(f"{what or cls.__name__}: field {name} is {text[:80]!r}: {error}") from error
        elif required:
            raise HeaderError(f"{what or cls.__name__}: field {name} is missing")
    return cls(**members)


def parse_bool(text: str) -> bool:
    return text.lower() == "true"


def _write_bool(value: bool) -> str:
    return "true" if value else "false"


_CODECS: Final[dict[type, tuple[Writer, Reader]]] = {
    str: (str, str),
    int: (lambda value: str(int(value)), parse_long),
    bool: (_write_bool, parse_bool),
    float: (repr, float),
}
# The resolved fields of each class, since resolving type hints is slow.
_PLANS: Final[dict[type, Plan]] = {}


def _plan(cls: type) -> Plan:
    plan = _PLANS.get(cls)
    if plan is None:
        plan = _PLANS[cls] = tuple(_field_plans(cls))
    return plan


def _field_plans(cls: Any) -> Iterator[tuple[str, str, Writer, Reader, bool]]:
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if "wire" in field.metadata:
            write, read = _CODECS[_plain_type(hints[field.name])]
            required = field.default is MISSING and field.default_factory is MISSING
            yield field.name, field.metadata["wire"], write, field.metadata.get("read", read), required


def _plain_type(hint: Any) -> type:
    members = [member for member in typing.get_args(hint) if member is not type(None)]
    return typing.cast("type", members[0] if members else hint)
