"""Damage in the commit log: the search for the next valid record, and the copy of the bytes that recovery cuts.

The copy is the sparse file `damaged/commitlog-START-END` in the store's folder, with the log's bytes from offset START
on. The broker never reads it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyrmq_core.protocol.messages.record import COMMIT_LOG_OFFSET_POSITION, INT, MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES
from pyrmq_core.servers.broker.store.commit_log import CommitLog
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.store.formats import NAME_DIGITS

FOLDER: Final = "damaged"
MAGIC_POSITION: Final = 4
MAGICS: Final = tuple(INT.pack(magic) for magic in (MAGIC_V1, MAGIC_V2))
OFFSET_BYTES: Final = 8
READ_BYTES: Final = 1 << 20


class DamageCopy(NamedTuple):
    """A copy of bytes cut from the log: its path, its size without zeros around, and the least number of records."""

    path: str
    size: int
    records: int


def keep_aside(files: Files, log: CommitLog, start: int) -> DamageCopy | None:
    """Copies the log from `start` on to a new file. Returns None if only zeros follow, as after a log's normal end."""
    size = records = 0
    path = ""
    for offset, data in log.pieces(start):
        if not path:
            path = _free_path(files, f"commitlog-{start:0{NAME_DIGITS}d}-{log.end:0{NAME_DIGITS}d}")
        copy = files.open(path, log.end - start)
        copy.write(offset - start, data)
        copy.sync()
        size += len(data.strip(b"\0"))
        records += len(record_offsets(data, offset))
    return DamageCopy(path, size, records) if path else None


def record_offsets(data: bytes, base: int) -> list[int]:
    """Returns the log offsets at which records seem to begin, by their magic number and the log offset in them.

    `base` is the log offset of `data`.
    """
    offsets = []
    for magic in MAGICS:
        at = data.find(magic)
        while at >= 0:
            begin = at - MAGIC_POSITION
            own_offset = data[begin + COMMIT_LOG_OFFSET_POSITION :][:OFFSET_BYTES] if begin >= 0 else b""
            if len(own_offset) == OFFSET_BYTES and int.from_bytes(own_offset) == base + begin:
                offsets.append(base + begin)
            at = data.find(magic, at + 1)
    return sorted(offsets)


def next_record(log: CommitLog, offset: int, end: int) -> int:
    """Returns the offset at which a record may begin after a damaged record at `offset`, or `end` if there is none."""
    offset, missing = offset + 1, frozenset(log.missing)
    while offset < end:
        left = log.segment_bytes - offset % log.segment_bytes
        if left == log.segment_bytes and offset not in missing:
            return offset
        if offset + left - log.segment_bytes in missing:
            offset += left
            continue
        size = min(READ_BYTES, left, end - offset)
        if offsets := record_offsets(log.read(offset, size), offset):
            return offsets[0]
        # The next piece overlaps this one, since a record's first fields may lie in both.
        offset += size if size in (left, end - offset) else size - MIN_RECORD_BYTES
    return end


def _free_path(files: Files, name: str) -> str:
    path, number = f"{FOLDER}/{name}", 0
    while files.size(path) is not None:
        number += 1
        path = f"{FOLDER}/{name}.{number}"
    return path
