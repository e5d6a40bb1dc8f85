"""Batch bodies: several messages in one request, and in the records of 5.x batch topics.

    field               bytes
    total size          4          of this message, itself included
    magic, CRC          4 + 4      zero: brokers ignore them
    flag                4
    body                4 + n
    properties          2 + n      the length is a signed short

Source: common/message/MessageDecoder.java (encodeMessage, decodeMessage), 5.4.0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from pyrmq_core.errors import BodyError, InvalidMessage

HEAD: Final = struct.Struct(
    ">"
    "i"  # total size
    "8x"  # magic and CRC
    "i"  # flag
    "i"  # body length
)
SHORT: Final = struct.Struct(">h")
OVERHEAD_BYTES: Final = HEAD.size + SHORT.size
MAX_SHORT: Final = 32_767


class BatchItem(NamedTuple):
    """One message of a batch. `properties` are the bytes of its properties string."""

    flag: int
    body: bytes | memoryview
    properties: bytes

    @property
    def size_bytes(self) -> int:
        return OVERHEAD_BYTES + len(self.body) + len(self.properties)


def encode_batch_body(items: Iterable[tuple[int, bytes | memoryview, bytes]]) -> bytes:
    """Returns the body of a batch. Each message is a tuple of the fields of `BatchItem`.

    Raises `InvalidMessage` for a message whose properties take more than 32,767 bytes.
    """
    pack_head, pack_short, overhead = HEAD.pack, SHORT.pack, OVERHEAD_BYTES
    parts: list[bytes | memoryview] = []
    for flag, body, properties in items:
        body_bytes, properties_bytes = len(body), len(properties)
        if properties_bytes > MAX_SHORT:
            raise InvalidMessage(f"a message's properties take {properties_bytes} bytes; a batch holds {MAX_SHORT}")
        head = pack_head(overhead + body_bytes + properties_bytes, flag, body_bytes)
        parts += (head, body, pack_short(properties_bytes), properties)
    return b"".join(parts)


def iterate_batch_body(body: bytes | memoryview) -> Iterator[BatchItem]:
    """Yields the messages of a batch. Raises `BodyError` with the byte position of an unreadable message."""
    position, end = 0, len(body)
    while position < end:
        if end - position < OVERHEAD_BYTES:
            raise BodyError(f"a batch ends inside the message at byte {position}")
        size, flag, body_bytes = HEAD.unpack_from(body, position)
        body_start = position + HEAD.size
        body_end = body_start + body_bytes
        next_position = position + size
        # A declared size of 0 would make this loop endless, as it does in a 5.4.0 broker.
        if next_position > end or body_bytes < 0 or body_end + SHORT.size > next_position:
            raise BodyError(
                f"a batch of {end} bytes: the message at byte {position} declares {size} bytes, {body_bytes} of body"
            )
        (properties_bytes,) = SHORT.unpack_from(body, body_end)
        properties_start = body_end + SHORT.size
        if properties_start + properties_bytes != next_position:
            raise BodyError(
                f"a batch: the message at byte {position} of {size} bytes declares {properties_bytes} of properties"
            )
        yield BatchItem(flag, body[body_start:body_end], bytes(body[properties_start:next_position]))
        position = next_position
