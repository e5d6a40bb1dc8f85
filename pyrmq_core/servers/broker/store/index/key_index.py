"""`KeyIndex`: the broker's index of keys, in a series of files, updated as the log grows.

Messages are queued when they become readable (`note`) and enter the index soon after, many at a time (`step`). Messages
that it lacks are read from the log (`catch_up`): after a kill, after a full disk, if index files are missing or
damaged, and when too many messages wait. A failure of the index never affects the messages themselves.

After a clean stop the files are valid. A crash may damage files that were not full and synced. Their entries are then
checked and linked again (`relink`). RocketMQ removes such files and reads the log again. Sources:
store/index/IndexService.java (5.4.0).
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from pyrmq_core.errors import StoreError
from pyrmq_core.protocol.messages.record import RawRecord
from pyrmq_core.protocol.messages.sysflag import TRANSACTION_MASK
from pyrmq_core.servers.broker.store.appending import Dispatched
from pyrmq_core.servers.broker.store.formats import IndexMark
from pyrmq_core.servers.broker.store.index import step_bounds
from pyrmq_core.servers.broker.store.index.entries import Entries, Message, entries_of, next_part
from pyrmq_core.servers.broker.store.index.index_file import (
    FIRST_ENTRY,
    HEADER,
    Header,
    IndexFile,
    Layout,
    name_of_time,
)
from pyrmq_core.servers.broker.store.index.key_hashes import index_key, key_hash
from pyrmq_core.servers.broker.store.index.log_messages import ROLLED_BACK, next_with_keys, unread_messages
from pyrmq_core.servers.broker.store.index.waiting_messages import WaitingMessages
from pyrmq_core.servers.broker.store.message_store import MessageStore

FOLDER: Final = "index"
NAME_DIGITS: Final = 17
# The most messages that wait in memory to enter the index, by their bytes in the log.
MOST_WAITING_BYTES: Final = 64 << 20
WALKED_AT_ONCE: Final = 250


class KeyIndex:
    """The index of keys of an opened store: its files, oldest first, and the messages that wait to enter the last one.

    While `is_live` is False, new messages are not queued, and `catch_up` must read them from the log.
    """

    def __init__(self, store: MessageStore, layout: Layout) -> None:
        self._store = store
        self._layout = layout
        self._files: list[IndexFile] = []
        self._unchecked: deque[IndexFile] = deque()
        self._waiting = WaitingMessages()
        self._indexed_to = 0  # the log offset before which no message waits for the index
        self._is_gapless = False
        self.is_open = False
        self.is_live = False
        self.begin()

    def begin(self) -> None:
        """Stores the current end of the readable messages. Later messages must be passed to `note`.

        The caller calls it again if the store is opened after this object was created.
        """
        self._opened_end = self._readable_to = self._store.readable_end

    def open(self, *, clean: bool) -> list[str]:
        """Opens the index files. Returns a warning for each damage. The caller then calls `catch_up`.

        After a crash (not `clean`), `catch_up` checks all files except full and synced ones. After a `StoreError` the
        caller tries again later, or calls `remove` before it closes the store.
        """
        self._files.clear()
        self._unchecked.clear()
        names = [name for name in self._store.files.names(FOLDER) if len(name) == NAME_DIGITS and name.isdigit()]
        warnings = []
        for position, name in enumerate(names):
            try:
                file = self._opened(name)
            except StoreError:
                file = None
            if file is None:
                warnings.append(f"index file {name} is damaged or of other settings: it is made anew from the log")
                self._unmark(int(name))
                for other in names[position:]:
                    self._store.files.remove(f"{FOLDER}/{other}")
                break
            if file.header.next_entry > FIRST_ENTRY:
                self._files.append(file)
            else:
                self._store.files.remove(f"{FOLDER}/{name}")
        self._unmark(int(self._files[-1].name) + 1 if self._files else 0)  # for files that were removed
        for number, file in enumerate(self._files):
            if not self._is_right(file, clean=clean) or file.header.end_offset >= self._store.end:
                self._unchecked.extend(self._files[number:])
                break
        self.is_open = True
        return warnings

    def _is_right(self, file: IndexFile, *, clean: bool) -> bool:
        if not clean:
            mark = self._store.indexed
            is_marked = file.header.end_ms <= mark.store_ms if mark.file is None else int(file.name) <= mark.file
            return is_marked and not file.room
        try:
            return file is not self._files[-1] or not file.room or file.load_slots()
        except StoreError:
            return False

    def _opened(self, name: str) -> IndexFile | None:
        path = f"{FOLDER}/{name}"
        if self._store.files.size(path) != self._layout.file_bytes:
            return None
        stored = self._store.files.open(path, self._layout.file_bytes)
        header = Header._make(HEADER.unpack(stored.read(0, HEADER.size)))
        if header.next_entry <= 0:  # RocketMQ writes the header with the first entry
            header = header._replace(next_entry=FIRST_ENTRY)
        if header.next_entry == FIRST_ENTRY or (
            header.next_entry <= self._layout.entries
            and 0 < header.used_slots < header.next_entry
            and (not self._files or self._files[-1].header.end_offset <= header.begin_offset)
            and header.begin_offset <= header.end_offset
            and self._is_stored(header.begin_offset, header.begin_ms)
        ):
            return IndexFile(stored, name, self._layout, header)
        return None

    def _is_stored(self, offset: int, store_ms: int) -> bool:
        if offset < self._store.start:
            return True
        record = next(self._store.records(offset)) if offset < self._store.end else None
        return isinstance(record, RawRecord) and record.store_timestamp_ms == store_ms

    @property
    def last_update(self) -> tuple[int, int]:
        """The store time and the log offset of the newest message in the index, zeros if the index is empty."""
        header = self._files[-1].header if self._files else Header()
        return header.end_ms, header.end_offset

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def note(self, messages: Dispatched) -> None:
        """Queues messages that became readable, in the order of the log. A later `step` adds them to the index."""
        self._readable_to = messages.end
        if not self.is_live:
            return
        if self._waiting.log_bytes >= MOST_WAITING_BYTES:
            self._fall_behind()
        elif messages.append.sys_flag & TRANSACTION_MASK != ROLLED_BACK:
            self._waiting.add(messages)

    def note_replayed(self, end: int) -> None:
        # A slave's messages are not queued: `catch_up` reads them from the log.
        self._readable_to = end
        self._fall_behind()

    def step(self) -> None:
        """Adds the next waiting messages to the index.

        If it raises `StoreError`, as on a full disk, the index lacks them until `catch_up` reads them from the log.
        """
        if self._waiting:
            self._enter(*self._waiting.next_entries())

    def catch_up(self) -> Iterator[None]:
        """Indexes the messages that the index lacks, in steps. Can be repeated after a `StoreError`."""
        self._fall_behind()
        while self._unchecked:
            yield from self._check(self._unchecked[0])
            self._unchecked.popleft()
        if not self._is_gapless:
            yield from self._remove_after_gap()
            self._is_gapless = True
            yield
        start, entered = self._place()
        while start < self._readable_to:
            begin = start
            for messages, start in unread_messages(self._store, begin, self._readable_to):
                before = entered if messages and messages[0].offset == begin else 0
                if messages:
                    entered = 0
                if len(messages) == 1:
                    while before := self._enter_part(messages[0], start, before):
                        yield
                else:
                    self._enter(entries_of(messages), start, before)
                yield
            if start == begin:  # the log has no readable record here
                break
        self.is_live = True

    def find(
        self, key: tuple[str, str, str | None], most: int, times_ms: tuple[int, int], offsets: list[int]
    ) -> Iterator[None]:
        """Adds to `offsets` the log offsets of up to `most` records with a key, the newest first, in steps.

        `key` is topic, word and index type (`T` for tags), `times_ms` the first and the last store time. The index has
        only hashes, so the caller must compare the records' keys.
        """
        wanted, (begin_ms, end_ms) = key_hash(index_key(*key)), times_ms
        walked = 0
        for file in reversed(self._files[:]):
            if file.overlaps(begin_ms, end_ms):
                for entry in file.chain(wanted):
                    time_ms = file.store_ms(entry)
                    if len(offsets) >= most or entry.seconds < 0:
                        break
                    if entry.key_hash == wanted and begin_ms <= time_ms <= end_ms:
                        offsets.append(entry.offset)
                    if time_ms < begin_ms:
                        break
                    walked += 1
                    if walked % WALKED_AT_ONCE == 0:
                        yield
            if file.header.begin_ms < begin_ms or len(offsets) >= most:
                break

    def full_file(self) -> IndexFile | None:
        """Returns the oldest full index file whose slots are still in memory, or None.

        The caller must write the slots, sync the file and call its `seal`.
        """
        return next((file for file in self._files if file.takes_entries and not file.room), None)

    def retire_before(self, log_start: int) -> list[Callable[[], None]]:
        """Drops index files whose messages are all before the log offset `log_start`, but never the newest file.

        Returns functions that delete the files from the disk, in any thread. Nothing is dropped while files are being
        checked.
        """
        removals = []
        while len(self._files) > 1 and self._files[0].header.end_offset < log_start and not self._unchecked:
            removals.append(self._store.files.retire(f"{FOLDER}/{self._files.pop(0).name}"))
        return removals

    def stored_bytes(self, log_start: int) -> int:
        """Returns the bytes of the index files that have messages from `log_start` on, except the newest file."""
        return sum([self._layout.file_bytes for file in self._files[:-1] if file.header.end_offset >= log_start])

    def remove(self) -> None:
        for name in self._store.files.names(FOLDER):
            self._store.files.remove(f"{FOLDER}/{name}")

    def close(self) -> None:
        """Adds the waiting messages, and syncs all files.

        A file that cannot be written or was not checked yet is removed with all later files. The next start rebuilds
        them from the log.
        """
        with contextlib.suppress(StoreError):  # the next start reads these messages from the log
            while self._waiting:
                self.step()
        for number, file in enumerate(self._files):
            if file in self._unchecked or (file.takes_entries and not file.save()):
                self._remove_from(number)
                break

    def _check(self, file: IndexFile) -> Iterator[None]:
        """Rebuilds the links between a file's entries, in steps.

        If they were wrong, the file loses its wrong entries, and all later files are removed. `catch_up` then indexes
        their messages again.
        """
        old, is_readable = file.header, True
        try:
            yield from file.relink(self._opened_end)
        except StoreError:
            is_readable = False
        if is_readable and file.header == old:
            return
        number = self._files.index(file)
        if not is_readable or file.header.next_entry == FIRST_ENTRY:
            self._remove_from(number)
        else:
            last = next(self._store.records(file.header.end_offset))
            end_ms = last.store_timestamp_ms if isinstance(last, RawRecord) else file.header.begin_ms
            file.header = file.header._replace(end_ms=end_ms)
            file.write_header()
            self._remove_from(number + 1)
        self._unchecked = deque([file])

    def _remove_after_gap(self) -> Iterator[None]:
        offset = self._store.start
        for number, file in enumerate(self._files):
            begin = file.header.begin_offset
            if begin > offset and (yield from next_with_keys(self._store, offset)) < begin:
                self._remove_from(number)
                break
            offset = file.header.end_offset + 1

    def mark_synced(self, file: IndexFile) -> None:
        """Saves in the checkpoint that a full file and all before it are synced and need no check after a crash."""
        self._store.mark_indexed(IndexMark(int(file.name), file.header.end_ms))

    def _unmark(self, name: int) -> None:
        # Files from `name` on are removed. New files may get their names, and must not be taken for synced ones.
        mark = self._store.indexed
        left = [file.header.end_ms for file in self._files if int(file.name) < name]
        file = None if mark.file is None else min(mark.file, name - 1)
        lower = IndexMark(file, min(mark.store_ms, left[-1] if left else 0))
        if lower != mark:
            self._store.mark_indexed(lower, synced=True)

    def _remove_from(self, number: int) -> None:
        for file in self._files[number : number + 1]:
            self._unmark(int(file.name))
        for file in self._files[number:]:
            self._store.files.remove(f"{FOLDER}/{file.name}")
        del self._files[number:]

    def _fall_behind(self) -> None:
        self.is_live = False
        self._waiting.clear()

    def _place(self) -> tuple[int, int]:
        """Returns the log offset of the next record to index, and how many of its entries the index already has."""
        last, entered = self._files[-1].header.end_offset if self._files else -1, 0
        if max(last, self._store.start) < self._indexed_to:
            return self._indexed_to, 0
        if last < self._store.start:
            return self._store.start, 0
        for file in reversed(self._files):
            count = file.count_last(last)
            entered += count
            if FIRST_ENTRY + count < file.header.next_entry:
                break
        return last, entered

    def _enter_part(self, message: Message, end: int, before: int) -> int:
        entries, entered = next_part(message, before, step_bounds.KEYS_AT_ONCE)
        self._enter(entries, message.offset if entered else end)
        return entered

    def _enter(self, new: Entries, end: int, entered: int = 0) -> None:
        try:
            self._append(new, entered)
        except StoreError:
            self._fall_behind()
            raise
        self._indexed_to = end

    def _append(self, new: Entries, at: int) -> None:
        while at < len(new.hashes):
            file = self._files[-1] if self._files and self._files[-1].room else self._begin_file(new.times_ms[at])
            part = slice(at, at + min(file.room, len(new.hashes) - at))
            file.append(Entries(*(column[part] for column in new)))
            at = part.stop

    def _begin_file(self, now_ms: int) -> IndexFile:
        """Creates the next file. Its name is the local time, and greater than the last file's name."""
        number, header = int(name_of_time(now_ms)), Header()
        if self._files:
            last = self._files[-1]
            number = max(number, int(last.name) + 1)
            begin = last.header
            header = Header(begin.end_ms, begin.end_ms, begin.end_offset, begin.end_offset)
        name = f"{number:0{NAME_DIGITS}d}"
        stored = self._store.files.open(f"{FOLDER}/{name}", self._layout.file_bytes)
        file = IndexFile(stored, name, self._layout, header)
        file.begin()
        self._files.append(file)
        return file
