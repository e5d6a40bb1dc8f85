"""A cursor that reads a long JSON text member by member, so that its reader may pause between two members.

A registration of 10,000 topics is some 2 MB of JSON; `json.loads` would block the whole process until its end.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import Any, Final

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.java.json_bounds import MAX_DEPTH, check_value, container_end, ends_before, parts_end
from pyrmq_core.protocol.java.json_text import DECODER, parse_bare

_BLANKS: Final = re.compile(r"[ \t\n\r]*")
_BARE_NAME: Final = re.compile(r"-?\d{1,20}")
_DECODE: Final = DECODER.raw_decode
# The characters read between two pauses: half a millisecond's work, and more with bare names.
CHARACTERS_AT_ONCE: Final = 16 * 1024
# The longest string, which is read at once: far above the length of any name, address or attribute.
MAX_TEXT_CHARACTERS: Final = 1024 * 1024


class JsonWalk:
    """A cursor in a JSON text: `members` moves it into an object, `value` and `steps` move it past a value.

    `position` is the number of characters read. Bare integer names, as fastjson writes them, are read as text. Anything
    else that is not JSON raises a `BodyError` that names `what`.
    """

    __slots__ = ("_at_once", "_depth", "_has_bare_names", "_paused", "_text", "_what", "position")

    def __init__(self, text: str, what: str, *, at_once: int = CHARACTERS_AT_ONCE) -> None:
        self._text = text
        self._at_once = at_once
        self._what = what
        self.position = 0
        self._paused = 0
        self._depth = 0
        self._has_bare_names = False

    def members(self) -> Iterator[str]:
        """Yields the names in the object at the cursor; the caller reads each value before it takes the next name."""
        for _ in self._parts("{", "}"):
            yield self._name()

    def _parts(self, opening: str, closing: str) -> Iterator[None]:
        """Yields before each part of the object or array at the cursor; the caller reads the part."""
        self._expect(opening)
        if self._next() == closing:
            self.position += 1
            return
        while True:
            yield
            if self._next() == closing:
                self.position += 1
                return
            self._expect(",")

    def is_due(self) -> bool:
        """Returns True once `at_once` characters were read since the last True: the reader should pause."""
        if self.position - self._paused < self._at_once:
            return False
        self._paused = self.position
        return True

    def steps(self) -> Generator[None, None, Any]:
        """Reads the value at the cursor in short steps; the generator returns the value at its end.

        A value longer than one step may be nested to twice `MAX_DEPTH`.
        """
        opening = self._next()
        if opening not in ("{", "[") or ends_before(self._text, self.position, self.position + self._at_once):
            return self.value()
        start = self.position
        self._depth += 1
        if self._depth <= MAX_DEPTH:
            container = yield from (self._object_steps() if opening == "{" else self._array_steps())
        # A value no longer than one step did not match as a whole only because it is nested too deeply.
        if self._depth > MAX_DEPTH or self.position - start <= self._at_once:
            raise self._fault(f"it is nested deeper than {MAX_DEPTH}")
        self._depth -= 1
        return container

    def _object_steps(self) -> Generator[None, None, dict[str, Any]]:
        members: dict[str, Any] = {}
        for _ in self._parts("{", "}"):
            members.update(self._short_parts("{", "}") or ())
            yield
            name = self._name()
            members[name] = yield from self.steps()
        return members

    def _array_steps(self) -> Generator[None, None, list[Any]]:
        elements: list[Any] = []
        for _ in self._parts("[", "]"):
            elements += self._short_parts("[", "]") or ()
            yield
            elements.append((yield from self.steps()))
        return elements

    def _short_parts(self, opening: str, closing: str) -> Any:
        """Reads the next parts of an object or array together, as many as fit into one step.

        Returns them as a dict or a list, or None if the next part alone is too long for a step. They never include the
        last part, which the caller reads by itself.
        """
        start = self.position
        end = parts_end(self._text, start, start + self._at_once)
        if end == start:
            return None
        try:
            parts = parse_bare(f"{opening}{self._text[start : end - 1]}{closing}")
        except (ValueError, RecursionError) as error:
            raise self._fault(str(error)) from error
        if not parts:
            raise self._fault("a value is missing")
        self.position = end
        return parts

    def value(self) -> Any:
        """Returns the value at the cursor, read at once.

        The decoder refuses bare names, and its error counts lines from the start of the whole text, which is slow. So
        after the first bare name each object and array is cut out and decoded alone.
        """
        is_container = self._next() in ("{", "[")
        text, start = self._text, self.position
        if text[start : start + 1] == '"' and not ends_before(text, start, start + MAX_TEXT_CHARACTERS):
            raise self._fault(f"a text does not end within {MAX_TEXT_CHARACTERS} characters")
        try:
            if not (is_container and self._has_bare_names):
                try:
                    value, end = _DECODE(text, start)
                    check_value(value, text, start, end)
                    self.position = end
                    return value
                except ValueError:
                    if not is_container:
                        raise
                    self._has_bare_names = True
            end = container_end(text, start)
            value = parse_bare(text[start:end])
        except (ValueError, RecursionError) as error:
            raise self._fault(str(error)) from error
        self.position = end
        return value

    def end(self) -> None:
        """Raises `BodyError` unless only blanks follow."""
        if self._next():
            raise self._fault("the text goes on")

    def is_object(self) -> bool:
        """Returns whether the value at the cursor is an object."""
        return self._next() == "{"

    def _name(self) -> str:
        if self._next() == '"':
            name = self.value()
        else:
            bare = _BARE_NAME.match(self._text, self.position)
            if bare is None:
                raise self._fault("a name is missing")
            name, self.position = bare[0], bare.end()
        self._expect(":")
        return str(name)

    def _next(self) -> str:
        """Returns the next character that is not blank; empty at the end."""
        text, position = self._text, self.position
        if position < len(text) and text[position] <= " ":
            blanks = _BLANKS.match(text, position)
            position = self.position = blanks.end() if blanks else position
        return text[position : position + 1]

    def _expect(self, character: str) -> None:
        if self._next() != character:
            raise self._fault(f"{character!r} is missing")
        self.position += 1

    def _fault(self, reason: str) -> BodyError:
        return BodyError(f"{self._what}: the body is not JSON at character {self.position}: {reason}")
