"""`LentAnswer`: an answer whose body is a view of the receive buffer, and whose header is parsed only if it is used.

A bulk read receives thousands of answers to pulls, and needs only three offsets of each. A regular expression, the
`AnswerForm`, checks the header and extracts these numbers. When another field of the header is used, the whole header
is parsed, and the object becomes a `Command`. A header that the expression does not match is parsed at once.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

from pyrmq_core.protocol.framing.command import RESPONSE_BIT, Command
from pyrmq_core.protocol.framing.fast_dataclass import late_field, partial_maker_of
from pyrmq_core.protocol.framing.headers import JSON, decode_json

# A regular expression for JSON headers of successful answers. Its groups are whole numbers, the last one is the opaque.
# It may match only headers that `decode_json` accepts.
AnswerForm: TypeAlias = re.Pattern[bytes]
# An answer whose header matches the `AnswerForm`: its opaque, the header's numbers, the header, the body as a view.
AnswerRow: TypeAlias = tuple[int, tuple[int, ...], bytes, memoryview]

_SLOTS: Final[dict[str, Any]] = {name: Command.__dict__[name] for name in Command.__slots__}


def lent_answer(form: AnswerForm, header: bytes, body: memoryview) -> LentAnswer | None:
    match = form.fullmatch(header)
    if match is None:
        return None
    numbers = tuple(map(int, match.groups()))
    return _make_lent(header, body, numbers[-1], numbers)


def row_command(row: AnswerRow) -> LentAnswer:
    """Returns one of the rows of `FrameDecoder.next_rows` as an answer."""
    opaque, numbers, header, body = row
    return _make_lent(header, body, opaque, numbers)


def _read(answer: LentAnswer) -> None:
    command = decode_json(answer.header, answer.body)
    for name, slot in _SLOTS.items():
        slot.__set__(answer, getattr(command, name))
    object.__setattr__(answer, "__class__", Command)


class LentAnswer(Command):
    """An answer whose header is parsed when one of its fields is first used. It is equal to the parsed `Command`."""

    __slots__ = ()

    code = 0
    flag = RESPONSE_BIT
    serialization = JSON
    # Until the header is parsed, the slots of `ext` and `version` hold the header's bytes and its numbers.
    header: bytes = _SLOTS["ext"]
    numbers: tuple[int, ...] = _SLOTS["version"]

    ext = late_field(_SLOTS["ext"], _read)
    remark = late_field(_SLOTS["remark"], _read)
    language = late_field(_SLOTS["language"], _read)
    version = late_field(_SLOTS["version"], _read)

    def __eq__(self, other: object) -> bool:
        _read(self)
        return self == other

    def __repr__(self) -> str:
        _read(self)
        return repr(self)

    __hash__ = None  # type: ignore[assignment]  # as `Command`, whose fields are a mapping


_make_lent: Final = partial_maker_of(Command, LentAnswer, ("ext", "body", "opaque", "version"))
