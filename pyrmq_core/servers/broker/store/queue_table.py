"""The consume queues of a store by topic and queue id, and groups of appends that are written together.

A queue starts at its first message that is still in the log. After segments of the log were removed, the start of a
queue is moved only when the queue is used, since a store may have many queues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple, TypeAlias

from pyrmq_core.errors import StoreError
from pyrmq_core.protocol.messages.lite_topics import OFFSETS_INSIDE
from pyrmq_core.protocol.messages.names import is_lite_queue, owner_topic
from pyrmq_core.protocol.messages.record import SHORT
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD
from pyrmq_core.servers.broker.store.appending import (
    INNER_BYTES,
    LITE_BYTES,
    Append,
    AppendResult,
    Dispatched,
    DoesNotFit,
    appended_bytes,
    build,
    properties_tags_code,
)
from pyrmq_core.servers.broker.store.batch_pieces import properties_of
from pyrmq_core.servers.broker.store.batch_queue import (
    BatchConsumeQueue,
    BatchEntry,
    BatchSlots,
    as_consume_queue_entries,
)
from pyrmq_core.servers.broker.store.commit_log import CommitLog
from pyrmq_core.servers.broker.store.consume_queue import ConsumeQueue
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.store.disk.paths import queue_folder, queue_number
from pyrmq_core.servers.broker.store.formats import ENTRY, Entry
from pyrmq_core.servers.broker.store.layout import BATCH_QUEUES_FOLDER, QUEUES_FOLDER, StoreSettings
from pyrmq_core.servers.broker.store.reading import AnyConsumeQueue, QueueKey

Slots: TypeAlias = ConsumeQueue | BatchSlots
LITE_QUEUE_ID: Final = 0
_new: Final = tuple.__new__  # takes half as long as the constructor of a `NamedTuple`


class Waiting(NamedTuple):
    """A stored append whose packed `entries` are not written to its queue yet, so that no reader finds its messages.

    `end` is the log offset after the messages. A lite topic's message has two entries: in a queue of the parent topic
    and in that of the lite topic. For the second, `messages` is None, so that the message is reported only once.
    """

    key: QueueKey
    queue: AnyConsumeQueue
    queue_offset: int
    entries: bytes
    end: int
    messages: Dispatched | None


def write_entries(waiting: deque[Waiting], end: int) -> tuple[list[Dispatched], list[tuple[QueueKey, bytes]]]:
    """Writes the queue entries of messages stored before `end`, with one write for each queue.

    Removes them from `waiting`, and returns the messages and the new entries of each queue. If a full disk refuses
    entries, their messages and all later ones stay in `waiting`.
    """
    due = list(waiting)
    if due and due[-1].end > end:
        due = [stored for stored in due if stored.end <= end]
    written: list[tuple[QueueKey, bytes]] = []
    for group in [due] if len(due) == 1 else _by_queue(due):
        first = group[0]
        queue = first.queue
        if first.queue_offset < queue.end:
            # An earlier call wrote entries of this queue, before a full disk refused those of another one.
            group = [stored for stored in group if stored.queue_offset >= queue.end]
            if not group:
                continue
            first = group[0]
        entries = first.entries if len(group) == 1 else b"".join([stored.entries for stored in group])
        try:
            queue.append(first.queue_offset, entries)
        except StoreError:
            del due[due.index(first) :]
            break
        written.append((first.key, consume_queue_form(queue, entries)))
    for _ in due:
        waiting.popleft()
    return [stored.messages for stored in due if stored.messages is not None], written


def consume_queue_form(queue: AnyConsumeQueue, entries: bytes) -> bytes:
    return as_consume_queue_entries(entries) if isinstance(queue, BatchConsumeQueue) else entries


def _by_queue(messages: Iterable[Waiting]) -> Iterable[list[Waiting]]:
    groups: dict[QueueKey, list[Waiting]] = {}
    for stored in messages:
        groups.setdefault(stored.key, []).append(stored)
    return groups.values()


class QueueTable:
    """All consume queues of a store, by topic and queue id.

    The callback `is_batch_topic` returns None for a topic whose settings are unknown.
    """

    def __init__(
        self,
        files: Files,
        settings: StoreSettings,
        log: CommitLog,
        is_batch_topic: Callable[[str], bool | None] = lambda topic: None,
    ) -> None:
        self._files = files
        self._settings = settings
        self._log = log
        self.by_key: dict[QueueKey, AnyConsumeQueue] = {}
        self.lite_queues = 0
        self.is_batch_topic = is_batch_topic
        # Called for a new queue of an unknown topic; raises `UnknownTopic` if the queue must wait for the topic.
        self.on_unknown_topic: Callable[[str], None] = lambda topic: None

    def has_lite(self, name: str) -> bool:
        """Returns True if a lite topic's message also gets an entry in the lite topic's queue `name`.

        That is so if the queue exists, or if the settings enable queues of lite topics.
        """
        return self._settings.keeps_lite_queues or (name, LITE_QUEUE_ID) in self.by_key

    def open(self) -> None:
        """Opens the files of all queues.

        Raises `StoreError` if a batch topic has queues of single messages, or another topic has batch queues.
        """
        self._open(QUEUES_FOLDER, are_batch=False)
        self._open(BATCH_QUEUES_FOLDER, are_batch=True)

    def get(self, key: QueueKey) -> AnyConsumeQueue | None:
        """Returns a queue, or None if it is unknown. Its `start` is first moved to the start of the log."""
        queue = self.by_key.get(key)
        if queue is not None and queue.log_start != self._log.start:
            follow_log(queue, self._log.start)
        return queue

    def make(self, key: QueueKey, has_batch: bool) -> AnyConsumeQueue:
        """Returns a queue, which is created if it is missing.

        A new queue is a batch queue if its topic is a batch topic, or if the topic is unknown and `has_batch`. The
        queue of a lite topic is never a batch queue.
        """
        queue = self.get(key)
        if queue is None:
            is_batch_topic = False if is_lite_queue(key[0]) else self.is_batch_topic(key[0])
            if is_batch_topic is None:
                self.on_unknown_topic(key[0])
            queue = self._make(key, is_batch=has_batch if is_batch_topic is None else is_batch_topic)
        return queue

    def keys_of(self, topic: str) -> frozenset[QueueKey]:
        """Returns the keys of a topic's queues and of the queues of its lite topics."""
        return frozenset(key for key in self.by_key if owner_topic(key[0]) == topic)

    def take(self, keys: Collection[QueueKey]) -> dict[QueueKey, AnyConsumeQueue]:
        """Removes queues from the table and returns them. Their files stay. Unknown keys are skipped."""
        removed = {key: queue for key in keys if (queue := self.by_key.pop(key, None)) is not None}
        self.lite_queues -= _lite_count(removed)
        return removed

    def put_back(self, removed: dict[QueueKey, AnyConsumeQueue]) -> None:
        self.by_key.update(removed)
        self.lite_queues += _lite_count(removed)

    def retire_files(self, key: QueueKey) -> list[Callable[[], None]]:
        """Drops the files of a queue whose messages were all removed from the log.

        Returns functions that delete the files, to be called in the order of the list, in any thread.
        """
        queue = self.get(key)
        return [] if queue is None else slots_of(queue).retire_files()

    def is_expired(self, key: QueueKey) -> bool:
        queue = self.get(key)
        return queue is not None and queue.start == queue.end > 0 and queue.next_offset == queue.end

    def folder(self, key: QueueKey) -> str:
        """Returns the folder to delete with a queue: for a lite topic, which has only one queue, the topic's folder."""
        if is_lite_queue(key[0]):
            return f"{QUEUES_FOLDER}/{key[0]}"
        kind = BATCH_QUEUES_FOLDER if isinstance(self.by_key.get(key), BatchConsumeQueue) else QUEUES_FOLDER
        return f"{kind}/{queue_folder(*key)}"

    def stored_bytes(self, key: QueueKey) -> int:
        queue = self.by_key.get(key)
        return 0 if queue is None else slots_of(queue).stored_bytes

    def count_entries(self) -> int:
        # Removed entries are included: a queue's end is also the number of entries that it ever had.
        return sum([slots_of(queue).end for queue in self.by_key.values()])

    def count_used(self) -> int:
        return sum([queue.end > 0 for queue in self.by_key.values()])

    def _open(self, folder: str, *, are_batch: bool) -> None:
        for topic in self._files.folders(folder):
            if self.is_batch_topic(topic) is (not are_batch):
                kinds = ("SimpleCQ", "BatchCQ") if are_batch else ("BatchCQ", "SimpleCQ")
                raise StoreError(f"The queue type of topic: {topic} should be {kinds[0]}, but is {kinds[1]}")
            for number in self._files.folders(f"{folder}/{topic}"):
                if (queue_id := queue_number(number)) is not None:
                    self._make((topic, queue_id), is_batch=are_batch).open()

    def _make(self, key: QueueKey, *, is_batch: bool) -> AnyConsumeQueue:
        files, settings, folder = self._files, self._settings, queue_folder(*key)
        queue: AnyConsumeQueue
        if is_batch:
            queue = BatchConsumeQueue(files, f"{BATCH_QUEUES_FOLDER}/{folder}", settings.batch_queue_file_bytes)
        else:
            queue = ConsumeQueue(files, f"{QUEUES_FOLDER}/{folder}", settings.queue_file_bytes)
        self.put_back({key: queue})
        return queue


class AppendGroup:
    """A group of appends that are written to one segment of the commit log together.

    `add` collects them. The queues' next offsets change only in `write`.
    """

    __slots__ = ("_end", "_log", "_next_offsets", "_queues", "_records", "entries", "waiting")

    def __init__(self, log: CommitLog, queues: QueueTable) -> None:
        self._log = log
        self._queues = queues
        self._end = 0
        self._records: list[bytes] = []
        self._next_offsets: dict[AnyConsumeQueue, int] = {}
        self.waiting: list[Waiting] = []
        self.entries = 0

    def add(self, append: Append, now_ms: int) -> AppendResult | None:
        """Adds an append with the store time `now_ms`. Returns its offsets, or None if the segment has no room for it.

        Raises `DoesNotFit` for an append larger than a segment, and for a batch record without `inner_num`. Raises
        `UnsafePath` for a topic that cannot be a folder's name, and another `StoreError` if the disk fails.
        """
        log, is_batch = self._log, append.inner_num > 0
        size = appended_bytes(append) + (INNER_BYTES if is_batch else LITE_BYTES if append.lite_queue else 0)
        if append.sys_flag & BATCH_RECORD and not is_batch:
            raise DoesNotFit("a batch that is one record does not fit where one message belongs")
        if not log.fits(size):
            raise DoesNotFit(f"{size} bytes do not fit into one segment of the commit log (mappedFileSizeCommitLog)")
        key = (append.topic, append.queue_id)
        queue = self._queues.make(key, is_batch)
        index = self._next_offsets.get(queue, queue.next_offset)
        lite, lite_index = None, 0
        # The properties are joined, since a search in those of each message would cost half a microsecond a message.
        if OFFSETS_INSIDE in b"".join(properties_of(append.pieces, 0, len(append.pieces))):
            append = append.unplaced()
        if is_batch:
            append = append.based(index)
            size = appended_bytes(append)
        elif append.lite_queue:
            lite = self._queues.make((append.lite_queue, LITE_QUEUE_ID), has_batch=False)
            lite_index = self._next_offsets.get(lite, lite.next_offset)
            append = append.placed(lite_index)
            size = appended_bytes(append)
        if not self.waiting:
            self._end = log.place(size)
        elif not log.has_room(self._end, size):
            return None
        # This broker and RocketMQ take a record with the store time 0 for bytes never written (log_scan.py).
        store_ms = now_ms or 1
        batch_topic = isinstance(queue, BatchConsumeQueue)
        records, entries, positions = build(append, self._end, index, store_ms, batch_topic=batch_topic)
        self._end = end = self._end + size
        self._records.append(records)
        self._next_offsets[queue] = index + (append.inner_num or len(positions))
        self.entries += len(positions)
        messages = _new(Dispatched, (append, positions, store_ms, end))
        self.waiting.append(_new(Waiting, (key, queue, index, entries, end, messages)))
        if lite is not None:
            self._add_lite(lite, append, lite_index, size, end)
        return AppendResult(positions, index, end)

    def _add_lite(self, queue: AnyConsumeQueue, append: Append, index: int, size: int, end: int) -> None:
        ((_, _, properties),) = append.pieces
        entry = ENTRY.pack(end - size, size, properties_tags_code(properties[SHORT.size :]))
        self._next_offsets[queue] = index + 1
        self.entries += 1
        self.waiting.append(Waiting((append.lite_queue, LITE_QUEUE_ID), queue, index, entry, end, None))

    def write(self) -> int:
        """Writes the records and returns the log's end. If it raises `StoreError`, nothing has changed."""
        end = self._log.append(b"".join(self._records))
        for queue, offset in self._next_offsets.items():
            queue.next_offset = offset
        return end


def _lite_count(keys: Iterable[QueueKey]) -> int:
    return sum([is_lite_queue(topic) for topic, _ in keys])


def slots_of(queue: AnyConsumeQueue) -> Slots:
    return queue.slots if isinstance(queue, BatchConsumeQueue) else queue


def follow_log(queue: AnyConsumeQueue, log_start: int) -> None:
    """Moves the queue's start to its first message at or after `log_start`, or to its end if there is none."""
    slots = slots_of(queue)
    if log_start:
        slots.start = first_slot(slots, slots.start, lambda entry: entry.physical_offset >= log_start)
    while slots.start < slots.end and slots.entry(slots.start).is_leading_filler:
        slots.start += 1
    slots.log_start = log_start
    if isinstance(queue, BatchConsumeQueue):
        queue.start = queue.slots.entry(slots.start).base if slots.start < slots.end else queue.end


def first_slot(slots: Slots, low: int, holds: Callable[[Entry | BatchEntry], bool]) -> int:
    """Returns the number of the first queue entry from `low` on for which `holds` returns True, or else `slots.end`.

    This is a binary search: `holds` must return True for all later entries, too.
    """
    high = slots.end
    while low < high:
        middle = (low + high) // 2
        if holds(slots.entry(middle)):
            high = middle
        else:
            low = middle + 1
    return low
