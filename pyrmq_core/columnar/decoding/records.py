"""Splits the records of pulls into vectors: where each message's parts lie in one buffer, and its header's numbers.

The layout of a record is that of `protocol/messages/record.py`, and of the messages inside a batch record that of
`protocol/messages/batch.py`. A record of another form raises `Unreadable`: the messages are then read one by one, and
the error names the fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyrmq_core.columnar.arrays import (
    MAX_ARRAY_BYTES,
    Bools,
    Ints,
    Octets,
    byte_view,
    even_spans,
    long_spans,
    offsets_of,
    strided,
    windows,
)
from pyrmq_core.columnar.decoding import body_crcs
from pyrmq_core.columnar.decoding.record_bounds import Unreadable, items
from pyrmq_core.model import EVERYTHING, OffsetRange
from pyrmq_core.protocol.messages.batch import OVERHEAD_BYTES
from pyrmq_core.protocol.messages.payload import RawPull
from pyrmq_core.protocol.messages.record import MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD, BORN_HOST_V6, COMPRESSED, HOSTS_V6, STORE_HOST_V6

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
# The part of a message inside a batch record before its body.
INNER_HEAD: Final = np.dtype(
    [("size", ">i4"), ("magic", ">i4"), ("body_crc", ">i4"), ("flag", ">i4"), ("body_bytes", ">i4")]
)
SHORT_BYTES: Final = 2


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

    With a `stride` each message's parts lie so many bytes behind those of the message before, and have their sizes; all
    have one topic.
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
    stride: int = 0

    def __len__(self) -> int:
        return len(self.pull)

    @property
    def data(self) -> pa.Buffer:
        return pa.py_buffer(self.octets)

    def head(self, name: str) -> npt.NDArray[Any]:
        """Returns a field of the records' headers as native numbers."""
        values: npt.NDArray[Any] = self.heads.view(HEAD)[name]
        return values.astype(values.dtype.newbyteorder("="))

    def spans(self, bounds: tuple[Ints, Ints]) -> pa.Array:
        """Returns the binary array of one part of each message: `body`, `topic` or `properties`."""
        if not self.stride:
            return long_spans(self.octets, *bounds)
        first, width = int(bounds[0][0]), int(bounds[1][0] - bounds[0][0])
        return even_spans(self.octets, first, width, self.stride, len(self))

    def host(self, name: str, v6: bool) -> Octets:
        """Returns the packed hosts of those messages whose host is IPv6 (`v6`), or IPv4, as the rows of a matrix."""
        rows = np.flatnonzero(self.has_v6(name) == v6)
        start = self.places[rows]
        if name == "born_host":
            start = start + BORN_HOST
        else:
            start = start + STORE_HOST + V6_MORE * (self.head("sys_flag")[rows] & BORN_HOST_V6 != 0)
        width = V6_BYTES if v6 else V4_BYTES
        return _gathered(self.octets, start, width).view(np.uint8).reshape(len(rows), width)

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
            heads=self.heads[rows],
            places=self.places[rows],
            pull=self.pull[rows],
            queue_offset=self.queue_offset[rows],
            flag=self.flag[rows],
            body=_at(self.body, rows),
            topic=_at(self.topic, rows),
            properties=_at(self.properties, rows),
        )


def read_rows(pulls: Sequence[RawPull], within: OffsetRange, *, verify_crc: bool = False) -> Rows:
    """Returns the messages of `pulls` that lie both in `within` and in their pull's own range; bodies are as stored.

    Batch records become their messages. With `verify_crc` they are compared with their CRC first, other records not.
    """
    octets, starts, ends = _joined([pull.records for pull in pulls])
    rows = _even_rows(octets, ends - starts)
    if rows is None:
        filled = np.flatnonzero(ends > starts)
        places, counts = items(octets, starts[filled], ends[filled], MIN_RECORD_BYTES)
        rows = _plain_rows(octets, places, np.repeat(filled, counts))
    batches = rows.head("sys_flag") & BATCH_RECORD == BATCH_RECORD
    if batches.any():
        if verify_crc:
            check_crcs(rows, np.flatnonzero(batches))
        rows = _unwrapped(rows, batches)
    first = np.maximum(np.array([pull.start for pull in pulls], np.int64), max(within.start, EVERYTHING.start))
    last = np.minimum(np.array([pull.next_offset for pull in pulls], np.int64), min(within.end, EVERYTHING.end))
    return rows.only((rows.queue_offset >= first[rows.pull]) & (rows.queue_offset < last[rows.pull]))


def check_crcs(rows: Rows, which: Ints) -> None:
    """Raises `Unreadable` unless the bodies of these rows have the CRC of their records; empty bodies are passed over.

    Each row has to stand for a whole record.
    """
    filled = which[rows.body[1][which] > rows.body[0][which]]
    crcs = rows.head("body_crc")[filled].astype(np.int64)
    if not body_crcs.all_match(rows.octets, rows.body[0][filled], rows.body[1][filled], crcs):
        raise Unreadable


def has_long_even_bodies(rows: Rows) -> bool:
    """Returns whether each row is a whole record with a plain body, and these have one length, too long to be compared
    together."""
    lengths = rows.body[1] - rows.body[0]
    if not len(rows) or lengths[0] <= body_crcs.longest_together or (lengths != lengths[0]).any():
        return False
    return not (rows.head("sys_flag") & (BATCH_RECORD | COMPRESSED)).any()


def check_gathered_crcs(rows: Rows, bodies: pa.Array) -> None:
    """Does as `check_crcs` for rows that `has_long_even_bodies`, with their bodies as `spans` returns them."""
    matrix = byte_view(bodies)[: offsets_of(bodies)[-1]].reshape(len(rows), -1)
    if not body_crcs.gathered_match(matrix, rows.head("body_crc").astype(np.int64)):
        raise Unreadable


def _joined(buffers: Sequence[bytes | memoryview]) -> tuple[Octets, Ints, Ints]:
    """Returns all bytes in one buffer, and where each of the buffers begins and ends in it."""
    ends = np.cumsum(np.array([len(buffer) for buffer in buffers], np.int64))
    if len(ends) and ends[-1] > MAX_ARRAY_BYTES:
        raise Unreadable
    octets = np.frombuffer(buffers[0] if len(buffers) == 1 else b"".join(buffers), np.uint8)
    return octets, np.concatenate((np.zeros(1, np.int64), ends[:-1])), ends


def _even_rows(octets: Octets, lengths: Ints) -> Rows | None:
    """Returns a message for each record if all records have one size, and their parts have theirs; else None.

    `lengths` are the bytes of each pull. Most topics have such records for long stretches, or at all times.
    """
    if len(octets) < MIN_RECORD_BYTES:
        return None
    head = octets[:HEAD_BYTES].view(HEAD)[0]
    size, body_bytes, magic = int(head["size"]), int(head["body_bytes"]), int(head["magic"])
    if size < MIN_RECORD_BYTES or (lengths % size).any() or magic not in (MAGIC_V1, MAGIC_V2) or body_bytes < 0:
        return None
    body_end = HEAD_BYTES + body_bytes
    topic = body_end + (2 if magic == MAGIC_V2 else 1)
    if topic > size or head["sys_flag"] & HOSTS_V6:
        return None
    topic_end = topic + int.from_bytes(octets[body_end:topic].tobytes(), "big", signed=True)
    properties = topic_end + SHORT_BYTES
    if topic_end < topic or properties > size:
        return None
    if int.from_bytes(octets[topic_end:properties].tobytes(), "big", signed=True) != size - properties:
        return None
    count = len(octets) // size
    # Copied together, as each field would else be read from its own place in far memory.
    heads = np.ascontiguousarray(strided(octets, 0, HEAD_BYTES, size, count))
    # The size and the magic number, the flags, and the body's length; then the topic and the lengths around it.
    for place, end in ((0, 8), (SYS_FLAG, SYS_FLAG + 4), (BODY_BYTES, HEAD_BYTES)):
        if not _is_in_all(heads.view(np.uint8), place, end, HEAD_BYTES, count):
            return None
    if not _is_in_all(octets, body_end, properties, size, count):
        return None
    places = np.arange(0, len(octets), size)
    return Rows(
        octets=octets,
        heads=heads,
        places=places,
        pull=np.repeat(np.arange(len(lengths)), lengths // size),
        queue_offset=heads.view(HEAD)["queue_offset"].astype(np.int64),
        flag=heads.view(HEAD)["flag"].astype(np.int64),
        body=(places + HEAD_BYTES, places + body_end),
        topic=(places + topic, places + topic_end),
        properties=(places + properties, places + size),
        stride=size,
    )


def _is_in_all(octets: Octets, place: int, end: int, size: int, count: int) -> bool:
    """Returns whether each record has, from `place` to `end`, the bytes of the first one."""
    return strided(octets, place, end - place, size, count).tobytes() == octets[place:end].tobytes() * count


def _plain_rows(octets: Octets, places: Ints, pull: Ints) -> Rows:
    """Returns a message for each record, batch records included."""
    heads, starts = _heads(octets, places)
    fields = heads.view(HEAD)
    magic, size, body_bytes = (fields[name].astype(np.int64) for name in ("magic", "size", "body_bytes"))
    ends, body_ends, v2 = places + size, starts + body_bytes, magic == MAGIC_V2
    if (~v2 & (magic != MAGIC_V1)).any() or (body_bytes < 0).any() or (body_ends + (3 + v2) > ends).any():
        raise Unreadable
    topic_bytes = octets[body_ends].view(np.int8).astype(np.int64)
    if v2.any():
        topic_bytes = np.where(v2, topic_bytes << 8 | octets[body_ends + v2], topic_bytes)
    topic_starts = body_ends + 1 + v2
    topic_ends = topic_starts + topic_bytes
    if (topic_bytes < 0).any() or (topic_ends + SHORT_BYTES > ends).any():
        raise Unreadable
    properties_bytes = _numbers(octets, topic_ends, ">i2")
    properties_starts = topic_ends + SHORT_BYTES
    if (properties_starts + properties_bytes != ends).any():
        raise Unreadable
    return Rows(
        octets=octets,
        heads=heads,
        places=places,
        pull=pull,
        queue_offset=fields["queue_offset"].astype(np.int64),
        flag=fields["flag"].astype(np.int64),
        body=(starts, body_ends),
        topic=(topic_starts, topic_ends),
        properties=(properties_starts, ends),
    )


def _heads(octets: Octets, places: Ints) -> tuple[npt.NDArray[np.void], Ints]:
    """Returns the headers in the form with IPv4 hosts, without the bytes of IPv6 ones, and where the bodies begin."""
    heads = _gathered(octets, places, HEAD_BYTES)
    flags = heads.view(HEAD)["sys_flag"]
    if not (flags & (BORN_HOST_V6 | STORE_HOST_V6)).any():
        return heads, places + HEAD_BYTES
    born_more = V6_MORE * (flags & BORN_HOST_V6 != 0).astype(np.int64)
    more = born_more + V6_MORE * (flags & STORE_HOST_V6 != 0)
    if (heads.view(HEAD)["size"] < HEAD_BYTES + more).any():
        raise Unreadable
    matrix = heads.view(np.uint8).reshape(len(places), HEAD_BYTES)
    times, tails = STORE_TIMESTAMP + places + born_more, TAIL + places + more
    matrix[:, STORE_TIMESTAMP:STORE_HOST] = _gathered(octets, times, 8).view(np.uint8).reshape(-1, 8)
    width = HEAD_BYTES - TAIL
    matrix[:, TAIL:] = _gathered(octets, tails, width).view(np.uint8).reshape(-1, width)
    return heads, places + HEAD_BYTES + more


def _gathered(octets: Octets, places: Ints, width: int) -> npt.NDArray[np.void]:
    """Returns `width` bytes from each place as opaque elements; a structured type would take twenty times as long."""
    if not len(places):
        return np.empty(0, f"V{width}")
    return windows(octets, width)[places]


def _numbers(octets: Octets, places: Ints, kind: str) -> Ints:
    """Returns the big-endian numbers of type `kind` that begin at the places."""
    width = np.dtype(kind).itemsize
    windows: npt.NDArray[Any] = np.ndarray((max(0, len(octets) - width + 1),), kind, octets, 0, (1,))
    return windows[places].astype(np.int64)


def _at(bounds: tuple[Ints, Ints], rows: Ints) -> tuple[Ints, Ints]:
    return bounds[0][rows], bounds[1][rows]


def _unwrapped(rows: Rows, batches: Bools) -> Rows:
    """Returns the rows with each batch record replaced by its messages, which have their own offset, flag, body and
    properties, and else what the record has.
    """
    if (batches & (rows.head("sys_flag") & COMPRESSED != 0)).any():
        raise Unreadable  # no broker stores a compressed batch record
    octets = rows.octets
    records = np.flatnonzero(batches & (rows.body[1] > rows.body[0]))
    places, counts = items(octets, rows.body[0][records], rows.body[1][records], OVERHEAD_BYTES)
    heads = _gathered(octets, places, INNER_HEAD.itemsize).view(INNER_HEAD)
    sizes, flags, body_bytes = (heads[name].astype(np.int64) for name in ("size", "flag", "body_bytes"))
    ends, body_starts = places + sizes, places + INNER_HEAD.itemsize
    body_ends = body_starts + body_bytes
    if (body_bytes < 0).any() or (body_ends + SHORT_BYTES > ends).any():
        raise Unreadable
    properties_starts = body_ends + SHORT_BYTES
    if (properties_starts + _numbers(octets, body_ends, ">i2") != ends).any():
        raise Unreadable
    record = np.repeat(records, counts)
    number = np.arange(len(record)) - np.repeat(np.cumsum(counts) - counts, counts)
    single = np.flatnonzero(~batches)
    order = np.argsort(np.concatenate((single, record)), kind="stable") if len(single) else None

    def merged(of_records: Ints, of_messages: Ints) -> Ints:
        return of_messages if order is None else np.concatenate((of_records[single], of_messages))[order]

    source = merged(np.arange(len(batches)), record)
    return Rows(
        octets=octets,
        heads=rows.heads[source],
        places=rows.places[source],
        pull=rows.pull[source],
        queue_offset=merged(rows.queue_offset, rows.queue_offset[record] + number),
        flag=merged(rows.flag, flags),
        body=(merged(rows.body[0], body_starts), merged(rows.body[1], body_ends)),
        topic=_at(rows.topic, source),
        properties=(merged(rows.properties[0], properties_starts), merged(rows.properties[1], ends)),
    )
