"""Decodes the answers of pull requests to record batches.

Only the requested columns are built, each for all messages at once. Times of Arrow and Spark are microseconds, those of
RocketMQ are milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyrmq_core.columnar.arrays import (
    MAX_ARRAY_BYTES,
    Ints,
    Octets,
    as_string,
    as_text,
    constant,
    fixed_spans,
    keep_freed_memory,
    numbers,
    of_type,
    take_unchecked,
    windows,
)
from pyrmq_core.columnar.decoding.columns import (
    DELIVER_AT_NAMES,
    MAX_INT,
    MAX_MS,
    TIMESTAMP,
    DecodedBatch,
    source_column,
)
from pyrmq_core.columnar.decoding.compiled import decode_compiled
from pyrmq_core.columnar.decoding.decode_by_row import decode_messages
from pyrmq_core.columnar.decoding.decompression import with_decompressed_bodies
from pyrmq_core.columnar.decoding.layouts import LayoutPairs
from pyrmq_core.columnar.decoding.properties import Pairs, read_pairs
from pyrmq_core.columnar.decoding.record_bounds import Unreadable
from pyrmq_core.columnar.decoding.records import read_rows
from pyrmq_core.columnar.decoding.rows import Rows
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import EVERYTHING, SYSTEM_NAMES, OffsetRange
from pyrmq_core.protocol.messages.bodies import AS_STORED, MAX_BODY_BYTES, MAX_DECOMPRESSED_BYTES, BodyRules, too_much
from pyrmq_core.protocol.messages.completeness import check_complete
from pyrmq_core.protocol.messages.namespaces import without_namespace
from pyrmq_core.protocol.messages.payload import RawPull
from pyrmq_core.protocol.messages.properties import (
    BORN_HOST,
    DELAY,
    KEYS,
    LITE_TOPIC,
    SHARDING_KEY,
    TAGS,
    UNIQ_KEY,
    decode_java_utf8,
)
from pyrmq_core.protocol.messages.record import unpack_host

ALL_TAGS: Final = TagFilter()
# Fewer messages than this are decoded faster one by one: building columns has a fixed cost of some hundred
# microseconds.
BREAK_EVEN_MESSAGES: Final = 64
SYSTEM: Final = frozenset(name.encode() for name in SYSTEM_NAMES)

# For each byte, its two upper-case hexadecimal digits as one 16-bit number.
HEX: Final = np.frombuffer(b"".join(b"%02X" % value for value in range(256)), np.uint16)


def decode_records(
    pulls: Iterable[RawPull],
    columns: pa.Schema,
    within: OffsetRange = EVERYTHING,
    *,
    tags: TagFilter = ALL_TAGS,
    keep_undecodable: bool = False,
    verify_crc: bool = True,
    max_body_bytes: int = MAX_BODY_BYTES,
    allow_gaps: bool = False,
) -> pa.RecordBatch:
    """Returns the messages of `pulls` with offsets of `within` and one of the `tags`, as a batch of exactly `columns`.

    Tags are compared here again, since a broker compares only their hashes. `body` may have the type string: bytes that
    are not UTF-8 then become U+FFFD, as in Java. Faulty bodies are found only if `body` is one of `columns`.

    Raises the errors of `decode`, `InvalidArgument` for an unknown column, and `BodyTooLarge` if decompression adds
    more than 256 MiB. For pulls with more, `decode_batches` yields several batches.
    """
    pulls = list(pulls)
    room = min(MAX_ARRAY_BYTES, MAX_DECOMPRESSED_BYTES + sum(len(pull.records) for pull in pulls))
    parts: list[pa.RecordBatch] = []
    for batch, rest in decode_batches(
        pulls,
        columns,
        within,
        tags=tags,
        keep_undecodable=keep_undecodable,
        verify_crc=verify_crc,
        max_body_bytes=max_body_bytes,
        allow_gaps=allow_gaps,
    ):
        parts.append(batch)
        room -= batch.nbytes
        if rest and room < 0:
            raise too_much(rest[0].queue, rest[0].start)
    return parts[0] if len(parts) == 1 else pa.Table.from_batches(parts).combine_chunks().to_batches()[0]


def decode_batches(
    pulls: Iterable[RawPull],
    columns: pa.Schema,
    within: OffsetRange = EVERYTHING,
    *,
    tags: TagFilter = ALL_TAGS,
    keep_undecodable: bool = False,
    verify_crc: bool = True,
    max_body_bytes: int = MAX_BODY_BYTES,
    allow_gaps: bool = False,
) -> Iterator[DecodedBatch]:
    """Yields the messages that `decode_records` returns, in several batches if many bodies are decompressed.

    Each batch has at most 32 MiB of decompressed bodies, or one larger body. The arguments are those of
    `decode_records`.
    """
    rest = tuple(pulls)
    for name in columns.names:
        source_column(name)
    rules = BodyRules(verify_crc, keep_undecodable, max_body_bytes)
    if "body" not in columns.names:
        rules = AS_STORED
    if (batch := decode_compiled(rest, columns, within, tags, rules)) is not None:
        yield DecodedBatch(batch)
        return
    by_columns = sum(pull.next_offset - pull.start for pull in rest) >= BREAK_EVEN_MESSAGES
    if by_columns and (tags.tags or all(pull.passes is None for pull in rest)):  # SQL is evaluated message by message
        try:
            for decoded in decode_columns(rest, columns, within, tags, rules, allow_gaps=allow_gaps):
                yield decoded
                rest = decoded.rest
            return
        except Unreadable:
            pass  # `decode_messages` can read it, or raises the error that says why not
    yield from decode_messages(rest, columns, within, tags, rules, allow_gaps=allow_gaps)


def decode_columns(
    pulls: Sequence[RawPull],
    columns: pa.Schema,
    within: OffsetRange,
    tags: TagFilter,
    rules: BodyRules,
    *,
    allow_gaps: bool = False,
) -> Iterator[DecodedBatch]:
    """Yields the batches of `decode_batches`, decoded column by column.

    Raises `Unreadable` for records that must be decoded one by one.
    """
    keep_freed_memory()
    rows = read_rows(pulls, within, verify_crc=rules.verify_crc)
    _check_complete(rows, pulls, within, allow_gaps=allow_gaps)
    for part, following in with_decompressed_bodies(rows, rules) if "body" in columns.names else ((rows, len(rows)),):
        batch = _batch(part, pulls, columns, tags)
        yield DecodedBatch(batch, _rest(rows, following, pulls))


def _batch(rows: Rows, pulls: Sequence[RawPull], columns: pa.Schema, tags: TagFilter) -> pa.RecordBatch:
    parts = _Columns(rows, pulls)
    if tags.tags:
        matching = pc.is_in(parts.pairs.column(TAGS), value_set=pa.array(sorted(tags.tags), pa.string()))
        parts = _Columns(rows.only(matching.to_numpy(zero_copy_only=False)), pulls)
    arrays = [of_type(BUILDERS[field.name](parts), field) for field in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _rest(rows: Rows, following: int, pulls: Sequence[RawPull]) -> tuple[RawPull, ...]:
    if following == len(rows):
        return ()
    number = int(rows.pull[following])
    return replace(pulls[number], start=int(rows.queue_offset[following])), *pulls[number + 1 :]


def _check_complete(rows: Rows, pulls: Sequence[RawPull], within: OffsetRange, *, allow_gaps: bool) -> None:
    if not any(pull.is_unfiltered for pull in pulls):
        return
    # The usual case of a read: every offset from the first pull's start to the last pull's end has its row, so no pull
    # has gaps.
    start, end = pulls[0].own(within).start, pulls[-1].own(within).end
    if len(rows) == end - start and (rows.queue_offset == np.arange(start, end)).all():
        return
    owns = [pull.own(within) for pull in pulls]
    sizes = np.array([max(0, own.end - own.start) for own in owns], np.int64)
    firsts = np.array([own.start for own in owns], np.int64) - (np.cumsum(sizes) - sizes)
    if (np.bincount(rows.pull, minlength=len(pulls)) == sizes).all():  # each pull has as many rows as offsets
        expected = np.repeat(firsts, sizes) + np.arange(len(rows))
        if (rows.queue_offset == expected).all():
            return
    for number, pull in enumerate(pulls):
        if pull.is_unfiltered:
            offsets = rows.queue_offset[rows.pull == number].tolist()
            check_complete(pull.queue, offsets, pull.own(within), allow_gaps=allow_gaps)


class _Columns:
    def __init__(self, rows: Rows, pulls: Sequence[RawPull]) -> None:
        self.rows = rows
        self._pulls = pulls

    @cached_property
    def pairs(self) -> Pairs | LayoutPairs:
        return read_pairs(self.rows.spans(self.rows.properties))

    @cached_property
    def offset_msg_ids(self) -> pa.Array:
        return offset_msg_ids(self.rows)

    def topic(self) -> pa.Array:
        topics = self._topics()
        namespaces = {pull.namespace for pull in self._pulls}
        if not any(namespaces):
            return topics
        if len(namespaces) > 1:  # a caller joined pulls of several consumers
            raise Unreadable
        (namespace,) = namespaces
        names = topics.dictionary_encode()
        texts = [without_namespace(name, namespace) for name in names.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(names.indices)

    def _topics(self) -> pa.Array:
        rows = self.rows
        starts, ends = rows.topic
        self._check_room(int((ends - starts).sum()))
        if len(rows) and (width := int(ends[0] - starts[0])) and (ends - starts == width).all():
            first = rows.octets[starts[0] : ends[0]].tobytes()
            if windows(rows.octets, width)[starts].tobytes() == first * len(rows):
                return constant(decode_java_utf8(first), len(rows))
        return as_text(rows.spans(rows.topic))

    @staticmethod
    def _check_room(text_bytes: int) -> None:
        if text_bytes > MAX_DECOMPRESSED_BYTES:
            raise Unreadable

    def body(self) -> pa.Array:
        return self.rows.spans(self.rows.body)

    def broker_name(self) -> pa.Array:
        names = [pull.queue.broker_name for pull in self._pulls]
        if len(set(names)) == 1:
            self._check_room(len(names[0].encode()) * len(self.rows))
            return constant(names[0], len(self.rows))
        return take_unchecked(pa.array(names, pa.string()), pa.array(self.rows.pull))

    def queue_id(self) -> pa.Array:
        queue_ids = np.array([pull.queue.queue_id for pull in self._pulls], np.int32)
        return numbers(queue_ids[self.rows.pull], pa.int32())

    def queue_offset(self) -> pa.Array:
        return numbers(self.rows.queue_offset, pa.int64())

    def flag(self) -> pa.Array:
        return numbers(self.rows.flag.astype(np.int32), pa.int32())

    def msg_id(self) -> pa.Array:
        ids = self.pairs.column(UNIQ_KEY)
        return pc.coalesce(ids, self.offset_msg_ids) if ids.null_count else ids

    def deliver_at(self) -> pa.Array:
        texts = pc.coalesce(*(self.pairs.column(name) for name in DELIVER_AT_NAMES))
        return pc.multiply(_whole_numbers(texts, MAX_MS), 1000).cast(TIMESTAMP)

    def number(self, name: str, kind: pa.DataType) -> pa.Array:
        return numbers(self.rows.head(name), kind)

    def time(self, name: str) -> pa.Array:
        times = self.rows.head(name)
        if len(times) and not -MAX_MS <= times.min() <= times.max() <= MAX_MS:
            raise Unreadable
        return numbers(times * 1000, TIMESTAMP)


BUILDERS: Final[dict[str, Callable[[_Columns], pa.Array]]] = {
    "topic": _Columns.topic,
    "brokerName": _Columns.broker_name,
    "queueId": _Columns.queue_id,
    "queueOffset": _Columns.queue_offset,
    "msgId": _Columns.msg_id,
    "tags": lambda parts: parts.pairs.column(TAGS),
    "keys": lambda parts: parts.pairs.column(KEYS),
    "body": _Columns.body,
    "properties": lambda parts: parts.pairs.map(lambda name: name not in SYSTEM),
    "bornTimestamp": lambda parts: parts.time("born_timestamp_ms"),
    "storeTimestamp": lambda parts: parts.time("store_timestamp_ms"),
    "reconsumeTimes": lambda parts: parts.number("reconsume_times", pa.int32()),
    "offsetMsgId": lambda parts: parts.offset_msg_ids,
    "bornHost": lambda parts: host_texts(parts.rows, "born_host"),
    "storeHost": lambda parts: host_texts(parts.rows, "store_host"),
    "sysFlag": lambda parts: parts.number("sys_flag", pa.int32()),
    "flag": _Columns.flag,
    "bodyCrc": lambda parts: parts.number("body_crc", pa.int32()),
    "storeSize": lambda parts: parts.number("size", pa.int32()),
    "commitLogOffset": lambda parts: parts.number("commit_log_offset", pa.int64()),
    "preparedTransactionOffset": lambda parts: parts.number("prepared_transaction_offset", pa.int64()),
    "shardingKey": lambda parts: parts.pairs.column(SHARDING_KEY),
    "systemProperties": lambda parts: parts.pairs.map(lambda name: name in SYSTEM),
    "allProperties": lambda parts: parts.pairs.map(),
    "deliverAt": _Columns.deliver_at,
    "delayLevel": lambda parts: _whole_numbers(parts.pairs.column(DELAY), MAX_INT).cast(pa.int32()),
    "liteTopic": lambda parts: parts.pairs.column(LITE_TOPIC),
    "producerHost": lambda parts: parts.pairs.column(BORN_HOST),
}


def _whole_numbers(texts: pa.Array, most: int) -> pa.Array:
    digits = pc.match_substring_regex(texts, rf"\A[0-9]{{1,{len(str(most))}}}\z")
    numbers_or_null = pc.if_else(digits, texts, pa.scalar(None, pa.string())).cast(pa.int64())
    return pc.if_else(pc.less_equal(numbers_or_null, most), numbers_or_null, pa.scalar(None, pa.int64()))


def host_texts(rows: Rows, name: str) -> pa.Array:
    """Returns `ip:port` of each message's `born_host` or `store_host` (`name`). Equal hosts are formatted once."""
    return _by_version(rows, name, _texts)


def offset_msg_ids(rows: Rows) -> pa.Array:
    offsets = rows.head("commit_log_offset").astype(">i8").view(np.uint8).reshape(len(rows), 8)

    def ids(hosts: Octets, messages: Ints) -> pa.Array:
        return hexadecimal(np.concatenate((hosts, offsets[messages]), axis=1))

    return _by_version(rows, "store_host", ids)


def hexadecimal(values: Octets) -> pa.Array:
    """Returns the rows of a matrix of bytes as strings of upper-case hexadecimal digits."""
    return as_string(fixed_spans(HEX[values].view(np.uint8)))


def _texts(hosts: Octets, _: Ints) -> pa.Array:
    encoded = fixed_spans(hosts).dictionary_encode()
    texts = [unpack_host(host) for host in encoded.dictionary.to_pylist()]
    return take_unchecked(pa.array(texts, pa.string()), encoded.indices)


def _by_version(rows: Rows, name: str, texts_of: Callable[[Octets, Ints], pa.Array]) -> pa.Array:
    """Returns a text for each message's host, which `texts_of` makes for IPv4 and IPv6 separately.

    `name` is `born_host` or `store_host`. `texts_of` receives the hosts of one version as rows of bytes, and the
    numbers of their messages.
    """
    v6 = rows.has_v6(name)
    if not v6.any():
        return texts_of(rows.host(name, v6=False), np.arange(len(rows)))
    parts = [np.flatnonzero(~v6), np.flatnonzero(v6)]
    arrays = [texts_of(rows.host(name, v6=bool(kind)), part) for kind, part in enumerate(parts)]
    place = np.empty(len(rows), np.int64)
    place[np.concatenate(parts)] = np.arange(len(rows))
    return take_unchecked(pa.concat_arrays(arrays), pa.array(place))
