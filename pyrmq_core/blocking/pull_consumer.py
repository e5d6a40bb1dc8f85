"""The blocking `PullConsumer`, and its reader of whole ranges."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from pyrmq_core.blocking.client import Client
from pyrmq_core.blocking.face import BlockingFace
from pyrmq_core.client.arrow_library import columnar
from pyrmq_core.client.consumer.group.subscriptions import filter_of
from pyrmq_core.client.consumer.pull.puller import ReadWindow
from pyrmq_core.client.consumer.pull_consumer import PullConsumer as AsyncPullConsumer
from pyrmq_core.client.consumer.settings import ConsumerSettings
from pyrmq_core.client.parameters import parameters_of
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.loop_thread.portal import HeldContext, portal
from pyrmq_core.model import MessageExt, MessageQueue, OffsetRange, PullResult, TopicQueues
from pyrmq_core.protocol.messages.bodies import MAX_BODY_BYTES
from pyrmq_core.protocol.messages.payload import RawPull
from pyrmq_core.protocol.requests.nameserver.cluster_info import ClusterInfo

T = TypeVar("T")


class PullConsumer(BlockingFace[AsyncPullConsumer]):
    """The blocking `pyrmq_core.PullConsumer`; `client` is a blocking one too. Safe to use from many threads."""

    @parameters_of(ConsumerSettings[Client])
    def __init__(self, settings: ConsumerSettings[Client]) -> None:
        super().__init__()
        self.group = settings.group
        self._settings = settings
        if settings.shared_client(Client, "pyrmq_core.blocking.Client") is None:
            self._make()  # raises for wrong arguments now, not at the first call

    def __repr__(self) -> str:
        return f"<blocking PullConsumer {self.group}>"

    def _make(self) -> AsyncPullConsumer:
        client = self._settings.client
        return AsyncPullConsumer._of(self._settings, None if client is None else client._async())

    def topics(self) -> tuple[str, ...]:
        """Returns every topic the NameServer knows, RocketMQ's own too; with a namespace, those that have it."""
        return self._run(lambda consumer: consumer.topics())

    def cluster_info(self) -> ClusterInfo:
        """Returns every broker with its addresses, and the brokers of each cluster."""
        return self._run(lambda consumer: consumer.cluster_info())

    def message_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Returns the queues the topic may be read from; raises `NoRoute` if no NameServer knows it."""
        return self._run(lambda consumer: consumer.message_queues(topic))

    def current_queues(self, topics: Iterable[str]) -> dict[str, tuple[MessageQueue, ...] | None]:
        """Returns each topic's queues as a NameServer knows them at this moment; None for a topic it does not know."""
        return self._run(lambda consumer: consumer.current_queues(topics))

    def topic_queues(self, topics: Iterable[str]) -> dict[str, TopicQueues | None]:
        """Returns the queues as `current_queues` does, and also those that exist but may not be read."""
        return self._run(lambda consumer: consumer.topic_queues(topics))

    def expected_brokers(self, topics: Iterable[str]) -> dict[str, frozenset[str]]:
        """Returns the brokers that each topic is on, by its order configuration or by any NameServer."""
        return self._run(lambda consumer: consumer.expected_brokers(topics))

    def pull(
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
        """Pulls once; continue at the result's `next_offset`."""
        return self._run(
            lambda consumer: consumer.pull(
                queue,
                offset,
                max_messages=max_messages,
                tags=tags,
                sql=sql,
                wait=wait,
                verify_crc=verify_crc,
                max_body_bytes=max_body_bytes,
            )
        )

    def read(
        self,
        queue: MessageQueue,
        start: int,
        end: int,
        *,
        tags: str = "*",
        sql: str | None = None,
        window: ReadWindow = ReadWindow(),  # noqa: B008 - a frozen value
    ) -> RangeReader:
        """Reads a whole range, many pulls at once: `with consumer.read(q, 0, n) as reader: for pulls in reader`.

        The reader yields lists of pulls of about 6 MiB together, each worth one decoding.
        """
        lists = self._async().read_joined(queue, start, end, tags=tags, sql=sql, window=window)
        return RangeReader(HeldContext(portal(), lists))

    read_joined = read

    def read_ranges(
        self,
        ranges: Iterable[tuple[MessageQueue, OffsetRange]],
        *,
        tags: str = "*",
        sql: str | None = None,
        window: ReadWindow = ReadWindow(),  # noqa: B008 - a frozen value
        share_lists: bool = False,
    ) -> RangeReader:
        """Reads several ranges, one behind another, as `read`; the next are pulled ahead.

        A list is of one range, or, with `share_lists`, of several small ones, in their order.
        """
        lists = self._async().read_ranges(ranges, tags=tags, sql=sql, window=window, share_lists=share_lists)
        return RangeReader(HeldContext(portal(), lists))

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
    ) -> ArrowReader:
        """Reads a range as `pyarrow.RecordBatch`es in offset order (extra `arrow`): to iterate over, in `with`."""
        arrow = columnar()
        tag_filter = filter_of(tags, sql)
        decode = partial(
            arrow.decode_batches,
            columns=arrow.schema_of(columns),
            within=OffsetRange(start, end),
            tags=tag_filter if isinstance(tag_filter, TagFilter) else TagFilter(),
            keep_undecodable=keep_undecodable,
            verify_crc=verify_crc,
            max_body_bytes=max_body_bytes,
            allow_gaps=allow_gaps,
        )
        lent = replace(window, lends_records=True)
        return ArrowReader(self.read(queue, start, end, tags=tags, sql=sql, window=lent), decode)

    def check_sql(self, queue: MessageQueue, sql: str) -> None:
        """Raises `ResponseError` if the queue's broker cannot evaluate the expression."""
        self._run(lambda consumer: consumer.check_sql(queue, sql))

    def min_offset(self, queue: MessageQueue) -> int:
        """Returns the offset of the oldest message that is kept."""
        return self._run(lambda consumer: consumer.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """Returns the offset that the next readable message will have."""
        return self._run(lambda consumer: consumer.max_offset(queue))

    def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Returns `min_offset` of many queues, queried together."""
        return self._run(lambda consumer: consumer.min_offsets(queues))

    def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Returns `max_offset` of many queues, queried together."""
        return self._run(lambda consumer: consumer.max_offsets(queues))

    def mean_sizes(self, positions: Mapping[MessageQueue, int]) -> dict[MessageQueue, float]:
        """Returns the stored bytes per message of each queue, estimated by one pull at its position."""
        return self._run(lambda consumer: consumer.mean_sizes(positions))

    def offset_bounds(
        self, queues: Iterable[MessageQueue], reached: Mapping[MessageQueue, int] | None = None
    ) -> dict[MessageQueue, OffsetRange]:
        """Returns the minimum and maximum offsets of many queues, queried together."""
        return self._run(lambda consumer: consumer.offset_bounds(queues, reached))

    def offset_at(self, queue: MessageQueue, when: datetime) -> int:
        """Returns the offset of the first message stored at or after `when` (with a time zone), else the maximum."""
        return self._run(lambda consumer: consumer.offset_at(queue, when))

    def offsets_at(self, when_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Returns `offset_at` of many queues, queried together, each with its own time in milliseconds since 1970."""
        return self._run(lambda consumer: consumer.offsets_at(when_ms))

    def committed(self, queue: MessageQueue) -> int | None:
        """Returns the group's committed offset of the queue; None without one."""
        return self._run(lambda consumer: consumer.committed(queue))

    def committed_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
        """Returns `committed` of many queues, queried together."""
        return self._run(lambda consumer: consumer.committed_offsets(queues))

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commits the offset at which the group continues."""
        self._run(lambda consumer: consumer.commit(queue, offset))

    def commit_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commits the offsets of many queues together; raises the first failure."""
        self._run(lambda consumer: consumer.commit_offsets(offsets))

    def view_message(self, offset_msg_id: str, *, topic: str | None = None) -> MessageExt:
        """Returns the message with this `offset_msg_id`."""
        return self._run(lambda consumer: consumer.view_message(offset_msg_id, topic=topic))

    def query_message(
        self,
        topic: str,
        key: str,
        *,
        max_num: int = 32,
        begin: datetime | None = None,
        end: datetime | None = None,
    ) -> tuple[MessageExt, ...]:
        """Returns messages that have `key` among their `keys`, stored from `begin` to `end`, oldest first."""
        return self._run(lambda consumer: consumer.query_message(topic, key, max_num=max_num, begin=begin, end=end))

    def query_message_by_unique_key(self, topic: str, unique_key: str) -> MessageExt | None:
        """Returns the message with this `msg_id`, the producer's UNIQ_KEY; None if no broker of the topic has one."""
        return self._run(lambda consumer: consumer.query_message_by_unique_key(topic, unique_key))

    def earliest_msg_store_time(self, queue: MessageQueue) -> datetime | None:
        """Returns the store time of the oldest message that is kept; None for a queue without messages."""
        return self._run(lambda consumer: consumer.earliest_msg_store_time(queue))


class RangeReader:
    """A reader of lists of pulls in offset order, each list worth one decoding; one hop to the loop a list.

    `decoded` spares the caller's thread the decoding: the loop's thread has the bytes at hand, and two threads that
    share the interpreter while one receives and one decodes read a tenth to a sixth slower.
    """

    def __init__(self, opened: HeldContext[AsyncIterator[list[RawPull]]]) -> None:
        self._opened = opened

    def __iter__(self) -> Iterator[list[RawPull]]:
        while pulls := portal().run(_next_pulls, self._opened.value):
            yield pulls

    def decoded(self, decode: Callable[[list[RawPull]], T]) -> Iterator[T]:
        """Yields `decode(pulls)` of each list, called in the loop's thread: it must not return None, nor wait."""
        return self.decoded_in_parts(lambda pulls: (decode(pulls),))

    def decoded_in_parts(self, decode: Callable[[list[RawPull]], Iterable[T]]) -> Iterator[T]:
        """Yields as `decoded`, where `decode` makes several values of a list, one at a time."""
        decoding = _Decoding(self._opened.value, decode)
        while (made := portal().run(decoding.next)) is not None:
            yield made

    def close(self) -> None:
        """Abandons the requests under way."""
        self._opened.abandon()
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


async def _next_pulls(lists: AsyncIterator[list[RawPull]]) -> list[RawPull]:
    """Returns the next pulls; an empty list at the end of the range."""
    return await anext(lists, [])


class _Decoding(Generic[T]):
    """The decoded values of lists of pulls, one a call; the rest of a list stays with the loop."""

    def __init__(self, lists: AsyncIterator[list[RawPull]], decode: Callable[[list[RawPull]], Iterable[T]]) -> None:
        self._lists = lists
        self._decode = decode
        self._made: Iterator[T] = iter(())

    async def next(self) -> T | None:
        """Returns the next value; None at the end of the range."""
        while (made := next(self._made, None)) is None:
            pulls = await _next_pulls(self._lists)
            if not pulls:
                return None
            self._made = iter(self._decode(pulls))
        return made


class ArrowReader:
    """Record batches in offset order."""

    def __init__(self, reader: RangeReader, decode: Callable[[list[RawPull]], Iterable[Any]]) -> None:
        self._reader = reader
        self._decode = decode

    def __iter__(self) -> Iterator[Any]:
        for decoded in self._reader.decoded_in_parts(self._decode):
            if decoded.batch.num_rows:
                yield decoded.batch

    def close(self) -> None:
        """Abandons the requests under way."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
