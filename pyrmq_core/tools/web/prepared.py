"""The values of a prepared change: what is shown before it, and its result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pyrmq_core.client.admin.values import OffsetChange
from pyrmq_core.errors import RocketMQError
from pyrmq_core.model import Permission

PERMISSIONS: Final = {"rw": Permission.READ | Permission.WRITE, "r": Permission.READ, "w": Permission.WRITE}
MESSAGE_TYPES: Final = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY")

Form = Mapping[str, str]
Plan = Callable[[], Awaitable[tuple[OffsetChange, ...]]]


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting at one broker, now and after the change."""

    broker: str
    setting: str
    now: str
    then: str


@dataclass(frozen=True, slots=True)
class Change:
    """A prepared change: its sentence for the confirmation, its action, and the page that follows it.

    `offsets` are the changes of a reset as they were shown, and `plan` looks them up again. `differences` are those of
    settings.
    """

    sentence: str
    perform: Callable[[], Awaitable[Result]]
    back: str
    offsets: tuple[OffsetChange, ...] = ()
    plan: Plan | None = None
    warnings: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a change: a sentence, and how to undo it: by the group's former offsets, or by commands to type."""

    sentence: str
    group: str = ""
    offsets: tuple[OffsetChange, ...] = ()
    commands: tuple[str, ...] = ()


def check_whole(failures: Mapping[str, RocketMQError]) -> None:
    """Raises the first error of a look-up: no command could make again what that broker does not list."""
    for error in failures.values():
        raise error
