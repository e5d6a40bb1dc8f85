"""The commit log: all records of all topics one after another, in segments of one length.

A record never crosses segments: a blank record fills the rest of a segment. The end of the log is found by the zeros
after the last record. Source: store/CommitLog.java (5.4.0).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from pyrmq_core.errors import StoreError
from pyrmq_core.servers.broker.store.disk.files import Files, StoredFile
from pyrmq_core.servers.broker.store.formats import blank_record, file_name
from pyrmq_core.servers.broker.store.layout import open_all

# The size of the smallest blank record. Each segment must have room for it.
BLANK_BYTES: Final = 8


class OldSegment(NamedTuple):
    """A segment that may be removed: its first offset, the next segment's first offset, and its path."""

    start: int
    next_start: int
    path: str


class CommitLog:
    """The commit log. Bytes are appended and read by physical offset. `end` is the offset of the next record."""

    def __init__(self, files: Files, folder: str, segment_bytes: int) -> None:
        self._files = files
        self._folder = folder
        self.segment_bytes = segment_bytes
        self._segments: dict[int, StoredFile] = {}  # by the offset of their first byte, ascending
        self.on_new_segment: Callable[[], None] = lambda: None
        self.start = 0  # the offset of the log's first byte
        self.end = 0
        self.flushed = 0
        self._cut_end: int | None = None  # where the log was last cut since `unsynced` was called

    def open(self) -> None:
        """Opens the segment files. Raises `StoreError` for a file of another length than `segment_bytes`.

        `end` is then the end of the last file, until recovery has found the last record.
        """
        self._segments = open_all(self._files, self._folder, self.segment_bytes, "mappedFileSizeCommitLog")
        self._find_start()
        self.end = self.flushed = max(self._segments, default=-self.segment_bytes) + self.segment_bytes

    @property
    def segment_offsets(self) -> list[int]:
        return list(self._segments)

    @property
    def missing(self) -> list[int]:
        return [offset for offset in range(self.start, self.end, self.segment_bytes) if offset not in self._segments]

    def fits(self, size: int) -> bool:
        return size + BLANK_BYTES <= self.segment_bytes

    def has_room(self, offset: int, size: int) -> bool:
        return size + BLANK_BYTES <= -offset % self.segment_bytes

    def place(self, size: int) -> int:
        """Returns the offset for the next `size` bytes. Begins a new segment if they do not fit into the last one."""
        left = -self.end % self.segment_bytes
        if size + BLANK_BYTES <= left:
            return self.end
        if left:
            self._segment_of(self.end).write(self.end % self.segment_bytes, blank_record(left))
            self.end += left
        if self.end not in self._segments:
            self._begin_segment()
        return self.end

    def _begin_segment(self) -> None:
        self._segments[self.end] = self._files.open(self._path(file_name(self.end)), self.segment_bytes)
        self._find_start()
        self.on_new_segment()

    def append(self, records: bytes) -> int:
        """Writes packed records at `end`, the offset that `place` has returned. Returns the new `end`.

        If the write fails, it zeros the rest of the segment again and raises `StoreError`.
        """
        segment, position = self._segment_of(self.end), self.end % self.segment_bytes
        try:
            segment.write(position, records)
        except StoreError:
            segment.zero_from(position)
            raise
        self.end += len(records)
        return self.end

    def copy(self, offset: int, data: bytes) -> None:
        """Writes bytes of a master's log, all of one segment, at the end of this log.

        An empty log then begins at `offset`, the start of a segment. Raises `StoreError`, with nothing changed, if the
        bytes do not continue the log or cannot be written.
        """
        position = offset % self.segment_bytes
        if position + len(data) > self.segment_bytes or (position and not self.end):
            raise StoreError(
                f"{len(data)} bytes at {offset} do not fit into a segment of {self.segment_bytes}: "
                "mappedFileSizeCommitLog is another one there; set the same here, and start with an empty store"
            )
        if self.end and offset != self.end:
            raise StoreError(f"bytes of {offset} do not belong at {self.end}, this log's end")
        is_empty = not self.end
        if is_empty:
            self.cut(0)
            self.end = self.flushed = offset
        try:
            if offset not in self._segments and not position:
                self._begin_segment()
            self.append(data)
        except StoreError:
            if is_empty:
                self.end = self.flushed = 0
            raise

    def read(self, offset: int, size: int) -> bytes:
        """Reads bytes of one segment. Raises `StoreError` if they are beyond the segment or before the log's start."""
        position = offset % self.segment_bytes
        if offset < self.start or size < 0 or position + size > self.segment_bytes:
            raise StoreError(f"the commit log holds no {size} bytes at {offset}")
        return self._segment_of(offset).read(position, size)

    def part(self, offset: int, most: int) -> bytes:
        size = min(most, self.end - offset, self.segment_bytes - offset % self.segment_bytes)
        return self.read(offset, size) if size > 0 else b""

    def unsynced(self) -> tuple[int, list[Callable[[], None]]]:
        """Returns the log's end, and functions that sync up to it, in any thread. The caller then calls `synced`."""
        self._cut_end = None
        first = self.flushed - self.flushed % self.segment_bytes
        if self.flushed == self.end:
            return self.end, []
        return self.end, [segment.sync for offset, segment in self._segments.items() if first <= offset < self.end]

    def synced(self, end: int) -> None:
        """Sets `flushed` to `end` after the functions that `unsynced` returned have run.

        If the log was truncated meanwhile, `flushed` does not exceed the offset at which it was truncated.
        """
        self.flushed = max(self.flushed, end if self._cut_end is None else min(end, self._cut_end))

    @property
    def full_bytes(self) -> int:
        return -(-self.end // self.segment_bytes) * self.segment_bytes - self.start

    @property
    def oldest(self) -> OldSegment | None:
        """The oldest segment, or None if the log has only one segment, since the last one is never removed."""
        if len(self._segments) < 2:
            return None
        path, (first, second) = self._path(file_name(self.start)), itertools.islice(self._segments, 2)
        return OldSegment(first, second, path)

    def retire_oldest(self) -> Callable[[], None]:
        """Removes the oldest segment. Returns a function that deletes its file, to be called in any thread."""
        oldest = self.oldest
        if oldest is None:
            raise StoreError("the commit log's last segment is never removed")
        del self._segments[oldest.start]
        self._find_start()
        return self._files.retire(oldest.path)

    def checks(self) -> list[Callable[[], None]]:
        """Returns a function for each segment that raises `StoreError` if its file is no longer at its path.

        Any thread may call these functions.
        """
        return [segment.check for segment in self._segments.values()]

    def pieces(self, start: int) -> Iterator[tuple[int, bytes]]:
        """Yields the log's bytes from `start` on in parts, each with its offset. Long runs of zeros are skipped."""
        for base, segment in self._segments.items():
            if base + self.segment_bytes > start:
                for position, data in segment.pieces(max(0, start - base)):
                    yield base + position, data

    def write_again(self, start: int) -> None:
        """Writes the bytes from `start` to the end again, so that the next sync writes them to the disk.

        After a failed sync the operating system treats the pages as written, although the disk lacks them.
        """
        for offset, data in self.pieces(start):
            if offset < self.end:
                self._segment_of(offset).write(offset % self.segment_bytes, data[: self.end - offset])

    def cut(self, end: int) -> None:
        """Truncates the log at `end`: bytes after it become zeros, and later segments are removed."""
        for offset in [offset for offset in self._segments if offset >= end]:
            del self._segments[offset]
            self._files.remove(self._path(file_name(offset)))
        self._find_start()
        if end % self.segment_bytes:
            segment = self._segment_of(end)
            segment.zero_from(end % self.segment_bytes)
            segment.sync()
        self.end = self.flushed = end
        self._cut_end = end

    def _find_start(self) -> None:
        self.start = next(iter(self._segments), 0)

    def _segment_of(self, offset: int) -> StoredFile:
        segment = self._segments.get(offset - offset % self.segment_bytes)
        if segment is None:
            raise StoreError(f"the commit log holds nothing at {offset}")
        return segment

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"
