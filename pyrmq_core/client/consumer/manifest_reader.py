"""Reads the manifest of a topic: the batches of committed writes, and the decisions at the manifest's end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from pyrmq_core.client.consumer.pull.puller import Puller, ReadWindow
from pyrmq_core.client.consumer.queue_offsets import QueueOffsets
from pyrmq_core.committed.deciding import Commit, commits_between, decided_at, known_from, needed_from
from pyrmq_core.committed.ranges import CommittedRange, check_ids, ids_by_queue
from pyrmq_core.committed.records import DecidedBatches, Entry, entry_of
from pyrmq_core.errors import DataLost, ManifestError, NoRoute
from pyrmq_core.model import MessageQueue, OffsetRange
from pyrmq_core.protocol.messages.namespaces import without_namespace
from pyrmq_core.protocol.messages.payload import RawPull, decode

# The number of entries that are read first, in search of a record that lists the decided batches: with few writers the
# last record lists them, with many one record in 32.
FIRST_LOOK: Final = 2
NEXT_LOOKS: Final = 64


@dataclass(frozen=True, slots=True)
class Commits:
    """The committed batches whose records lie in the manifest from offset `start` up to `end`, without it."""

    start: int
    end: int
    commits: tuple[Commit, ...]

    @property
    def rows(self) -> int:
        """The rows of all these batches."""
        return sum(commit.rows for commit in self.commits)


@dataclass(frozen=True, slots=True)
class ManifestEnd:
    """The end of a manifest's queue, and the latest decided batch of each writer there.

    `without_decided` records follow the last record that lists the decided batches.
    """

    queue: MessageQueue
    end: int
    decided: DecidedBatches
    without_decided: int


class ManifestReader:
    """The reading of manifests for one consumer; topics in arguments and results are the tenant's own."""

    def __init__(self, puller: Puller, lookups: QueueOffsets, namespace: str | None) -> None:
        self._puller = puller
        self._lookups = lookups
        self._namespace = namespace

    async def queue(self, manifest: str) -> MessageQueue:
        """Returns the manifest's only queue; raises `NoRoute` without a manifest, `ManifestError` with more queues."""
        try:
            queues = await self._lookups.message_queues(manifest)
        except NoRoute as error:
            reason, advice, _ = str(error).partition("; create the topic (")
            if not advice:
                raise
            raise NoRoute(  # without the advice: the first committed write creates the topic
                f"{reason}. {manifest} would be the manifest of committed writes: either no write with "
                "delivery=committed was made, or its manifestTopic names another one",
                topic=manifest,
            ) from error
        if len(queues) != 1:
            raise ManifestError(
                f"{manifest} is no manifest: it has {len(queues)} queues ({', '.join(map(str, queues)) or 'none'}), "
                "and the order of commits is that of one queue; name another topic, or delete this one"
            )
        return queues[0]

    async def commits(self, manifest: str, start: int | None, end: int | None, window: ReadWindow) -> Commits:
        """Returns the batches between two offsets, by default all kept batches; raises `DataLost` for expired ones."""
        queue = await self.queue(manifest)
        kept = (await self._lookups.offset_bounds([queue]))[queue]
        first = kept.start if start is None else start
        last = kept.end if end is None else end
        if not kept.start <= first <= kept.end or last > kept.end:
            raise DataLost(
                f"records {first} to {last} of manifest {queue} are not kept: its broker has {kept.start} to "
                f"{kept.end}",
                queue=queue,
                start=first,
                end=last,
                min_offset=kept.start,
                max_offset=kept.end,
            )
        entries = await self._entries(queue, first, last, window)
        if (needed := max(kept.start, needed_from(entries, first, last))) < first:
            entries |= await self._entries(queue, needed, first, window)
        return Commits(first, max(first, last), tuple(map(self._of_tenant, commits_between(entries, first, last))))

    async def end(self, manifest: str, window: ReadWindow) -> ManifestEnd:
        """Returns the manifest's end as it is readable now, and the decided batches there."""
        queue = await self.queue(manifest)
        kept = (await self._lookups.offset_bounds([queue]))[queue]
        start, entries, looked_at = kept.end, dict[int, Entry](), FIRST_LOOK
        while True:
            earlier, looked_at = max(kept.start, start - looked_at), NEXT_LOOKS
            entries |= await self._entries(queue, earlier, start, window)
            start = earlier
            if (state := decided_at(entries, start, kept.end)) is not None:
                return ManifestEnd(queue, kept.end, *state)
            if start == kept.start:
                return ManifestEnd(queue, kept.end, *known_from(entries, start, kept.end))

    async def _entries(self, queue: MessageQueue, start: int, end: int, window: ReadWindow) -> dict[int, Entry]:
        entries: dict[int, Entry] = {}
        if start >= end:
            return entries
        async with self._puller.read(queue, start, end, window=window) as pulls:
            async for pull in pulls:
                for message in decode(pull, OffsetRange(pull.start, pull.next_offset)):
                    if (entry := entry_of(message)) is not None:
                        entries[message.queue_offset] = entry
        return entries

    def _of_tenant(self, commit: Commit) -> Commit:
        if not self._namespace:
            return commit
        return replace(
            commit,
            ranges=tuple(
                replace(part, queue=replace(part.queue, topic=without_namespace(part.queue.topic, self._namespace)))
                for part in commit.ranges
            ),
        )


@asynccontextmanager
async def read_proven(
    puller: Puller, ranges: Sequence[CommittedRange], window: ReadWindow
) -> AsyncIterator[AsyncIterator[RawPull]]:
    """Reads the ranges, one after another; raises `DataLost` where a message is not the committed message."""
    wanted = [(part.queue, OffsetRange(part.start, part.end)) for part in ranges]
    ids = ids_by_queue(ranges)

    async def proven(lists: AsyncIterator[list[RawPull]]) -> AsyncIterator[RawPull]:
        async for pulls in lists:
            for pull in pulls:
                check_ids(pull, ids[pull.queue])
                yield pull

    async with puller.read_ranges(wanted, window=window) as lists:
        yield proven(lists)
