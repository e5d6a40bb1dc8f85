"""Cuts rows into requests: by the size of a request, and by the kinds of bodies that may share one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from pyrmq_core.columnar.arrays import Int32s, Ints
from pyrmq_core.protocol.messages.batch_topic import MAX_RECORD_MESSAGES
from pyrmq_core.protocol.messages.compression import CompressionType
from pyrmq_core.protocol.messages.names import MAX_MESSAGE_BYTES
from pyrmq_core.protocol.messages.payload import COMPRESS_OVER_BYTES
from pyrmq_core.protocol.messages.properties import MAX_PROPERTIES_BYTES

# The number of the first row, and of the row behind the last one.
Cut: TypeAlias = tuple[int, int]

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class BatchLimit:
    """The limits of one request, and which bodies are compressed.

    Requests of 4,000 small messages cost this process 0.7 of what requests of 1,000 cost, and a broker 0.9 to 0.95;
    5,000 gain nothing more, and 10,000 were slower where several are under way.
    A request that fails is repeated whole.
    """

    messages: int = 4000
    bytes: int = MIB
    compression: CompressionType | None = None
    compress_over_bytes: int = COMPRESS_OVER_BYTES
    max_message_bytes: int = MAX_MESSAGE_BYTES

    def of_batch_topic(self) -> BatchLimit:
        """Returns the limit for a batch topic: as many messages as one record has room for, and no compression.

        Such a request's cost to its broker does not grow with its messages.
        """
        return replace(self, messages=MAX_RECORD_MESSAGES, compression=None)

    @property
    def max_batched_body_bytes(self) -> int:
        """The largest body that is sure to fit into a batch with its properties; a larger one goes alone."""
        return self.max_message_bytes - MAX_PROPERTIES_BYTES - 64

    @property
    def room_bytes(self) -> int:
        """The bytes that a request has room for."""
        return min(self.bytes, self.max_message_bytes)


@dataclass(frozen=True, slots=True)
class Run:
    """Rows from `start` up to `end` that go into requests of one kind: each row `alone` or not, `compressed` or not."""

    start: int
    end: int
    alone: bool
    compressed: bool


def runs_of(body_bytes: Int32s, limit: BatchLimit, *, alone: bool) -> Iterator[Run]:
    """Yields the rows in order, divided where their kind changes; with `alone` no two rows share a request."""
    largest = int(body_bytes.max(initial=0))
    compressed_from = limit.compress_over_bytes if limit.compression is not None else largest + 1
    if largest < min(compressed_from, limit.max_batched_body_bytes + 1):
        yield Run(0, len(body_bytes), alone, False)
        return
    large = (body_bytes > limit.max_batched_body_bytes) | alone
    compressed = body_bytes >= compressed_from
    kinds = 2 * large + compressed
    starts = np.concatenate((np.zeros(1, np.int64), np.flatnonzero(kinds[1:] != kinds[:-1]) + 1))
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(kinds)], strict=True):
        yield Run(start, end, bool(large[start]), bool(compressed[start]))


def cuts_of(ends: Ints, limit: BatchLimit, stops: Iterable[int] = ()) -> Iterator[Cut]:
    """Yields the rows cut into requests as large as `limit` allows; row i ends at byte `ends[i]` of all rows.

    A stop is the number of a row that begins a new request. Stops rise.
    """
    start = before = 0
    room = limit.room_bytes
    for stop in (*stops, len(ends)):
        while start < stop:
            end = min(start + limit.messages, stop)
            if ends[end - 1] - before > room:
                end = start + int(np.searchsorted(ends[start:end], before + room, side="right"))
            end = max(end, start + 1)
            yield start, end
            start, before = end, int(ends[end - 1])


def stops_within(stops: Sequence[int], start: int, end: int) -> Sequence[int]:
    """Returns the stops between rows `start` and `end`, counted from `start`."""
    if not stops:
        return ()
    return [stop - start for stop in stops[bisect_right(stops, start) : bisect_left(stops, end)]]


def grouped(cuts: Iterable[Cut], ends: Ints, most_bytes: int) -> Iterator[list[Cut]]:
    """Yields groups of neighbouring cuts that have no more than `most_bytes` together; a larger cut is alone."""
    group: list[Cut] = []
    for cut in cuts:
        if group and ends[cut[1] - 1] - ends[group[0][0]] > most_bytes:
            yield group
            group = []
        group.append(cut)
    if group:
        yield group


def pieces_of(body_bytes: Int32s, run: Run, most_bytes: int) -> Iterator[Cut]:
    """Yields the run in pieces whose bodies have no more than `most_bytes` together; a larger body is alone."""
    for start, end in cuts_of(
        np.cumsum(body_bytes[run.start : run.end], dtype=np.int64), BatchLimit(run.end - run.start, most_bytes)
    ):
        yield run.start + start, run.start + end
