"""`LogCopy`: replays the copied log of a slave, while its master appends bytes to it.

To replay is to add the queue entries of the copied records. An incomplete last record waits for its other bytes.
Damaged bytes are skipped, as in recovery.
"""

from __future__ import annotations

from typing import Final

from pyrmq_core.protocol.messages.record import BLANK_MAGIC, HEAD, MAGIC_V1, MAGIC_V2
from pyrmq_core.servers.broker.store.commit_log import CommitLog
from pyrmq_core.servers.broker.store.queue_table import QueueTable, consume_queue_form
from pyrmq_core.servers.broker.store.reading import QueueKey
from pyrmq_core.servers.broker.store.replay import EntryOf, Replay
from pyrmq_core.servers.broker.store.scan.damage import next_record

# The most records that one call replays, in some 2 ms.
RECORDS_AT_ONCE: Final = 500
# After a search found no record, the next search waits for this many new bytes. It begins a little before them, since
# a record may have been incomplete there.
SEARCH_BYTES: Final = 1 << 20
OVERLAP_BYTES: Final = 64


class LogCopy:
    """A slave's copy of its master's commit log. Records before `end` already have their entries in the consume queues.

    `holes` are the damaged ranges of the log that were skipped.
    """

    def __init__(self, log: CommitLog, queues: QueueTable, entry_of: EntryOf) -> None:
        self._log = log
        self._queues = queues
        self._entry_of = entry_of
        self._searched = -SEARCH_BYTES  # the end of the last search
        self._replayed_to = log.end
        self._is_cut = False
        self.end = log.end
        self.last_store_ms = 0
        self.holes: list[tuple[int, int]] = []
        self.unknown_topic: str | None = None  # the topic of the record at `end`, which waits for the topic's settings

    def replay(self) -> tuple[bool, list[tuple[QueueKey, bytes]]]:
        """Adds the entries of the next copied records to their queues. Returns True if more records may follow.

        Also returns the new entries of each queue. After a `StoreError`, as of a full disk, the call can be repeated.
        """
        if not self.end:
            self.end = self._log.start
        queues, written = self._queues, []
        replay = Replay(self._log, queues.make, self._entry_of, has_lite=queues.has_lite)
        replay.on_written = lambda key, queue, entries: written.append((key, consume_queue_form(queue, entries)))
        replay.run(self.end, whole=True, most=RECORDS_AT_ONCE)
        self.end, self.last_store_ms = replay.end.offset, replay.last_store_ms
        self.holes += replay.holes
        self.unknown_topic = replay.unknown_topic
        if self.unknown_topic is not None:
            self._is_cut = False
            return False, written
        self._replayed_to = self._log.end
        self._is_cut = not replay.is_cut_short and self._is_incomplete()
        return replay.is_cut_short or (not self._is_cut and self._passes_damage()), written

    @property
    def has_all(self) -> bool:
        return self.end == self._log.end or (self._is_cut and self._replayed_to == self._log.end)

    def _passes_damage(self) -> bool:
        """Moves `end` past bytes that can never become a record. Returns False if no later record has arrived yet."""
        log = self._log
        if self.end == log.end or 0 < log.end - self._searched < SEARCH_BYTES:
            return False
        intact = next_record(log, max(self.end, self._searched - OVERLAP_BYTES), log.end)
        if intact == log.end:
            self._searched = intact
            return False
        self.holes.append((self.end, intact))
        self.end, self._searched = intact, -SEARCH_BYTES
        return True

    def _is_incomplete(self) -> bool:
        there, left = self._log.end - self.end, -self.end % self._log.segment_bytes or self._log.segment_bytes
        if there < HEAD.size:
            return there < left
        size, magic = HEAD.unpack(self._log.read(self.end, HEAD.size))
        return magic in (MAGIC_V1, MAGIC_V2, BLANK_MAGIC) and there < size <= left
