"""Encodes rows as the payloads of send requests: many rows at once, cut into requests without copying.

The columns are listed in `sink_rows.py`. The payloads equal those that `protocol/messages/payload.py` makes of the same
messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from pyrmq_core.columnar.arrays import keep_freed_memory
from pyrmq_core.columnar.encoding.batch_limit import BatchLimit, cuts_of, grouped, pieces_of, runs_of, stops_within
from pyrmq_core.columnar.encoding.concat import FixedWidth, RowPart, joined, part_of
from pyrmq_core.columnar.encoding.encode_by_row import encode_messages
from pyrmq_core.columnar.encoding.properties import properties_bytes, property_parts
from pyrmq_core.columnar.encoding.sink_rows import BytesColumn, SinkRows, outgoing_rows, windows
from pyrmq_core.columnar.encoding.unique_ids import Ids, ids_of
from pyrmq_core.columnar.encoding.validate import fault_of
from pyrmq_core.errors import InvalidMessage
from pyrmq_core.protocol.messages.batch import OVERHEAD_BYTES
from pyrmq_core.protocol.messages.compression import compress
from pyrmq_core.protocol.messages.names import is_retry_topic
from pyrmq_core.protocol.messages.payload import Payload, check_sent_topic, make_payload
from pyrmq_core.protocol.messages.properties import WAIT, encode_properties

CompressAll: TypeAlias = Callable[[Callable[[bytes], bytes], Sequence[bytes]], Iterable[bytes]]

DEFAULT_LIMIT: Final = BatchLimit()
# Below about so many rows a loop is faster.
BREAK_EVEN_ROWS: Final = 24
# Brokers ignore both (protocol/messages/batch.py).
MAGIC_AND_CRC: Final = bytes(8)
# The bytes that are joined at once; they stay in memory until the last of their requests is answered. Joins of 2 MiB
# cost a third more.
JOIN_BYTES: Final = 16 * 1024 * 1024
# The bytes of bodies that are compressed before the first of them is sent.
COMPRESS_BYTES: Final = 8 * 1024 * 1024


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
    """Checks the rows, and yields them as `encode_rows` does.

    Raises `InvalidMessage` for the row that `first_fault` names, before any is encoded.
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
    """Yields rows without a fault as requests of `topic`, in their order. `ids(count)` returns the next unique ids.

    The bodies of payloads are views of larger buffers. `compress_all` maps a function over bodies, maybe in threads
    (`executor.map`). `single_tag` says that the rows share their tag, or have none (`by_tag`), which batch topics need.
    `stops` are the rising numbers of rows that begin a new request.
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
    """Returns whether `encode_batches` will compress any of the bodies, and so is worth a thread."""
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
    """Does as `encode_batches`, with a loop only over the rows that are compressed or go alone."""
    keep_freed_memory()
    return _Encoder(topic, limit, waits, single_tag, compress_all).payloads(rows, ids, stops, alone=alone)


class _Encoder:
    """Encodes rows of one topic by columns."""

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
        """Yields batches of bodies that are all compressed (`sys_flag` says how), or all plain."""
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
                    self._topic, data[:size], end - start, self._properties, sys_flag, 0, True, None, self._one_tag
                )
                data, begin = data[size:], begin + size


def _slice(rows: SinkRows, ids: Sequence[RowPart], start: int, end: int) -> tuple[SinkRows, list[RowPart]]:
    return rows.slice(start, end), [part_of(part, start, end) for part in ids]
