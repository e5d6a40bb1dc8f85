"""Message ids: the UNIQ_KEY that a producer makes, and the offset message id, a message's position at its broker.

    UNIQ_KEY             bytes        offset message id      bytes
    ip                   4 or 16      store host's ip        4 or 16
    process id           2            its port               4
    discriminator        4            commit-log offset      8
    ms of the month      4
    counter              2

Both are written in upper-case hex: 32 digits, or 56 with an IPv6 address.
Sources: common/message/MessageClientIDSetter.java, MessageDecoder.java (createMessageId).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, NamedTuple

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.messages.record import put_numbers

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
IP_BYTES: Final = {32: 4, 56: 16}
OFFSET_TAIL: Final = struct.Struct(
    ">"
    "i"  # port
    "q"  # commit-log offset
)
OFFSET_BYTES: Final = 8
BYTE_TEXTS: Final = [f"{byte:02X}" for byte in range(256)]
# A time up to this long before the month's start, from a clock that was set back, is taken as the start, as in Java.
MAX_DRIFT_MS: Final = 1_000_000


class OffsetId(NamedTuple):
    ip: bytes
    port: int
    offset: int


@dataclass(frozen=True, slots=True)
class IdRun:
    """A run of `count` UNIQ_KEYs: each is `prefix` and four hex digits, which count up from `counter`."""

    prefix: str
    counter: int
    count: int

    def ids(self) -> list[str]:
        number, left, ids = self.counter, self.count, list[str]()
        while left > 0:  # one pass for all ids whose counters have the same upper two digits
            low = number & 0xFF
            prefix, endings = f"{self.prefix}{BYTE_TEXTS[number >> 8 & 0xFF]}", BYTE_TEXTS[low : low + left]
            ids += [prefix + text for text in endings]
            number, left = number + len(endings), left - len(endings)
        return ids


def month_start_ms(now_ms: int, zone: tzinfo) -> int:
    """Returns the start of the month of `now_ms` in the time zone `zone`, in ms since 1970.

    The time in a UNIQ_KEY is counted from this start.
    """
    now = (EPOCH + timedelta(milliseconds=now_ms)).astimezone(zone)
    start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return (start.astimezone(UTC) - EPOCH) // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class UniqueIdMaker:
    """A maker of UNIQ_KEYs for one process. The caller passes the time and the counter.

    `discriminator` is a random number, the same for all ids of the process.
    """

    ip: bytes
    pid: int
    discriminator: int
    _prefix: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.ip) not in IP_BYTES.values():
            raise InvalidArgument(f"an ip address has 4 or 16 bytes, not {len(self.ip)}")
        prefix = f"{self.ip.hex().upper()}{self.pid & 0xFFFF:04X}{self.discriminator & 0xFFFFFFFF:08X}"
        object.__setattr__(self, "_prefix", prefix)

    def make(self, now_ms: int, month_ms: int, counter: int) -> str:
        return f"{self._prefix}{_since(now_ms, month_ms):08X}{counter & 0xFFFF:04X}"

    def run(self, now_ms: int, month_ms: int, counter: int, count: int) -> IdRun:
        """Returns `count` UNIQ_KEYs of one millisecond, whose 16-bit counters begin at `counter`.

        `month_ms` is the result of `month_start_ms`. Raises `InvalidArgument` for a `count` above 65,536, since the
        counter would repeat.
        """
        if count > 0x10000:
            raise InvalidArgument(f"{count} ids of one millisecond; a UNIQ_KEY's counter distinguishes 65,536")
        return IdRun(f"{self._prefix}{_since(now_ms, month_ms):08X}", counter, count)


def offset_msg_id(host_ip: bytes, port: int, offset: int) -> str:
    """Returns the offset message id of the message at commit-log offset `offset` of the broker at a host and port.

    `host_ip` is the packed address of 4 or 16 bytes. VIEW_MESSAGE_BY_ID looks the message up by this id.
    """
    return (host_ip + OFFSET_TAIL.pack(port, offset)).hex().upper()


def offset_msg_ids(host_ip: bytes, port: int, offsets: Sequence[int]) -> str:
    if len(offsets) == 1:  # a single send, for which the code below takes nine times as long
        return offset_msg_id(host_ip, port, offsets[0])
    first_id = host_ip + OFFSET_TAIL.pack(port, 0)
    ids, packed = bytearray(first_id * len(offsets)), struct.pack(f">{len(offsets)}q", *offsets)
    put_numbers(ids, len(first_id) - OFFSET_BYTES, len(first_id), packed, OFFSET_BYTES)
    return ids.hex(",", len(first_id)).upper()


def decode_offset_msg_id(text: str) -> OffsetId:
    ip_bytes = IP_BYTES.get(len(text))
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if ip_bytes is None or 2 * len(raw) != len(text):
        raise InvalidArgument(f"{text[:80]!r} is no offset message id: 32 or 56 hexadecimal digits are")
    return OffsetId(raw[:ip_bytes], *OFFSET_TAIL.unpack(raw[ip_bytes:]))


def _since(now_ms: int, month_ms: int) -> int:
    since = now_ms - month_ms
    return 0 if -MAX_DRIFT_MS < since < 0 else since & 0xFFFFFFFF
