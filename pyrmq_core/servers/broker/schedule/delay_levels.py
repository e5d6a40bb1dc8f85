"""Messages with a delay level: they wait in SCHEDULE_TOPIC_XXXX, one queue a level, and go to their own topic when due.

An entry of a level's queue holds the delivery time in place of the tags' hash. `delayOffset.json` has the next offset
of each level. Unlike RocketMQ's file, it also has the end of the log at the time of writing. A restarted broker finds
later deliveries in the log (delay_copies.py). Source: broker/schedule/ScheduleMessageService.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from pyrmq_core.errors import BodyError, RecordError, StoreError
from pyrmq_core.model import BATCH_RECORD_NAMES
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.java.integers import long_member, parse_int
from pyrmq_core.protocol.messages.batch import iterate_batch_body
from pyrmq_core.protocol.messages.names import SCHEDULE_TOPIC
from pyrmq_core.protocol.messages.properties import (
    DELAY,
    KEYS,
    MAX_STORED_PROPERTIES_BYTES,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    UNIQ_KEY,
    decode_java_utf8,
    decode_properties,
    encode_properties,
)
from pyrmq_core.protocol.messages.record import RawRecord, unpack_record
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD
from pyrmq_core.protocol.routes.topic_config import DataVersion
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.in_turns import take_all
from pyrmq_core.servers.broker.schedule.delay_copies import DelayCopies, copy_key
from pyrmq_core.servers.broker.store.appending import Append, DoesNotFit, entry_of_record
from pyrmq_core.servers.broker.store.batch_pieces import Piece, piece
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.store.disk.paths import UnsafePath
from pyrmq_core.servers.broker.store.formats import ENTRY
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store.replay import EntryOf
from pyrmq_core.servers.broker.tables.config_files import encode_config, load_config

log = line_logger(__name__)

FILE_NAME: Final = "delayOffset.json"
LOG_END: Final = "logEnd"
# `delayOffset.json` is written again once the log grew by this much, which limits the next start's search of the log.
SEARCHED_BYTES: Final = 64 << 20
# The most messages of a level that are delivered before other tasks run.
DELIVERIES_AT_ONCE: Final = 100
RETRY_MS: Final = 1000
FAR_MS: Final = 1 << 50
# Properties of a batch record that do not belong to its messages.
OF_BATCH: Final = BATCH_RECORD_NAMES | {UNIQ_KEY, TAGS, KEYS}


class DelayLevels:
    """The delay levels of a broker. `place` returns the queue for a delayed message. `run` delivers until cancelled.

    `on_delivered` is called with the topic and the bytes of each delivered message.
    """

    def __init__(
        self,
        store: MessageStore,
        files: Files,
        delays_ms: Sequence[int],
        *,
        on_delivered: Callable[[str, int], None] = lambda topic, size_bytes: None,
    ) -> None:
        self._store = store
        self._files = files
        self._delays_ms = delays_ms
        self._delivered: dict[int, int] = {}  # by level: the offset of the next message to deliver
        self.is_changed = False
        self._arrived = trio.Event()
        self._data_version = DataVersion()
        self._copies = DelayCopies()
        self._copies_from: int | None = None
        self._known_to = 0  # a log offset: `_delivered` includes every delivery before it
        self._unknown = set(self._levels)  # the next message of these levels may be delivered already
        self._on_delivered = on_delivered

    def load(self) -> None:
        members = load_config(self._files, FILE_NAME)
        try:
            table = members.get("offsetTable") or {}
            self._delivered = {int(level): int(offset) for level, offset in table.items()}
            self._known_to = long_member(members.get(LOG_END) or 0)
            self._data_version = DataVersion.from_members(members.get("dataVersion") or {})
        except (BodyError, AttributeError, TypeError, ValueError) as error:
            raise StoreError(f"{FILE_NAME}: {error}") from error

    def look_back(self) -> None:
        """Finds the log offset from which `run` searches for deliveries later than `delayOffset.json`. Blocks.

        A delivered copy lies in the log after its delayed message. So the search begins at the first message that may
        still wait. Store times are not used, since they repeat after the clock was set back.
        """
        if self._known_to > self._store.end:  # a crash cut the log, which may grow past this offset again
            self._known_to = 0
            self.is_changed = True
        waiting: list[int] = []
        for level in self._levels:
            key = (SCHEDULE_TOPIC, level - 1)
            start, end = self._store.reader.bounds(key)
            if (offset := max(start, self._delivered.get(level, 0))) < end:
                with suppress(StoreError):  # an unreadable entry also keeps the level's later messages waiting
                    waiting.append(self._store.reader.entry(key, offset).physical_offset)
        self._copies_from = max(self._known_to, min(waiting, default=self._store.end))

    def unsaved(self) -> Callable[[], bytes] | None:
        """Returns a function that encodes `delayOffset.json`, or None if the file needs no write.

        Any thread may call that function.
        """
        known_to = self._known_to if self._unknown else self._store.end
        is_far = bool(self._delivered) and known_to - self._known_to > SEARCHED_BYTES
        if not self.is_changed and not is_far:
            return None
        self.is_changed = False
        self._known_to = known_to
        return partial(encode_config, {**self.members(), LOG_END: known_to})

    def members(self) -> dict[str, object]:
        return {"dataVersion": self._data_version.to_members(), "offsetTable": dict(self._delivered)}

    def replace(self, delivered: dict[int, int], known_to: int | None = None) -> None:
        """Replaces the next offset of each delay level by that of another broker.

        The new offsets include every delivery before the log offset `known_to`. None leaves that limit unchanged.
        """
        self._known_to = self._known_to if known_to is None else known_to
        if delivered != self._delivered:
            self._delivered = delivered
            self.is_changed = True

    def progress(self) -> list[tuple[int, int, int]]:
        """Returns for each delay level with deliveries: level, next offset to deliver, and end of its queue."""
        return [
            (level, offset, self._store.reader.bounds((SCHEDULE_TOPIC, level - 1))[1])
            for level, offset in sorted(self._delivered.items())
        ]

    def place(self, topic: str, queue_id: int, level: int, properties: dict[str, str]) -> tuple[int, int]:
        """Returns the queue id of SCHEDULE_TOPIC_XXXX in which a message of a delay level waits, and its delay in ms.

        Adds the level and the message's own topic and queue, for the delivery, to `properties`.
        """
        level = min(level, len(self._delays_ms))
        properties[DELAY] = str(level)
        properties[REAL_TOPIC] = topic
        properties[REAL_QID] = str(queue_id)
        return level - 1, self._delays_ms[level - 1]

    def arrived(self) -> None:
        self._arrived.set()

    async def run(self) -> None:
        await self._find_copies()
        while True:
            self._arrived = trio.Event()
            wait_ms = FAR_MS
            for level in self._levels:
                before, now_ms = self._delivered.get(level), clock.now_ms()
                wait_ms = min(wait_ms, self._deliver_level(level, now_ms))
                if self._delivered.get(level) != before:  # after deliveries, other tasks run first
                    await trio.lowlevel.checkpoint()
            if not self._unknown:
                self._copies = DelayCopies()
            with trio.move_on_after(max(0, wait_ms - clock.now_ms()) / 1000):
                await self._arrived.wait()

    @property
    def _levels(self) -> range:
        return range(1, len(self._delays_ms) + 1)

    async def _find_copies(self) -> None:
        start, end = self._copies_from, self._store.end
        if start is not None and start < end:
            log.info("delayed messages wait until %d bytes of the log are read for deliveries", end - start)
            await take_all(self._copies.find(self._store.records(start), end))
        self._copies_from = None

    def _deliver_level(self, level: int, now_ms: int) -> int:
        key = (SCHEDULE_TOPIC, level - 1)
        start, end = self._store.reader.bounds(key)
        if self._delivered.get(level, 0) < start:
            missed = start - self._delivered.get(level, 0)
            log.error("%d delayed messages of level %d are gone undelivered, with old segments", missed, level)
            self._delivered[level] = start
            self.is_changed = True
        first = min(self._delivered.get(level, 0), end)
        for offset in range(first, min(end, first + DELIVERIES_AT_ONCE)):
            try:
                entry = self._store.reader.entry(key, offset)
                # A delivery time later than the level's delay from now was computed with another configuration or
                # clock. As in RocketMQ (correctDeliverTimestamp), the message is then due now.
                passes = not now_ms < entry.tags_code <= now_ms + self._delays_ms[level - 1]
                if passes or level in self._unknown:
                    self._store.reader.store_time(key, offset)  # raises if the entry names another record
                    raw = self._store.reader.record(entry.physical_offset)
                    passes = self._deliver(raw, level, offset, is_due=passes)
                if not passes:  # undelivered, and so are all later ones, since a level delivers in order
                    self._unknown.discard(level)
                    return entry.tags_code
            except (UnsafePath, DoesNotFit) as error:
                log.error("delayed message %d of level %d is not delivered: %s", offset, level, error)
            except StoreError as error:
                log.warning("delayed messages of level %d wait: %s", level, error)
                return now_ms + RETRY_MS
            self._delivered[level] = offset + 1
            self.is_changed = True
        if self._delivered.get(level, 0) < end:
            return now_ms
        self._unknown.discard(level)
        return FAR_MS

    def _deliver(self, raw: bytes | None, level: int, offset: int, *, is_due: bool) -> bool:
        """Delivers a delayed message to its own topic, unless that was done before. Returns False if it is not due."""
        if raw is None:
            log.error("delayed message %d is not delivered: its record is damaged, or no longer in the log", offset)
            return True
        try:
            record = unpack_record(raw, 0)
            properties = decode_properties(decode_java_utf8(record.properties))
            topic, queue_id = properties[REAL_TOPIC], parse_int(properties[REAL_QID])
            pieces = message_pieces(record, properties)
        except (RecordError, BodyError, KeyError, ValueError) as error:
            log.error("delayed message %d is not delivered, it does not say where it belongs: %s", offset, error)
            return True
        if level in self._unknown and self._copies.take(copy_key(record, properties, topic, queue_id)):
            return True
        if not is_due:
            return False
        stored = self._store.put(
            Append(
                topic=topic,
                queue_id=queue_id,
                pieces=pieces,
                born_timestamp_ms=record.born_timestamp_ms,
                born_host=record.born_host,
                store_host=record.store_host,
                sys_flag=record.sys_flag & ~BATCH_RECORD,
                reconsume_times=record.reconsume_times,
            ),
            clock.now_ms(),
        )
        self._on_delivered(topic, stored.end - stored.positions[0])
        return True


def message_pieces(record: RawRecord, properties: Mapping[str, str]) -> Sequence[Piece]:
    """Returns the message in a record, or all messages of a batch that an earlier release of pyrmq stored for a retry.

    Such a record does not say which message of the batch failed, so all are delivered again.
    """
    if not record.sys_flag & BATCH_RECORD:
        return [piece(record.flag, record.body, record.properties)]
    added = {name: text for name, text in properties.items() if name not in OF_BATCH}
    items = list(iterate_batch_body(record.body))
    log.warning("a batch that was given back as one message is delivered as its %d messages", len(items))
    return [piece(item.flag, item.body, _joined(added, item.properties)) for item in items]


def _joined(added: Mapping[str, str], own: bytes) -> bytes:
    joined = encode_properties({**added, **decode_properties(decode_java_utf8(own))}).encode("utf-8", "replace")
    if len(joined) > MAX_STORED_PROPERTIES_BYTES:
        raise BodyError(f"the properties of a message of a batch have {len(joined)} bytes with what a retry added")
    return joined


def entry_maker(delays_ms: Sequence[int]) -> EntryOf:
    """Returns the function by which recovery encodes a record's queue entry. `delays_ms` are those of levels 1, 2, ...

    The entry of a delayed message has the delivery time in place of the tags' hash.
    """

    def entry_of(record: RawRecord) -> bytes:
        if record.topic == SCHEDULE_TOPIC.encode():
            level = _level(decode_properties(decode_java_utf8(record.properties)).get(DELAY, ""))
            if level > 0:
                due_ms = record.store_timestamp_ms + delays_ms[min(level, len(delays_ms)) - 1]
                return ENTRY.pack(record.commit_log_offset, record.store_size, due_ms)
        return entry_of_record(record)

    return entry_of


def _level(text: str) -> int:
    try:
        return parse_int(text)
    except ValueError:
        return 0
