"""`Reviver`: the task that makes popped messages visible again unless they were acknowledged in time.

It reads the revive log, the topic with the checkpoints of pops. If a message was not acknowledged within its invisible
time, the reviver stores it in the group's retry topic, with its number of tries raised by one. After retryMaxTimes
tries it stores the message in the group's dead-letter topic, which RocketMQ's broker leaves to the proxy. After a disk
error the reviver tries again, so that no message is lost.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from pyrmq_core.errors import RecordError, StoreError
from pyrmq_core.model import TopicConfig
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.java.integers import MAX_INT
from pyrmq_core.protocol.messages.message_id import offset_msg_id
from pyrmq_core.protocol.messages.names import DLQ_PREFIX, is_retry_topic, popped_topic
from pyrmq_core.protocol.messages.properties import (
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    FIRST_POP_TIME,
    MAX_STORED_PROPERTIES_BYTES,
    ORIGIN_GROUP,
    decode_java_utf8,
    decode_properties,
    encode_properties,
)
from pyrmq_core.protocol.messages.record import INT, RawRecord, unpack_record
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD
from pyrmq_core.protocol.requests.pop.receipt import pop_retry_topic
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.counts import Counts
from pyrmq_core.servers.broker.in_turns import take_all
from pyrmq_core.servers.broker.pop.ordered import OrderedQueues
from pyrmq_core.servers.broker.pop.records import BATCH_ACK_TAG, REVIVE_GROUP, Ack, CheckPoint
from pyrmq_core.servers.broker.pop.revival import Due, Revival
from pyrmq_core.servers.broker.pop.revive_log import ReviveLog
from pyrmq_core.servers.broker.pop.waits import PopWaits
from pyrmq_core.servers.broker.schedule.delay_levels import message_pieces
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.store.appending import Append, DoesNotFit
from pyrmq_core.servers.broker.store.batch_pieces import Piece, piece
from pyrmq_core.servers.broker.store.disk.paths import UnsafePath
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store.reading import GetLimits, GetStatus, QueueKey
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable
from pyrmq_core.servers.broker.tables.topics import READ_WRITE, TopicTable
from pyrmq_core.servers.broker.timers.service import Timers
from pyrmq_core.servers.broker.topic_announcer import TopicAnnouncer

log = line_logger(__name__)

RETRY_SECONDS: Final = 1.0
MAX_WAIT_SECONDS: Final = 1.0
READ_LIMITS: Final = GetLimits(32, 262_144)
# How many checkpoints of a queue are finished before other tasks run.
ENDED_AT_ONCE: Final = 16
# Pops get no messages while more entries of the revive log than this are unfinished, since each may be in memory.
MOST_BEHIND: Final = 200_000


@dataclass(frozen=True, slots=True)
class Reviver:
    """The task that makes popped messages visible again. `queues` has the checkpoints by queue of the revive log."""

    settings: LiveSettings
    log: ReviveLog
    store: MessageStore
    topics: TopicTable
    groups: GroupTable
    offsets: GroupOffsets
    timers: Timers
    waits: PopWaits
    announcer: TopicAnnouncer
    counts: Counts
    ordered: OrderedQueues
    queues: dict[int, Revival] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def next_queue(self) -> int:
        """Returns the id of the revive log's queue for the next pop's checkpoints. The queues take turns."""
        return next(self.numbers) % self.log.queues

    def left(self, queue_id: int) -> int:
        """Returns the number of entries in a queue of the revive log from the first unfinished one to the end."""
        return self.store.reader.bounds((self.log.topic, queue_id))[1] - self.queues[queue_id].done

    @property
    def is_behind(self) -> bool:
        """True if the revive log has too many unfinished entries for further pops."""
        return sum(map(self.left, self.queues)) > MOST_BEHIND

    async def run(self) -> None:
        if not self.timers.enabled:
            return
        for queue_id in range(self.log.queues):
            committed = self.offsets.committed(REVIVE_GROUP, self.log.topic, queue_id)
            start = self.store.reader.bounds((self.log.topic, queue_id))[0]
            self.queues[queue_id] = Revival(max(start, 0 if committed is None else committed + 1))
        failure = ""
        while True:
            self.waits.revive_arrived = trio.Event()
            await take_all(self.ordered.wake_freed(clock.now_ms()))
            try:
                for queue_id, queue in self.queues.items():
                    await self._work(queue_id, queue)
                failure = ""
            except StoreError as error:
                if str(error) != failure:
                    failure = str(error)
                    log.warning("popped messages wait for their revival: %s", failure)
                await trio.sleep(RETRY_SECONDS)
                continue
            with trio.move_on_after(self._wait_seconds()):
                await self.waits.revive_arrived.wait()

    def _wait_seconds(self) -> float:
        times = [self.ordered.next_ms, *(queue.next_ms for queue in self.queues.values())]
        next_ms = min((time for time in times if time is not None), default=math.inf)
        return min(max((next_ms - clock.now_ms()) / 1000, 0.01), MAX_WAIT_SECONDS)

    async def _work(self, queue_id: int, queue: Revival) -> None:
        key, ended = (self.log.topic, queue_id), 0
        while True:
            # Computed before the read, which may miss entries that the timers deliver after this time.
            delivered_ms = min(self.timers.delivered_ms, clock.now_ms())
            has_more = self._read(key, queue)
            while (due := queue.due(0 if has_more else delivered_ms)) is not None:
                await self._revive(queue_id, due)
                queue.end(due)
                self._commit(queue_id, queue)
                ended += 1
                if ended % ENDED_AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
            if not has_more:
                break
            await trio.lowlevel.checkpoint()
        self._commit(queue_id, queue)

    def _commit(self, queue_id: int, queue: Revival) -> None:
        """Commits the offset of the last finished entry. Like RocketMQ, it does not commit the offset after it."""
        committed, last = self.offsets.committed(REVIVE_GROUP, self.log.topic, queue_id), queue.done - 1
        if last > (-1 if committed is None else committed):
            self.offsets.commit(REVIVE_GROUP, self.log.topic, queue_id, last)

    def _read(self, key: QueueKey, queue: Revival) -> bool:
        result = self.store.reader.get(key, queue.position, READ_LIMITS)
        if result.status is not GetStatus.FOUND:
            if result.status is GetStatus.OFFSET_TOO_SMALL:
                lost = result.next_offset - queue.position
                log.error("%d entries of %s are gone unread, with old segments of the log", lost, key[0])
                queue.take(result.next_offset - 1, None)
                return True
            return False
        at = 0
        while at < len(result.records):
            record = unpack_record(result.records, at)
            entry, deliver_ms = self.log.read(record)
            queue.take(record.queue_offset, entry, deliver_ms)
            if entry is not None:
                self.counts.revive_entry_read(entry.labels, key[1])
            at += record.store_size
        return queue.position < result.max_offset

    async def _revive(self, queue_id: int, due: Due) -> None:
        """Stores copies of the due messages, and acknowledges the originals, so that a restart copies none again."""
        key = due.check_point.key
        if popped_topic(key.topic, key.group) not in self.topics or (group := self.groups.known(key.group)) is None:
            return  # the topic or the group was deleted
        most_tries, copies = int(group["retryMaxTimes"]), []
        for offset in due.offsets:
            record = self._message((key.topic, key.queue_id), offset)
            if record is not None:
                copy_of = self._dead if record.reconsume_times >= most_tries else self._retry
                copies.append(copy_of(record, due.check_point))
        for topic in dict.fromkeys(copy.topic for copy in copies):
            await self.announcer.ensure(self.topics.get(topic) or TopicConfig(topic, 1, 1, READ_WRITE))
            if not topic.startswith(DLQ_PREFIX) and self.offsets.committed(key.group, topic, 0) is None:
                self.offsets.commit(key.group, topic, 0, self.store.reader.bounds((topic, 0))[0])
        now_ms = clock.now_ms()
        end = Ack(key, due.offsets, due.check_point.revive_ms, BATCH_ACK_TAG)
        if copies:
            copies.append(self.log.append(end, queue_id, now_ms))
        for copy, stored in zip(copies, self.store.put_all(copies, now_ms), strict=True):
            if isinstance(stored, (DoesNotFit, UnsafePath)):
                log.error("a popped message for %r is not revived: %s", copy.topic[:255], stored)
            elif isinstance(stored, StoreError):
                raise stored
            else:
                self.counts.note_put(copy, stored, 0)
                if copy.topic.startswith(DLQ_PREFIX):
                    self.counts.note_dead(popped_topic(key.topic, key.group), key.group)
                elif is_retry_topic(copy.topic):
                    self.counts.revived(key.group, key.topic)
        if copies:
            self.counts.revive_entry_written(end.labels)

    def _message(self, key: QueueKey, offset: int) -> RawRecord | None:
        try:
            entry = self.store.reader.entry(key, offset)
            record = self.store.reader.record_of(entry.physical_offset, entry.size)
        except (StoreError, RecordError) as error:
            log.error("message %d of queue %d of %r is not revived: %s", offset, key[1], key[0][:255], error)
            return None
        if record is None:
            log.error("message %d of queue %d of %r is gone, and not revived", offset, key[1], key[0][:255])
        return record

    def _retry(self, record: RawRecord, point: CheckPoint) -> Append:
        group, topic, added = point.key.group, point.key.topic, {ORIGIN_GROUP: point.key.group}
        properties = decode_properties(decode_java_utf8(record.properties))
        if not record.reconsume_times or FIRST_POP_TIME not in properties:
            added[FIRST_POP_TIME] = str(point.key.pop_time_ms)
        retry = topic if is_retry_topic(topic) else pop_retry_topic(topic, group, self.settings.config.pop_retry_mark)
        return self._copy(record, retry, properties | added)

    def _dead(self, record: RawRecord, point: CheckPoint) -> Append:
        ip, (port,) = record.store_host[:-4], INT.unpack(record.store_host[-4:])
        properties = decode_properties(decode_java_utf8(record.properties))
        properties.setdefault(DLQ_ORIGIN_TOPIC, popped_topic(point.key.topic, point.key.group))
        properties.setdefault(DLQ_ORIGIN_MESSAGE_ID, offset_msg_id(ip, port, record.commit_log_offset))
        return self._copy(record, DLQ_PREFIX + point.key.group, properties)

    def _copy(self, record: RawRecord, topic: str, properties: dict[str, str]) -> Append:
        encoded = encode_properties(properties).encode("utf-8", "replace")
        if len(encoded) > MAX_STORED_PROPERTIES_BYTES:
            encoded = record.properties
        pieces: Sequence[Piece] = [piece(record.flag, record.body, encoded)]
        if record.sys_flag & BATCH_RECORD:
            pieces = message_pieces(record, properties)
        host = self.log.identity.store_host
        return Append(
            topic=topic,
            queue_id=0,
            pieces=pieces,
            born_timestamp_ms=record.born_timestamp_ms,
            born_host=host,
            store_host=host,
            sys_flag=record.sys_flag & ~BATCH_RECORD,
            reconsume_times=min(record.reconsume_times + 1, MAX_INT),
        )
