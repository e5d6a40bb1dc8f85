"""`PullConsumer`: reads queues at offsets of the caller's choice (client/consumer/DefaultMQPullConsumer.java)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final, TypedDict

import trio

from pyrmq_core.client.arguments import MAX_LONG, first_millisecond, offset_of, queue_of, seconds_of, whole_number
from pyrmq_core.client.arrow_library import columnar
from pyrmq_core.client.client import Client
from pyrmq_core.client.consumer.body_sample import sampled_schema
from pyrmq_core.client.consumer.group.subscriptions import filter_of
from pyrmq_core.client.consumer.manifest_reader import Commits, ManifestEnd, ManifestReader, read_proven
from pyrmq_core.client.consumer.pull.puller import Filter, Puller, ReadWindow
from pyrmq_core.client.consumer.queue_offsets import QueueOffsets
from pyrmq_core.client.consumer.retry_topic import RetryTopic
from pyrmq_core.client.consumer.settings import ConsumerSettings
from pyrmq_core.client.parameters import parameters_of
from pyrmq_core.client.session_owner import SessionOwner
from pyrmq_core.client.unpacking import unpacked_messages
from pyrmq_core.columnar.body_schema import BodySchema
from pyrmq_core.committed.ranges import manifest_of, ranges_to_read
from pyrmq_core.errors import InvalidArgument, NetworkError
from pyrmq_core.filtering.sql import SqlFilter
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import MessageQueue, OffsetRange, PullResult, TopicQueues
from pyrmq_core.protocol.messages.bodies import MAX_BODY_BYTES, BodyRules
from pyrmq_core.protocol.messages.payload import RawPull
from pyrmq_core.protocol.requests.nameserver.cluster_info import ClusterInfo

LONGEST_WAIT_SECONDS: Final = 600.0


class PullConsumer(SessionOwner[ConsumerSettings[Any]]):
    """A consumer that reads queues at given offsets. It is no member of its group, so it sends no heartbeats.

    `async with PullConsumer("audit", nameserver="127.0.0.1:9876") as consumer:` opens a client of its own, and with
    `client=` it shares one. `timeout` is for one request to a broker, in seconds. Topics and the group have the prefix
    `namespace` at brokers. Arguments and results are without it.
    """

    _KIND = "consumer"

    @parameters_of(ConsumerSettings[Client])
    def __init__(self, settings: ConsumerSettings[Client]) -> None:
        self._begin(settings, settings.shared_client(Client, "pyrmq_core.Client"))

    def _configure(self) -> None:
        settings = self._settings
        self.group, self._namespace, self._timeout = settings.group, settings.namespace, settings.timeout
        self._retry_topic = RetryTopic(self._session, self.group, timeout=self._timeout, namespace=self._namespace)
        self._puller = Puller(self._session, self.group, self._namespace)
        self._lookups = QueueOffsets(self._session, self.group, timeout=self._timeout, namespace=self._namespace)
        self._manifests = ManifestReader(self._puller, self._lookups, self._namespace)

    async def topics(self) -> tuple[str, ...]:
        """Returns all topics that the NameServer knows, also system topics. With a namespace, only those in it."""
        return await self._asking().topics()

    async def cluster_info(self) -> ClusterInfo:
        """Returns every broker with its addresses, and the brokers of each cluster."""
        return await self._asking().cluster_info()

    async def message_queues(self, topic: str, lite_topic: str | None = None) -> tuple[MessageQueue, ...]:
        """Returns the readable queues of a topic, or the single queue of its `lite_topic`.

        Raises `NoRoute` for an unknown topic, and `ResponseError` if no queue may be read.
        """
        return await self._asking().message_queues(topic, lite_topic)

    async def current_queues(self, topics: Iterable[str]) -> dict[str, tuple[MessageQueue, ...] | None]:
        """Returns the readable queues of each topic now, or None for a topic that the NameServer does not know."""
        return await self._asking().current_queues(topics)

    async def topic_queues(self, topics: Iterable[str]) -> dict[str, TopicQueues | None]:
        """Returns the queues of each topic, including unreadable ones, or None for a topic that no NameServer knows."""
        return await self._asking().topic_queues(topics)

    async def expected_brokers(self, topics: Iterable[str]) -> dict[str, frozenset[str]]:
        """Returns the names of each topic's brokers: those in its order configuration or in any NameServer's route."""
        return await self._asking().expected_brokers(topics)

    async def manifests(self) -> frozenset[str]:
        """Returns the manifests, topics in which exactly-once writes record batches, or none without a NameServer."""
        return await self._asking().manifests()

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = 32,
        tags: str = "*",
        sql: str | None = None,
        wait: float = 0.0,
        verify_crc: bool = True,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> PullResult:
        """Pulls once, and returns the broker's answer.

        The broker may return fewer than `max_messages` (32 at most by default). Of a batch topic it returns the rest of
        the batch that contains `offset`, whatever its size. It waits up to `wait` seconds for a first message. `sql` is
        as in `read`.

        Continue at `next_offset` even if there is no message, since the broker skips messages with other tags and
        corrects an illegal offset. If the decompressed bodies exceed 256 MiB together, the result ends earlier. After a
        network failure, the pull is sent once more if the broker now has another address, of a slave or a new master.
        """
        rules = BodyRules(verify_crc, max_body_bytes=max_body_bytes)
        pulled = await raw_pull(self, queue, offset, max_messages=max_messages, tags=tags, sql=sql, wait=wait)
        own = OffsetRange(offset, max(offset, pulled.next_offset))  # a batch topic's answer has complete batches
        decoded, left_out = await unpacked_messages(pulled, own, rules, allow_gaps=True)
        wanted = filter_of(tags, sql)
        messages = tuple(
            decoded if wanted.passes_all else [message for message in decoded if wanted.matches(message.tags)]
        )
        following = pulled.next_offset if left_out is None else left_out
        return PullResult(pulled.status, messages, following, pulled.min_offset, pulled.max_offset)

    def read(
        self,
        queue: MessageQueue,
        start: int,
        end: int,
        *,
        tags: str = "*",
        sql: str | None = None,
        window: ReadWindow = ReadWindow(),  # noqa: B008 - a frozen value
    ) -> AbstractAsyncContextManager[AsyncIterator[RawPull]]:
        """Reads a range with many pulls at once: `async with consumer.read(q, 0, n) as pulls: async for pull in pulls`.

        The blocking form is without `async`. Decode each pull with `decode(pull, OffsetRange(pull.start,
        pull.next_offset))`. Without a filter, this also checks that each offset has its message. Raises `DataLost` for
        offsets that are no longer kept, but `BrokerNotFound` while their broker has no master. `sql` is an expression
        over properties, instead of `tags`: check it with `check_sql` first.
        """
        check_range(queue, start, end)
        return self._pulling().read(queue, start, end, tags=filter_of(tags, sql), window=window)

    def read_joined(
        self,
        queue: MessageQueue,
        start: int,
        end: int,
        *,
        tags: str = "*",
        sql: str | None = None,
        window: ReadWindow = ReadWindow(),  # noqa: B008 - a frozen value
    ) -> AbstractAsyncContextManager[AsyncIterator[list[RawPull]]]:
        """Reads a range as `read` does, in lists of pulls of about 6 MiB together, a good size to decode by columns."""
        check_range(queue, start, end)
        return self._pulling().read_joined(queue, start, end, tags=filter_of(tags, sql), window=window)

    def read_ranges(
        self,
        ranges: Iterable[tuple[MessageQueue, OffsetRange]],
        *,
        tags: str = "*",
        sql: str | None = None,
        window: ReadWindow = ReadWindow(),  # noqa: B008 - a frozen value
        share_lists: bool = False,
    ) -> AbstractAsyncContextManager[AsyncIterator[list[RawPull]]]:
        """Reads several ranges, one after another, in lists of pulls as `read_joined` does.

        A list has pulls of one range, or, with `share_lists`, of several small ranges, in their order. Up to eight
        ranges are pulled at once, each within the limits of `window`, and up to 64 if they fit into these limits
        together. The error of a range is raised after all pulls before it.
        """
        wanted = tuple(ranges)
        for queue, offsets in wanted:
            check_range(queue, offsets.start, offsets.end)
        return self._pulling().read_ranges(wanted, tags=filter_of(tags, sql), window=window, share_lists=share_lists)

    def read_arrow(
        self,
        queue: MessageQueue,
        start: int,
        end: int,
        *,
        columns: Sequence[str] | Any | None = None,
        tags: str = "*",
        sql: str | None = None,
        window: ReadWindow = ReadWindow(),  # noqa: B008 - a frozen value
        keep_undecodable: bool = False,
        verify_crc: bool = True,
        max_body_bytes: int = MAX_BODY_BYTES,
        allow_gaps: bool = False,
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Reads a range as `pyarrow.RecordBatch`es in offset order (extra `arrow`).

        `columns` are the names of the columns to build, or a schema. The default is twelve columns. Raises the errors
        of `read` and `decode`. The last four arguments are those of `decode`: bodies, if they are built, are compared
        with their CRC, a larger body than `max_body_bytes` raises `BodyTooLarge`, and missing offsets raise `DataLost`.
        """
        check_range(queue, start, end)
        return read_rows(
            self._pulling(),
            queue,
            OffsetRange(start, end),
            columns=columns,
            tags=filter_of(tags, sql),
            window=window,
            rules={
                "keep_undecodable": keep_undecodable,
                "verify_crc": verify_crc,
                "max_body_bytes": max_body_bytes,
                "allow_gaps": allow_gaps,
            },
        )

    @asynccontextmanager
    async def read_committed(
        self,
        topic: str,
        start: int | None = None,
        end: int | None = None,
        *,
        manifest: str | None = None,
        window: ReadWindow = ReadWindow(),  # noqa: B008 - a frozen value
    ) -> AsyncIterator[AsyncIterator[RawPull]]:
        """Reads the messages of a topic that exactly-once writes have committed, each once, in pulls as `read` does.

        The manifest, by default the topic `TOPIC-committed`, has a commit record for each batch. `start` and `end` are
        offsets in the manifest, by default its minimum and maximum. To continue later, begin at the `end` that
        `read_manifest` returns. Messages are in order within each queue. Raises `NoRoute` without a manifest, and
        `DataLost` if commit records at these offsets, or messages that they commit, are no longer kept.
        """
        commits = await self.read_manifest(manifest or manifest_of(topic), start, end, window=window)
        async with read_proven(self._pulling(), ranges_to_read(commits.commits, topic), window) as pulls:
            yield pulls

    async def read_manifest(
        self,
        manifest: str,
        start: int | None = None,
        end: int | None = None,
        *,
        queue: MessageQueue | None = None,
        window: ReadWindow = ReadWindow(),  # noqa: B008 - a frozen value
    ) -> Commits:
        """Returns the batches committed by the records from offset `start` to before `end` of a manifest.

        If several records name the same batch of a writer, only the first is valid. Other messages are skipped and
        counted. `queue` selects a queue of a manifest that wrongly has several. Raises the errors of `read_committed`,
        and `ManifestError` for a record that contradicts itself or has a newer format, and for more than a million
        ranges.
        """
        self._pulling()
        for name, offset in (("start", start), ("end", end)):
            if offset is not None:
                offset_of(name, offset)
        return await self._manifests.commits(queue or await self._manifests.queue(manifest), start, end, window)

    async def manifest_end(
        self,
        manifest: str,
        *,
        queue: MessageQueue | None = None,
        window: ReadWindow = ReadWindow(),  # noqa: B008 - a frozen value
    ) -> ManifestEnd:
        """Returns the end of a manifest, and each writer's latest committed batch. `queue` is as in `read_manifest`."""
        self._pulling()
        return await self._manifests.end(queue or await self._manifests.queue(manifest), window)

    async def infer_schema(
        self,
        topic: str,
        *,
        sample: int = 100,
        tags: str = "*",
        sql: str | None = None,
        on_progress: Callable[[int], object] | None = None,
    ) -> BodySchema:
        """Returns the columns of a topic's bodies, inferred from the newest `sample` messages of each queue.

        With `tags` or `sql`, as in `read`, these are the newest messages that pass the filter, among the newest
        million or more. At most 64 MiB of bodies are read, and none over 4 MiB is parsed. `on_progress` is called in
        another thread with the number of bodies read so far, and an error that it raises ends the call. Raises the
        errors of `message_queues` and `read`, but none for the content of a body.
        """
        whole_number("sample", sample, 1)
        wanted = filter_of(tags, sql)
        queues = await self._asking().message_queues(topic)
        if isinstance(wanted, SqlFilter):
            for queue in {queue.broker_name: queue for queue in queues}.values():
                await self._asking().check_filter(queue, wanted)
        bounds = await self._asking().offset_bounds(queues)
        return await sampled_schema(self._pulling(), bounds, wanted, sample, on_progress)

    async def check_sql(self, queue: MessageQueue, sql: str) -> None:
        """Raises `ResponseError` if the queue's broker cannot evaluate the expression.

        The error's code is 1 if the broker does not have enablePropertyFilter, and 23 if the text is not SQL92. Without
        this check, a broker returns every message for an invalid expression.
        """
        await self._asking().check_filter(queue, SqlFilter(sql))

    async def min_offset(self, queue: MessageQueue) -> int:
        """Returns the offset of the oldest message that is kept."""
        return await self._asking().min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Returns the offset of the next message. A message becomes readable soon after its acknowledgement."""
        return await self._asking().max_offset(queue)

    async def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Returns `min_offset` of many queues, queried together."""
        return await self._asking().min_offsets(queues)

    async def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Returns `max_offset` of many queues, queried together."""
        return await self._asking().max_offsets(queues)

    async def mean_sizes(self, positions: Mapping[MessageQueue, int]) -> dict[MessageQueue, float]:
        """Returns for each queue the mean stored bytes of a message, estimated by one pull at the given offset."""
        return await self._asking().mean_sizes(positions)

    async def offset_bounds(
        self, queues: Iterable[MessageQueue], reached: Mapping[MessageQueue, int] | None = None
    ) -> dict[MessageQueue, OffsetRange]:
        """Returns the minimum and maximum offsets of many queues, queried together.

        If many of the queues belong to one topic and broker, one request returns their offsets. A queue whose maximum
        is that in `reached` may get an empty range, which saves the request for its minimum.
        """
        return await self._asking().offset_bounds(queues, reached)

    async def offset_at(self, queue: MessageQueue, when: datetime) -> int:
        """Returns the offset of the first message stored at or after `when` (with a time zone), else the maximum."""
        return await self._asking().offset_at(queue, first_millisecond(when))

    async def offsets_at(self, when_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Returns `offset_at` of many queues, queried together, each with its own time in milliseconds since 1970."""
        return await self._asking().offsets_at(when_ms)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Returns the group's committed offset of the queue, or None if there is none (0 at a broker of 4.9)."""
        return await self._asking().committed(queue)

    async def committed_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
        """Returns `committed` of many queues, queried together."""
        return await self._asking().committed_offsets(queues)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commits the offset at which the group continues. Returns when the broker has it in memory.

        The broker writes the offset to disk every 5 s, and creates an unknown group if its settings permit that.
        """
        offset_of(f"offset to commit of {queue}", offset)
        await self._asking().commit(queue, offset)
        await self._retry_topic.ensure((queue,))

    async def commit_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commits the offsets of many queues together. Raises the first failure."""
        for queue, offset in offsets.items():
            offset_of(f"the offset of {queue} to commit", offset)
        await self._asking().commit_offsets(offsets)
        await self._retry_topic.ensure(offsets)

    def _pulling(self) -> Puller:
        self._life.check_running()
        return self._puller

    def _asking(self) -> QueueOffsets:
        self._life.check_running()
        return self._lookups


async def raw_pull(
    consumer: PullConsumer,
    queue: MessageQueue,
    offset: int,
    *,
    max_messages: int = 32,
    tags: str = "*",
    sql: str | None = None,
    wait: float = 0.0,
) -> RawPull:
    """Pulls once, as `PullConsumer.pull` does, and returns the answer with its records as they are stored.

    A broker filters only by hashes of tags, so the caller has to compare the tags of each message.
    """
    if wait != 0 and seconds_of("wait", wait) > LONGEST_WAIT_SECONDS:
        raise InvalidArgument(f"wait={wait:g}: between 0 and {LONGEST_WAIT_SECONDS:g} seconds are possible")
    whole_number("max_messages", max_messages, 1)
    whole_number("offset", offset, -MAX_LONG, MAX_LONG)
    queue_of(queue)
    wanted = filter_of(tags, sql)
    pull = partial(consumer._pulling().pull, queue, offset, max_messages=max_messages, tags=wanted, wait=wait)
    try:
        return await pull()
    except NetworkError as error:
        moved = consumer._session.has_moved
        if not await moved(queue, error.address, timeout=consumer._timeout, namespace=consumer._namespace):
            raise
        return await pull()


def check_range(queue: MessageQueue, start: int, end: int) -> None:
    queue_of(queue)
    offset_of("start", start)
    offset_of("end", end)


class ArrowRules(TypedDict):
    """The arguments of `decode_batches`: how to read bodies, and whether offsets may lack a message."""

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
    """Reads the offsets `wanted` as record batches in order, each of about 6 MiB of records or 32 MiB of bodies."""
    schema = columnar().schema_of(columns)
    lending_window = replace(window, lends_records=True)
    async with puller.read_joined(queue, wanted.start, wanted.end, tags=tags, window=lending_window) as lists:
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
