"""Encodes rows as the bodies of send requests (payloads): many rows at once, divided into requests without copying.

Rows are divided by the size of a request, and by whether their bodies may share a request. `sink_rows.py` lists the
columns. The payloads equal those of `protocol/messages` for the same messages.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from pyrmq_core.columnar.arrays import Int32s, Ints, keep_freed_memory
from pyrmq_core.columnar.encoding.row_parts import (
    FixedWidth,
    Ids,
    IdsOfRows,
    RowPart,
    id_texts,
    ids_of,
    joined,
    part_of,
    properties_bytes,
    property_parts,
)
from pyrmq_core.columnar.encoding.sink_rows import BytesColumn, SinkRows, outgoing_rows, windows
from pyrmq_core.columnar.encoding.validate import fault_of
from pyrmq_core.errors import InvalidMessage
from pyrmq_core.model import NO_PROPERTIES, Message
from pyrmq_core.protocol.messages.batch import OVERHEAD_BYTES
from pyrmq_core.protocol.messages.batch_payloads import split_batch
from pyrmq_core.protocol.messages.batch_topic import MAX_RECORD_MESSAGES
from pyrmq_core.protocol.messages.compression import CompressionType, compress
from pyrmq_core.protocol.messages.names import MAX_MESSAGE_BYTES, check_sent_topic, is_retry_topic
from pyrmq_core.protocol.messages.payload import (
    COMPRESS_OVER_BYTES,
    Payload,
    encode_one,
    make_payload,
)
from pyrmq_core.protocol.messages.properties import MAX_PROPERTIES_BYTES, WAIT, encode_properties

# A part of the rows: the number of its first row, and of the row after its last.
Cut: TypeAlias = tuple[int, int]

CompressAll: TypeAlias = Callable[[Callable[[bytes], bytes], Sequence[bytes]], Iterable[bytes]]

MIB: Final = 1024 * 1024
# Fewer rows than this are encoded faster in a loop.
BREAK_EVEN_ROWS: Final = 24
# The magic number and CRC of a message in a batch, which brokers ignore (protocol/messages/batch.py).
MAGIC_AND_CRC: Final = bytes(8)
# The bytes that are joined at once. They stay in memory until the last of their requests is answered, but joins of only
# 2 MiB cost a third more.
JOIN_BYTES: Final = 16 * 1024 * 1024
# The bytes of bodies that are compressed before the first of them is sent.
COMPRESS_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BatchLimit:
    """The limits of one request: its messages, its bytes, and the size from which bodies are compressed.

    Requests of 4,000 small messages cost this process 0.7 and a broker 0.9 to 0.95 times as much as requests of 1,000.
    Larger requests bring no further gain.
    """

    messages: int = 4000
    bytes: int = MIB
    compression: CompressionType | None = None
    compress_over_bytes: int = COMPRESS_OVER_BYTES
    max_message_bytes: int = MAX_MESSAGE_BYTES

    def of_batch_topic(self) -> BatchLimit:
        """Returns the limit for a batch topic: as many messages as fit into one batch record, and no compression."""
        return replace(self, messages=MAX_RECORD_MESSAGES, compression=None)

    @property
    def max_batched_body_bytes(self) -> int:
        """The largest body that always fits into a batch with its properties. A larger body has its own request."""
        return self.max_message_bytes - MAX_PROPERTIES_BYTES - 64

    @property
    def room_bytes(self) -> int:
        """The most bytes of messages in one request."""
        return min(self.bytes, self.max_message_bytes)


DEFAULT_LIMIT: Final = BatchLimit()


@dataclass(frozen=True, slots=True)
class Run:
    """Rows from `start` to before `end` that are sent in the same way.

    With `alone`, each row has its own request. With `compressed`, bodies are compressed.
    """

    start: int
    end: int
    alone: bool
    compressed: bool


def runs_of(body_bytes: Int32s, limit: BatchLimit, *, alone: bool) -> Iterator[Run]:
    """Yields, in order, runs of neighbouring rows that are sent in the same way. `body_bytes` are the bodies' sizes.

    With `alone` every row has its own request.
    """
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
    """Yields each request's first row and the row after its last. A request has as many rows as `limit` allows.

    `ends[i]` is the byte at which row i ends, counted over all rows. A request begins at each row of `stops`, which
    ascend.
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
    if not stops:
        return ()
    return [stop - start for stop in stops[bisect_right(stops, start) : bisect_left(stops, end)]]


def grouped(cuts: Iterable[Cut], ends: Ints, most_bytes: int) -> Iterator[list[Cut]]:
    """Yields groups of neighbouring requests with about `most_bytes` together. A larger request is alone.

    Each cut is a request: its first row and the row after its last. `ends[i]` is the byte at which row i ends, counted
    over all rows.
    """
    group: list[Cut] = []
    for cut in cuts:
        if group and ends[cut[1] - 1] - ends[group[0][0]] > most_bytes:
            yield group
            group = []
        group.append(cut)
    if group:
        yield group


def pieces_of(body_bytes: Int32s, run: Run, most_bytes: int) -> Iterator[Cut]:
    """Yields parts of a run, each with at most `most_bytes` of bodies or with one larger body."""
    for start, end in cuts_of(
        np.cumsum(body_bytes[run.start : run.end], dtype=np.int64), BatchLimit(run.end - run.start, most_bytes)
    ):
        yield run.start + start, run.start + end


def encode_batches(
    rows: pa.RecordBatch,
    topic: str,
    ids: Ids,
    limit: BatchLimit = DEFAULT_LIMIT,
    *,
    single_tag: bool = False,
    stops: Sequence[int] = (),
    wait_store_msg_ok: bool = True,
    compress_all: CompressAll = map,
) -> Iterator[Payload]:
    """Checks rows, and yields them as payloads of requests to `topic`, in order. `encode_rows` explains the arguments.

    Raises `InvalidMessage` for the first faulty row (`first_fault`), before any row is encoded.
    """
    check_sent_topic(topic)
    parts = [(first, outgoing_rows(part)) for first, part in windows(rows)]
    for first, window in parts:
        if (fault := fault_of(window, limit.max_message_bytes)) is not None:
            raise InvalidMessage(f"row {first + fault.row}, column {fault.column}: {fault.reason}")
    for first, window in parts:
        yield from encode_rows(
            window,
            topic,
            ids,
            limit,
            single_tag=single_tag,
            stops=stops_within(stops, first, first + len(window)),
            wait_store_msg_ok=wait_store_msg_ok,
            compress_all=compress_all,
        )


def encode_rows(
    rows: SinkRows,
    topic: str,
    ids: Ids,
    limit: BatchLimit = DEFAULT_LIMIT,
    *,
    single_tag: bool = False,
    stops: Sequence[int] = (),
    wait_store_msg_ok: bool = True,
    compress_all: CompressAll = map,
) -> Iterator[Payload]:
    """Yields checked rows as payloads of requests to `topic`, in order. `ids(count)` returns the next unique ids.

    Payloads share large buffers with each other. `compress_all` maps a function over bodies, perhaps in threads
    (`executor.map`). `single_tag` says that all rows have the same tag or none, as batch topics need (`by_tag`). A new
    request begins at each row number of `stops`, which ascend.
    """
    check_sent_topic(topic)
    if not len(rows):
        return
    alone = is_retry_topic(topic)
    rows_ids = ids_of(ids, len(rows))
    if len(rows) < BREAK_EVEN_ROWS:
        for start, end in pairwise((0, *stops_within(stops, 0, len(rows)), len(rows))):
            few, theirs = _slice(rows, rows_ids, start, end)
            yield from encode_messages(few, topic, theirs, limit, alone=alone, waits=wait_store_msg_ok)
    else:
        yield from encode_columns(
            rows,
            topic,
            rows_ids,
            limit,
            alone=alone,
            single_tag=single_tag,
            stops=stops_within(stops, 0, len(rows)),
            waits=wait_store_msg_ok,
            compress_all=compress_all,
        )


def compresses(rows: pa.RecordBatch, limit: BatchLimit) -> bool:
    """Returns whether `encode_batches` will compress any body. If so, encoding in another thread is worth its cost."""
    if limit.compression is None or not rows.num_rows:
        return False
    return any(
        int(outgoing_rows(part.select(["body"])).body.sizes.max(initial=0)) >= limit.compress_over_bytes
        for _, part in windows(rows)
    )


def encode_columns(
    rows: SinkRows,
    topic: str,
    ids: Sequence[RowPart],
    limit: BatchLimit,
    *,
    alone: bool,
    waits: bool,
    single_tag: bool = False,
    stops: Sequence[int] = (),
    compress_all: CompressAll = map,
) -> Iterator[Payload]:
    """Yields the payloads of `encode_batches`, built by columns. It loops only to compress bodies, and over `alone`
    rows.

    `waits` is `wait_store_msg_ok` of `encode_batches`. With `alone`, each row has its own request.
    """
    keep_freed_memory()
    return _Encoder(topic, limit, waits, single_tag, compress_all).payloads(rows, ids, stops, alone=alone)


class _Encoder:
    def __init__(self, topic: str, limit: BatchLimit, waits: bool, single_tag: bool, compress_all: CompressAll) -> None:
        self._topic = topic
        self._limit = limit
        self._waits = waits
        self._one_tag = single_tag
        self._properties = "" if waits else encode_properties({WAIT: "false"})
        self._compress_all = compress_all

    def payloads(
        self, rows: SinkRows, ids: Sequence[RowPart], stops: Sequence[int], *, alone: bool
    ) -> Iterator[Payload]:
        for run in runs_of(rows.body.sizes, self._limit, alone=alone):
            if run.alone:
                run_rows, theirs = _slice(rows, ids, run.start, run.end)
                yield from encode_messages(run_rows, self._topic, theirs, self._limit, alone=True, waits=self._waits)
            elif run.compressed:
                for start, end in pieces_of(rows.body.sizes, run, COMPRESS_BYTES):
                    yield from self._compressed(*_slice(rows, ids, start, end), stops_within(stops, start, end))
            else:
                within = stops_within(stops, run.start, run.end)
                yield from self._requests(*_slice(rows, ids, run.start, run.end), within, 0)

    def _compressed(self, rows: SinkRows, ids: Sequence[RowPart], stops: Sequence[int]) -> Iterator[Payload]:
        kind = self._limit.compression
        assert kind is not None
        bodies = list(self._compress_all(partial(compress, kind=kind), rows.body.array.to_pylist()))
        yield from self._requests(
            replace(rows, body=BytesColumn.of(pa.array(bodies, pa.binary()))), ids, stops, kind.sys_flag
        )

    def _requests(
        self, rows: SinkRows, ids: Sequence[RowPart], stops: Sequence[int], sys_flag: int
    ) -> Iterator[Payload]:
        string_bytes = properties_bytes(rows, ids, waits=self._waits)
        sizes = rows.body.sizes + string_bytes + OVERHEAD_BYTES
        parts: list[RowPart] = [
            FixedWidth(">i4", sizes),
            MAGIC_AND_CRC,
            bytes(4) if rows.flag is None else FixedWidth(">i4", rows.flag.fill_null(0).to_numpy()),
            FixedWidth(">i4", rows.body.sizes),
            rows.body.array,
            FixedWidth(">i2", string_bytes),
            *property_parts(rows, ids, waits=self._waits),
        ]
        ends = np.cumsum(sizes)
        for together in grouped(cuts_of(ends, self._limit, stops), ends, JOIN_BYTES):
            first, last = together[0][0], together[-1][1]
            data = memoryview(joined(parts, first, last - first).buffers()[2])
            begin = int(ends[first - 1]) if first else 0
            for start, end in together:
                size = int(ends[end - 1]) - begin
                yield make_payload(
                    self._topic,
                    data[:size],
                    end - start,
                    self._properties,
                    sys_flag,
                    0,
                    True,
                    IdsOfRows(ids, start, end),
                    self._one_tag,
                )
                data, begin = data[size:], begin + size


def encode_messages(
    rows: SinkRows, topic: str, ids: Sequence[RowPart], limit: BatchLimit, *, alone: bool, waits: bool
) -> Iterator[Payload]:
    """Yields the payloads of `encode_columns`, made one message after another, which is faster for few messages."""
    messages, unique_ids = _messages(rows, topic, waits=waits), id_texts(ids, len(rows))
    for run in runs_of(rows.body.sizes, limit, alone=alone):
        compression = limit.compression if run.compressed else None
        members, their_ids = messages[run.start : run.end], unique_ids[run.start : run.end]
        if run.alone:
            for message, unique_id in zip(members, their_ids, strict=True):
                yield encode_one(
                    message,
                    unique_id,
                    compression=compression,
                    compress_over_bytes=0,
                    max_message_bytes=limit.max_message_bytes,
                )
        else:
            yield from split_batch(
                members,
                their_ids,
                compression=compression,
                max_message_bytes=limit.max_message_bytes,
                request_bytes=limit.bytes,
                request_messages=limit.messages,
            )


def _slice(rows: SinkRows, ids: Sequence[RowPart], start: int, end: int) -> tuple[SinkRows, list[RowPart]]:
    return rows.slice(start, end), [part_of(part, start, end) for part in ids]


def _messages(rows: SinkRows, topic: str, *, waits: bool) -> list[Message]:
    texts = [_texts(rows, name) for name in ("tags", "keys", "shardingKey")]
    flags = [0] * len(rows) if rows.flag is None else rows.flag.fill_null(0).to_pylist()
    pairs = [None] * len(rows) if rows.properties is None else rows.properties.array.to_pylist()
    return [
        Message(
            topic, body, tags, keys, sharding_key, dict(own) if own else NO_PROPERTIES, flag, wait_store_msg_ok=waits
        )
        for body, tags, keys, sharding_key, own, flag in zip(
            rows.body.array.to_pylist(), *texts, pairs, flags, strict=True
        )
    ]


def _texts(rows: SinkRows, name: str) -> list[str | None]:
    if name not in rows.texts:
        return [None] * len(rows)
    return [text.decode() if text else None for text in rows.texts[name].array.to_pylist()]
