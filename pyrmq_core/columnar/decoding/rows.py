"""Messages as vectors: the bounds of each message's parts in one buffer, and the fields of its record's header."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyrmq_core.columnar.arrays import Bools, Ints, Octets, spans, windows
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
BORN_HOST: Final = 48
STORE_TIMESTAMP: Final = 56
STORE_HOST: Final = 64
TAIL: Final = 72  # the position of `reconsume_times`
V4_BYTES, V6_BYTES = 8, 20
V6_MORE: Final = V6_BYTES - V4_BYTES
SHORT_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class Rows:
    """Messages in the order of their pulls, as vectors with an element for each message.

    `octets` is one buffer, the records of all pulls one after another. For message i:

        octets   ... | header | body | n | topic | n | properties | the next record ...
                     ^        ^      ^   ^       ^   ^            ^
                     |        |      |   |       |   |            properties[1][i]
                     |        |      |   |       |   properties[0][i]
                     |        |      |   |       topic[1][i]
                     |        |      |   topic[0][i]
                     |        |      body[1][i]
                     |        body[0][i]
                     places[i]

    `heads[i]` is a copy of the header in the form with IPv4 hosts. `host` reads the hosts from `octets`. `pull[i]` is
    the number of the message's pull. The messages inside a batch record share its position, header and topic, and have
    their own spans of body and properties. A decompressed body lies after all records.

    If `record` is set, heads and places belong to records instead, and `record[i]` is the number of message i's record.
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

    def __len__(self) -> int:
        return len(self.pull)

    @property
    def data(self) -> pa.Buffer:
        return pa.py_buffer(self.octets)

    def head(self, name: str) -> npt.NDArray[Any]:
        values: npt.NDArray[Any] = self.heads.view(HEAD)[name]
        native = values.astype(values.dtype.newbyteorder("="))
        return native if self.record is None else native[self.record]

    def spans(self, bounds: tuple[Ints, Ints]) -> pa.Array:
        return spans(self.data, *bounds)

    def host(self, name: str, v6: bool) -> Octets:
        """Returns the packed hosts of the messages whose host is IPv6 (`v6`) or IPv4. Each row has the bytes of one
        host.

        `name` is `born_host` or `store_host`.
        """
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
        return self if chosen.all() else self.at(np.flatnonzero(chosen))

    def at(self, rows: Ints) -> Rows:
        """Returns the messages with these numbers, in this order. A number may repeat."""
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
    """Returns `width` bytes from each position, as opaque elements. Structured types would be twenty times slower."""
    if not len(places):
        return np.empty(0, f"V{width}")
    return windows(octets, width)[places]


def numbers_at(octets: Octets, places: Ints, kind: str) -> Ints:
    """Returns the numbers at the byte positions `places`. `kind` is their NumPy type, such as `>i4`."""
    width = np.dtype(kind).itemsize
    windows: npt.NDArray[Any] = np.ndarray((max(0, len(octets) - width + 1),), kind, octets, 0, (1,))
    return windows[places].astype(np.int64)


def bounds_at(bounds: tuple[Ints, Ints], rows: Ints) -> tuple[Ints, Ints]:
    return bounds[0][rows], bounds[1][rows]
