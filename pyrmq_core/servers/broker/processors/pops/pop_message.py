"""POP_MESSAGE (200050): takes messages for a group and writes checkpoints of them, or lets the pop wait for a message.

Source: broker/processor/PopMessageProcessor.java (5.4.0), with its checks in its order, and its response codes.
This broker also refuses an invalid filter expression, a group that may not read the topic, and an invisible time that
is negative or too long for timers. It refuses names that make the retry topic's name too long.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.network.rare_lines import RareLine
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.protocol.messages.names import is_lite_queue, is_retry_topic, owner_topic
from pyrmq_core.protocol.messages.properties import POP_CK, decode_properties, encode_properties
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.requests.pop.notification import AwaitMessage, GetPollingInfo
from pyrmq_core.protocol.requests.pop.pop_message import (
    MOST_MESSAGES,
    POLLING_FULL,
    POLLING_TIMEOUT,
    InitMode,
    OrderKey,
    PopAnswer,
    PopMessage,
    QueueKey,
    write_message_offsets,
    write_order_counts,
    write_start_offsets,
)
from pyrmq_core.protocol.requests.pop.receipt import (
    ORDERED_REVIVE_QUEUE,
    RETRY_V1,
    RETRY_V2,
    Receipt,
    pop_retry_topic,
    topic_mark,
)
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.clients.held_pulls import held_bytes
from pyrmq_core.servers.broker.pop.ordered import OrderedPop
from pyrmq_core.servers.broker.pop.records import CheckPoint, PopKey
from pyrmq_core.servers.broker.pop.reviver import MOST_BEHIND, Reviver
from pyrmq_core.servers.broker.processors.handlers import HELP, Answer, Handlers
from pyrmq_core.servers.broker.processors.name_rules import (
    NO_LITE_POPS,
    checked,
    group_fault,
    lite_refusal,
    topic_fault,
)
from pyrmq_core.servers.broker.processors.pops.held import HeldRequest, in_turn, waiter_of
from pyrmq_core.servers.broker.processors.pulls.pull_filters import (
    PullFilter,
    filter_of_expression,
    forbidden,
    get_filtered,
)
from pyrmq_core.servers.broker.processors.put_message import MessageWriter, RequestRefused
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.store.reading import GetLimits, GetStatus
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable
from pyrmq_core.servers.broker.tables.topics import READ, TopicTable

log = line_logger(__name__)

# The longest attempt id, since one is kept for each queue.
MOST_ATTEMPT_CHARS: Final = 255
# A pop that is this late after the end of its waiting time is refused.
TOO_LATE_MS: Final = 500
# A pop whose waiting time ends so soon is answered at once.
ENDS_SOON_MS: Final = 50
# The default of the group attribute priority.factor, the percentage of pops that take the highest queue first.
ALL_IN_ORDER: Final = 100
NO_TRIES: Final[Mapping[int, int]] = {}
WRONG_OFFSETS: Final = (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_FOUND_NULL)
SIZE_AND_OFFSET: Final = struct.Struct(">i16xq")  # a record's size, and its offset in its queue
PASSED_OVER: Final = (GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING)


class Popped(NamedTuple):
    """The messages that a pop took from one queue: their `offsets`, and their `records` as in the log.

    `start` is the offset at which the pop began in the queue. In an ordered pop `tries` has, by offset, how often a
    message was popped before.
    """

    topic: str
    queue_id: int
    start: int
    offsets: tuple[int, ...]
    records: bytes
    tries: Mapping[int, int]


@dataclass(slots=True)
class PopOutcome:
    """The messages that one pop took, queue by queue. `rest` is the number of messages left in the queues.

    `log_end` is the log's end after the checkpoints of the pop, or 0 without any. `has_moved` is True if the group's
    offsets moved past messages that the filter rejects.
    """

    pop_time_ms: int
    revive_queue_id: int
    queues: list[Popped] = field(default_factory=list)
    messages: int = 0
    size_bytes: int = 0
    rest: int = 0
    log_end: int = 0
    has_moved: bool = False


@dataclass(frozen=True, slots=True)
class PopRequests:
    """The handler of pops, which take messages of a topic for a group and hide them for a time."""

    settings: LiveSettings
    topics: TopicTable
    groups: GroupTable
    offsets: GroupOffsets
    reviver: Reviver
    writer: MessageWriter
    line: RareLine = field(default_factory=RareLine)

    def handlers(self) -> Handlers:
        return {RequestCode.POP_MESSAGE: checked(self.pop, topic=topic_fault, consumerGroup=group_fault)}

    def pop(self, request: Command, peer: Peer) -> Answer:
        header = PopMessage.from_command(request)
        ends_ms = (header.born_time_ms or clock.now_ms()) + header.poll_time_ms
        begin = partial(self._begin, request, header, ends_ms, peer)
        return in_turn(self.reviver.waits, peer, begin, queues_of(self.topics, header))

    def _begin(self, request: Command, header: PopMessage, ends_ms: int, peer: Peer) -> Answer:
        # Everything is checked only now, since it may have changed while the pop waited for its turn.
        now_ms = clock.now_ms()
        if now_ms - ends_ms > TOO_LATE_MS:
            ip = self.settings.config.advertised_ip
            return refusal(POLLING_TIMEOUT, f"the broker[{ip}] pop message is timeout too much")
        refused = lite_refusal(request, NO_LITE_POPS) or self.refuse(header, peer)
        if refused is not None:
            return refused
        expression_type = header.expression_type if header.expression else None
        chosen = filter_of_expression(self.settings.config, header.expression or "*", expression_type)
        if isinstance(chosen, Command):
            return chosen
        try:
            outcome = self.take(header, chosen, now_ms)
        except RequestRefused as error:
            return refusal(error.code, str(error))
        wants_none = header.poll_time_ms <= 0 or header.max_msg_nums <= 0
        if outcome.queues or ends_ms - now_ms <= ENDS_SOON_MS or wants_none:
            return self.finish(header, outcome)
        size_bytes = held_bytes(request, chosen.tags_codes)
        if not self.reviver.waits.held.has_room(peer, size_bytes):
            return self.answer(header, outcome, POLLING_FULL).to_command()
        left_ms = min(ends_ms - now_ms, header.poll_time_ms)  # the client's clock may be ahead
        waits, attempt = self.reviver.waits, partial(self.take_again, header, chosen, peer)
        codes, is_ready = chosen.tags_codes, outcome.has_moved
        return HeldRequest(waits, waiter_of(header), attempt, peer, size_bytes, left_ms, codes=codes, is_ready=is_ready)

    async def take_again(self, header: PopMessage, chosen: PullFilter, peer: Peer, is_over: bool) -> Command | None:
        """Returns the answer to a waiting pop, or None if there is still no message that its filter `chosen` selects.

        With `is_over` its waiting time has passed, and an empty answer is returned instead of None.
        """
        while True:
            await self.reviver.waits.take_turn(queues_of(self.topics, header))
            if (refused := self.refuse(header, peer)) is not None:
                return refused
            outcome = self.take(header, chosen, clock.now_ms())
            if outcome.queues or (is_over and not outcome.has_moved):
                answer = self.finish(header, outcome)
                return answer if isinstance(answer, Command) else await answer
            if not outcome.has_moved:
                return None

    def finish(self, header: PopMessage, outcome: PopOutcome) -> Command | Coroutine[Any, Any, Command]:
        """Returns the answer to a pop, once its checkpoints are synced and copied to slaves as the settings require.

        If messages are left in the queues, this wakes the next waiting pop.
        """
        if outcome.queues and outcome.rest:
            self.reviver.waits.wake(waiter_of(header))
        answer = self.answer(header, outcome)
        if outcome.log_end and self.writer.has_to_wait:
            return self._when_safe(answer, outcome.log_end)
        return answer.to_command()

    async def _when_safe(self, answer: PopAnswer, end: int) -> Command:
        try:
            await self.writer.wait_until_safe(end)  # a time-out is ignored, since the checkpoints are stored
        except RequestRefused as error:
            return refusal(error.code, str(error))
        return answer.to_command()

    def take(self, header: PopMessage, chosen: PullFilter, now_ms: int) -> PopOutcome:
        """Takes messages for a pop. Writes a checkpoint for each queue that had some, unless the pop is ordered.

        Raises `RequestRefused` if no checkpoint could be written.
        """
        revive_queue_id = ORDERED_REVIVE_QUEUE if header.order else self.reviver.next_queue()
        draw, outcome = random.randrange(100), PopOutcome(now_ms, revive_queue_id)
        if not header.order and self.reviver.is_behind:
            if self.line.is_due():
                log.warning("pops get no message: more than %d wait for their end%s", MOST_BEHIND, self.line.left_out())
            return outcome
        for topic, queue_id in self._queues(header, draw):
            try:
                self.take_from(topic, queue_id, header, chosen, outcome)
            except RequestRefused:
                if not outcome.queues:
                    raise
                break
        return outcome

    def _queues(self, header: PopMessage, draw: int) -> Iterator[tuple[str, int]]:
        """Yields the queues in the order in which a pop takes from them. `draw`, from 0 to 99, is a random number.

        By default the retry topics are first in one of five pops. In a topic of the type PRIORITY the highest queue is
        first, and the retry topics are last.
        """
        is_by_priority = not header.order and self._is_by_priority(header, draw)
        marks = () if header.order else (RETRY_V1, RETRY_V2)
        retry_topics = [pop_retry_topic(header.topic, header.consumer_group, mark) for mark in marks]
        is_retry_first = draw < self.settings.config.pop_from_retry_probability and not is_by_priority
        if is_retry_first:
            yield from self._all_queues(retry_topics, draw)
        if header.queue_id >= 0:
            yield header.topic, header.queue_id
        else:
            yield from self._all_queues([header.topic], 0 if is_by_priority else draw)
        if not is_retry_first:
            yield from self._all_queues(retry_topics, draw)

    def _is_by_priority(self, header: PopMessage, draw: int) -> bool:
        """Returns True if the pop takes the highest queue first: if `draw` is below the group's priority.factor.

        In a topic of another type than PRIORITY it returns False.
        """
        topic, group = self.topics.get(header.topic), self.groups.known(header.consumer_group)
        if topic is None or group is None or topic.attributes.get("message.type") != "PRIORITY":
            return False
        factor = group["attributes"].get("priority.factor")
        return draw < (ALL_IN_ORDER if factor is None else int(factor))

    def _all_queues(self, topics: list[str], draw: int) -> Iterator[tuple[str, int]]:
        for config in filter(None, map(self.topics.get, topics)):
            number = config.read_queue_nums
            yield from ((config.topic, (number - 1 - at + draw) % number) for at in range(number))

    def take_from(self, topic: str, queue_id: int, header: PopMessage, chosen: PullFilter, outcome: PopOutcome) -> None:
        reader, group, limits = self.reviver.store.reader, header.consumer_group, self.settings.config.pull_limits
        queue = group, topic, queue_id
        offset = self._offset(group, topic, queue_id, header.init_mode)
        ordered, pop_time_ms, tries = self.reviver.ordered, outcome.pop_time_ms, NO_TRIES
        if header.order and ordered.is_locked(queue, header.attempt_id, pop_time_ms):
            return
        if offset == reader.bounds((topic, queue_id))[1]:
            return
        most = min(header.max_msg_nums, limits.max_messages) - outcome.messages
        left_bytes = limits.max_bytes - outcome.size_bytes
        if most <= 0 or left_bytes <= 0:
            outcome.rest += max(0, reader.bounds((topic, queue_id))[1] - offset)
            return
        most_here = GetLimits(most, left_bytes, most)
        result = get_filtered(reader, (topic, queue_id), offset, most_here, chosen)
        if result.status in WRONG_OFFSETS and result.next_offset >= 0:
            offset = result.next_offset
            self.offsets.commit(*queue, offset)
            result = get_filtered(reader, (topic, queue_id), offset, most_here, chosen)
        if result.records:
            next_offset = result.next_offset  # a lite topic's records have offsets of their parent topic's queues
            in_lite = tuple(range(next_offset - result.count, next_offset)) if is_lite_queue(topic) else None
            offsets = in_lite or _offsets_of(result.records)
            if header.order:  # acknowledgements will move the group's offset
                tries = ordered.take(queue, OrderedPop(pop_time_ms, header.invisible_ms, offsets, header.attempt_id))
            else:
                key = PopKey(topic, group, queue_id, offset, pop_time_ms, self.settings.config.broker_name)
                point = CheckPoint(key, header.invisible_ms, offsets)
                append = self.reviver.log.append(point, outcome.revive_queue_id, pop_time_ms)
                outcome.log_end = self.writer.put(append).end
                self.writer.counts.revive_entry_written(point.labels)
                self.offsets.commit(*queue, result.next_offset)
            outcome.queues.append(Popped(topic, queue_id, offset, offsets, result.records, tries))
            outcome.messages += len(offsets)
            outcome.size_bytes += len(result.records)
            self.writer.counts.figures.note_get(
                owner_topic(topic), group, queue_id, result.count, len(result.records), 0
            )
        elif result.status in PASSED_OVER and result.next_offset > offset:
            self.offsets.commit(*queue, result.next_offset)
            outcome.has_moved = True
        outcome.rest += max(0, result.max_offset - result.next_offset)

    def _offset(self, group: str, topic: str, queue_id: int, init_mode: int) -> int:
        """Returns the offset of the next message to pop. For a group without an offset it commits a first one.

        The first offset is the lowest of the queue. With `init_mode` MAX it is that of the last message, unless the
        queue begins at offset 0 or belongs to a retry topic.
        """
        if self.offsets.may_move(group, topic, queue_id):
            self.offsets.end_reset(group, topic, queue_id)
            self.reviver.ordered.forget((group, topic, queue_id))
        if (committed := self.offsets.committed(group, topic, queue_id)) is not None:
            return committed
        self.reviver.ordered.forget((group, topic, queue_id))  # a row may be left from a deleted topic
        start, end = self.reviver.store.reader.bounds((topic, queue_id))
        if init_mode != InitMode.MIN and not is_retry_topic(topic) and start > 0:
            start = max(0, end - 1)
        self.offsets.commit(group, topic, queue_id, start)
        return start

    def answer(self, header: PopMessage, outcome: PopOutcome, code: int = POLLING_TIMEOUT) -> PopAnswer:
        starts: dict[QueueKey, int] = {}
        offsets: dict[QueueKey, tuple[int, ...]] = {}
        counts: dict[OrderKey, int] = {}
        for popped in outcome.queues:
            key = topic_mark(popped.topic), popped.queue_id
            starts[key], offsets[key] = popped.start, popped.offsets
            counts |= {(*key, offset): tries for offset, tries in popped.tries.items()}
            counts[*key, None] = min(popped.tries.get(offset, 0) for offset in popped.offsets)
        return PopAnswer(
            code=ResponseCode.SUCCESS if outcome.queues else code,
            remark="FOUND" if outcome.queues else "NO_MESSAGE_IN_QUEUE",
            pop_time_ms=outcome.pop_time_ms,
            invisible_ms=header.invisible_ms,
            revive_queue_id=outcome.revive_queue_id,
            rest_num=outcome.rest,
            start_offset_info=write_start_offsets(starts),
            msg_offset_info=write_message_offsets(offsets),
            order_count_info=write_order_counts(counts) if header.order else None,
            records=b"".join(self._records(header, outcome, popped) for popped in outcome.queues),
        )

    def _records(self, header: PopMessage, outcome: PopOutcome, popped: Popped) -> bytes:
        """Returns the records that a pop took from one queue.

        Records of a retry topic get the name of the popped topic, and a receipt (property POP_CK) that names the retry
        topic's queue.
        """
        if popped.topic == header.topic:
            return popped.records
        records, position = [], 0
        times = outcome.pop_time_ms, header.invisible_ms, outcome.revive_queue_id
        place = topic_mark(popped.topic), self.settings.config.broker_name, popped.queue_id
        for record in iterate_records(popped.records):
            properties = decode_properties(record.properties)
            properties.setdefault(POP_CK, Receipt(popped.start, *times, *place, record.queue_offset).encode())
            try:
                renamed = replace(record, topic=header.topic, properties=encode_properties(properties))
                records.append(renamed.encode())
            except InvalidArgument:  # the receipt makes the properties too long
                records.append(popped.records[position : position + record.store_size])
            position += record.store_size
        return b"".join(records)

    def refuse(self, header: PopMessage, peer: Peer) -> Command | None:
        ip = self.settings.config.advertised_ip
        refused = broker_refusal(self.settings, "pop message")
        if refused is not None:
            return refused
        if header.max_msg_nums > MOST_MESSAGES:
            remark = f"the broker[{ip}] pop message's num is greater than {MOST_MESSAGES}"
            return refusal(ResponseCode.INVALID_PARAMETER, remark)
        if not self.reviver.timers.enabled:
            remark = f"the broker[{ip}] pop message is forbidden because timerWheelEnable is false"
            return refusal(ResponseCode.SYSTEM_ERROR, remark)
        return popping_refusal(self.topics, self.groups, header, peer) or self._refuse_time(header)

    def _refuse_time(self, header: PopMessage) -> Command | None:
        most_ms = self.reviver.timers.settings.max_delay_ms
        if not 0 <= header.invisible_ms <= most_ms:
            return refusal(
                ResponseCode.INVALID_PARAMETER, f"invisibleTime[{header.invisible_ms}] is illegal, 0 to {most_ms} ms"
            )
        retry_topic = pop_retry_topic(header.topic, header.consumer_group, RETRY_V1)
        if fault := topic_fault(retry_topic):
            return refusal(ResponseCode.INVALID_PARAMETER, fault)
        if len(header.attempt_id or "") > MOST_ATTEMPT_CHARS:
            return refusal(ResponseCode.INVALID_PARAMETER, f"attemptId is longer than {MOST_ATTEMPT_CHARS} characters")
        return None


def broker_refusal(settings: LiveSettings, what: str) -> Command | None:
    """Returns None if the broker's settings allow reading, or else a refusal, whose text names the request `what`."""
    if not settings.config.broker_permission & READ:
        return forbidden(f"the broker[{settings.config.advertised_ip}] {what} is forbidden", 1)
    return None


def popping_refusal(
    topics: TopicTable, groups: GroupTable, header: PopMessage | AwaitMessage | GetPollingInfo, peer: Peer
) -> Command | None:
    """Returns None if the topic, queue and group of a request about pops exist and may be read, or else a refusal.

    `peer` is the sender, whose address is in the refusal of a wrong queue.
    """
    topic: TopicConfig | None = topics.get(header.topic)
    if topic is None:
        return unknown_topic(header.topic)
    if not topic.perm & READ:
        return forbidden(f"the topic[{header.topic}] peeking message is forbidden", 3)
    if header.queue_id >= topic.read_queue_nums:
        return illegal_queue(ResponseCode.INVALID_PARAMETER, topic, header.queue_id, peer)
    group = groups.find(header.consumer_group, clock.now_ms())
    if group is None:
        remark = f"subscription group [{header.consumer_group}] does not exist, {HELP}"
        return refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    if not group["consumeEnable"]:
        return forbidden(f"subscription group no permission, {header.consumer_group}", 2)
    if not groups.is_readable(header.consumer_group, header.topic):
        return forbidden(f"the consumer group[{header.consumer_group}] is forbidden for topic[{header.topic}]", 5)
    return None


def queues_of(topics: TopicTable, header: PopMessage | AwaitMessage) -> int:
    topic = topics.get(header.topic)
    return 1 if topic is None or header.queue_id >= 0 else topic.read_queue_nums


def unknown_topic(topic: str) -> Command:
    return refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please! \n{HELP}")


def illegal_queue(code: ResponseCode, topic: TopicConfig, queue_id: int, peer: Peer) -> Command:
    numbers = f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{peer.address}]"
    return refusal(code, f"queueId[{queue_id}] is illegal, topic:[{topic.topic}] {numbers}")


def _offsets_of(records: bytes) -> tuple[int, ...]:
    offsets, at = [], 0
    while at < len(records):
        size, offset = SIZE_AND_OFFSET.unpack_from(records, at)
        offsets.append(offset)
        at += size
    return tuple(offsets)
