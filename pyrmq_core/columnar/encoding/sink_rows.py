"""Rows to be sent, cast to the few Arrow types that the rest of this package reads.

    column        may be                                   becomes
    body          binary or string                         binary
    tags          string                                   binary (UTF-8)
    keys          string, words separated by spaces, or    binary (UTF-8), and its words where it was a list
                  list<string>
    shardingKey   string                                   binary (UTF-8)
    properties    map<string, string>                      map<string, string>
    flag          int32                                    int32

The `large_`, view and dictionary variants of these types are accepted too. Only `body` is required.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyrmq_core.columnar.arrays import Bools, Int32s, Ints, offsets_of
from pyrmq_core.columnar.encoding.user_properties import STRING_MAP, UserProperties
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.messages.properties import KEYS, SHARDING_KEY, TAGS

# The text columns, and the names of their properties.
NAMES: Final = {"keys": KEYS, "tags": TAGS, "shardingKey": SHARDING_KEY}
TEXTS: Final = tuple(NAMES)
TEXT_TYPES: Final = (pa.string(), pa.large_string(), pa.string_view())
BINARY_TYPES: Final = (pa.binary(), pa.large_binary(), pa.binary_view())
SINK_COLUMNS: Final = ("body", "topic", *TEXTS, "properties", "flag")
# The largest part of rows that is encoded at once: its bytes can be counted in 32 bits.
WINDOW_ROWS: Final = 65_536
WINDOW_BYTES: Final = 64 * 1024 * 1024
# Smaller batches of a table are joined up to this size. Encoding has a fixed cost for each batch, and a request has
# rows of one batch only. A row costs 1.7 times as much in batches of 1,000 as in batches of 10,000, and eleven times as
# much in batches of 100.
JOINED_ROWS: Final = 10_000
JOINED_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BytesColumn:
    """A column of bytes with the sizes of its elements. The mask `there` selects the non-empty ones, None means all."""

    array: pa.Array
    sizes: Int32s
    there: Bools | None

    @classmethod
    def of(cls, array: pa.Array) -> Self:
        bounds = offsets_of(array)
        sizes = bounds[1:] - bounds[:-1]
        there: Bools | None = None
        if array.null_count:
            there = (sizes > 0) & array.is_valid().to_numpy(zero_copy_only=False)
        elif len(sizes) and not sizes.all():
            there = sizes > 0
        return cls(array, sizes, there)

    def slice(self, start: int, end: int) -> Self:
        there = None if self.there is None else self.there[start:end]
        return type(self)(self.array.slice(start, end - start), self.sizes[start:end], there)


@dataclass(frozen=True, slots=True)
class SinkRows:
    """Rows to be sent, cast to known Arrow types. The values are unchecked and may be null.

    `texts` has the columns `keys`, `tags` and `shardingKey`, if present. `words` has the words of `keys` if that column
    had lists. `own_bytes` is the size of each row's `texts` and `properties` as a properties string.
    """

    body: BytesColumn
    own_bytes: Ints
    texts: dict[str, BytesColumn] = field(default_factory=dict)
    words: pa.Array | None = None
    properties: UserProperties | None = None
    flag: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.body.sizes)

    def slice(self, start: int, end: int) -> SinkRows:
        """Returns the rows from `start` to before `end`."""
        count = end - start
        if count == len(self):
            return self

        def some(array: pa.Array | None) -> pa.Array | None:
            return None if array is None else array.slice(start, count)

        texts = {name: text.slice(start, end) for name, text in self.texts.items()}
        properties = None if self.properties is None else self.properties.slice(start, count)
        own_bytes = self.own_bytes[start:end]
        return SinkRows(self.body.slice(start, end), own_bytes, texts, some(self.words), properties, some(self.flag))

    def take(self, numbers: pa.Array) -> SinkRows:
        """Returns the rows with these numbers, in the order of the numbers."""

        def some(array: pa.Array | None) -> pa.Array | None:
            return None if array is None else array.take(numbers)

        texts = {name: BytesColumn.of(text.array.take(numbers)) for name, text in self.texts.items()}
        properties = None if self.properties is None else self.properties.take(numbers)
        return SinkRows(
            BytesColumn.of(self.body.array.take(numbers)),
            self.own_bytes[numbers.to_numpy()],
            texts,
            some(self.words),
            properties,
            some(self.flag),
        )


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """Rows of a batch that passed the checks before sending.

    They are all rows of the batch, or those with these `numbers`, in their order. `take`, `filter` and `slice` select
    rows as in a `RecordBatch`, without copying values. `column`, `to_batch` and `to_encode` copy the values of the
    selected rows.
    """

    batch: pa.RecordBatch
    outgoing: SinkRows
    numbers: pa.Array | None = None

    @property
    def schema(self) -> pa.Schema:
        """The names and types of all columns."""
        return self.batch.schema

    @property
    def num_rows(self) -> int:
        """The number of selected rows."""
        return len(self.outgoing) if self.numbers is None else len(self.numbers)

    def column(self, name: str) -> pa.Array:
        """Returns the values of a column in the selected rows."""
        column = self.batch.column(name)
        return column if self.numbers is None else column.take(self.numbers)

    def take(self, numbers: pa.Array) -> CheckedRows:
        """Returns the rows with these numbers, in the order of the numbers."""
        return replace(self, numbers=numbers if self.numbers is None else self.numbers.take(numbers))

    def filter(self, mask: pa.Array) -> CheckedRows:
        """Returns the rows that the mask selects."""
        return self.take(pc.indices_nonzero(mask))

    def slice(self, start: int, count: int) -> CheckedRows:
        """Returns `count` of these rows from `start` on."""
        if count == self.num_rows:
            return self
        return self.take(pa.array(range(start, start + count), pa.uint64()))

    def to_batch(self) -> pa.RecordBatch:
        """Returns all columns of these rows."""
        return self.batch if self.numbers is None else self.batch.take(self.numbers)

    def to_encode(self) -> SinkRows:
        """Returns these rows in the form that `encode_rows` expects."""
        return self.outgoing if self.numbers is None else self.outgoing.take(self.numbers)


def batches_of(rows: pa.RecordBatch | pa.Table) -> Iterator[pa.RecordBatch]:
    """Yields the rows in their order. Small neighbouring batches of a table are joined, which copies them."""
    together: list[pa.RecordBatch] = []
    count = size = 0
    for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
        if together and (count + batch.num_rows > JOINED_ROWS or size + batch.nbytes > JOINED_BYTES):
            yield _as_one(together)
            together, count, size = [], 0, 0
        together.append(batch)
        count, size = count + batch.num_rows, size + batch.nbytes
    if together:
        yield _as_one(together)


def _as_one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def windows(rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields the rows in parts of at most 65,536 rows and 64 MiB, each with the number of its first row.

    A larger row is a part of its own.
    """
    waiting = [(0, rows)]
    while waiting:
        first, part = waiting.pop()
        is_large = part.get_total_buffer_size() > WINDOW_BYTES and part.nbytes > WINDOW_BYTES  # `nbytes` is slower
        if part.num_rows > 1 and (part.num_rows > WINDOW_ROWS or is_large):
            half = part.num_rows // 2
            waiting += [(first + half, part.slice(half)), (first, part.slice(0, half))]
        elif part.num_rows:
            yield first, part


def outgoing_parts(rows: pa.RecordBatch) -> Iterator[SinkRows]:
    """Yields the rows in parts of at most 65,536 rows and 64 MiB, unchecked, in the form for `encode_rows`."""
    for _, part in windows(rows):
        yield outgoing_rows(part)


def outgoing_rows(rows: pa.RecordBatch) -> SinkRows:
    """Returns the rows with their columns cast to known Arrow types, in the form that `encode_rows` expects.

    Raises `InvalidArgument` for a column of another type, and if there is no column `body`.
    """
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    _check_body(rows.schema.names)
    words = columns.get("keys")
    if words is not None and _is_list(words.type):
        words = _cast("keys", words, pa.list_(pa.string()))
        columns["keys"] = _joined_words(words)
    else:
        words = None
    texts = {name: _bytes(name, columns[name]) for name in TEXTS if name in columns}
    properties: UserProperties | None = None
    if "properties" in columns:
        pairs = UserProperties.of(_cast("properties", columns["properties"], STRING_MAP))
        properties = _tidied(pairs, texts.get("shardingKey"))
    return SinkRows(
        body=_bytes("body", columns["body"]),
        own_bytes=_own_bytes(rows.num_rows, texts, properties),
        texts=texts,
        words=words,
        properties=properties,
        flag=_cast("flag", columns["flag"], pa.int32()) if "flag" in columns else None,
    )


def fixed_bytes(name: str) -> int:
    """Returns the size of a property of this name in a properties string, without its value."""
    return len(name) + 2


def _own_bytes(count: int, texts: dict[str, BytesColumn], properties: UserProperties | None) -> Ints:
    same, size = 0, np.zeros(count, np.int64)
    for name, text in texts.items():
        if text.there is None:
            same += fixed_bytes(NAMES[name])
            size += text.sizes
        else:
            size += np.where(text.there, text.sizes + fixed_bytes(NAMES[name]), 0)
    if properties is not None:
        first, last = properties.pairs()
        for child in (properties.array.keys, properties.array.items):
            bounds = offsets_of(child)
            size += bounds[last] - bounds[first]
        size += 2 * (last - first)
    size += same
    return size


def check_columns(rows: object) -> None:
    """Raises `InvalidArgument` unless `rows` is a batch or table with `body` and known columns, each of them once."""
    if not isinstance(rows, (pa.RecordBatch, pa.Table)):
        raise InvalidArgument(
            f"the rows to send are a {type(rows).__name__}; a pyarrow.RecordBatch or Table is sent "
            "(pyarrow.Table.from_pylist, from_pandas, from_batches make one)"
        )
    schema = rows.schema
    _check_body(schema.names)
    for name in schema.names:
        if name not in SINK_COLUMNS:
            raise InvalidArgument(f"there is no column {name} to send; there are {', '.join(SINK_COLUMNS)}")
        if schema.names.count(name) > 1:
            raise InvalidArgument(f"the column {name} stands twice in the rows to send; keep one")


def _check_body(names: Sequence[str]) -> None:
    if "body" not in names:
        raise InvalidArgument(f"the rows have no column body; they have {', '.join(names) or 'none'}")


def _bytes(name: str, array: pa.Array) -> BytesColumn:
    return BytesColumn.of(_binary(name, array))


def _binary(name: str, array: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if kind in TEXT_TYPES:
        return _cast(name, array, pa.string()).view(pa.binary())
    if pa.types.is_null(kind) or (name == "body" and (kind in BINARY_TYPES or pa.types.is_fixed_size_binary(kind))):
        return _cast(name, array, pa.binary())
    raise InvalidArgument(f"column {name} is {kind}; it has to be {'binary or ' * (name == 'body')}string")


def _cast(name: str, array: pa.Array, target: pa.DataType) -> pa.Array:
    if array.type == target:
        return array
    try:
        if pa.types.is_floating(array.type):
            raise pa.ArrowInvalid("numbers with fractions are another kind of value")
        return array.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidArgument(f"column {name} is {array.type}, which does not make {target}: {error}") from error


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _joined_words(words: pa.Array) -> pa.Array:
    joined = pc.binary_join(words, " ")
    return pc.if_else(pc.equal(pc.list_value_length(words), 0), pa.scalar(None, pa.string()), joined)


def _tidied(properties: UserProperties, sharding_keys: BytesColumn | None) -> UserProperties:
    """Returns the properties without the row's sharding key, and with the last value of each name in a row."""
    keyed = sharding_keys is not None and SHARDING_KEY in properties.known_names()
    if not keyed and not properties.has_name_twice():
        return properties
    pairs = [None if row is None else dict(row) for row in properties.array.to_pylist()]
    for row, key in zip(pairs, sharding_keys.array.to_pylist() if sharding_keys is not None else (), strict=False):
        if row is not None and key is not None and row.get(SHARDING_KEY) == key.decode():
            del row[SHARDING_KEY]
    return UserProperties.of(pa.array([None if row is None else list(row.items()) for row in pairs], STRING_MAP))
