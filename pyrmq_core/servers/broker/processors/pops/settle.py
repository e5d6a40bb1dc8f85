"""Requests about popped messages: ACK_MESSAGE (200051), BATCH_ACK_MESSAGE (200151), CHANGE_MESSAGE_INVISIBLETIME
(200053).

An acknowledgement is written to the revive log for the time at which its message would become visible again. A change
of the invisible time writes a new checkpoint for the message, and acknowledges it in the former checkpoint. As in
RocketMQ, success does not mean that the receipt was still valid. The message may be visible again already, and stay so.

Source: broker/processor/AckMessageProcessor.java, ChangeInvisibleTimeProcessor.java (5.4.0). Unlike RocketMQ, this
broker refuses receipts of another broker, queues that the revive log does not have, and times too far ahead for timers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import trio

from pyrmq_core.errors import HeaderError
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.messages.lite_topics import lite_queue_name
from pyrmq_core.protocol.messages.properties import LITE_TOPIC_NAME, LITE_TOPIC_RULE
from pyrmq_core.protocol.requests.pop.lite import BIND_TOPIC
from pyrmq_core.protocol.requests.pop.receipt import (
    MARKS,
    ORDERED_REVIVE_QUEUE,
    POPPED_TOPIC,
    SEPARATOR,
    Receipt,
    pop_retry_topic,
)
from pyrmq_core.protocol.requests.pop.settle import (
    AckEntry,
    AckMessage,
    BatchAckMessage,
    ChangeInvisibleTime,
    InvisibleTimeChanged,
)
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.pop.ordered import Queue
from pyrmq_core.servers.broker.pop.records import BATCH_ACK_TAG, Ack, CheckPoint, PopKey, ReviveEntry
from pyrmq_core.servers.broker.pop.reviver import Reviver
from pyrmq_core.servers.broker.processors.handlers import Handlers
from pyrmq_core.servers.broker.processors.name_rules import checked, group_fault, topic_fault
from pyrmq_core.servers.broker.processors.pops.pop_message import illegal_queue, unknown_topic
from pyrmq_core.servers.broker.processors.put_message import MessageWriter, RequestRefused
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.tables.topics import TopicTable
from pyrmq_core.servers.broker.timers.timer_rules import BadTimer

# A receipt has eight words. Older clients leave out the last two, which the request also has as fields.
FEWEST_WORDS: Final = 6
MOST_RECEIPT_CHARS: Final = 1024
# How many entries of a batch are processed before other tasks run.
WRITTEN_AT_ONCE: Final = 64
H = TypeVar("H", AckMessage, ChangeInvisibleTime)


@dataclass(frozen=True, slots=True)
class SettleRequests:
    """The handlers of acknowledgements of popped messages, and of changes of their invisible time."""

    settings: LiveSettings
    topics: TopicTable
    reviver: Reviver
    writer: MessageWriter

    def handlers(self) -> Handlers:
        return {
            RequestCode.ACK_MESSAGE: checked(self.ack, consumerGroup=group_fault),
            RequestCode.BATCH_ACK_MESSAGE: self.batch_ack,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: checked(self.change, consumerGroup=group_fault),
        }

    async def ack(self, request: Command, peer: Peer) -> Command:
        header = AckMessage.from_command(request)
        refused = self._refuse(header, peer)
        if refused is not None:
            return refused
        header = _at_lite_queue(header)
        low, high = self.reviver.store.reader.bounds((header.topic, header.queue_id))
        if not low <= header.offset <= high:
            which = f"{header.topic}@{header.queue_id}, commit:{header.offset}, store:{low}~{high}"
            return refusal(ResponseCode.NO_MESSAGE, f"offset is illegal, key:{which}")
        try:
            receipt = self._receipt(header)
            if receipt.is_ordered:
                queue = header.consumer_group, header.topic, header.queue_id
                self._ack_ordered(queue, (header.offset,), receipt.pop_time_ms)
                return success()
            await self._write([self._ack_of(header, receipt)], receipt.revive_queue_id)
        except RequestRefused as error:
            return refusal(error.code, str(error))
        return success()

    async def batch_ack(self, request: Command, _: Peer) -> Command:
        batch = BatchAckMessage.from_command(request) if request.body else None
        if batch is None or not batch.entries:
            return refusal(ResponseCode.NO_MESSAGE, "it has no acknowledgement")
        try:
            for entry in batch.entries:
                if fault := topic_fault(entry.topic) or group_fault(entry.consumer_group):
                    raise illegal(fault)
                if entry.mark not in MARKS:
                    raise illegal(f"the mark of the topic is {entry.mark[:20]!r} instead of 0, 1 or 2")
                self._check_place(batch.broker_name, entry.revive_queue_id)
            for number, entry in enumerate(batch.entries, 1):
                offsets = self._stored_offsets(entry)
                if entry.revive_queue_id == ORDERED_REVIVE_QUEUE:
                    queue = entry.consumer_group, self._topic_of(entry), entry.queue_id
                    self._ack_ordered(queue, offsets, entry.pop_time_ms)
                elif offsets:
                    await self._write([self._batch_of(entry, offsets)], entry.revive_queue_id)
                if number % WRITTEN_AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
        except RequestRefused as error:
            return refusal(error.code, str(error))
        return success()

    async def change(self, request: Command, peer: Peer) -> Command:
        header = ChangeInvisibleTime.from_command(request)
        refused = self._refuse(header, peer)
        if refused is not None:
            return refused
        header = _at_lite_queue(header)
        low, high = self.reviver.store.reader.bounds((header.topic, header.queue_id))
        if not low <= header.offset < high:
            return refusal(ResponseCode.NO_MESSAGE, f"the queue has the offsets {low} to {high - 1}")
        if header.invisible_ms < 0:
            return refusal(ResponseCode.INVALID_PARAMETER, f"invisibleTime[{header.invisible_ms}] is illegal")
        now_ms = clock.now_ms()
        try:
            receipt = self._receipt(header)
            if receipt.is_ordered:
                return self._change_ordered(header, receipt, now_ms).to_command()
            place = header.topic, header.consumer_group, header.queue_id
            key = PopKey(*place, header.offset, now_ms, receipt.broker_name)
            point = CheckPoint(key, header.invisible_ms, (header.offset,))
            await self._write([point, self._ack_of(header, receipt)], receipt.revive_queue_id)
        except RequestRefused as error:
            return refusal(error.code, str(error))
        return InvisibleTimeChanged(now_ms, header.invisible_ms, receipt.revive_queue_id).to_command()

    def _ack_ordered(self, queue: Queue, offsets: Sequence[int], pop_time_ms: int) -> None:
        unknown = [offset for offset in offsets if not self.reviver.ordered.ack(queue, offset, pop_time_ms)]
        if unknown:
            raise illegal(f"offset is illegal, key:{queue[1]}@{queue[0]}@{queue[2]}, commit:{unknown[0]}")

    def _change_ordered(self, header: ChangeInvisibleTime, receipt: Receipt, now_ms: int) -> InvisibleTimeChanged:
        """Sets when a message of an ordered pop becomes visible, and keeps the pop time, which identifies the pop."""
        queue, visible_ms = (header.consumer_group, header.topic, header.queue_id), now_ms + header.invisible_ms
        pop_time_ms = receipt.pop_time_ms
        if header.invisible_ms > self.reviver.timers.settings.max_delay_ms:
            raise illegal(f"invisibleTime[{header.invisible_ms}] is too far ahead")
        undoes = bool(header.suspend and header.lite_topic)
        if not self.reviver.ordered.change(queue, header.offset, pop_time_ms, visible_ms, undoes=undoes):
            return InvisibleTimeChanged(0, 0, 0)
        return InvisibleTimeChanged(pop_time_ms, visible_ms - pop_time_ms, ORDERED_REVIVE_QUEUE)

    def _refuse(self, header: AckMessage | ChangeInvisibleTime, peer: Peer) -> Command | None:
        topic = self.topics.get(header.topic)
        if topic is None:
            return unknown_topic(header.topic)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            return illegal_queue(ResponseCode.MESSAGE_ILLEGAL, topic, header.queue_id, peer)
        return self._refuse_lite(header) if header.lite_topic else None

    def _refuse_lite(self, header: AckMessage | ChangeInvisibleTime) -> Command | None:
        group = self.reviver.groups.known(header.consumer_group)
        if group is None or group["attributes"].get(BIND_TOPIC) != header.topic:
            return refusal(ResponseCode.INVALID_PARAMETER, "group type or bind topic not match.")
        if not LITE_TOPIC_NAME.fullmatch(header.lite_topic or ""):
            return refusal(ResponseCode.INVALID_PARAMETER, f"{LITE_TOPIC_RULE}.")
        words = header.extra_info[:MOST_RECEIPT_CHARS].split(SEPARATOR)
        if header.queue_id or words[3:4] != [str(ORDERED_REVIVE_QUEUE)]:
            return refusal(ResponseCode.INVALID_PARAMETER, "ack queue illegal.")
        return None

    def _receipt(self, header: AckMessage | ChangeInvisibleTime) -> Receipt:
        words = header.extra_info[:MOST_RECEIPT_CHARS].split(SEPARATOR)
        if len(words) >= FEWEST_WORDS:
            words += [str(header.queue_id), str(header.offset)][len(words) - FEWEST_WORDS :]
        try:
            receipt = Receipt.decode(SEPARATOR.join(words))
        except HeaderError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        self._check_place(receipt.broker_name, receipt.revive_queue_id)
        return receipt

    def _check_place(self, broker_name: str, revive_queue_id: int) -> None:
        log = self.reviver.log
        if broker_name != log.broker_name:
            raise illegal(f"the receipt is of broker {broker_name[:80]!r}, this is {log.broker_name!r}")
        if not 0 <= revive_queue_id < log.queues and revive_queue_id != ORDERED_REVIVE_QUEUE:
            raise illegal(f"the receipt names queue {revive_queue_id} of the revive log, which has {log.queues}")

    @staticmethod
    def _ack_of(header: AckMessage | ChangeInvisibleTime, receipt: Receipt) -> Ack:
        place = header.topic, header.consumer_group, header.queue_id
        key = PopKey(*place, receipt.start_offset, receipt.pop_time_ms, receipt.broker_name)
        return Ack(key, (header.offset,), receipt.pop_time_ms + receipt.invisible_ms)

    def _stored_offsets(self, entry: AckEntry) -> tuple[int, ...]:
        low, high = self.reviver.store.reader.bounds((self._topic_of(entry), entry.queue_id))
        return tuple(offset for offset in entry.offsets if low <= offset <= high)

    @staticmethod
    def _topic_of(entry: AckEntry) -> str:
        if entry.mark == POPPED_TOPIC:
            return entry.topic
        return pop_retry_topic(entry.topic, entry.consumer_group, entry.mark)

    def _batch_of(self, entry: AckEntry, offsets: tuple[int, ...]) -> Ack:
        name, topic = self.reviver.log.broker_name, self._topic_of(entry)
        key = PopKey(topic, entry.consumer_group, entry.queue_id, entry.start_offset, entry.pop_time_ms, name)
        return Ack(key, offsets, entry.pop_time_ms + entry.invisible_ms, BATCH_ACK_TAG)

    async def _write(self, entries: Sequence[ReviveEntry], revive_queue_id: int) -> None:
        now_ms, log = clock.now_ms(), self.reviver.log
        try:
            appends = [log.append(entry, revive_queue_id, now_ms) for entry in entries]
        except BadTimer as error:
            raise illegal(str(error)) from error
        ends = [self.writer.put(append).end for append in appends]
        for entry in entries:
            self.writer.counts.revive_entry_written(entry.labels)
        if self.writer.has_to_wait:
            await self.writer.wait_until_safe(ends[-1])


def _at_lite_queue(header: H) -> H:
    """Returns the header with the internal topic of its lite topic as `topic`. Without a lite topic it is unchanged."""
    return replace(header, topic=lite_queue_name(header.topic, header.lite_topic)) if header.lite_topic else header


def illegal(reason: str) -> RequestRefused:
    return RequestRefused(ResponseCode.MESSAGE_ILLEGAL, reason)
