"""Rows to the payloads of send requests: many are encoded at once, and cut into requests without copying.

The columns are listed in `outgoing.py`. What comes out is what `protocol/payload.py` makes of the same messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from pyrmq_core.columnar.cutting import BatchLimit, cuts_of, grouped, pieces_of, runs_of
from pyrmq_core.columnar.faults import first_fault
from pyrmq_core.columnar.joining import Part, joined
from pyrmq_core.columnar.message_by_message import encode_messages
from pyrmq_core.columnar.outgoing import OutgoingRows, lengths, outgoing_rows, windows
from pyrmq_core.columnar.property_strings import properties_bytes, property_parts
from pyrmq_core.columnar.unique_ids import Ids, ids_of, some_of
from pyrmq_core.errors import InvalidMessage
from pyrmq_core.model import Message
from pyrmq_core.protocol.batch import OVERHEAD_BYTES
from pyrmq_core.protocol.compression import compress
from pyrmq_core.protocol.names import check_message, is_retry_topic
from pyrmq_core.protocol.payload import Payload
from pyrmq_core.protocol.properties import WAIT, encode_properties

CompressAll: TypeAlias = Callable[[Callable[[bytes], bytes], Sequence[bytes]], Iterable[bytes]]

DEFAULT_LIMIT: Final = BatchLimit()
# Below about so many rows a loop is quicker.
BREAK_EVEN_ROWS: Final = 24
# What is joined at once: enough for the fixed cost not to count, and little enough to stay near the processor.
JOIN_BYTES: Final = 2 * 1024 * 1024
# Bodies that are compressed before the first of them is sent.
COMPRESS_BYTES: Final = 8 * 1024 * 1024


def encode_batches(
    rows: pa.RecordBatch,
    topic: str,
    ids: Ids,
    limit: BatchLimit = DEFAULT_LIMIT,
    *,
    checked: bool = False,
    wait_store_msg_ok: bool = True,
    compress_all: CompressAll = map,
) -> Iterator[Payload]:
    """The rows as requests of `topic`, in their order. `ids(count)` gives the next unique ids.

    `InvalidMessage` for rows that `first_fault` names, unless the caller has `checked` them. The bodies of payloads are
    views of larger buffers. `compress_all` maps a function over bodies, in threads if it likes (`executor.map`).
    """
    check_message(Message(topic, b"x"))
    if not checked and (fault := first_fault(rows)) is not None:
        raise InvalidMessage(f"row {fault.row}, column {fault.column}: {fault.reason}")
    for _, part in windows(rows):
        some = outgoing_rows(part)
        made = ids_of(ids, len(some))
        alone = is_retry_topic(topic)
        if len(some) < BREAK_EVEN_ROWS:
            yield from encode_messages(some, topic, made, limit, alone=alone, waits=wait_store_msg_ok)
        else:
            yield from encode_columns(
                some, topic, made, limit, alone=alone, waits=wait_store_msg_ok, compress_all=compress_all
            )


def encode_columns(
    rows: OutgoingRows,
    topic: str,
    ids: Part,
    limit: BatchLimit,
    *,
    alone: bool,
    waits: bool,
    compress_all: CompressAll = map,
) -> Iterator[Payload]:
    """`encode_batches` without a loop over rows, but for those that are compressed or go alone."""
    return _Encoder(topic, limit, waits, compress_all).payloads(rows, ids, alone=alone)


class _Encoder:
    """Encodes rows of one topic by columns."""

    def __init__(self, topic: str, limit: BatchLimit, waits: bool, compress_all: CompressAll) -> None:
        self._topic = topic
        self._limit = limit
        self._waits = waits
        self._properties = "" if waits else encode_properties({WAIT: "false"})
        self._compress_all = compress_all

    def payloads(self, rows: OutgoingRows, ids: Part, *, alone: bool) -> Iterator[Payload]:
        body_bytes = lengths(rows.body)
        for run in runs_of(body_bytes, self._limit, alone=alone):
            if run.alone:
                some, few = rows.slice(run.start, run.end), some_of(ids, run.start, run.end)
                yield from encode_messages(some, self._topic, few, self._limit, alone=True, waits=self._waits)
            elif run.compressed:
                for start, end in pieces_of(body_bytes, run, COMPRESS_BYTES):
                    yield from self._compressed(rows.slice(start, end), some_of(ids, start, end))
            else:
                yield from self._requests(rows.slice(run.start, run.end), some_of(ids, run.start, run.end), 0)

    def _compressed(self, rows: OutgoingRows, ids: Part) -> Iterator[Payload]:
        kind = self._limit.compression
        assert kind is not None
        bodies = list(self._compress_all(partial(compress, kind=kind), rows.body.to_pylist()))
        yield from self._requests(replace(rows, body=pa.array(bodies, pa.binary())), ids, kind.sys_flag)

    def _requests(self, rows: OutgoingRows, ids: Part, sys_flag: int) -> Iterator[Payload]:
        """Batches of one kind of body."""
        count = len(rows)
        body_bytes, string_bytes = lengths(rows.body), properties_bytes(rows, ids, waits=self._waits)
        sizes = body_bytes + string_bytes + OVERHEAD_BYTES
        heads = np.zeros((count, 5), ">i4")
        heads[:, 0], heads[:, 4] = sizes, body_bytes
        if rows.flag is not None:
            heads[:, 3] = rows.flag.fill_null(0).to_numpy()
        parts: list[Part] = [
            heads.view(np.uint8),
            rows.body,
            string_bytes.astype(">i2").view(np.uint8).reshape(count, 2),
            *property_parts(rows, ids, waits=self._waits),
        ]
        ends = np.cumsum(sizes)
        cuts = list(cuts_of(ends, self._limit))
        for together in grouped(cuts, ends, JOIN_BYTES):
            first, last = together[0][0], together[-1][1]
            data = memoryview(joined(parts, first, last - first).buffers()[2])
            begin = int(ends[first - 1]) if first else 0
            for start, end in together:
                size = int(ends[end - 1]) - begin
                yield Payload(self._topic, data[:size], end - start, self._properties, sys_flag, 0, True)
                data, begin = data[size:], begin + size
