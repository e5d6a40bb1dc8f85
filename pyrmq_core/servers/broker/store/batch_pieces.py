"""The messages that one append stores: a single message, or all messages decoded from the body of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, overload

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.messages.batch import HEAD, OVERHEAD_BYTES
from pyrmq_core.protocol.messages.record import SHORT

HEAD_BYTES: Final = HEAD.size
SHORT_BYTES: Final = SHORT.size


class Piece(NamedTuple):
    """The parts of one message. `properties` begin with their length in 2 bytes."""

    flag: int
    body: bytes
    properties: bytes


@dataclass(frozen=True, slots=True)
class BatchPieces(Sequence[Piece]):
    """The messages of a batch body: their flags, bodies and properties, each as in `Piece`."""

    flags: list[int]
    bodies: list[bytes]
    properties: list[bytes]

    def __len__(self) -> int:
        return len(self.bodies)

    def __iter__(self) -> Iterator[Piece]:
        return map(Piece, self.flags, self.bodies, self.properties)

    @overload
    def __getitem__(self, index: int) -> Piece: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Piece]: ...
    def __getitem__(self, index: int | slice) -> Piece | Sequence[Piece]:
        if isinstance(index, slice):
            return BatchPieces(self.flags[index], self.bodies[index], self.properties[index])
        return Piece(self.flags[index], self.bodies[index], self.properties[index])


def properties_of(pieces: Sequence[Piece], first: int, most: int) -> list[bytes]:
    if isinstance(pieces, BatchPieces):
        return pieces.properties[first : first + most]
    return [piece.properties for piece in pieces[first : first + most]]


def piece(flag: int, body: bytes | memoryview, properties: bytes) -> Piece:
    return Piece(flag, bytes(body), SHORT.pack(len(properties)) + properties)


def batch_pieces(body: bytes) -> BatchPieces:
    """Decodes the messages of a batch body. Raises `BodyError` if it is malformed."""
    unpack_head, unpack_short = HEAD.unpack_from, SHORT.unpack_from
    flags: list[int] = []
    bodies: list[bytes] = []
    properties: list[bytes] = []
    position, end = 0, len(body)
    while position < end:
        if end - position < OVERHEAD_BYTES:
            raise BodyError(f"a batch ends inside the message at byte {position}")
        size, flag, body_bytes = unpack_head(body, position)
        body_start, following = position + HEAD_BYTES, position + size
        body_end = body_start + body_bytes
        if body_bytes < 0 or following > end or body_end + SHORT_BYTES > following:
            raise BodyError(f"a batch: the message at byte {position} declares {size} bytes, {body_bytes} of body")
        if unpack_short(body, body_end)[0] != following - body_end - SHORT_BYTES:
            raise BodyError(f"a batch: the properties of the message at byte {position} do not end with it")
        flags.append(flag)
        bodies.append(body[body_start:body_end])
        properties.append(body[body_end:following])
        position = following
    return BatchPieces(flags, bodies, properties)
