"""The messages of a batch body, as they are stored: slices of it, one by one or all at once.

Messages of one length in body and properties, as a producer usually sends them, are `UniformPieces`: what is equal in
them is looked at once, and what differs by columns. Column k of such a batch is the k-th byte of each message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, overload

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.messages.batch import HEAD, OVERHEAD_BYTES
from pyrmq_core.protocol.messages.record import INT, SHORT

# The offsets, within a message of a batch body, of the flag and of the body; the body's length stands before the body.
FLAG_AT: Final = HEAD.size - 2 * INT.size
BODY_AT: Final = HEAD.size - INT.size


class Piece(NamedTuple):
    """One message's own parts; `body` begins with its length in 4 bytes, `properties` in 2."""

    flag: int
    body: bytes
    properties: bytes


@dataclass(frozen=True, slots=True)
class PropertyRows:
    """The properties of messages, all of one length: `size` bytes, the first at `start`, the next `width` behind it.

    As in `Piece`, they begin with their length.
    """

    data: bytes
    start: int
    size: int
    width: int
    count: int

    @property
    def first(self) -> bytes:
        """The first message's properties, without their length."""
        return self.data[self.start + SHORT.size : self.start + self.size]

    def column(self, at: int) -> bytes:
        """Returns one byte of each message's properties, from message `first` on."""
        begin = self.start + SHORT.size + at
        return self.data[begin : begin + (self.count - 1) * self.width + 1 : self.width]


class UniformPieces(Sequence[Piece]):
    """The messages of a batch body, each of `size` bytes, with its properties `properties_at` bytes behind its begin.

    As a sequence, its items are the messages.
    """

    __slots__ = ("body", "properties_at", "size")

    def __init__(self, body: bytes, size: int, properties_at: int) -> None:
        self.body = body
        self.size = size
        self.properties_at = properties_at

    def __len__(self) -> int:
        return len(self.body) // self.size

    @overload
    def __getitem__(self, index: int) -> Piece: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Piece]: ...
    def __getitem__(self, index: int | slice) -> Piece | Sequence[Piece]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        start = range(0, len(self.body), self.size)[index]
        (flag,) = INT.unpack_from(self.body, start + FLAG_AT)
        following, properties_at = start + self.size, start + self.properties_at
        return Piece(flag, self.body[start + BODY_AT : properties_at], self.body[properties_at:following])

    def bodies(self) -> list[bytes]:
        """Returns the bodies, without their lengths."""
        body, most = self.body, self.properties_at - HEAD.size
        return [body[start : start + most] for start in range(HEAD.size, len(body), self.size)]

    def properties(self, first: int = 0, most: int | None = None) -> list[bytes]:
        """Returns the properties of all messages, or of some, as in `Piece`."""
        body, end, properties_bytes = self.body, len(self.body), self.size - self.properties_at
        if most is not None:
            end = min(end, (first + most) * self.size)
        return [
            body[at : at + properties_bytes] for at in range(first * self.size + self.properties_at, end, self.size)
        ]

    def property_rows(self, first: int, most: int) -> PropertyRows:
        """Returns the properties of one or more messages."""
        start, count = first * self.size + self.properties_at, min(most, len(self) - first)
        return PropertyRows(self.body, start, self.size - self.properties_at, self.size, count)

    def column(self, at: int) -> bytes:
        """Returns the byte at one position of each message."""
        return self.body[at :: self.size]

    def is_equal(self, start: int, end: int) -> bool:
        """Returns True if all messages have the same bytes between two positions."""
        body, size, count = self.body, self.size, len(self)
        return all(body[at::size] == body[at : at + 1] * count for at in range(start, end))


def properties_of(pieces: Sequence[Piece], first: int, most: int) -> list[bytes]:
    """Returns the properties of some messages."""
    if isinstance(pieces, UniformPieces):
        return pieces.properties(first, most)
    return [piece.properties for piece in pieces[first : first + most]]


def property_rows(pieces: Sequence[Piece], first: int, most: int) -> PropertyRows | None:
    """Returns the properties of some messages, at least one, if they have one length."""
    if isinstance(pieces, UniformPieces):
        return pieces.property_rows(first, most)
    return joined_rows([piece.properties for piece in pieces[first : first + most]])


def joined_rows(properties: Sequence[bytes]) -> PropertyRows | None:
    """Returns properties, at least of one message, as rows if they have one length."""
    size, count = len(properties[0]), len(properties)
    if [len(encoded) for encoded in properties].count(size) != count:
        return None
    return PropertyRows(b"".join(properties), 0, size, size, count)


def piece(flag: int, body: bytes | memoryview, properties: bytes) -> Piece:
    """Returns a single message's parts; properties have at most 32,767 bytes."""
    return Piece(flag, b"".join((INT.pack(len(body)), body)), SHORT.pack(len(properties)) + properties)


def batch_pieces(body: bytes) -> Sequence[Piece]:
    """Returns the messages of a batch body; raises `BodyError` where `iterate_batch_body` does."""
    uniform = _uniform_pieces(body)
    if uniform is not None:
        return uniform
    return [Piece(flag, body[start:end], body[end:following]) for flag, start, end, following in _places(body)]


def count_messages(body: bytes) -> int:
    """Returns how many messages a batch body has; raises `BodyError` as `batch_pieces` does."""
    uniform = _uniform_pieces(body)
    return sum([1 for _ in _places(body)]) if uniform is None else len(uniform)


def _uniform_pieces(body: bytes) -> UniformPieces | None:
    """Returns the messages if their lengths are equal in all; else None."""
    if len(body) < OVERHEAD_BYTES:
        return None
    size, _, body_bytes = HEAD.unpack_from(body)
    properties_at = HEAD.size + body_bytes
    if body_bytes < 0 or properties_at + SHORT.size > size or len(body) % size:
        return None
    if SHORT.unpack_from(body, properties_at)[0] != size - properties_at - SHORT.size:
        return None
    pieces = UniformPieces(body, size, properties_at)
    lengths = ((0, INT.size), (BODY_AT, HEAD.size), (properties_at, properties_at + SHORT.size))
    return pieces if all(pieces.is_equal(*place) for place in lengths) else None


def _places(body: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yields each message's flag, where its body begins, with its length before it, and where body and message end."""
    position, end = 0, len(body)
    while position < end:
        if end - position < OVERHEAD_BYTES:
            raise BodyError(f"a batch ends inside the message at byte {position}")
        size, flag, body_bytes = HEAD.unpack_from(body, position)
        body_end = position + HEAD.size + body_bytes
        following = position + size
        if size < OVERHEAD_BYTES or following > end or body_bytes < 0 or body_end + SHORT.size > following:
            raise BodyError(f"a batch: the message at byte {position} declares {size} bytes, {body_bytes} of body")
        if SHORT.unpack_from(body, body_end)[0] != following - body_end - SHORT.size:
            raise BodyError(f"a batch: the properties of the message at byte {position} do not end with it")
        yield flag, position + BODY_AT, body_end, following
        position = following
