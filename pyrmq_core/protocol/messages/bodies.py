"""The reading of stored bodies: their CRC is checked, and they are decompressed up to a limit.

A record's CRC covers the body as it is stored: the compressed bytes, or all messages of a batch record. Brokers set it
for each record (CommitLog.asyncPutMessage, MessageExtEncoder.encode). As in Java, the CRC of an empty body is not
checked (MessageDecoder.decode, `checkCRC`, 5.4.0).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

from pyrmq_core.errors import BodyDamaged, BodyTooLarge, InvalidArgument, RecordError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.messages.compression import decompress
from pyrmq_core.protocol.messages.record import CRC_MASK, RawRecord
from pyrmq_core.protocol.messages.sysflag import COMPRESSED

# The default limit of a decompressed body. By default, brokers accept messages of up to 4 MiB.
MAX_BODY_BYTES: Final = 64 * 1024 * 1024
# The highest limit that can be set: Arrow counts the bytes of a column in 31 bits.
MOST_BODY_BYTES: Final = 1024 * 1024 * 1024
# The limit of all decompressed bodies of one answer: twice the 32 messages of 4 MiB that a broker returns at most by
# default.
MAX_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BodyRules:
    """Options for reading bodies: the check of the CRC, the decompression, and the limit of size.

    Raises `InvalidArgument` unless `max_body_bytes` is from 1 byte to 1 GiB. With `keep_undecodable`, a body that
    cannot be decompressed within `max_body_bytes` is returned as stored. With `keep_compressed` only the bodies of
    batch records are decompressed, since they contain the messages.
    """

    verify_crc: bool = True
    keep_undecodable: bool = False
    max_body_bytes: int = MAX_BODY_BYTES
    keep_compressed: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.max_body_bytes <= MOST_BODY_BYTES:
            raise InvalidArgument(f"max_body_bytes={self.max_body_bytes}: 1 to {MOST_BODY_BYTES} are possible")


# The rules for reads whose callers need no bodies: bodies are neither checked nor decompressed.
AS_STORED: Final = BodyRules(verify_crc=False, keep_undecodable=True, keep_compressed=True)


def decompressed_body(raw: RawRecord, rules: BodyRules, queue: MessageQueue, address: str) -> bytes:
    """Returns the record's body, decompressed unless `rules` say that it stays as stored.

    Raises `BodyDamaged` for a wrong CRC, `BodyTooLarge` if it would exceed `rules.max_body_bytes`, and `RecordError` if
    it cannot be decompressed. `queue` and the broker's `address` are for the texts of these errors.
    """
    body = raw.body
    if rules.verify_crc and body and zlib.crc32(body) & CRC_MASK != raw.body_crc:
        raise _damaged(raw, queue, address)
    if rules.keep_compressed or not raw.sys_flag & COMPRESSED:
        return body
    try:
        return decompress(body, raw.sys_flag, max_bytes=rules.max_body_bytes)
    except RecordError as error:
        if rules.keep_undecodable:
            return body
        if isinstance(error, BodyTooLarge):
            raise _too_large(error, raw, queue) from error
        raise RecordError(f"the message at offset {raw.queue_offset}: {error}") from error


def too_much(queue: MessageQueue, offset: int) -> BodyTooLarge:
    """Returns the error to raise when the decompressed bodies of one answer exceed 256 MiB together.

    `offset` is the offset of the first message beyond this limit.
    """
    return BodyTooLarge(
        f"the messages of one answer of {queue} before offset {offset} take {MAX_DECOMPRESSED_BYTES} bytes when they "
        f"are decompressed, which is all that is kept at once: decode up to offset {offset}, then from there on "
        "(`within`), or read with read_arrow, which does so itself",
        max_bytes=MAX_DECOMPRESSED_BYTES,
        queue=queue,
        offset=offset,
    )


def _damaged(raw: RawRecord, queue: MessageQueue, address: str) -> BodyDamaged:
    offset, where = raw.queue_offset, f"{queue.broker_name} ({address})" if address else queue.broker_name
    return BodyDamaged(
        f"the body of the message at offset {offset} of {queue}, {len(raw.body)} bytes from {where}, has the CRC "
        f"{zlib.crc32(raw.body) & CRC_MASK}, and its record says {raw.body_crc}: it was damaged in the broker's store "
        f"or on the way. Read it from another replica, leave it out (go on at offset {offset + 1}), or take it as it "
        "is with verify_crc=False (Spark: verifyCrc=false)",
        queue=queue,
        offset=offset,
        address=address,
    )


def _too_large(error: BodyTooLarge, raw: RawRecord, queue: MessageQueue) -> BodyTooLarge:
    offset = raw.queue_offset
    return BodyTooLarge(
        f"the message at offset {offset} of {queue}, {len(raw.body)} bytes as stored: {error} (max_body_bytes). Raise "
        f"that (Spark: maxBodyBytes), take the body as it is stored with keep_undecodable=True (Spark: "
        f"onUndecodableBody=keep), or leave it out (go on at offset {offset + 1})",
        max_bytes=error.max_bytes,
        queue=queue,
        offset=offset,
    )
