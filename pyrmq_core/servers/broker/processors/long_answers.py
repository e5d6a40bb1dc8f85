"""Long answers that are created in pieces while other requests are served. Each must fit into a frame."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final

from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import NO_FIELDS, Command, refusal, success
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.servers.broker.in_turns import STEPS_AT_ONCE, BoundedWork, InTurns
from pyrmq_core.servers.broker.processors.handlers import Answer

# The most bytes of an answer's body, since a frame has at most 16 MiB.
MAX_LONG_ANSWER_BYTES: Final = 15 << 20
BUSY: Final = "too many long requests wait for their turn; try again later"


async def in_turn(long_work: BoundedWork, work: Callable[[], Awaitable[Command]]) -> Command:
    """Returns the answer of `work`, or the refusal SYSTEM_BUSY if `long_work` has too many tasks to run it in time."""
    answer = await long_work.run(work)
    return refusal(ResponseCode.SYSTEM_BUSY, BUSY) if answer is None else answer


def answer_in_turns(long_work: BoundedWork, pieces: Iterator[bytes], ext: Mapping[str, str] = NO_FIELDS) -> Answer:
    """Returns a response whose body is joined from `pieces` while other requests are served.

    Each piece should take about 10 us. It may be empty after a step of work that adds nothing to the body. `ext` has
    the response's header fields. If the body exceeds 15 MiB, a refusal is returned.
    """
    first = list(islice(pieces, STEPS_AT_ONCE))
    if len(first) < STEPS_AT_ONCE:
        return success(ext, b"".join(first))
    return in_turn(long_work, partial(_joined, b"".join(first), pieces, ext))


async def _joined(first: bytes, pieces: Iterator[bytes], ext: Mapping[str, str]) -> Command:
    body = bytearray(first)  # joining 65,535 pieces at the end would stop the loop for 10 ms
    async for piece in InTurns(pieces):
        body += piece
        if len(body) > MAX_LONG_ANSWER_BYTES:
            remark = f"the answer would have more than {MAX_LONG_ANSWER_BYTES} bytes; ask for less"
            return refusal(ResponseCode.SYSTEM_ERROR, remark)
    return success(ext, bytes(body))


def separated(rows: Iterable[bytes]) -> Iterator[bytes]:
    for number, row in enumerate(rows):
        yield b"," + row if number else row


def object_pieces(members: Mapping[str, Any] | Iterator[tuple[str, Any]], few: int = 0) -> Iterator[bytes]:
    """Yields the JSON text of an object in pieces, so that no step of a large answer takes long.

    A member is one piece, unless it is a table: an iterator of names and values, or a dict of more than `few` members.
    Each row of a table is a piece. The members must not change meanwhile.
    """
    yield b"{"
    for number, (name, value) in enumerate(members.items() if isinstance(members, Mapping) else members):
        before = b"," if number else b""
        if isinstance(value, Iterator) or (isinstance(value, dict) and len(value) > few):
            yield before + dumps(name) + b":"
            yield from object_pieces(value, STEPS_AT_ONCE)
        else:
            yield before + dumps({name: value})[1:-1]
    yield b"}"
