"""Reads a long JSON text member by member, so that whoever reads it may pause between two members.

A registration of 10,000 topics is some 2 MB of JSON; `json.loads` would hold the whole process for its length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from pyrmq_core.errors import BodyError

_BLANKS: Final = re.compile(r"[ \t\n\r]*")
_BARE_NAME: Final = re.compile(r"-?\d{1,20}")
_DECODE: Final = json.JSONDecoder().raw_decode
MAX_DEPTH: Final = 16


class JsonWalk:
    """A place in a JSON text that moves forward: into an object with `members`, over a value with `value`.

    Bare integer names, as fastjson writes them, are read as text. Anything else that is not JSON is a `BodyError`
    that names `what`.
    """

    __slots__ = ("_position", "_text", "_what")

    def __init__(self, text: str, what: str) -> None:
        self._text = text
        self._what = what
        self._position = 0

    def members(self) -> Iterator[str]:
        """The names in the object that starts here; the caller reads each one's value before asking for the next."""
        self._expect("{")
        if self._next() == "}":
            self._position += 1
            return
        while True:
            yield self._name()
            if self._next() == "}":
                self._position += 1
                return
            self._expect(",")

    def value(self, depth: int = 0) -> Any:
        """The whole value that starts here."""
        character = self._next()
        try:
            value, self._position = _DECODE(self._text, self._position)
        except RecursionError as error:
            raise self._fault("nested too deeply") from error
        except ValueError as error:
            if character != "{" or depth == MAX_DEPTH:
                raise self._fault(str(error)) from error
            return {name: self.value(depth + 1) for name in self.members()}
        return value

    def is_object(self) -> bool:
        """Whether the value that starts here is an object."""
        return self._next() == "{"

    def _name(self) -> str:
        if self._next() == '"':
            name = self.value()
        else:
            bare = _BARE_NAME.match(self._text, self._position)
            if bare is None:
                raise self._fault("a name is missing")
            name, self._position = bare[0], bare.end()
        self._expect(":")
        return str(name)

    def _next(self) -> str:
        """The next character that is not blank; empty at the end."""
        text, position = self._text, self._position
        if position < len(text) and text[position] <= " ":
            blanks = _BLANKS.match(text, position)
            position = self._position = blanks.end() if blanks else position
        return text[position : position + 1]

    def _expect(self, character: str) -> None:
        if self._next() != character:
            raise self._fault(f"{character!r} is missing")
        self._position += 1

    def _fault(self, reason: str) -> BodyError:
        return BodyError(f"{self._what}: the body is not JSON at character {self._position}: {reason}")
