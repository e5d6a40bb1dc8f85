"""The commit log: all records of all topics one after another, in segments of one length.

A record never crosses segments: what is left of one is closed by a blank record. After the last record there are zeros,
and that is the only sign of the end. Source: store/CommitLog.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from pyrmq_core.broker.store.files import Files, StoredFile
from pyrmq_core.broker.store.formats import blank_record, file_name
from pyrmq_core.broker.store.named_files import open_all
from pyrmq_core.errors import StoreError

# What the closing of a segment needs.
BLANK_BYTES: Final = 8


class CommitLog:
    """Appends and reads by physical offset; `end` is where the next record begins."""

    def __init__(self, files: Files, folder: str, segment_bytes: int) -> None:
        self._files = files
        self._folder = folder
        self.segment_bytes = segment_bytes
        self._segments: dict[int, StoredFile] = {}  # by the offset of their first byte, ascending
        self.end = 0
        self.flushed = 0

    def open(self) -> None:
        """Finds the segments; `end` is known only after recovery. `StoreError` for segments of another length."""
        self._segments = open_all(self._files, self._folder, self.segment_bytes, "mappedFileSizeCommitLog")
        self.end = self.flushed = max(self._segments, default=-self.segment_bytes) + self.segment_bytes

    @property
    def start(self) -> int:
        """The offset of the oldest byte that is kept."""
        return next(iter(self._segments), 0)

    @property
    def segment_offsets(self) -> list[int]:
        return list(self._segments)

    @property
    def missing(self) -> list[int]:
        """The offsets of segments that are not there, between those that are."""
        return [offset for offset in range(self.start, self.end, self.segment_bytes) if offset not in self._segments]

    def fits(self, size: int) -> bool:
        """Whether `size` bytes fit into one segment at all."""
        return size + BLANK_BYTES <= self.segment_bytes

    def place(self, size: int) -> int:
        """Where `size` bytes will be appended; opens the next segment when they no longer fit into this one."""
        left = -self.end % self.segment_bytes
        if left and size + BLANK_BYTES > left:
            self._segment_of(self.end).write(self.end % self.segment_bytes, blank_record(left))
            self.end += left
        if self.end not in self._segments and self.end % self.segment_bytes == 0:
            self._segments[self.end] = self._files.open(self._path(file_name(self.end)), self.segment_bytes)
        return self.end

    def append(self, records: bytes) -> int:
        """Writes at the place that `place` gave for so many bytes; the new end.

        `StoreError` when not all was written (a full disk): then nothing of it is left.
        """
        segment, position = self._segment_of(self.end), self.end % self.segment_bytes
        try:
            segment.write(position, records)
        except StoreError:
            segment.zero_from(position)
            raise
        self.end += len(records)
        return self.end

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of one segment; `StoreError` when they reach beyond it or what is kept."""
        position = offset % self.segment_bytes
        if offset < self.start or size < 0 or position + size > self.segment_bytes:
            raise StoreError(f"the commit log holds no {size} bytes at {offset}")
        return self._segment_of(offset).read(position, size)

    def unsynced(self) -> tuple[int, list[Callable[[], None]]]:
        """The end, and what to call (in any thread) so that everything before it is on the medium."""
        first = self.flushed - self.flushed % self.segment_bytes
        if self.flushed == self.end:
            return self.end, []
        return self.end, [segment.sync for offset, segment in self._segments.items() if first <= offset < self.end]

    def checks(self) -> list[Callable[[], None]]:
        """What to call (in any thread) to see that all segments are where they were; `StoreError` when one is gone."""
        return [segment.check for segment in self._segments.values()]

    def pieces(self, start: int) -> Iterator[tuple[int, bytes]]:
        """What is not zero from `start` on, with some zeros round it: physical offsets and bytes."""
        for base, segment in self._segments.items():
            if base + self.segment_bytes > start:
                for position, data in segment.pieces(max(0, start - base)):
                    yield base + position, data

    def write_again(self, start: int) -> None:
        """Writes what stands there from `start` to the end, so that the next sync brings it to the medium.

        A sync that failed left it unwritten there, and the system took it for written.
        """
        for offset, data in self.pieces(start):
            if offset < self.end:
                self._segment_of(offset).write(offset % self.segment_bytes, data[: self.end - offset])

    def cut(self, end: int) -> None:
        """Ends the log at `end`: what lies behind becomes zeros, newer segments are removed."""
        for offset in [offset for offset in self._segments if offset >= end]:
            del self._segments[offset]
            self._files.remove(self._path(file_name(offset)))
        if end % self.segment_bytes:
            segment = self._segment_of(end)
            segment.zero_from(end % self.segment_bytes)
            segment.sync()
        self.end = self.flushed = end

    def _segment_of(self, offset: int) -> StoredFile:
        segment = self._segments.get(offset - offset % self.segment_bytes)
        if segment is None:
            raise StoreError(f"the commit log holds nothing at {offset}")
        return segment

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"
