"""The parsers of timer files and of messages that wait, for `fuzzing`, with real input for each."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from pyrmq_core.protocol.messages.record import unpack_record
from pyrmq_core.servers.broker.store.batch_pieces import piece
from pyrmq_core.servers.broker.store.formats import file_name
from pyrmq_core.servers.broker.timers.timer_checkpoint import TimerCheckpoint
from pyrmq_core.servers.broker.timers.timer_copies import (
    NEVER_ENQUEUED,
    DeliveredCopies,
    NoTimer,
    copy_of,
    key_of_copy,
    read_message,
)
from pyrmq_core.servers.broker.timers.timer_log import FOLDER, TimerEntry, TimerLog
from pyrmq_core.servers.broker.timers.timer_wheel import PATH, SLOT, TimerWheel
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.transactions.halves import HALF, raw

PROPERTIES = b"REAL_TOPIC\x01T\x02REAL_QID\x013\x02TIMER_OUT_MS\x011795265750000\x02TIMER_ROLL_TIMES\x012\x02"
MESSAGE = raw(replace(HALF, pieces=[piece(0, b"x", PROPERTIES)]))
ENTRIES = b"".join(
    TimerEntry(52 * number - 52 if number else -1, 1, 1_000, 61_000, 300 * number, 300, 7, 0).pack()
    for number in range(6)
)
SLOTS = b"".join(SLOT.pack(number, 0, 52 * number, 1, 0) for number in range(12))
CHECKPOINT = TimerCheckpoint(1_795_265_749_000, 104, 17, 0, 1_795_265_750_000, 5, 4096, 1000).encode()[:120]


def message(data: bytes) -> None:
    """Reads a message that waits, and makes what is delivered of it."""
    with contextlib.suppress(NoTimer):
        timer_message = read_message(unpack_record(data, 0))
        for rolls in (False, True):
            copy_of(timer_message, NEVER_ENQUEUED, 1, rolls=rolls)
            copies = DeliveredCopies()
            copies.find([timer_message.record], 0, 0, 0)
            copies.take(key_of_copy(timer_message, rolls=rolls))


def log(data: bytes) -> None:
    """Scans a file of the timer log with this content, then follows each link."""
    size = len(data) + 128
    files = MemoryFiles({f"{FOLDER}/{file_name(0)}": bytearray(data.ljust(size, b"\0"))})
    opened = TimerLog(files, size)
    opened.open()
    for position, _ in list(opened.scan(0)):
        while position >= 0:
            position = opened.entry(position).previous  # always before the entry, so this ends


def wheel(data: bytes) -> None:
    """Reads the slots of a wheel that begins with this content."""
    opened = TimerWheel(SmallWheel({PATH: bytearray(data)}), 1000)
    opened.open()
    list(opened.waiting(1))


class SmallWheel(MemoryFiles):
    """Files that give a wheel its length, though they hold only its beginning."""

    def size(self, path: str) -> int | None:
        return 2 * 7 * 24 * 3600 * SLOT.size


def checkpoint(data: bytes) -> None:
    state = TimerCheckpoint.decode(data)
    if state is not None:
        state.encode()
