"""A store with timers whose clock is a number, and the messages that it has delivered."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyrmq_core.errors import StoreError
from pyrmq_core.protocol.messages.properties import decode_properties, encode_properties
from pyrmq_core.protocol.messages.record import StoredRecord, pack_host
from pyrmq_core.servers.broker.store.appending import Append
from pyrmq_core.servers.broker.store.batch_pieces import piece
from pyrmq_core.servers.broker.store.disk.disk_files import DiskFile, DiskFiles
from pyrmq_core.servers.broker.store.disk.files import Files, StoredFile
from pyrmq_core.servers.broker.store.layout import StoreSettings
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.timers.timer_rules import (
    TIMER_DEL_UNIQKEY,
    TIMER_TOPIC,
    TimerSettings,
    place_timer,
)
from pyrmq_core.servers.broker.timers.timer_store import TimerStore
from pyrmq_core.servers.broker.timers.topic_counts import TopicCounts
from pyrmq_core.servers.embedded.forgetful_files import ForgetfulFiles, Page
from tests.servers.broker.stores import NOW_MS, read

FILES = StoreSettings(segment_bytes=1 << 20, queue_file_bytes=20_000)
# Four entries a file of the timer log.
SETTINGS = TimerSettings(log_file_bytes=256)
HOST = pack_host("127.0.0.1:10911")
# The test's sends begin at an arbitrary moment within a second.
START_MS = NOW_MS + 345
DAY_MS = 86_400_000
MEMORY_BACKED = Path("/dev/shm")


class TimedStore:
    """A store and its timers at `now_ms`; `delivered` has each topic's bodies with the time of their delivery."""

    def __init__(self, directory: Path, settings: TimerSettings, files: Files) -> None:
        self.directory = directory
        self.settings = settings
        self.now_ms = START_MS
        self.files = files
        self.lines: list[str] = []
        self.open()

    def open(self) -> None:
        self.store = MessageStore(self.files, FILES)
        self.store.open(1)
        self.timers = TimerStore(self.store, self.store.files, self.settings)
        self.timers.delivery.warn = self.lines.append
        self.timers.files.topics = TopicCounts()
        self.lines += self.timers.open(self.now_ms)

    def send(self, body: bytes, properties: dict[str, str], topic: str = "T", queue_id: int = 0) -> None:
        """Stores a message as a send does."""
        given = {"UNIQ_KEY": body.decode(), **properties}
        waits = place_timer(given, topic, queue_id, self.now_ms, self.settings)
        target = (TIMER_TOPIC, 0) if waits else (topic, queue_id)
        self.put(*target, body, encode_properties(given).encode())

    def put(self, topic: str, queue_id: int, body: bytes, properties: bytes) -> None:
        append = Append(topic, queue_id, [piece(0, body, properties)], self.now_ms, HOST, HOST)
        self.store.put(append, self.now_ms)

    def take_back(self, body: bytes, deliver_ms: int, topic: str = "T") -> None:
        """Stores a message that takes another one back, as a recall does."""
        names = {TIMER_DEL_UNIQKEY: body.decode(), "TIMER_DELIVER_MS": str(deliver_ms)}
        self.send(body, names, topic)

    def work(self) -> int:
        """Does all that can be done now; returns the ms until the next step."""
        while (wait_ms := self.timers.work(self.now_ms)) == 0:
            pass
        return wait_ms

    def run_until(self, end_ms: int) -> None:
        """Works at each time at which there is something to do."""
        while True:
            wait_ms = self.work()
            if self.now_ms + wait_ms > end_ms:
                self.now_ms = end_ms
                self.work()
                return
            self.now_ms += wait_ms

    def save(self) -> None:
        """Writes a checkpoint, as the service does at intervals."""
        if self.timers.files.names:
            self.store.flush()
            for sync in self.timers.files.syncs():
                sync()
            self.timers.files.save(self.timers.state(self.now_ms))

    def kill(self) -> None:
        """Opens the files again as a killed process left them."""
        self.store.abandon()
        self.open()

    def kill_while_stopping(self) -> None:
        """Opens the files again as a process left them that was killed before its last checkpoint."""
        files = self.timers.files
        files.save = _killed  # type: ignore[method-assign]
        with contextlib.suppress(StoreError):
            self.timers.close(self.now_ms)
        self.kill()

    def power_cut(self, keep: Callable[[Page], bool]) -> None:
        """Opens the files as a power cut left them, with those unsynced pages that `keep` chooses."""
        assert isinstance(self.files, ForgetfulFiles)
        self.store.abandon()
        self.files.power_cut(keep)
        self.open()

    def restart(self) -> None:
        self.timers.close(self.now_ms)
        self.store.close()
        self.open()

    def records(self, topic: str = "T", queue_id: int = 0) -> list[StoredRecord]:
        return read(self.store, topic, queue_id)

    def waiting(self) -> dict[str, int]:
        """Returns the number of waiting messages of topics T and U, as the page of metrics shows it."""
        assert self.timers.files.topics is not None
        return self.timers.files.topics.by_topic(("T", "U"))

    def count(self) -> int:
        """Returns the number of messages in topic T."""
        return self.store.reader.bounds(("T", 0))[1]

    def delivered(self, topic: str = "T", queue_id: int = 0) -> dict[bytes, list[int]]:
        """Returns the times at which each body was stored in its own topic."""
        deliveries: dict[bytes, list[int]] = {}
        for record in self.records(topic, queue_id):
            deliveries.setdefault(record.body, []).append(record.store_timestamp_ms)
        return deliveries


def _killed(checkpoint: object) -> None:
    raise StoreError("the process is killed")


def properties_of(record: StoredRecord) -> dict[str, str]:
    return decode_properties(record.properties)


class FillingDisk(DiskFiles):
    """A disk that is full after `room` more bytes, or never."""

    room: int | None = None

    def open(self, path: str, size: int, *, sync_name: bool = True) -> StoredFile:
        super().open(path, size, sync_name=sync_name)
        return _FillingFile(self, path, self.size(path) or 0)


class _FillingFile(DiskFile):
    __slots__ = ("_disk",)

    def __init__(self, disk: FillingDisk, path: str, size: int) -> None:
        super().__init__(disk, path, size)
        self._disk = disk

    def write(self, position: int, data: bytes) -> None:
        disk = self._disk
        if disk.room is None or not any(data):  # zeros free what was written
            super().write(position, data)
            return
        fitting = data[: disk.room]
        super().write(position, fitting)
        disk.room -= len(fitting)
        if len(fitting) < len(data):
            raise StoreError("no space left on device")


@contextmanager
def timed_store(
    timer_settings: TimerSettings = SETTINGS, *, forgetful: bool = False, files: Callable[[Path], Files] = DiskFiles
) -> Iterator[TimedStore]:
    """Yields a store in a directory of its own, which is removed afterwards."""
    directory = Path(tempfile.mkdtemp(dir=MEMORY_BACKED if MEMORY_BACKED.is_dir() else None))
    try:
        store_files = ForgetfulFiles(files(directory)) if forgetful else files(directory)
        timed = TimedStore(directory, timer_settings, store_files)
        try:
            yield timed
        finally:
            timed.store.abandon()
    finally:
        shutil.rmtree(directory)
