"""`Puller`: reads messages by single pulls, and ranges of offsets by many pulls at once.

Queue offsets have no gaps, and a broker returns at most 32 messages a pull by default. So a range is divided into
slices of that size. Several slices are pulled at once, and their answers are delivered in the order of their offsets.
Source: client/impl/consumer/PullAPIWrapper.java, and for the broker's limits: store/DefaultMessageStore.java
(getMessage), 5.4.0.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Final, TypeAlias

import trio

from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.consumer.pull.pull_errors import no_progress
from pyrmq_core.client.consumer.pull.pull_sizes import ReadWindow
from pyrmq_core.client.consumer.pull.range_reader import PULL_TIMEOUT_SECONDS, Filter, RangeReader
from pyrmq_core.client.consumer.pull.ranges_reader import RangesReader
from pyrmq_core.client.remoting.remoting_client import PinnedConnection
from pyrmq_core.client.routes.route_table import ROUTE_TIMEOUT_SECONDS
from pyrmq_core.client.routing.publish_info import reading_address
from pyrmq_core.errors import BrokerNotFound, RocketMQError
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import MessageQueue, OffsetRange, PullStatus
from pyrmq_core.network import RowCall, open_owned_nursery
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.frame import RequestForm
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.framing.lent_answer import AnswerRow
from pyrmq_core.protocol.messages.lite_topics import with_lite_offsets
from pyrmq_core.protocol.messages.names import LMQ_PREFIX
from pyrmq_core.protocol.messages.namespaces import with_namespace
from pyrmq_core.protocol.messages.payload import RawPull, make_raw_pull
from pyrmq_core.protocol.messages.properties import TRACE_ON
from pyrmq_core.protocol.requests.broker.pull_message import (
    PULL_ANSWER_FORM,
    PULL_ANSWERS,
    PullAnswer,
    PullMessage,
    PullSysFlag,
    pull_offsets,
)
from pyrmq_core.protocol.requests.nameserver.cluster_info import ClusterInfo, GetClusterInfo
from pyrmq_core.protocol.routes.route import MASTER_ID, BrokerData

__all__ = ["Filter", "Puller", "ReadWindow", "no_progress"]

# A broker may answer a waiting pull 5 s too late, since it checks all of them every 5 s (PullRequestHoldService.java).
HOLD_SWEEP_SECONDS: Final = 5.0
ALL_TAGS: Final = TagFilter()
FOUND: Final = PullStatus.FOUND
READ_WINDOW: Final = ReadWindow()
Passes: TypeAlias = Callable[[Mapping[str, str]], bool]
# The bytes of records in a list of pulls. Decoding a list by columns has a fixed cost, so larger lists take less
# processor time, but more memory: 6 MiB take 0.90 of the time of 4 MiB, and on a batch topic 0.94.
JOIN_BYTES: Final = 6 * 1024 * 1024
JOIN_MESSAGES: Final = 16_384


class Puller:
    """The pulls of one consumer group over a client's connections: single pulls, and reads of ranges.

    Groups and queues in arguments and results are without the `namespace`, and requests contain it.

    `is_member` is for pulls by a member of the group. They go to the slave that the broker's last answer suggested for
    the queue (PullAPIWrapper.recalculatePullFromWhichNode). The read of a range then ends at an answer by which the
    broker moves the group to another offset.
    """

    def __init__(
        self,
        client: ClientSession,
        consumer_group: str,
        namespace: str | None = None,
        *,
        is_member: bool = False,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._consumer_group = with_namespace(consumer_group, namespace)
        self.is_member = is_member
        self._suggested: dict[MessageQueue, int] = {}  # the ids of the slaves to pull from
        self._proxies: set[str] = set()

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = 32,
        tags: Filter = ALL_TAGS,
        wait: float = 0.0,
        timeout: float = PULL_TIMEOUT_SECONDS,
        commit: int | None = None,
    ) -> RawPull:
        """Sends one pull to the queue's broker, which waits up to `wait` seconds for a first message.

        With `commit` the master first commits this offset for the group. Raises `ResponseError` for refusals,
        `NetworkError`, and `BrokerNotFound`. Nothing is retried. A broker cannot filter within the records of a batch
        topic: it returns all records, and the caller filters them by `RawPull.passes`.
        """
        address = await self.address(queue, timeout=timeout)
        passes = None if tags.passes_all else await self._own_filter(queue, tags, address, timeout)
        tags = tags if passes is None else ALL_TAGS
        request = PullMessage(
            consumer_group=self._consumer_group,
            topic=self._on_wire(queue),
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=max_messages,
            sys_flag=self._flags(queue, wait, commit),
            commit_offset=commit or 0,
            suspend_timeout_ms=round(wait * 1000),
            subscription=tags.expression,
            expression_type=tags.KIND,
            broker_name=queue.broker_name,
        )
        hold = wait + HOLD_SWEEP_SECONDS if wait > 0 else 0.0
        answer = await self._client.call(address, request.to_command(), timeout=timeout + hold)
        # Only a proxy sets this field (AbstractRemotingActivity.writeResponse), never a broker in the answer to a pull.
        if TRACE_ON in answer.ext:
            self._proxies.add(address)
        if self.is_member:
            self._note_suggestion(queue, answer)
        is_unfiltered = passes is None and tags.passes_all
        return _any_answer(queue, offset, answer, address, passes, self._namespace, is_unfiltered=is_unfiltered)

    @asynccontextmanager
    async def read(
        self,
        queue: MessageQueue,
        start: int,
        end: int,
        *,
        tags: Filter = ALL_TAGS,
        window: ReadWindow = READ_WINDOW,
    ) -> AsyncIterator[AsyncIterator[RawPull]]:
        """Reads the queue from `start` to before `end`, in pulls in offset order that cover the range.

        A pull covers the offsets from its `start` to before its `next_offset`. On a batch topic its records may contain
        messages outside these offsets, which belong to another pull. After network failures it retries for
        `window.patience` seconds.

        Raises `DataLost` if the range is no longer kept, but `BrokerNotFound` while the broker has no master. The read
        of a group's member ends with the pull that moves the group to another offset (OFFSET_ILLEGAL), since the broker
        reports that only once.
        """
        async with self._reader(queue, start, end, tags, window) as reader, aclosing(reader.pulls()) as pulls:
            yield pulls

    @asynccontextmanager
    async def read_joined(
        self,
        queue: MessageQueue,
        start: int,
        end: int,
        *,
        tags: Filter = ALL_TAGS,
        window: ReadWindow = READ_WINDOW,
        join_bytes: int = JOIN_BYTES,
        join_messages: int = JOIN_MESSAGES,
    ) -> AsyncIterator[AsyncIterator[list[RawPull]]]:
        """Reads a range as `read` does, but yields lists of consecutive pulls.

        A list ends when its pulls have about `join_bytes` of records or `join_messages` messages.
        """
        async with (
            self._reader(queue, start, end, tags, window) as reader,
            aclosing(reader.joined(join_bytes, join_messages)) as lists,
        ):
            yield lists

    @asynccontextmanager
    async def read_ranges(
        self,
        ranges: Iterable[tuple[MessageQueue, OffsetRange]],
        *,
        tags: Filter = ALL_TAGS,
        window: ReadWindow = READ_WINDOW,
        share_lists: bool = False,
    ) -> AsyncIterator[AsyncIterator[list[RawPull]]]:
        """Reads several ranges, one after another, in lists of pulls as `read_joined` does.

        A list has pulls of one range, or, with `share_lists`, of several small ranges. While one range is read, the
        next few ranges are already pulled. The limits of `window` hold for each range. The error of a range is raised
        after all pulls before it.
        """
        wanted = tuple(ranges)
        # Loads the route, which shows if a proxy answers: through a proxy, ranges are read one at a time.
        with suppress(RocketMQError):
            for queue, _ in wanted[:1]:
                await self.address(queue, timeout=ROUTE_TIMEOUT_SECONDS)
        async with open_owned_nursery() as nursery:

            def reader(queue: MessageQueue, offsets: OffsetRange) -> RangeReader:
                return RangeReader(self, queue, offsets.start, offsets.end, tags=tags, window=window, nursery=nursery)

            several = RangesReader(reader, wanted, nursery, window, self.is_proxied)
            try:
                async with aclosing(several.joined(JOIN_BYTES, JOIN_MESSAGES, share_lists=share_lists)) as lists:
                    yield lists
            finally:
                several.close()

    async def address(self, queue: MessageQueue, *, timeout: float = PULL_TIMEOUT_SECONDS) -> str:
        """Returns the address to pull from: of the slave that the broker suggested, its master, or else a slave.

        If there is no master, it is the slave with the lowest id. Raises `BrokerNotFound` if the broker has no address.
        """
        try:
            broker = self._client.routes.broker(queue.broker_name)
        except BrokerNotFound:
            await self._client.routes.refresh(self._on_wire(queue), timeout=timeout)
            broker = self._client.routes.broker(queue.broker_name)
        address = broker.broker_addrs.get(self._suggested[queue]) if queue in self._suggested else None
        address = address or reading_address(broker)
        if address is None:
            raise BrokerNotFound(
                f"broker {queue.broker_name} has no address in the route of {queue.topic}",
                broker_name=queue.broker_name,
            )
        return address

    def is_proxied(self, queue: MessageQueue) -> bool:
        """Returns whether a proxy answers the queue's pulls, which earlier answers or its address in the route show."""
        return self._proxy_of(queue) is not None

    def turn(self, queue: MessageQueue) -> trio.Lock | None:
        """Returns the lock under which the queue's proxy is pulled by members of a group, or None if there is no proxy.

        The lock makes pulls through one proxy follow one another, since a proxy drops answers that are too large
        together (see `PROXY_BYTES`).
        """
        proxy = self._proxy_of(queue)
        return None if proxy is None else self._client.pull_turns[proxy]

    def _proxy_of(self, queue: MessageQueue) -> str | None:
        try:
            addresses = self._client.routes.broker(queue.broker_name).broker_addrs.values()
        except BrokerNotFound:
            return None
        proxies = self._proxies.union(self._client.nameservers.addresses)
        return next((address for address in addresses if address in proxies), None)

    def forget(self, queue: MessageQueue) -> None:
        self._suggested.pop(queue, None)

    async def refresh(self, queue: MessageQueue) -> None:
        await self._client.routes.refresh(self._on_wire(queue))

    async def is_master(self, queue: MessageQueue, address: str) -> bool:
        """Returns whether this is the address of the registered master of the queue's broker.

        The NameServer's broker table decides, since a route shows a slave that acts as master (5.x) as the master. If
        no NameServer answers, the cached route decides.
        """
        master = self._client.routes.known_master(queue.broker_name)
        with suppress(RocketMQError):
            broker = await self._client.nameservers.ask_for(
                GetClusterInfo().to_command(), partial(_registered, queue.broker_name), timeout=PULL_TIMEOUT_SECONDS
            )
            master = None if broker is None else broker.master
        return address == master

    def requests(self, queue: MessageQueue, tags: Filter) -> QueuePulls:
        """Returns the requests with which a range of the queue is pulled, filtered by `tags`.

        Call `pull` first, which finds out if this is a batch topic. The client filters the messages of a batch topic
        itself.
        """
        if tags.passes_all or not self._client.batch_topics.is_known(self._on_wire(queue), queue.broker_name):
            return QueuePulls(self._consumer_group, queue, tags, namespace=self._namespace)
        return QueuePulls(self._consumer_group, queue, ALL_TAGS, tags.predicate(), namespace=self._namespace)

    async def connection(self, queue: MessageQueue) -> PinnedConnection:
        return await self._client.open_line(await self.address(queue))

    def _flags(self, queue: MessageQueue, wait: float, commit: int | None) -> PullSysFlag:
        flags = PullSysFlag.SUBSCRIPTION
        if wait > 0:
            flags |= PullSysFlag.SUSPEND
        if commit is not None and queue not in self._suggested:  # not at a slave, which copies its master's offsets
            flags |= PullSysFlag.COMMIT_OFFSET
        return flags

    def _note_suggestion(self, queue: MessageQueue, answer: Command) -> None:
        suggested = answer.ext.get("suggestWhichBrokerId", "0")
        if len(suggested) < 10 and suggested.isascii() and suggested.isdigit() and int(suggested) != MASTER_ID:
            self._suggested[queue] = int(suggested)
        else:
            self._suggested.pop(queue, None)

    @asynccontextmanager
    async def _reader(
        self, queue: MessageQueue, start: int, end: int, tags: Filter, window: ReadWindow
    ) -> AsyncIterator[RangeReader]:
        async with open_owned_nursery() as nursery:
            reader = RangeReader(self, queue, start, end, tags=tags, window=window, nursery=nursery)
            try:
                yield reader
            finally:
                reader.close()

    async def _own_filter(self, queue: MessageQueue, tags: Filter, address: str, timeout: float) -> Passes | None:
        topics = self._client.batch_topics
        if await topics.is_batch_topic(self._on_wire(queue), queue.broker_name, address, timeout=timeout):
            return tags.predicate()
        return None

    def _on_wire(self, queue: MessageQueue) -> str:
        return with_namespace(queue.topic, self._namespace)


class QueuePulls:
    """The pull requests of one queue, which differ in offset and count, and their answers."""

    answer_form = PULL_ANSWER_FORM

    def __init__(
        self,
        consumer_group: str,
        queue: MessageQueue,
        tags: Filter,
        passes: Passes | None = None,
        *,
        namespace: str | None = None,
    ) -> None:
        self._queue = queue
        self._namespace = namespace
        self._passes = passes
        self._passes_all = tags.passes_all
        self._is_unfiltered = passes is None and tags.passes_all
        request = PullMessage(
            consumer_group=consumer_group,
            topic=with_namespace(queue.topic, namespace),
            queue_id=queue.queue_id,
            queue_offset=0,
            max_msg_nums=0,
            subscription=tags.expression,
            expression_type=tags.KIND,
            broker_name=queue.broker_name,
        )
        self.form = RequestForm(request.to_command(), ("queueOffset", "maxMsgNums"))

    def plain_answer(self, start: int, end: int, answer: Command, address: str) -> RawPull | None:
        status = FOUND
        if answer.code:
            if answer.code != ResponseCode.PULL_RETRY_IMMEDIATELY or self._passes_all:
                return None
            status = PullStatus.NO_MATCHED_MSG
        offsets = pull_offsets(answer)
        if offsets is None:
            return None
        return self._plain([(start, offsets, answer.body)], end, status, address)[0]

    def plain_rows(self, answers: Iterable[tuple[RowCall, AnswerRow]], end: int, address: str) -> list[RawPull | None]:
        return self._plain([(call.numbers[0], row[1], row[3]) for call, row in answers], end, FOUND, address)

    def _plain(
        self,
        answers: Iterable[tuple[int, tuple[int, ...], bytes | memoryview]],
        end: int,
        status: PullStatus,
        address: str,
    ) -> list[RawPull | None]:
        queue, passes, is_unfiltered, namespace = self._queue, self._passes, self._is_unfiltered, self._namespace
        pulls: list[RawPull | None] = []
        is_lite = queue.topic.startswith(LMQ_PREFIX)
        for start, offsets, records in answers:
            following, most, least = offsets[:3]
            if is_lite:
                records = with_lite_offsets(records, with_namespace(queue.topic, namespace))
            if following > end:
                following = end
            pulls.append(
                make_raw_pull(
                    queue, start, following, least, most, status, records, passes, is_unfiltered, address, namespace
                )
                if start < following <= most
                else None
            )
        return pulls

    def any_answer(self, start: int, answer: Command, address: str) -> RawPull:
        queue, passes, is_unfiltered = self._queue, self._passes, self._is_unfiltered
        return _any_answer(queue, start, answer, address, passes, self._namespace, is_unfiltered=is_unfiltered)


def _registered(broker_name: str, answer: Command, address: str) -> BrokerData | None:
    if answer.code != ResponseCode.SUCCESS:
        raise response_error(answer, GetClusterInfo.CODE, f"NameServer {address}")
    return ClusterInfo.from_command(answer).broker_addr_table.get(broker_name)


def _any_answer(
    queue: MessageQueue,
    offset: int,
    answer: Command,
    address: str,
    passes: Passes | None,
    namespace: str | None,
    *,
    is_unfiltered: bool,
) -> RawPull:
    if answer.code not in PULL_ANSWERS:
        raise response_error(answer, PullMessage.CODE, f"{queue.broker_name} ({address})", f"queue {queue}")
    pulled = PullAnswer.from_command(answer)
    records = pulled.records
    if queue.topic.startswith(LMQ_PREFIX):
        records = with_lite_offsets(records, with_namespace(queue.topic, namespace))
    return RawPull(
        queue=queue,
        start=offset,
        next_offset=pulled.next_begin_offset,
        min_offset=pulled.min_offset,
        max_offset=pulled.max_offset,
        status=PullStatus(pulled.code),
        records=memoryview(records),
        passes=passes,
        is_unfiltered=is_unfiltered,
        address=address,
        namespace=namespace,
    )
