"""The bytes that a master and a slave send to each other, and the time limits of their connection.

    slave to master            bytes
    reported offset            8      the log offset up to which the slave has everything

    master to slave            bytes
    log offset                 8      of the body's first byte, or in a heartbeat of the next byte to be sent
    length                     4      0 in a heartbeat
    body                              bytes of one segment of the log, which may begin and end within a record

Sources: store/ha/DefaultHAConnection.java, DefaultHAClient.java (5.4.0). 4.9.7 has the same bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig

REPORT: Final = struct.Struct(">q")
BLOCK_HEAD: Final = struct.Struct(">qi")

MILLISECONDS: Final = 1000


@dataclass(frozen=True, slots=True)
class HaTimes:
    """Limits of connections between master and slave, in seconds and bytes.

    A heartbeat is sent after `heartbeat` seconds without other bytes. A peer that sends or reads nothing for
    `housekeeping` seconds is taken for dead. A block has at most `block_bytes`.
    """

    heartbeat: float
    housekeeping: float
    block_bytes: int

    @classmethod
    def of(cls, config: BrokerConfig) -> HaTimes:
        return cls(
            config.ha_send_heartbeat_interval / MILLISECONDS,
            config.ha_housekeeping_interval / MILLISECONDS,
            config.ha_transfer_batch_size,
        )


class Reports:
    """A parser of a slave's reports. Each report is the log offset up to which the slave has all bytes."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def is_half(self) -> bool:
        return bool(self._rest)

    def feed(self, data: bytes | bytearray) -> int | None:
        """Adds received bytes. Returns the last complete report, or None if no further report is complete."""
        data = self._rest + data
        reports_end = len(data) - len(data) % REPORT.size
        self._rest = bytes(data[reports_end:])
        if not reports_end:
            return None
        offset: int = REPORT.unpack_from(data, reports_end - REPORT.size)[0]
        return offset


def first_transfer(reported: int, log_end: int, segment_bytes: int) -> int:
    """Returns the first log offset to send: the slave's log end (`reported`).

    If that is 0, since the slave has no log yet, it is the start of the newest segment.
    """
    return reported or log_end - log_end % segment_bytes


def in_blocks(offset: int, part: bytes, block_bytes: int) -> bytes:
    """Encodes `part`, the log's bytes from `offset` on, as blocks. An empty part becomes a heartbeat."""
    blocks = list[bytes]()
    for at in range(0, len(part) or 1, block_bytes):
        body = part[at : at + block_bytes]
        blocks += (BLOCK_HEAD.pack(offset + at, len(body)), body)
    return b"".join(blocks)
