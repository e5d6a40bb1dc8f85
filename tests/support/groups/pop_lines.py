"""Lines that workers write about popped messages, and the checks of what a work queue promises. Pure.

A line has the words WHAT BODY TRIES WORKER POPPED INVISIBLE STORED AT, with times in seconds since 1970:

    begins   a worker takes the message
    acks     it has handled the message, and acknowledges it
    acked    the broker has answered the acknowledgement, which only our workers report
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# The time in which Java's client acknowledges behind the line. It does not report the end of that.
JAVA, JAVA_ACK_SECONDS = "java", 2.0


@dataclass(frozen=True, slots=True)
class Line:
    """`tries` counts the earlier deliveries. `stored` is the time at which the broker stored the message, or its copy
    for another delivery."""

    what: str
    body: str
    tries: int
    worker: str
    popped: float
    invisible: float
    stored: float
    at: float

    @property
    def visible(self) -> float:
        return self.popped + self.invisible


@dataclass(frozen=True, slots=True)
class Trouble:
    """A time in which a worker, or the broker if `worker` is empty, was killed or stood still."""

    worker: str
    began: float
    ended: float

    def touches(self, began: float, ended: float) -> bool:
        return began <= self.ended and self.began <= ended


def lines_of(text: str) -> list[Line]:
    """Returns the whole lines of a text by their times."""
    lines = []
    for row in text.splitlines(keepends=True):
        if row.endswith("\n"):
            what, body, tries, worker, *times = row.split()
            lines.append(Line(what, body, int(tries), worker, *map(float, times)))
    return sorted(lines, key=lambda line: line.at)


def acknowledged(lines: Iterable[Line]) -> set[str]:
    """Returns what was acknowledged, or perhaps was, by a worker that was killed meanwhile."""
    return {line.body for line in lines if line.what in ("acks", "acked")}


def repeats(lines: Iterable[Line], unsure: set[str], troubles: Sequence[Trouble], forgets: float = 0.0) -> list[Line]:
    """Returns the deliveries of messages that were popped again behind an acknowledgement in time.

    Bodies in `unsure` may be stored twice. In the first `forgets` seconds after it was killed a broker may store a copy
    of a message once more.
    """
    settled: dict[str, Line] = {}
    wrong = []
    for line in lines:
        if line.what == "begins":
            before = settled.get(line.body)
            if before is not None and line.popped > before.at and line.body not in unsure:
                begins = line.stored - forgets
                if not (forgets and any(not each.worker and each.touches(begins, line.stored) for each in troubles)):
                    wrong.append(line)
        elif _is_settled(line, troubles):
            settled[line.body] = line
    return wrong


def _is_settled(line: Line, troubles: Sequence[Trouble]) -> bool:
    """Returns whether the broker surely has the acknowledgement before the message becomes visible again."""
    if line.what == "acked":
        return line.at < line.visible
    ended = line.at + JAVA_ACK_SECONDS
    is_alone = not any(each.worker in ("", line.worker) and each.touches(line.at, ended) for each in troubles)
    return line.worker.startswith(JAVA) and ended < line.visible and is_alone


def delays(lines: Iterable[Line], troubles: Sequence[Trouble]) -> list[tuple[float, Line]]:
    """Returns how many seconds after the invisible time of the delivery before a message was stored to come again.

    Those between which the broker was down are left out.
    """
    begun = {(line.body, line.tries): line for line in lines if line.what == "begins"}
    result = []
    for (body, tries), line in begun.items():
        before = begun.get((body, tries - 1))
        if before is not None and not any(
            not each.worker and each.touches(before.popped, line.stored) for each in troubles
        ):
            result.append((line.stored - before.visible, line))
    return result


def wait_of(lines: Iterable[Line], troubles: Sequence[Trouble]) -> float:
    """Returns the longest time, in seconds, from the storing of a message to its handler, while all ran."""
    waits = [
        line.at - line.stored
        for line in lines
        if line.what == "begins" and not any(each.touches(line.stored, line.at) for each in troubles)
    ]
    return max(waits, default=-math.inf)
