"""Tag expressions: `*`, or tags joined by `||` (remoting/protocol/filter/FilterAPI.java)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from pyrmq_core.errors import InvalidArgument

ALL_TAGS: Final = "*"
JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))  # the characters that Java's String.trim removes


@dataclass(frozen=True, slots=True)
class TagFilter:
    """The tags that pass. If there are none, every message passes, even without a tag.

    Brokers compare only hashes of tags, so clients compare the texts again.
    """

    KIND: ClassVar[str] = "TAG"
    tags: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, expression: str | None) -> Self:
        """Returns the filter of an expression such as `a || b`. None, an empty text and `*` pass all messages.

        Raises `InvalidArgument` for a text without a tag, such as `||`.
        """
        if expression is not None and not _is_text(expression):
            raise InvalidArgument(f'tags={expression!r}: it is a text such as "TagA || TagB", or "*"')
        if expression is None or expression.strip(JAVA_BLANKS) in ("", ALL_TAGS):
            return cls()
        tags = frozenset(tag for part in expression.split("||") if (tag := part.strip(JAVA_BLANKS)))
        if not tags:
            raise InvalidArgument(f'the tag expression {expression!r} names no tag; write "TagA || TagB", or "*"')
        return cls(tags)

    @property
    def expression(self) -> str:
        """The tags as a subscription writes them: `a || b`, or `*` for all."""
        return " || ".join(sorted(self.tags)) if self.tags else ALL_TAGS

    @property
    def passes_all(self) -> bool:
        """True if every message passes."""
        return not self.tags

    def predicate(self) -> Callable[[Mapping[str, str]], bool]:
        """Returns a function that tests a message's properties, for messages that a broker cannot filter."""
        return lambda properties: self.matches(properties.get("TAGS"))

    def matches(self, tag: str | None) -> bool:
        """Returns whether a message with this tag, or with none, passes."""
        return not self.tags or tag in self.tags


def _is_text(value: object) -> bool:
    return isinstance(value, str)
