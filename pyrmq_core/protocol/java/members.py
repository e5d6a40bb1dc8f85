"""The mapping of a dataclass to a JSON object and back.

`member("queueId", 0, int_member)` declares a field with its JSON name, its default, and the function that reads it.
Members are written in the order of their names and without null, as fastjson does. A missing or null member is read as
its default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def member(name: str, default: Any, read: Callable[[Any], Any]) -> Any:
    return dataclasses.field(default=default, metadata={"member": name, "read": read})


def to_members(value: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass instance by their JSON names, without those that are None."""
    members = {
        field.metadata["member"]: getattr(value, field.name)
        for field in dataclasses.fields(value)
        if "member" in field.metadata
    }
    return {name: members[name] for name in sorted(members) if members[name] is not None}


def from_members(cls: type[T], members: Any) -> T:
    if not isinstance(members, Mapping):
        raise TypeError(f"{type(members).__name__} is no object")
    values = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]  # the caller's class is a dataclass
        name = field.metadata.get("member")
        if name is not None and members.get(name) is not None:
            try:
                values[field.name] = field.metadata["read"](members[name])
            except (TypeError, ValueError) as error:
                raise ValueError(f"{name}: {error}") from error
    return cls(**values)


def flag_member(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{type(value).__name__} is neither true nor false")
    return value


def float_member(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{type(value).__name__} is no number")
    return float(value)


def text_member(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} is no text")
    return value
