"""`PullConsumer`: reads queues at offsets of the caller's choice (client/consumer/DefaultMQPullConsumer.java)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self

from pyrmq_core.client.arguments import MAX_LONG, offset_of, queue_of, seconds_of, whole_number
from pyrmq_core.client.client import Client
from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.consumer.pull.puller import Filter, Puller, ReadWindow
from pyrmq_core.client.consumer.pull.read_arrow import read_rows
from pyrmq_core.client.consumer.queue_offsets import QueueOffsets
from pyrmq_core.client.consumer.settings import ConsumerSettings
from pyrmq_core.client.parameters import parameters_of
from pyrmq_core.errors import InvalidArgument, InvalidState
from pyrmq_core.filtering.sql import SqlFilter
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import MessageExt, MessageQueue, OffsetRange, PullResult, TopicQueues
from pyrmq_core.protocol.messages.bodies import MAX_BODY_BYTES, MAX_PLAIN_BYTES, BodyRules
from pyrmq_core.protocol.messages.payload import RawPull, iterate_messages

LONGEST_WAIT_SECONDS: Final = 600.0
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class PullConsumer:
    """Reads queues; it takes no part in its group's rebalancing and sends no heartbeats.

    `async with PullConsumer("audit", nameserver="127.0.0.1:9876") as consumer:` opens a client of its own; with
    `client=` it shares one. `timeout` is for one request to a broker, in seconds.
    """

    @parameters_of(ConsumerSettings[Client])
    def __init__(self, settings: ConsumerSettings[Client]) -> None:
        self._configure(settings, settings.shared_client(Client, "pyrmq_core.Client"))

    @classmethod
    def _of(cls, settings: ConsumerSettings[Any], client: Client | None) -> Self:
        """Returns a consumer of settings that exist already, for the blocking face."""
        consumer = cls.__new__(cls)
        consumer._configure(settings, client)
        return consumer

    def _configure(self, settings: ConsumerSettings[Any], client: Client | None) -> None:
        self.group = settings.group
        self._shares_client = client is not None
        self._session = ClientSession(settings.own_client()) if client is None else client._session
        self._timeout = settings.timeout
        self._stack: AsyncExitStack | None = None
        self._puller: Puller | None = None
        self._lookups: QueueOffsets | None = None

    async def __aenter__(self) -> Self:
        if self._stack is not None:
            raise InvalidState(f"consumer {self.group} was opened before; make a new one")
        self._stack = AsyncExitStack()
        if not self._shares_client:
            await self._stack.enter_async_context(self._session)
        self._puller = Puller(self._session, self.group)
        self._lookups = QueueOffsets(self._session, self.group, timeout=self._timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._puller = self._lookups = None
        if self._stack is not None:
            await self._stack.__aexit__(kind, error, traceback)

    async def topics(self) -> tuple[str, ...]:
        """Returns every topic the NameServer knows, RocketMQ's own too."""
        return await self._asking().topics()

    async def message_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Returns the queues the topic may be read from; raises `NoRoute` if no NameServer knows it."""
        return await self._asking().message_queues(topic)

    async def current_queues(self, topics: Iterable[str]) -> dict[str, tuple[MessageQueue, ...] | None]:
        """Returns each topic's queues as a NameServer knows them at this moment; None for a topic it does not know."""
        return await self._asking().current_queues(topics)

    async def topic_queues(self, topics: Iterable[str]) -> dict[str, TopicQueues | None]:
        """Returns the queues as `current_queues` does, and also those that exist but may not be read."""
        return await self._asking().topic_queues(topics)

    async def expected_brokers(self, topics: Iterable[str]) -> dict[str, frozenset[str]]:
        """Returns the brokers that each topic is on, by its order configuration or by any NameServer."""
        return await self._asking().expected_brokers(topics)

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = 32,
        tags: str = "*",
        wait: float = 0.0,
        verify_crc: bool = True,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> PullResult:
        """Pulls once. The broker may answer fewer than `max_messages` (32 at most by default); for a batch topic, the
        rest of the batch that holds `offset`, whatever its size.

        The broker waits up to `wait` seconds for a first message. Continue at `next_offset`, also without a message:
        messages with other tags are skipped, and an illegal offset is corrected. An answer whose bodies, decompressed,
        take more than 256 MiB together ends before the first that is too much.
        """
        if wait != 0 and seconds_of("wait", wait) > LONGEST_WAIT_SECONDS:
            raise InvalidArgument(f"wait={wait:g}: between 0 and {LONGEST_WAIT_SECONDS:g} seconds are possible")
        whole_number("max_messages", max_messages, 1)
        whole_number("offset", offset, -MAX_LONG, MAX_LONG)
        queue_of(queue)
        rules = BodyRules(verify_crc, max_body_bytes=max_body_bytes)
        tag_filter = TagFilter.parse(tags)
        pulled = await self._pulling().pull(queue, offset, max_messages=max_messages, tags=tag_filter, wait=wait)
        own = OffsetRange(offset, max(offset, pulled.next_offset))  # a batch topic answers whole records
        messages: list[MessageExt] = []
        following, plain_bytes = pulled.next_offset, 0
        for message in iterate_messages(pulled, own, rules, allow_gaps=True):
            plain_bytes += len(message.body)
            if plain_bytes > MAX_PLAIN_BYTES and messages:
                following = message.queue_offset
                break
            if tag_filter.matches(message.tags):
                messages.append(message)
        return PullResult(pulled.status, tuple(messages), following, pulled.min_offset, pulled.max_offset)

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
        """Reads a range, many pulls at once: `async with consumer.read(q, 0, n) as pulls: async for pull in pulls`.

        Decode each with `decode(pull, OffsetRange(pull.start, pull.next_offset))`, which proves, unless there is a
        filter, that each offset has its message. Raises `DataLost` for offsets that are gone, and `BrokerNotFound`
        instead while their broker has no master. `sql` is an expression over properties, instead of `tags`: check it
        with `check_sql` first.
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
        """Reads as `read`, in lists of pulls of about 4 MiB together: each is worth one decoding by columns."""
        check_range(queue, start, end)
        return self._pulling().read_joined(queue, start, end, tags=filter_of(tags, sql), window=window)

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
        """Reads a range as `pyarrow.RecordBatch`es in offset order (extra `arrow`): `async for batch in batches`.

        `columns` are names, or a schema; twelve by default. Only those are built. Raises as `read` and `decode` do. The
        last four arguments are those of `decode`: bodies, if they are among the columns, are compared with their CRC, a
        body above `max_body_bytes` raises `BodyTooLarge`, and offsets without a message raise `DataLost`.
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

    async def check_sql(self, queue: MessageQueue, sql: str) -> None:
        """Raises `ResponseError` if the queue's broker cannot evaluate the expression: code 1 without
        enablePropertyFilter, 23 if it is not SQL92. Unchecked, a broker answers a bad expression with every message.
        """
        await self._asking().check_filter(queue, SqlFilter(sql))

    async def min_offset(self, queue: MessageQueue) -> int:
        """Returns the offset of the oldest message that is kept."""
        return await self._asking().min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Returns the offset of the next readable message; an acknowledged one may take a moment to be readable."""
        return await self._asking().max_offset(queue)

    async def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Returns `min_offset` of many queues, queried together."""
        return await self._asking().min_offsets(queues)

    async def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Returns `max_offset` of many queues, queried together."""
        return await self._asking().max_offsets(queues)

    async def mean_sizes(self, positions: Mapping[MessageQueue, int]) -> dict[MessageQueue, float]:
        """Returns the stored bytes per message of each queue, estimated by one pull at its position."""
        return await self._asking().mean_sizes(positions)

    async def offset_bounds(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, OffsetRange]:
        """Returns the minimum and maximum offsets of many queues, queried together."""
        return await self._asking().offset_bounds(queues)

    async def offset_at(self, queue: MessageQueue, when: datetime) -> int:
        """Returns the offset of the first message stored at or after `when` (with a time zone), else the maximum."""
        if getattr(when, "tzinfo", None) is None:
            raise InvalidArgument(f"{when!r} has no time zone; write datetime(..., tzinfo=UTC)")
        return await self._asking().offset_at(queue, first_millisecond(when))

    async def offsets_at(self, when_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Returns `offset_at` of many queues, queried together, each with its own time in milliseconds since 1970."""
        return await self._asking().offsets_at(when_ms)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Returns the group's committed offset of the queue; None without one (4.9 brokers answer 0 then)."""
        return await self._asking().committed(queue)

    async def committed_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
        """Returns `committed` of many queues, queried together."""
        return await self._asking().committed_offsets(queues)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commits the offset at which the group continues. Returns when the broker has it in memory.

        The broker writes it to disk every 5 s. A group that it does not know yet is created, if it permits that.
        """
        offset_of(f"offset to commit of {queue}", offset)
        await self._asking().commit(queue, offset)

    async def commit_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commits the offsets of many queues together; raises the first failure."""
        for queue, offset in offsets.items():
            offset_of(f"the offset of {queue} to commit", offset)
        await self._asking().commit_offsets(offsets)

    def _pulling(self) -> Puller:
        if self._puller is None:
            raise self._not_open()
        return self._puller

    def _asking(self) -> QueueOffsets:
        if self._lookups is None:
            raise self._not_open()
        return self._lookups

    def _not_open(self) -> InvalidState:
        return InvalidState(f"consumer {self.group} is not open: use it inside `async with`")


def first_millisecond(when: datetime) -> int:
    """Returns the first whole millisecond since 1970 at or after `when`: store times are whole ones."""
    return -((EPOCH - when) // timedelta(milliseconds=1))


def check_range(queue: MessageQueue, start: int, end: int) -> None:
    """Raises `InvalidArgument` unless `queue` is a queue and both offsets are whole numbers from 0 on."""
    queue_of(queue)
    offset_of("start", start)
    offset_of("end", end)


def filter_of(tags: str, sql: str | None) -> Filter:
    """Returns the tag filter, or the SQL filter if there is an SQL expression; raises `InvalidArgument` for both."""
    tag_filter = TagFilter.parse(tags)
    if sql is None:
        return tag_filter
    if not tag_filter.passes_all:
        raise InvalidArgument(f"tags={tags!r} and sql={sql!r} exclude each other; SQL can say TAGS = '...' itself")
    return SqlFilter(sql)
