"""Stored records: a message's bytes in a broker's commit log and in a pull's answer.

    field                          bytes        position (IPv4)
    total size                     4            0
    magic                          4            4     v1, or v2 with two bytes of topic length
    body CRC                       4            8     CRC-32 of the body as stored, without its top bit
    queue id                       4            12
    flag                           4            16    the user's
    queue offset                   8            20
    commit-log offset              8            28
    sysFlag                        4            36
    born timestamp                 8            40    ms, the producer's clock
    born host                      4|16 + 4     48    ip and port, 16 where sysFlag says IPv6
    store timestamp                8            56    ms, the broker's clock
    store host                     4|16 + 4     64
    reconsume times                4            72
    prepared transaction offset    8            76
    body                           4 + n        84
    topic                          1|2 + n            the length is signed
    properties                     2 + n              the length is signed

The body of a pull's answer is such records, one directly after another. At a record that cannot be read, Java stops
silently, while this library raises `RecordError`. Sources: common/message/MessageDecoder.java, MessageVersion.java,
store/MessageExtEncoder.java (5.4.0).
"""

from __future__ import annotations

import functools
import ipaddress
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyrmq_core.errors import InvalidArgument, RecordError
from pyrmq_core.protocol.messages.properties import decode_java_utf8
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD, BORN_HOST_V6, HOSTS_V6, STORE_HOST_V6

MAGIC_V1: Final = -626843481  # 0xdaa320a7
MAGIC_V2: Final = -626843477  # 0xdaa320ab
BLANK_MAGIC: Final = -875286124  # 0xcbd43194: marks the unused end of a commit-log file
MAX_V1_TOPIC_BYTES: Final = 127
MAX_SHORT: Final = 32_767
CRC_MASK: Final = 0x7FFFFFFF

QUEUE_OFFSET_POSITION: Final = 20
COMMIT_LOG_OFFSET_POSITION: Final = 28
SYS_FLAG_POSITION: Final = 36

HEAD: Final = struct.Struct(">ii")  # total size, magic
INT: Final = struct.Struct(">i")
SHORT: Final = struct.Struct(">h")
BYTE: Final = struct.Struct(">b")
PLACE_AND_FLAG: Final = struct.Struct(">qqi")  # queue offset, commit-log offset, sysFlag


def _fixed_part(born_host_bytes: int, store_host_bytes: int) -> struct.Struct:
    return struct.Struct(f">iiiiiqqiq{born_host_bytes}sq{store_host_bytes}siqi")


# The layout of a record up to its body, by the two bits of sysFlag that say which hosts are IPv6.
FIXED: Final = {
    0: _fixed_part(8, 8),
    BORN_HOST_V6: _fixed_part(20, 8),
    STORE_HOST_V6: _fixed_part(8, 20),
    HOSTS_V6: _fixed_part(20, 20),
}
FIXED_V4: Final = FIXED[0]
_new_record: Final = tuple.__new__  # `RawRecord._make` without its check of the length
# The size of the shortest record: no body, no topic, no properties.
MIN_RECORD_BYTES: Final = FIXED_V4.size + BYTE.size + SHORT.size


class RawRecord(NamedTuple):
    """The undecoded fields of a stored record: hosts, topic and properties are bytes, `body` is perhaps compressed."""

    store_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    commit_log_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: bytes
    store_timestamp_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body_bytes: int
    body: bytes
    topic: bytes
    properties: bytes


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """The decoded fields of a stored record. Hosts are `ip:port`. `body` is not decompressed.

    `store_size` is the size of the whole record in bytes.
    """

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: str
    store_timestamp_ms: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    properties: str
    body_crc: int
    store_size: int
    magic: int

    def encode(self) -> bytes:
        """Returns the bytes of a record with these fields. Its size, CRC and magic number are computed anew.

        Raises `InvalidArgument` for values that a record cannot hold, as `encode_record` does.
        """
        own = {name: getattr(self, name) for name in self.__slots__}
        del own["body_crc"], own["store_size"], own["magic"]
        return encode_record(**own)


def body_crc(body: bytes | memoryview) -> int:
    return zlib.crc32(body) & CRC_MASK


@functools.lru_cache(maxsize=4096)
def pack_host(host: str) -> bytes:
    """Packs `ip:port` into 8 bytes, or 20 for IPv6 (`[ip]:port`). Raises `InvalidArgument` for a host name."""
    ip, _, port = host.rpartition(":")
    try:
        return ipaddress.ip_address(ip.strip("[]")).packed + INT.pack(int(port))
    except (ValueError, struct.error) as error:
        raise InvalidArgument(f"{host!r} is no host of a record: it takes ip:port, not a name ({error})") from error


@functools.lru_cache(maxsize=4096)
def unpack_host(packed: bytes) -> str:
    """Returns the host in 8 or 20 packed bytes as a text: `127.0.0.1:10911`, `[fd00::2]:10911`."""
    (port,) = INT.unpack_from(packed, len(packed) - 4)
    ip = ipaddress.ip_address(packed[:-4])
    return f"[{ip}]:{port}" if len(packed) > 8 else f"{ip}:{port}"


def encode_record(
    *,
    topic: str,
    queue_id: int,
    queue_offset: int,
    commit_log_offset: int,
    body: bytes | memoryview,
    properties: str | bytes,
    born_timestamp_ms: int,
    born_host: str,
    store_timestamp_ms: int,
    store_host: str,
    flag: int = 0,
    sys_flag: int = 0,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
) -> bytes:
    """Returns the record's bytes, in version 2 if the topic is longer than 127 bytes.

    The bits of `sys_flag` for IPv6 are set according to the hosts. Raises `InvalidArgument` for a topic, properties or
    a number too large for its field.
    """
    topic_bytes = topic.encode("utf-8", "replace")
    properties_bytes = properties if isinstance(properties, bytes) else properties.encode("utf-8", "replace")
    if len(topic_bytes) > MAX_SHORT or len(properties_bytes) > MAX_SHORT:
        raise InvalidArgument(
            f"a record of topic {topic[:64]} has {len(topic_bytes)} bytes of topic and {len(properties_bytes)} of "
            f"properties; {MAX_SHORT} each at most"
        )
    born, store = pack_host(born_host), pack_host(store_host)
    sys_flag &= ~HOSTS_V6
    sys_flag |= (BORN_HOST_V6 if len(born) > 8 else 0) | (STORE_HOST_V6 if len(store) > 8 else 0)
    fixed = FIXED[sys_flag & HOSTS_V6]
    v1 = len(topic_bytes) <= MAX_V1_TOPIC_BYTES
    topic_length = (BYTE if v1 else SHORT).pack(len(topic_bytes))
    size = fixed.size + len(body) + len(topic_length) + len(topic_bytes) + SHORT.size + len(properties_bytes)
    try:
        head = fixed.pack(
            size,
            MAGIC_V1 if v1 else MAGIC_V2,
            zlib.crc32(body) & CRC_MASK,
            queue_id,
            flag,
            queue_offset,
            commit_log_offset,
            sys_flag,
            born_timestamp_ms,
            born,
            store_timestamp_ms,
            store,
            reconsume_times,
            prepared_transaction_offset,
            len(body),
        )
    except struct.error as error:
        raise InvalidArgument(f"a record of topic {topic} has a number that its field cannot hold: {error}") from error
    return b"".join((head, body, topic_length, topic_bytes, SHORT.pack(len(properties_bytes)), properties_bytes))


def decode_record(buffer: bytes | memoryview, position: int = 0, *, check_crc: bool = False) -> StoredRecord:
    """Returns the record that begins at `position`. The next one begins `store_size` bytes later.

    Raises `RecordError`, with the position, for a damaged record. With `check_crc` the body is compared with its CRC.
    """
    raw = unpack_record(buffer, position)
    if check_crc and body_crc(raw.body) != raw.body_crc:
        raise RecordError(f"the record at byte {position}: the body's CRC is {body_crc(raw.body)}, not {raw.body_crc}")
    return StoredRecord(
        topic=decode_java_utf8(raw.topic),
        queue_id=raw.queue_id,
        queue_offset=raw.queue_offset,
        commit_log_offset=raw.commit_log_offset,
        flag=raw.flag,
        sys_flag=raw.sys_flag,
        born_timestamp_ms=raw.born_timestamp_ms,
        born_host=unpack_host(raw.born_host),
        store_timestamp_ms=raw.store_timestamp_ms,
        store_host=unpack_host(raw.store_host),
        reconsume_times=raw.reconsume_times,
        prepared_transaction_offset=raw.prepared_transaction_offset,
        body=raw.body,
        properties=decode_java_utf8(raw.properties),
        body_crc=raw.body_crc,
        store_size=raw.store_size,
        magic=raw.magic,
    )


def iterate_records(buffer: bytes | memoryview, *, check_crc: bool = False) -> Iterator[StoredRecord]:
    position = 0
    while position < len(buffer):
        record = decode_record(buffer, position, check_crc=check_crc)
        yield record
        position += record.store_size


def batch_base(records: bytes | memoryview) -> int | None:
    """Returns the queue offset of the first record if it is a batch record. Returns None otherwise."""
    if len(records) < MIN_RECORD_BYTES:
        return None
    queue_offset, _, sys_flag = PLACE_AND_FLAG.unpack_from(records, QUEUE_OFFSET_POSITION)
    return queue_offset if sys_flag & BATCH_RECORD == BATCH_RECORD else None


def put_numbers(buffer: bytearray, at: int, distance: int, packed: bytes, width: int) -> None:
    """Writes the numbers in `packed`, each of `width` bytes, into a buffer at regular distances.

    The first number is written at byte `at`, the second one at byte `at + distance`, and so on.
    """
    for column in range(width):
        buffer[at + column :: distance] = packed[column::width]


def unpack_record(buffer: bytes | memoryview, position: int) -> RawRecord:
    """Returns the undecoded fields of the record at byte `position`. Raises `RecordError` without a complete record."""
    available = len(buffer) - position
    if available < MIN_RECORD_BYTES:
        raise RecordError(f"{available} bytes at byte {position} are no record; the shortest has {MIN_RECORD_BYTES}")
    fields = FIXED_V4.unpack_from(buffer, position)
    size, magic, sys_flag = fields[0], fields[1], fields[7]
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        raise RecordError(f"byte {position} begins no record: the magic number is {magic & 0xFFFFFFFF:08x}")
    fixed = FIXED_V4
    if sys_flag & HOSTS_V6:
        fixed = FIXED[sys_flag & HOSTS_V6]
        if available < fixed.size:
            raise RecordError(f"the record at byte {position} is cut off after {available} bytes")
        fields = fixed.unpack_from(buffer, position)
    if size > available:
        raise RecordError(f"the record at byte {position} declares {size} bytes and is cut off after {available}")
    body_bytes, end = fields[14], position + size
    body_start = position + fixed.size
    body_end = body_start + body_bytes
    length = BYTE if magic == MAGIC_V1 else SHORT
    topic_start = body_end + length.size
    if body_bytes < 0 or topic_start + SHORT.size > end:
        raise RecordError(f"the record at byte {position} of {size} bytes declares a body of {body_bytes}")
    (topic_bytes,) = length.unpack_from(buffer, body_end)
    topic_end = topic_start + topic_bytes
    if topic_bytes < 0 or topic_end + SHORT.size > end:
        raise RecordError(f"the record at byte {position} of {size} bytes declares a topic of {topic_bytes}")
    (properties_bytes,) = SHORT.unpack_from(buffer, topic_end)
    properties_start = topic_end + SHORT.size
    if properties_start + properties_bytes != end:
        raise RecordError(
            f"the record at byte {position} declares {size} bytes, {properties_bytes} of properties: its fields end "
            f"at byte {properties_start + properties_bytes}"
        )
    body, topic, properties = buffer[body_start:body_end], buffer[topic_start:topic_end], buffer[properties_start:end]
    if type(buffer) is not bytes:
        body, topic, properties = bytes(body), bytes(topic), bytes(properties)
    return _new_record(RawRecord, (*fields, body, topic, properties))
