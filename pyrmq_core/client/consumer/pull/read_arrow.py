"""Reads ranges as record batches: pulls, decoded by columns. Arrow's types are called `Any` here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any, TypedDict

import trio

from pyrmq_core.client.arrow_library import columnar
from pyrmq_core.client.consumer.pull.puller import Filter, Puller, ReadWindow
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import MessageQueue, OffsetRange
from pyrmq_core.protocol.messages.payload import RawPull


class ArrowRules(TypedDict):
    """The rules for reading bodies, and for missing offsets: arguments of `decode_batches`."""

    keep_undecodable: bool
    verify_crc: bool
    max_body_bytes: int
    allow_gaps: bool


@asynccontextmanager
async def read_rows(
    puller: Puller,
    queue: MessageQueue,
    wanted: OffsetRange,
    *,
    columns: Sequence[str] | Any | None,
    tags: Filter,
    window: ReadWindow,
    rules: ArrowRules,
) -> AsyncIterator[AsyncIterator[Any]]:
    """Yields the range in record batches of about 6 MiB of records or 32 MiB of decompressed bodies, by offset."""
    schema = columnar().schema_of(columns)
    lent = replace(window, lends_records=True)
    async with puller.read_joined(queue, wanted.start, wanted.end, tags=tags, window=lent) as lists:
        tag_filter = tags if isinstance(tags, TagFilter) else TagFilter()
        decoded = _decoded(lists, schema, wanted, tag_filter, rules)
        async with aclosing(decoded) as batches:
            yield batches


async def _decoded(
    lists: AsyncIterator[list[RawPull]], schema: Any, wanted: OffsetRange, tags: TagFilter, rules: ArrowRules
) -> AsyncGenerator[Any, None]:
    decode_batches = columnar().decode_batches
    async for pulls in lists:
        for decoded in decode_batches(pulls, schema, wanted, tags=tags, **rules):
            if decoded.batch.num_rows:
                yield decoded.batch
            await trio.lowlevel.checkpoint()
