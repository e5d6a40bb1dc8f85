"""Golden data: bytes that RocketMQ's own programs wrote, read from tests/golden."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parent.parent / "golden"


@dataclass(frozen=True)
class GoldenFrame:
    """A recorded frame: `request` is the request code, in an answer too; `code` the answer's own code."""

    source: str
    conn: int
    dir: str
    request: int
    code: int | None
    oneway: bool
    raw: bytes

    @property
    def is_answer(self) -> bool:
        return self.code is not None

    def __str__(self) -> str:
        return f"{self.source}-{self.request}-{'request' if self.code is None else self.code}"


def text(name: str) -> str:
    return (DIRECTORY / name).read_text(encoding="utf-8")


def load(name: str) -> Any:
    return json.loads(text(name))


@functools.cache
def frames() -> tuple[GoldenFrame, ...]:
    """Returns every frame of every recorded conversation."""
    return tuple(_frames())


def _frames() -> Iterator[GoldenFrame]:
    for path in sorted(DIRECTORY.glob("real_*_*_*.json")):
        for frame in load(path.name)["frames"]:
            yield GoldenFrame(
                source=path.stem.removeprefix("real_"),
                conn=frame["conn"],
                dir=frame["dir"],
                request=frame.get("request", frame.get("answers")),
                code=frame.get("code") if "answers" in frame else None,
                oneway=frame.get("oneway", False),
                raw=bytes.fromhex(frame["hex"]),
            )


def requests(code: int) -> list[GoldenFrame]:
    return [frame for frame in frames() if frame.request == code and not frame.is_answer]


def answers(code: int) -> list[GoldenFrame]:
    return [frame for frame in frames() if frame.request == code and frame.is_answer]


@functools.cache
def vectors() -> dict[str, str]:
    """Returns the entries of vectors_java.txt: the line after each `## title`; of equal titles the first."""
    values: dict[str, str] = {}
    lines = text("vectors_java.txt").splitlines()
    for title, value in zip(lines, [*lines[1:], ""], strict=True):
        if title.startswith("## "):
            values.setdefault(title[3:].strip(), value)
    return values


def vector(start: str) -> str:
    """Returns the entry whose title starts with `start`."""
    return next(value for title, value in vectors().items() if title.startswith(start))


def rows() -> list[dict[str, Any]]:
    """Returns the questions of real_answers.json."""
    table: list[dict[str, Any]] = load("real_answers.json")["rows"]
    return table
