"""Reads manifests, the topics to which exactly-once writes append a commit record for each batch of messages.

If several records name the same batch, only the first valid one commits it. This module decides which are valid.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import chain, starmap
from typing import Final

from pyrmq_core.client.consumer.pull.puller import Puller, ReadWindow
from pyrmq_core.client.consumer.queue_offsets import QueueOffsets
from pyrmq_core.committed.deciding import (
    MOST_RANGES,
    Commit,
    commits_between,
    committed_at,
    known_from,
    needed_from,
    without_record,
)
from pyrmq_core.committed.ranges import CommittedRange, check_ids, ids_by_queue
from pyrmq_core.committed.records import MAX_ENTRY_BYTES, CommittedBatches, Entry, NoEntry, entry_of
from pyrmq_core.errors import BrokerNotFound, DataLost, ManifestError, NoRoute
from pyrmq_core.model import MessageQueue, OffsetRange
from pyrmq_core.protocol.messages.bodies import BodyRules
from pyrmq_core.protocol.messages.namespaces import without_namespace
from pyrmq_core.protocol.messages.payload import RawPull, iterate_messages

# How many records are read at first, and then each time, to find one with a list of the latest batches. With few
# writers the last record has it, with many writers one record in 32.
FIRST_LOOK: Final = 2
NEXT_LOOKS: Final = 64
MOST_NAMED: Final = 10_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Commits:
    """The committed batches whose commit records are in a manifest from offset `start` to before offset `end`.

    `passed_over` is the number of other messages at these offsets.
    """

    start: int
    end: int
    commits: tuple[Commit, ...]
    passed_over: int = 0

    @property
    def rows(self) -> int:
        """The number of messages in all these batches."""
        return sum(commit.rows for commit in self.commits)


@dataclass(frozen=True, slots=True)
class ManifestEnd:
    """The end offset of a manifest's queue, and in `decided` the latest batch that each writer committed before it.

    Some commit records contain a list of these batches. `without_decided` is the number of messages after the last such
    record. A reader has to read these to find a list.
    """

    queue: MessageQueue
    end: int
    decided: CommittedBatches
    without_decided: int


class ManifestReader:
    """A reader of manifests, the topics to which exactly-once writes append a commit record for each batch.

    Topics in arguments and results are without the namespace.
    """

    def __init__(self, puller: Puller, lookups: QueueOffsets, namespace: str | None) -> None:
        self._puller = puller
        self._lookups = lookups
        self._namespace = namespace
        # By manifest: the number of each writer's latest batch that is known to have a record.
        self._proven: dict[MessageQueue, dict[str, int]] = {}
        self._named: set[tuple[MessageQueue, int]] = set()  # the skipped messages that were logged

    async def queue(self, manifest: str) -> MessageQueue:
        """Returns the single queue of the topic `manifest`.

        Raises `NoRoute` if there is no manifest, `BrokerNotFound` if its broker is not registered, and `ManifestError`
        if it has several queues.
        """
        try:
            queues = await self._lookups.message_queues(manifest)
        except NoRoute as error:
            reason, advice, _ = str(error).partition("; create the topic (")
            if not advice:
                raise
            raise NoRoute(  # without the advice to create the topic, which the first committed write does
                f"{reason}. {manifest} would be the manifest of committed writes: either no write with "
                "delivery=committed was made, or its manifestTopic names another one",
                topic=manifest,
            ) from error
        if not queues:
            raise BrokerNotFound(
                f"the manifest {manifest} exists, and the broker that has it is not registered: start it",
                broker_name="",
            )
        if len(queues) != 1:
            raise ManifestError(
                f"{manifest} is no manifest: it has {len(queues)} queues ({', '.join(map(str, queues))}), and the "
                f"order of commits is that of one queue; pyrmq topic manifest {manifest} shows which one counts, and "
                "--heal makes one of them; or name another topic"
            )
        return queues[0]

    async def commits(self, queue: MessageQueue, start: int | None, end: int | None, window: ReadWindow) -> Commits:
        """Returns the batches committed by the records from offset `start` to before `end` of a manifest's `queue`.

        `start` and `end` are by default the queue's minimum and maximum. Raises `DataLost` if the broker does not have
        all these offsets, and `ManifestError` if the records name more than a million ranges of messages.
        """
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
        ranges = OffsetRange(first, max(first, last))
        entries, passed_over = await self._entries(queue, [ranges], window)
        if (needed := max(kept.start, needed_from(entries, first, last))) < first:
            entries |= (await self._entries(queue, [OffsetRange(needed, first)], window))[0]
        commits = tuple(map(self._of_tenant, commits_between(entries, first, last)))
        return Commits(first, ranges.end, commits, passed_over)

    async def end(self, queue: MessageQueue, window: ReadWindow) -> ManifestEnd:
        """Returns the end offset of a manifest's `queue`, and the latest batch that each writer has committed.

        A commit record may list these batches. A list that names a batch without a commit record is ignored, with a
        warning.
        """
        kept = (await self._lookups.offset_bounds([queue]))[queue]
        start, entries, looked_at, disbelieved = kept.end, dict[int, Entry](), FIRST_LOOK, set[int]()
        while True:
            state = committed_at(entries, start, kept.end, disbelieved=disbelieved)
            if state is None and start > kept.start:
                earlier, looked_at = max(kept.start, start - looked_at), NEXT_LOOKS
                entries |= (await self._entries(queue, [OffsetRange(earlier, start)], window))[0]
                start = earlier
                continue
            decided, without_decided = state or known_from(entries, start, kept.end)
            unproven = await self._unproven(queue, OffsetRange(kept.start, start), entries, decided, window)
            if not unproven:
                self._proven[queue] = {writer: last.number for writer, last in decided.items()}
                return ManifestEnd(queue, kept.end, decided, without_decided)
            offset = kept.end - 1 - without_decided
            disbelieved.add(offset)
            log.warning(
                "the record at offset %d of manifest %s says that batch %d of %a is decided, and there is no record of "
                "it: its list is not believed; find out who may write to the manifest",
                offset,
                queue,
                next(iter(unproven.values())).number,
                next(iter(unproven)),
            )

    async def _unproven(
        self,
        queue: MessageQueue,
        earlier: OffsetRange,
        entries: Mapping[int, Entry],
        decided: CommittedBatches,
        window: ReadWindow,
    ) -> CommittedBatches:
        """Returns the batches that the list `decided` names although the manifest has no record of them.

        `entries` are the records that were read already. Others are read at the offsets `earlier`. A batch whose record
        has expired is not returned.
        """
        proven = self._proven.get(queue, {})
        claims = {
            writer: last
            for writer, last in without_record(entries, decided).items()
            if proven.get(writer) != last.number
        }
        offsets = sorted({last.offset for last in claims.values() if earlier.start <= last.offset < earlier.end})
        if offsets:
            records, _ = await self._entries(queue, [OffsetRange(offset, offset + 1) for offset in offsets], window)
            claims = dict(without_record(records, claims))
        if any(last.offset < 0 for last in claims.values()):  # an earlier release wrote lists without offsets
            records, _ = await self._entries(queue, [earlier], window)
            claims = dict(without_record(records, claims))
        return {writer: last for writer, last in claims.items() if not (last.offset < earlier.start > 0)}

    async def _entries(
        self, queue: MessageQueue, wanted: Sequence[OffsetRange], window: ReadWindow
    ) -> tuple[dict[int, Entry], int]:
        entries, others, ranges = dict[int, Entry](), dict[int, NoEntry](), 0
        rules = BodyRules(keep_undecodable=True, max_body_bytes=MAX_ENTRY_BYTES)
        async with self._puller.read_ranges([(queue, part) for part in wanted if len(part)], window=window) as lists:
            async for pulls in lists:
                own = ((pull, OffsetRange(pull.start, pull.next_offset), rules) for pull in pulls)
                for message in chain.from_iterable(starmap(iterate_messages, own)):
                    entry, offset = entry_of(message), message.queue_offset
                    if isinstance(entry, NoEntry):
                        others[offset] = entry
                        continue
                    entries[offset] = entry
                    ranges += len(entry.ranges)
                    if ranges > MOST_RANGES:
                        raise ManifestError(
                            f"the records {wanted[0].start} to {offset} of manifest {queue} have more than "
                            f"{MOST_RANGES} ranges: read fewer records at once, by start and end (in Spark "
                            "startingOffsets and endingOffsets, or maxOffsetsPerTrigger)"
                        )
        self._name_others(queue, others)
        return entries, len(others)

    def _name_others(self, queue: MessageQueue, others: Mapping[int, NoEntry]) -> None:
        new = [offset for offset in others if (queue, offset) not in self._named]
        if new:
            if len(self._named) > MOST_NAMED:
                self._named.clear()
            self._named.update((queue, offset) for offset in new)
            log.warning(
                "manifest %s: messages that are no commit records are passed over: %d, the first at offset %d: %s",
                queue,
                len(new),
                new[0],
                others[new[0]].reason,
            )

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
    """Reads committed ranges of queues. Checks that the first and last message of each range have the committed ids.

    Raises `DataLost` for another id, since the broker has then lost messages and stored others at their offsets.
    """
    wanted = [(part.queue, OffsetRange(part.start, part.end)) for part in ranges]
    ids = ids_by_queue(ranges)

    async def proven(lists: AsyncIterator[list[RawPull]]) -> AsyncGenerator[RawPull, None]:
        async for pulls in lists:
            for pull in pulls:
                check_ids(pull, ids[pull.queue])
                yield pull

    async with puller.read_ranges(wanted, window=window) as lists, aclosing(proven(lists)) as pulls:
        yield pulls
