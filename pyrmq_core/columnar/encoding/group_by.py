"""Groups the rows that may share requests: by topic, by the queue of the sharding key, by tag. The order is kept."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pyrmq_core.columnar.arrays import FIRST_BEYOND_ASCII, Bools, Ints, byte_view, encoded, offsets_of
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.java.string_hash import string_hash_code


def by_topic(rows: pa.RecordBatch, topic: str | None = None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields each topic with its rows, without the column `topic`. Topics are in the order of their first appearance.

    The argument `topic` overrides the column. If both are missing, raises `InvalidArgument`. Rows with a null topic are
    left out, since `first_fault` reports them.
    """
    named = "topic" in rows.schema.names
    rest = rows.drop_columns(["topic"]) if named else rows
    if topic is not None:
        yield topic, rest
        return
    if not named:
        raise InvalidArgument("there is neither a topic nor a column topic; one of them says where the rows go")
    topics = encoded(rows.column("topic"))
    names = topics.dictionary.to_pylist()
    codes = topics.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    seen, first = np.unique(codes, return_index=True)
    for code in seen[np.argsort(first)].tolist():
        if code >= 0:
            yield names[code], _only(rest, codes == code)


def by_tag(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yields the rows of each tag, and the rows without a tag, in the order of first appearance.

    Requests to batch topics need this.
    """
    if "tags" not in rows.schema.names or rows.num_rows < 2:
        yield rows
        return
    codes = encoded(rows.column("tags")).indices.fill_null(-1).to_numpy(zero_copy_only=False)
    seen, first = np.unique(codes, return_index=True)
    if len(seen) == 1:
        yield rows
        return
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], seen)
    ends = np.append(bounds[1:], len(order))
    for tag in np.argsort(first).tolist():
        yield rows.take(pa.array(order[bounds[tag] : ends[tag]]))


def by_queue(rows: pa.RecordBatch, queues: int) -> Iterator[tuple[str | None, pa.RecordBatch]]:
    """Yields, for each of `queues` queues, the rows whose keys select it, as Java's SelectMessageQueueByHash does.

    Each group comes with one of its sharding keys. The rows without a sharding key come first, with None.
    """
    if "shardingKey" not in rows.schema.names:
        yield None, rows
        return
    keys = encoded(rows.column("shardingKey"))
    queue_of_key = np.append(abs(string_hash_codes(keys.dictionary)) % queues, -1)
    queue = queue_of_key[keys.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    for number in np.unique(queue).tolist():
        key = None if number < 0 else keys.dictionary[int(np.flatnonzero(queue_of_key == number)[0])].as_py()
        yield key, _only(rows, queue == number)


def string_hash_codes(texts: pa.Array) -> Ints:
    """Returns `string_hash_code` of each text. Only texts that are not ASCII are hashed one by one."""
    texts = texts.cast(pa.string())
    bounds, octets = offsets_of(texts), byte_view(texts)
    codes, lengths = np.zeros(len(texts), np.uint32), np.diff(bounds)
    for place in range(lengths.max(initial=0)):
        rows = np.flatnonzero(lengths > place)
        codes[rows] = codes[rows] * np.uint32(31) + octets[bounds[rows] + place]
    beyond = np.flatnonzero(octets[: bounds[-1]] >= FIRST_BEYOND_ASCII)
    hashes = codes.view(np.int32).astype(np.int64)
    for row in np.unique(np.searchsorted(bounds, beyond, side="right") - 1).tolist():
        hashes[row] = string_hash_code(texts[row].as_py())
    return hashes


def _only(rows: pa.RecordBatch, chosen: Bools) -> pa.RecordBatch:
    return rows if chosen.all() else rows.filter(pa.array(chosen))
