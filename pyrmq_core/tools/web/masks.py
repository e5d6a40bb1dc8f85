"""`Masks`: hides the values in messages that the option `--mask` names. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyrmq_core.client.texts import Text
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import SYSTEM_NAMES, MessageExt
from pyrmq_core.tools.search.conditions import Condition, LongJson

MASKED: Final = "***"
ANY: Final = "*"
# A token of JSON. A string at the end of a cut body may lack its closing quote.
TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
# The bytes that may precede JSON in any number: blanks, control characters, zeros and byte order marks.
NO_TEXT: Final = bytes(range(0x21)) + b"\xff\xfe\xef\xbb\xbf"
# A zero among the NO_TEXT bytes at the start, or this soon after them, means UTF-16 or UTF-32: all is masked.
HEAD_BYTES: Final = 16
# The longest JSON body that is parsed, which takes up to a second. A longer one is masked completely.
MAX_JSON_BYTES: Final = 1 << 20
OPENING: Final = (b"{", b"[")
CLOSING: Final = (b"}", b"]")

Path = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Masks:
    """The values to hide in messages: members of JSON bodies, each by the names on its path, and properties by name.

    The name `*` stands for any name. Lists are not part of a path: it applies to each item of a list.
    """

    members: frozenset[Path] = frozenset()
    properties: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Masks:
        """Parses masks such as `json.NAME`, `json.NAME.NAME` and `properties.NAME`.

        Raises `InvalidArgument` for any other text.
        """
        members, properties = set[Path](), set[str]()
        for text in texts:
            root, _, rest = text.partition(".")
            names = rest.split(".")
            if root == "json" and all(names):
                members.add(tuple(name.encode() for name in names))
            elif root == "properties" and rest and rest not in SYSTEM_NAMES:
                properties.add(rest)
            else:
                own = f"; {rest} is a property of RocketMQ itself" if rest in SYSTEM_NAMES else ""
                raise InvalidArgument(f"mask {text!r} is not json.NAME, json.NAME.NAME or properties.NAME{own}")
        return cls(frozenset(members), frozenset(properties))

    @property
    def any(self) -> bool:
        return bool(self.members or self.properties)

    def of(self, message: MessageExt, *, is_readable: bool = True) -> MessageExt:
        """Returns the message with `***` for each masked value. A body that cannot be read is masked completely."""
        body = self.body(message.body) if is_readable or not self.members else MASKED.encode()
        hidden = [name for name in message.properties if self._hides(name)]
        if body is message.body and not hidden:
            return message
        return replace(message, body=body, properties={**message.properties, **dict.fromkeys(hidden, MASKED)})

    def _hides(self, name: str) -> bool:
        return name in self.properties or (ANY in self.properties and name not in SYSTEM_NAMES)

    def body(self, body: bytes) -> bytes:
        """Returns a body, or the beginning of one, with `"***"` for each masked member.

        The body need not be valid JSON. If it begins like JSON and has more than `MAX_JSON_BYTES`, it is masked
        completely.
        """
        if not self.members:
            return body
        text = body.lstrip(NO_TEXT)
        if text[:1] not in OPENING:
            return body
        if b"\x00" in body[: len(body) - len(text) + HEAD_BYTES] or len(body) > MAX_JSON_BYTES:
            return MASKED.encode()
        pieces, position = [], 0
        for start, end in self._spans(body):
            pieces += [body[position:start], b'"%s"' % MASKED.encode()]
            position = end
        return b"".join([*pieces, body[position:]]) if pieces else body

    def _spans(self, body: bytes) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        path: list[bytes | None] = []  # for each open object, the name before the present value
        are_objects: list[bool] = []  # for each open bracket: whether it is `{`
        before, masked_from, masked_depth = b"", -1, 0
        for match in TOKEN.finditer(body):
            token = match[0]
            if masked_from >= 0:
                masked_depth += (token in OPENING) - (token in CLOSING)
                if masked_depth == 0:
                    spans.append((masked_from, match.end()))
                    masked_from = -1
            elif token in CLOSING:
                if are_objects and are_objects.pop():
                    path.pop()
            elif token in (b":", b","):
                if are_objects and are_objects[-1]:
                    path[-1] = _name(before) if token == b":" else None
            elif self._is_masked(path):
                if token in OPENING:
                    masked_from, masked_depth = match.start(), 1
                else:
                    spans.append(match.span())
            elif token in OPENING:
                are_objects.append(token == b"{")
                path += [None] * are_objects[-1]
            before = token
        return [*spans, (masked_from, len(body))] if masked_from >= 0 else spans

    def _is_masked(self, path: Sequence[bytes | None]) -> bool:
        return any(
            len(member) == len(path)
            and all(name is not None and own in (ANY.encode(), name) for own, name in zip(member, path, strict=True))
            for member in self.members
        )

    def refuse_sql(self, sql: str) -> None:
        """Raises `InvalidArgument` for an SQL filter if properties are masked, since brokers see the real values."""
        if sql and self.properties:
            raise InvalidArgument(
                Text("properties are masked here, and brokers evaluate SQL without the masks: use where")
            )


NO_MASKS: Final = Masks()


@dataclass(frozen=True, slots=True)
class MaskedCondition:
    """A condition on masked messages, so that a search cannot reveal what the masks hide."""

    masks: Masks
    inner: Condition

    def holds(self, message: MessageExt) -> bool:
        """Returns whether the condition is true. Raises `LongJson` for a body that is too long and therefore masked."""
        masked = self.masks.of(message)
        if len(message.body) > MAX_JSON_BYTES and masked.body == MASKED.encode():
            raise LongJson
        return self.inner.holds(masked)


def _name(token: bytes) -> bytes:
    if b"\\" in token:
        try:
            return str(json.loads(token)).encode("utf-8", "surrogatepass")
        except ValueError:
            pass
    return token.strip(b"\"'")
