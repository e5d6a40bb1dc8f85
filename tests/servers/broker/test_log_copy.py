"""A copied log: whatever pieces it arrives in, and whenever the slave ends, log and queues are the master's."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import StoreError
from pyrmq_core.servers.broker.store import log_copy
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.embedded.forgetful_files import ForgetfulFiles
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.stores import NOW_MS, Sent, put, read
from tests.servers.broker.test_put_groups import BATCHES, SETTINGS, appends

SEGMENT = SETTINGS.segment_bytes
FOLDERS = ("commitlog", "consumequeue", "batchconsumequeue")
ends = st.sampled_from(["close", "kill", "power cut"])
# The bytes of a copy, the records of a replay by what follows it, an end of the slave, or more of the master's.
steps = st.lists(st.one_of(st.integers(1, 3000), st.just("replay"), ends, appends), max_size=25)


def opened(files: ForgetfulFiles | MemoryFiles, *, is_copy: bool = False) -> MessageStore:
    store = MessageStore(files, SETTINGS)
    store.queues.is_batch_topic = lambda topic: topic == BATCHES
    recovery = store.open(1, is_copy=is_copy)
    assert not recovery.is_rebuilt
    assert not recovery.warnings()
    return store


class Pair:
    """A master in memory, and its slave."""

    def __init__(self) -> None:
        self.medium = MemoryFiles()
        self.master = opened(MemoryFiles())
        self.start_slave()

    def start_slave(self) -> None:
        self.files = ForgetfulFiles(self.medium)
        self.slave = opened(self.files, is_copy=True)

    def end_slave(self, how: str) -> None:
        if how == "close":
            self.slave.close()
        else:
            self.slave.abandon()
        if how == "power cut":
            self.files.power_cut()

    def copy(self, most: int) -> int:
        """Copies up to `most` bytes, in pieces that each lie in one segment; returns how many there were."""
        copied = 0
        while copied < most:
            start = self.slave.end or first_offset(self.master)
            if not (data := self.master.reader.log_part(start, most - copied)):
                break
            self.slave.copy(start, data)
            copied += len(data)
        return copied

    def catch_up(self) -> None:
        while self.copy(SEGMENT):
            pass
        while self.slave.replay():
            pass


def first_offset(master: MessageStore) -> int:
    return master.start


def stored(files: MemoryFiles) -> dict[str, bytes]:
    """Returns log and queues by path, without the zeros behind them."""
    return {path: bytes(data).rstrip(b"\0") for path, data in files.contents.items() if path.split("/")[0] in FOLDERS}


def stored_by(store: MessageStore) -> dict[str, bytes]:
    files = store.files
    return stored(files if isinstance(files, MemoryFiles) else files._files)  # type: ignore[attr-defined]


@pytest.fixture(autouse=True, scope="module")
def _few_records_at_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_copy, "RECORDS_AT_ONCE", 2)
        yield


@given(steps)
def test_a_slave_has_what_its_master_has(steps: list[object]) -> None:
    pair, now_ms = Pair(), NOW_MS
    for step in steps:
        match step:
            case int():
                pair.copy(step)
            case "replay":
                pair.slave.replay()
            case str():
                pair.end_slave(step)
                pair.start_slave()
            case list():
                pair.master.put_all(step, now_ms)
                now_ms += 1
    pair.catch_up()
    assert pair.slave.readable_end == pair.slave.end == pair.master.end
    assert not pair.slave.take_damage()
    assert stored_by(pair.slave) == stored_by(pair.master)
    pair.slave.close()
    pair.start_slave()
    assert pair.slave.end == pair.master.end
    assert stored_by(pair.slave) == stored_by(pair.master)


def test_what_a_body_holds_is_no_record_while_its_end_is_missing() -> None:
    """The body has the bytes of a record, with the very offset at which they lie."""
    pair = Pair()
    place = 200
    inner = MessageStore(MemoryFiles(), SETTINGS)
    inner.open(1)
    put(inner, Sent("A", 0, (b"x" * 10,)))
    record = bytearray(inner.reader.log_part(0, 1000))
    record[28:36] = place.to_bytes(8)
    head = 84 + 4  # of a record before its body
    put(pair.master, Sent("A", 0, (bytes(place - head) + bytes(record) + b"y" * 300,)))
    assert pair.master.reader.log_part(place, len(record)) == record
    pair.copy(450)
    assert not pair.slave.replay()
    assert pair.slave.readable_end == 0
    pair.catch_up()
    assert stored_by(pair.slave) == stored_by(pair.master)
    assert not pair.slave.take_damage()


def test_a_record_is_read_when_its_last_byte_is_there() -> None:
    """A record without properties ends with zeros, as the file does behind what has arrived."""
    pair = Pair()
    put(pair.master, Sent("T", 0, (b"first",)))
    pair.copy(pair.master.end - 1)
    assert not pair.slave.replay()
    assert pair.slave.readable_end == 0
    pair.catch_up()
    assert pair.slave.readable_end == pair.master.end


def test_a_slave_that_stops_in_order_within_a_record_becomes_a_master() -> None:
    pair = Pair()
    put(pair.master, Sent("A", 0, (b"x" * 50,)), Sent("A", 0, (b"y" * 50,)))
    pair.copy(pair.master.end - 10)
    assert not pair.slave.replay()
    pair.slave.close()
    promoted = opened(pair.medium)
    assert promoted.reader.bounds(("A", 0)) == (0, 1)
    put(promoted, Sent("A", 0, (b"z",)))
    assert [record.body for record in read(promoted, "A", 0)] == [b"x" * 50, b"z"]


def test_damage_is_passed_over() -> None:
    pair = Pair()
    for body in (b"first", b"second", b"third"):
        put(pair.master, Sent("A", 0, (body,)))
    log = bytearray(pair.master.reader.log_part(0, SEGMENT))
    second = log.find(b"second")
    log[second] ^= 0xFF
    pair.slave.copy(0, bytes(log))
    while pair.slave.replay():
        pass
    ((start, end),) = pair.slave.take_damage()
    assert start < second < end
    assert pair.slave.readable_end == len(log)
    assert [pair.slave.reader.store_time(("A", 0), offset) for offset in range(3)] == [NOW_MS, None, NOW_MS]


@pytest.mark.parametrize(("offset", "size"), [(5, 10), (SEGMENT - 5, 10), (3 * SEGMENT + 1, 4)])
def test_bytes_that_do_not_fit_into_a_segment_are_refused(offset: int, size: int) -> None:
    pair = Pair()
    with pytest.raises(StoreError, match="mappedFileSizeCommitLog"):
        pair.slave.copy(offset, bytes(size))
    assert pair.slave.end == 0


def test_bytes_that_do_not_follow_are_refused() -> None:
    pair = Pair()
    pair.slave.copy(SEGMENT, b"abc")
    for offset in (SEGMENT, SEGMENT + 2, SEGMENT + 4, 2 * SEGMENT):
        with pytest.raises(StoreError, match=f"do not belong at {SEGMENT + 3}"):
            pair.slave.copy(offset, b"d")
    assert pair.slave.end == SEGMENT + 3
    assert pair.slave.start == SEGMENT


def test_a_full_disk_keeps_the_copy_whole() -> None:
    pair = Pair()
    for number in range(12):
        put(pair.master, Sent("A", number % 3, (b"x" * 150,)))
    pair.copy(500)
    pair.medium.room = 0
    with pytest.raises(StoreError):
        pair.copy(10 * SEGMENT)
    end = pair.slave.end
    pair.medium.room = None
    pair.catch_up()
    assert end < pair.slave.end == pair.master.end
    assert stored_by(pair.slave) == stored_by(pair.master)
