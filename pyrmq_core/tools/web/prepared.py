"""`Change`: a change that is described to the user but not made yet. `Result`: its result, with a way to undo it."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyrmq_core.client.admin.values import OffsetChange
from pyrmq_core.errors import RocketMQError
from pyrmq_core.model import MessageQueue, Permission

PERMISSIONS: Final = {"rw": Permission.READ | Permission.WRITE, "r": Permission.READ, "w": Permission.WRITE}
MESSAGE_TYPES: Final = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY")

Form = Mapping[str, str]
Announced = tuple[str, object]
# A broker, the name of a setting there, and its values now and after a change.
Difference = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Change:
    """A change that is prepared, but not made yet: the sentence that describes it, and the function that makes it.

    `back` is the page to return to. `offsets` are the changes of the offsets of `group`, and `differences` the changes
    of settings. `ends` has the end offset of each queue of a topic to delete, to notice messages stored since then.
    `fixed` replaces fields of the form before the change is prepared again, such as an age by a time.
    """

    sentence: str
    perform: Callable[[], Awaitable[Result]]
    back: str
    offsets: tuple[OffsetChange, ...] = ()
    warnings: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    group: str = ""
    ends: frozenset[tuple[MessageQueue, int]] = frozenset()
    fixed: Form = field(default_factory=dict)

    @property
    def announced(self) -> Announced:
        """The sentence and the details of the change, to notice whether it differs when it is prepared again."""
        return self.sentence, (self.offsets, self.warnings, self.differences, self.ends)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a change as a sentence, with what undoes the change: former offsets, or commands to type."""

    sentence: str
    group: str = ""
    offsets: tuple[OffsetChange, ...] = ()
    commands: tuple[str, ...] = ()

    @property
    def moves(self) -> list[OffsetChange]:
        return [move for move in self.offsets if move.before not in (None, move.after)]

    @property
    def undo(self) -> tuple[str, ...]:
        return tuple(
            f"pyrmq group seek {shlex.quote(self.group)} -t {shlex.quote(move.queue.topic)} "
            f"-b {shlex.quote(move.queue.broker_name)} -q {move.queue.queue_id} -o {move.before}"
            for move in self.moves
        )


def check_whole(failures: Mapping[str, RocketMQError]) -> None:
    """Raises the first of the brokers' errors, if any, since a change cannot be undone without all their answers."""
    for error in failures.values():
        raise error
