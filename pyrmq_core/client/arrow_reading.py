"""Whole columns over the road of pulls: ranges read as record batches. Arrow's types are called `Any` here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

from pyrmq_core.client.arrow import columnar
from pyrmq_core.client.pulling import Filter, Puller, ReadWindow
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import MessageQueue, OffsetRange
from pyrmq_core.protocol.payload import RawPull


@asynccontextmanager
async def read_rows(
    puller: Puller,
    queue: MessageQueue,
    wanted: OffsetRange,
    *,
    columns: Sequence[str] | Any | None,
    tags: Filter,
    window: ReadWindow,
    keep_undecodable: bool,
) -> AsyncIterator[AsyncIterator[Any]]:
    """The range as record batches of about 4 MiB of records each, in offset order."""
    schema = columnar().schema_of(columns)
    async with puller.read_joined(queue, wanted.start, wanted.end, tags=tags, window=window) as lists:
        tag_filter = tags if isinstance(tags, TagFilter) else TagFilter()
        decoded = _decoded(lists, schema, wanted, tag_filter, keep_undecodable=keep_undecodable)
        async with aclosing(decoded) as batches:
            yield batches


async def _decoded(
    lists: AsyncIterator[list[RawPull]], schema: Any, wanted: OffsetRange, tags: TagFilter, *, keep_undecodable: bool
) -> AsyncGenerator[Any, None]:
    decode_records = columnar().decode_records
    async for pulls in lists:
        batch = decode_records(pulls, schema, wanted, tags=tags, keep_undecodable=keep_undecodable)
        if batch.num_rows:
            yield batch
