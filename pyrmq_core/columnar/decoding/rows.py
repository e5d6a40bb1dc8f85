"""Messages as vectors: where the parts of each lie in one buffer, and the numbers of its record's header."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyrmq_core.columnar.arrays import Bools, Ints, Octets, long_spans, slices_between, strided, windows
from pyrmq_core.protocol.messages.sysflag import BORN_HOST_V6, STORE_HOST_V6

# The part of a record before its body, with IPv4 hosts.
HEAD: Final = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">i4"),
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("commit_log_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp_ms", ">i8"),
        ("born_host", "V8"),
        ("store_timestamp_ms", ">i8"),
        ("store_host", "V8"),
        ("reconsume_times", ">i4"),
        ("prepared_transaction_offset", ">i8"),
        ("body_bytes", ">i4"),
    ]
)
HEAD_BYTES: Final = HEAD.itemsize
SYS_FLAG: Final = 36
BORN_HOST: Final = 48
STORE_TIMESTAMP: Final = 56
STORE_HOST: Final = 64
TAIL: Final = 72  # where `reconsume_times` begins
BODY_BYTES: Final = 84
V4_BYTES, V6_BYTES = 8, 20
V6_MORE: Final = V6_BYTES - V4_BYTES
SHORT_BYTES: Final = 2


@dataclass(frozen=True)
class UniformRuns:
    """Items of `size` bytes: run i has `counts[i]` of them, one behind another from `firsts[i]`. None is empty.

    All records of a topic are such, or the messages of its batch records. A part that lies at one offset of each item
    is copied by strides, in a third of the time of other copies or less.
    """

    octets: Octets
    size: int
    firsts: list[int]
    counts: list[int]

    @cached_property
    def count(self) -> int:
        return sum(self.counts)

    @cached_property
    def places(self) -> Ints:
        """Returns where each item begins."""
        if len(self.firsts) == 1:
            return np.arange(self.firsts[0], self.firsts[0] + self.size * self.count, self.size)
        runs = zip(self.firsts, self.counts, strict=True)
        return np.concatenate([np.arange(first, first + self.size * count, self.size) for first, count in runs])

    def copied(self, place: int, width: int) -> npt.NDArray[np.void]:
        """Returns the `width` bytes from `place` of each item as opaque elements; there is at least one byte."""
        parts = self._parts(place, width)
        return np.ascontiguousarray(parts[0]) if len(parts) == 1 else np.concatenate(parts)

    def is_in_all(self, place: int, end: int) -> bool:
        """Returns whether each item has, from `place` to `end`, the bytes of the first one."""
        first = self.octets[self.firsts[0] + place : self.firsts[0] + end].tobytes()
        return all(part.tobytes() == first * len(part) for part in self._parts(place, end - place))

    def spans(self, place: int, width: int) -> pa.Array:
        """Returns what `copied` does as a binary array; the width may be zero."""
        data = pa.py_buffer(self.copied(place, width) if width else b"")
        return slices_between(data, np.arange(self.count + 1, dtype=np.int32) * np.int32(width))

    def _parts(self, place: int, width: int) -> list[npt.NDArray[np.void]]:
        runs = zip(self.firsts, self.counts, strict=True)
        return [strided(self.octets, first + place, width, self.size, count) for first, count in runs]


@dataclass(frozen=True, slots=True)
class Rows:
    """Messages in the order of their pulls: a vector for each fact, with an element for each message.

    `octets` is one buffer, the records of all pulls one behind another. For message i:

        octets   ... | header | body | n | topic | n | properties | the next record ...
                     ^        ^      ^   ^       ^   ^            ^
                     |        |      |   |       |   |            properties[1][i]
                     |        |      |   |       |   properties[0][i]
                     |        |      |   |       topic[1][i]
                     |        |      |   topic[0][i]
                     |        |      body[1][i]
                     |        body[0][i]
                     places[i]

    `heads[i]` is a copy of that header in the form with IPv4 hosts; hosts are read from `octets`, by `host`. `pull[i]`
    is the number of the pull that the message came with. The messages inside a batch record share its place, header and
    topic, and have their own spans of body and properties. A decompressed body lies behind all records.

    With `record`, heads and places are those of records instead, and `record[i]` is the number of message i's record.
    With `uniform`, the messages are the items of these runs: body and properties have one offset in each and one size,
    and all messages have one topic.
    """

    octets: Octets
    heads: npt.NDArray[np.void]
    places: Ints
    pull: Ints
    queue_offset: Ints
    flag: Ints
    body: tuple[Ints, Ints]
    topic: tuple[Ints, Ints]
    properties: tuple[Ints, Ints]
    record: Ints | None = None
    uniform: UniformRuns | None = None

    def __len__(self) -> int:
        return len(self.pull)

    @property
    def data(self) -> pa.Buffer:
        return pa.py_buffer(self.octets)

    def head(self, name: str) -> npt.NDArray[Any]:
        """Returns a field of the records' headers as native numbers."""
        values: npt.NDArray[Any] = self.heads.view(HEAD)[name]
        native = values.astype(values.dtype.newbyteorder("="))
        return native if self.record is None else native[self.record]

    def spans(self, bounds: tuple[Ints, Ints]) -> pa.Array:
        """Returns the binary array of one part of each message, `body` or `properties`; `topic` if not `uniform`."""
        if self.uniform is None:
            return long_spans(self.octets, *bounds)
        first, width = int(bounds[0][0]), int(bounds[1][0] - bounds[0][0])
        return self.uniform.spans(first - self.uniform.firsts[0], width)

    def host(self, name: str, v6: bool) -> Octets:
        """Returns the packed hosts of those messages whose host is IPv6 (`v6`), or IPv4, as the rows of a matrix."""
        rows = np.flatnonzero(self.has_v6(name) == v6)
        start = self.places[rows if self.record is None else self.record[rows]]
        if name == "born_host":
            start = start + BORN_HOST
        else:
            start = start + STORE_HOST + V6_MORE * (self.head("sys_flag")[rows] & BORN_HOST_V6 != 0)
        width = V6_BYTES if v6 else V4_BYTES
        return gathered(self.octets, start, width).view(np.uint8).reshape(len(rows), width)

    def has_v6(self, name: str) -> Bools:
        bit = BORN_HOST_V6 if name == "born_host" else STORE_HOST_V6
        has: Bools = self.head("sys_flag") & bit != 0
        return has

    def only(self, chosen: Bools) -> Rows:
        """Returns the messages that are marked."""
        return self if chosen.all() else self.at(np.flatnonzero(chosen))

    def at(self, rows: Ints) -> Rows:
        """Returns the messages with these numbers, in this order; a number may repeat."""
        return Rows(
            octets=self.octets,
            heads=self.heads[rows] if self.record is None else self.heads,
            places=self.places[rows] if self.record is None else self.places,
            pull=self.pull[rows],
            queue_offset=self.queue_offset[rows],
            flag=self.flag[rows],
            body=bounds_at(self.body, rows),
            topic=bounds_at(self.topic, rows),
            properties=bounds_at(self.properties, rows),
            record=None if self.record is None else self.record[rows],
        )


def gathered(octets: Octets, places: Ints, width: int) -> npt.NDArray[np.void]:
    """Returns `width` bytes from each place as opaque elements; a structured type would take twenty times as long."""
    if not len(places):
        return np.empty(0, f"V{width}")
    return windows(octets, width)[places]


def numbers_at(octets: Octets, places: Ints, kind: str) -> Ints:
    """Returns the big-endian numbers of type `kind` that begin at the places."""
    width = np.dtype(kind).itemsize
    windows: npt.NDArray[Any] = np.ndarray((max(0, len(octets) - width + 1),), kind, octets, 0, (1,))
    return windows[places].astype(np.int64)


def bounds_at(bounds: tuple[Ints, Ints], rows: Ints) -> tuple[Ints, Ints]:
    return bounds[0][rows], bounds[1][rows]
