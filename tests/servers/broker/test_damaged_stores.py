"""Stores with damage: false records are never served, sound ones before them are, and amounts are reported."""

import random
from dataclasses import dataclass, field

import pytest

from pyrmq_core.errors import RecordError, StoreError
from pyrmq_core.protocol.messages.record import (
    COMMIT_LOG_OFFSET_POSITION,
    FIXED_V4,
    HEAD,
    MAGIC_V1,
    QUEUE_OFFSET_POSITION,
    iterate_records,
)
from pyrmq_core.servers.broker.store.checkpoint import Checkpoint
from pyrmq_core.servers.broker.store.formats import ENTRY, file_name
from pyrmq_core.servers.broker.store.layout import CHECKPOINT_NAME, OWN_CHECKPOINT_NAME, StoreSettings
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store.reading import GetStatus
from pyrmq_core.servers.broker.store.recovery import Recovery
from pyrmq_core.servers.broker.store.scan import log_scan
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.stores import ALL, NOW_MS, SMALL, Sent, contents, expected, opened, put, read

LOG = "commitlog/" + file_name(0)
QUEUE = "consumequeue/A/0/" + file_name(0)
SIZE = 91 + 1 + 20
KEYS = [("A", 0), ("B", 0)]
SENT = [Sent("AB"[number % 2], 0, (b"%02d" % number * 10,), "TagA"[: 4 * (number > 90)]) for number in range(8)]
TAGS = frozenset({0})


def five_entries() -> tuple[MemoryFiles, MessageStore]:
    """Returns a store with messages 0, 2, 4, 6 of the log in A, 1, 3, 5, 7 in B."""
    files = MemoryFiles()
    store = opened(files)
    put(store, *SENT)
    return files, store


def entry(place: int, size: int = SIZE, code: int = 0) -> bytes:
    return ENTRY.pack(place, size, code)


@pytest.mark.parametrize(
    "bad",
    [
        bytes(20),
        entry(5 * SIZE),  # a record of another topic
        entry(6 * SIZE),  # another record of this queue
        entry(4 * SIZE + 7),  # the middle of a record
        entry(4 * SIZE, SIZE - 1),
        entry(4 * SIZE, SIZE + 1),
        entry(4 * SIZE, -SIZE),
        entry(4 * SIZE, (1 << 31) - 2),
        entry(-1),
        entry(1000),  # beyond what is written
        entry(1 << 40),
        entry(4 * SIZE, 500),
    ],
)
@pytest.mark.parametrize("tags", [None, TAGS])
def test_an_impossible_entry_is_an_error_of_its_pull_alone(bad: bytes, tags: frozenset[int] | None) -> None:
    files, store = five_entries()
    files.contents[QUEUE][40:60] = bad
    before = store.reader.get(("A", 0), 0, ALL, tags)
    assert (before.status, before.count, before.next_offset) == (GetStatus.FOUND, 2, 2)
    assert [record.queue_offset for record in iterate_records(before.records, check_crc=True)] == [0, 1]
    with pytest.raises(StoreError, match="entry 2 of queue 0 of topic A"):
        store.reader.get(("A", 0), 2, ALL, tags)
    assert [record.queue_offset for record in read(store, "A", 0, 3)] == [3]
    assert contents(store, [("B", 0)]) == expected(SENT[1::2], [("B", 0)])
    with pytest.raises(StoreError):
        store.reader.store_time(("A", 0), 2)


def test_a_queue_whose_last_entry_cannot_be_read_is_left_out() -> None:
    """The check of a slave before it follows its master, and the search for delivered timers, need the others."""
    files, store = five_entries()
    assert store.reader.last_message() == store.reader.place_before(NOW_MS + 1) == 7 * SIZE
    files.unreadable["consumequeue/B/0/" + file_name(0)] = 60
    assert store.reader.last_message() == store.reader.place_before(NOW_MS + 1) == 6 * SIZE


def test_swapped_queues_serve_nothing_false() -> None:
    files, store = five_entries()
    other = QUEUE.replace("/A/", "/B/")
    files.contents[QUEUE], files.contents[other] = files.contents[other], files.contents[QUEUE]
    for key in KEYS:
        for offset in range(4):
            with pytest.raises(StoreError, match="another record"):
                store.reader.get(key, offset, ALL)


def test_a_zeroed_page_of_a_queue_with_batches_is_no_gap() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, Sent("A", 0, tuple(b"%d" % number for number in range(5))))
    files.contents[QUEUE][40:80] = bytes(40)
    assert store.reader.get(("A", 0), 0, ALL).next_offset == 2
    for offset in (2, 3):
        for tags in (None, TAGS):
            with pytest.raises(StoreError, match="entry"):
                store.reader.get(("A", 0), offset, ALL, tags)
    assert store.reader.get(("A", 0), 4, ALL).count == 1


def reopened(files: MemoryFiles) -> tuple[MessageStore, Recovery]:
    store = MessageStore(files, SMALL)
    return store, store.open(1)


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("entries", [slice(60, 80), slice(40, 60), slice(0, 80)])
def test_entries_that_are_gone_are_built_anew(how: str, entries: slice) -> None:
    files, store = five_entries()
    store.flush()
    store.close() if how == "stop" else store.abandon()
    files.contents[QUEUE][entries] = bytes(len(range(*entries.indices(100))))
    store, recovery = reopened(files)
    if recovery.is_rebuilt:
        assert contents(store, KEYS) == expected(SENT, KEYS)
        assert any("built anew" in line for line in recovery.warnings())
    else:  # the search for the queue's end did not look there
        with pytest.raises(StoreError, match="entry 2"):
            store.reader.get(("A", 0), 2, ALL)


def test_what_recovery_cuts_is_kept_aside_and_counted() -> None:
    files, store = five_entries()
    store.abandon()
    files.remove(CHECKPOINT_NAME)
    whole = bytes(files.contents[LOG])
    files.contents[LOG][3 * SIZE + 100] ^= 1
    store, recovery = reopened(files)
    assert recovery.kept is not None
    assert (recovery.end, recovery.kept.records) == (3 * SIZE, 5)
    copy = files.contents[recovery.kept.path]
    assert copy[100] == whole[3 * SIZE + 100] ^ 1
    assert copy[101 : 5 * SIZE] == whole[3 * SIZE + 101 : 8 * SIZE]
    (line,) = [line for line in recovery.warnings() if "at least 5 messages" in line]
    assert recovery.kept.path in line
    assert contents(store, KEYS) == expected(SENT[:3], KEYS)
    # Once more at the same place: the first copy stays.
    put(store, SENT[3])
    store.abandon()
    files.remove(CHECKPOINT_NAME)
    files.contents[LOG][3 * SIZE + 100] ^= 1
    _, again = reopened(files)
    assert again.kept is not None
    assert again.kept.path != recovery.kept.path
    assert files.contents[recovery.kept.path] == copy


def test_an_ordinary_stop_or_kill_keeps_nothing_aside() -> None:
    for how in (MessageStore.close, MessageStore.abandon):
        files, store = five_entries()
        how(store)
        assert reopened(files)[1].warnings() == []
        assert not files.names("damaged")


@pytest.mark.parametrize("at", [4, 8, 16, 20, 27, 28, 30, 60, 90, 112])
def test_damage_before_the_mark_ends_no_log(at: int) -> None:
    """A rebuild reads the damaged record again: it is skipped, and all others are there."""
    files, store = five_entries()
    store.close()
    files.contents[LOG][2 * SIZE + at - 1] ^= 0x41
    files.remove("consumequeue")
    store, recovery = reopened(files)
    assert recovery.end == 8 * SIZE
    assert contents(store, [("B", 0)]) == expected(SENT[1::2], [("B", 0)])
    bodies = [record.body for record in served(store, ("A", 0))]
    assert [body for body in bodies if body in SENT[4].bodies + SENT[6].bodies] == [*SENT[4].bodies, *SENT[6].bodies]
    assert bodies[0] == SENT[0].bodies[0]
    if at not in (20, 60):  # the user's flag and the store time, which no CRC covers
        assert len(recovery.holes) + len(recovery.bad_bodies) + recovery.gaps
        assert recovery.warnings()


@pytest.mark.parametrize("how", ["rebuilt", "killed"])
def test_a_negative_queue_offset_is_damage(how: str) -> None:
    """One flipped bit; a queue that began there would be filled with gigabytes up to its next entry."""
    files, store = five_entries()
    if how == "rebuilt":
        store.close()
        files.remove("consumequeue")
    else:
        store.abandon()
        files.remove(CHECKPOINT_NAME)
    files.contents[LOG][2 * SIZE + QUEUE_OFFSET_POSITION] ^= 0x80
    store, recovery = reopened(files)
    assert contents(store, [("B", 0)]) == expected(SENT[1::2], [("B", 0)])
    assert (2 * SIZE, 3 * SIZE) in recovery.holes
    bodies = [record.body for record in served(store, ("A", 0))]
    assert bodies == [body for sent in (SENT[0], SENT[4], SENT[6]) for body in sent.bodies]


def served(store: MessageStore, key: tuple[str, int]) -> list["Record"]:
    """Returns the records that a reader gets if it goes on behind each error, without those whose CRC is wrong."""
    records, (offset, end) = [], store.reader.bounds(key)
    while offset < end:
        try:
            got = store.reader.get(key, offset, ALL)
        except StoreError:
            offset += 1
            continue
        try:
            records += [
                Record(record.queue_offset, record.body) for record in iterate_records(got.records, check_crc=True)
            ]
        except RecordError:
            for record in iterate_records(got.records):
                if record.body in BODIES:
                    records.append(Record(record.queue_offset, record.body))
        assert got.next_offset > offset
        offset = got.next_offset
    return records


@dataclass(frozen=True)
class Record:
    offset: int
    body: bytes


BODIES = {body for batch in SENT for body in batch.bodies}


def test_an_own_checkpoint_that_was_changed_does_not_count() -> None:
    mark = Checkpoint(NOW_MS, NOW_MS, safe_offset=300, queues=1, entries=7)
    theirs, ours = mark.encode(), mark.encode_own()
    assert Checkpoint.decode(theirs, ours) == mark
    for at in range(88):
        changed = bytearray(ours)
        changed[at] ^= 1
        assert Checkpoint.decode(theirs, bytes(changed)).safe_offset is None


@pytest.mark.parametrize("now_ms", [0, -1, -86_400_000_000, -(2**62), 1])
def test_a_clock_before_1970_cuts_nothing(now_ms: int) -> None:
    for how in (MessageStore.close, MessageStore.abandon):
        files = MemoryFiles()
        store = opened(files)
        for batch in SENT:
            put(store, batch, now_ms=now_ms)
        assert store.reader.search(("A", 0), now_ms, upper=False) == 0
        how(store)
        files.remove(CHECKPOINT_NAME)
        assert contents(opened(files), KEYS) == expected(SENT, KEYS)


def test_a_clock_that_went_back_cuts_nothing() -> None:
    """With and without the mark, whatever segment the times point to."""
    for keeps_mark in (False, True):
        for times in ([5, 9, 3, 1, -4, 0, 7, 2], [9, 8, 7, 6, 5, 4, 3, 2], [-1, 1, -1, 1, -1, 1, -1, 1]):
            files = MemoryFiles()
            store = opened(files)
            sent = []
            for number, time in enumerate(times * 4):
                sent.append(Sent("AB"[number % 2], 0, (b"%02d" % number * 50,)))
                put(store, sent[-1], now_ms=NOW_MS + time * 3_600_000)
                if number == 13:
                    store.flush()
                    checkpoint = Checkpoint(NOW_MS + time * 3_600_000, NOW_MS + time * 3_600_000)
            assert 0 <= store.reader.search(("A", 0), NOW_MS, upper=True) <= 16
            store.abandon()
            if not keeps_mark:
                files.save(CHECKPOINT_NAME, checkpoint.encode(), keep_previous=False)
                files.remove(OWN_CHECKPOINT_NAME)
            # The unsynced part of the queues is gone.
            for name in files.names("consumequeue/B/0")[2:]:
                files.remove(f"consumequeue/B/0/{name}")
            assert contents(opened(files), KEYS) == expected(sent, KEYS)


@dataclass
class Fuzz:
    """A store of random messages, of which files are damaged at random."""

    chance: random.Random
    files: MemoryFiles = field(default_factory=MemoryFiles)
    sent: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    errors: int = 0
    log_is_sound: bool = True

    def fill(self) -> None:
        store, chance = opened(self.files), self.chance
        for number in range(chance.randrange(5, 60)):
            key = (chance.choice("AB"), chance.randrange(2))
            body = b"%d:%d:" % (number, chance.randrange(1000)) + chance.randbytes(chance.randrange(60))
            put(store, Sent(*key, (body,)))
            self.sent.setdefault(key, []).append(body)
            if not chance.randrange(10):
                store.flush()
        if chance.randrange(2):
            store.close()
        else:
            store.abandon()

    def damage(self) -> str:
        chance, contents = self.chance, self.files.contents
        path = chance.choice(sorted(contents))
        data = contents[path]
        at = chance.randrange(len(data) or 1)
        how = chance.choice(["flip", "flip", "flip", "zero", "noise", "truncate", "extend", "delete", "swap"])
        match how:
            case "flip" if data:
                used = len(bytes(data).rstrip(b"\0")) or 1
                data[chance.randrange(used)] ^= 1 << chance.randrange(8)
            case "zero":
                count = min(chance.choice((1, 20, 100, 4096)), len(data) - at)
                data[at : at + count] = bytes(count)
            case "noise":
                count = min(chance.randrange(1, 200), len(data) - at)
                data[at : at + count] = chance.randbytes(count)
            case "truncate":
                del data[at:]
            case "extend":
                data += chance.randbytes(chance.randrange(1, 100))
            case "delete":
                del contents[path]
            case _:
                other = chance.choice(sorted(contents))
                contents[path], contents[other] = contents[other], contents[path]
                path = f"{path} {other}"
        self.log_is_sound &= "commitlog" not in path
        return f"{how} {path} at {at}"

    def check(self) -> None:
        """Opens the store, which may raise a named error.

        Records served are those that were sent, in order, and opening again changes nothing.
        """
        try:
            store, recovery = reopened(self.files)
        except StoreError:
            return
        by_queue = {key: self._served(store, key) for key in self.sent}
        missing = sum(map(len, self.sent.values())) - sum(map(len, by_queue.values()))
        assert not missing or recovery.warnings() or self.errors, "messages are missing without a word"
        assert store.reader.earliest_ms() is not None
        for key in self.sent:
            put(store, Sent(*key, (b"later",)))
        store.abandon()
        again = opened(self.files)
        for key, bodies in by_queue.items():
            assert set(self._served(again, key)) >= set(bodies)

    def _served(self, store: MessageStore, key: tuple[str, int]) -> list[bytes]:
        """Returns the records at their own offset with their own body; a wrong body is never right by its CRC."""
        served_bodies: list[bytes] = []
        offset, end = store.reader.bounds(key)
        while offset < end:
            try:
                got = store.reader.get(key, offset, ALL)
                records = list(iterate_records(got.records, check_crc=True))
            except StoreError:
                self.errors += 1
                offset += 1
                continue
            except RecordError:
                self.errors += 1
                offset = got.next_offset
                continue
            for record in records:
                assert (record.topic, record.queue_id) == key
                if record.body == b"later":
                    continue
                if self.log_is_sound:
                    assert self.sent[key][record.queue_offset] == record.body, "something false is served"
                else:  # no CRC covers a record's queue and offset
                    assert any(record.body in bodies for bodies in self.sent.values()), "something false is served"
                served_bodies.append(record.body)
            assert got.next_offset > offset
            offset = got.next_offset
        return served_bodies


def fuzz(seeds: range) -> None:
    for seed in seeds:
        chance = random.Random(seed)
        trial = Fuzz(chance)
        trial.fill()
        done = [trial.damage() for _ in range(chance.choice((1, 1, 2, 4)))]
        try:
            trial.check()
        except BaseException as error:
            error.add_note(f"seed {seed}: {done}")
            raise


def test_damage_at_random_is_reported_and_serves_nothing_false() -> None:
    fuzz(range(400))


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_much_damage_at_random_is_reported_and_serves_nothing_false() -> None:
    fuzz(range(400, 20_000))


def forged_head(place: int, size: int, magic: int = MAGIC_V1) -> bytes:
    """Returns a body that looks like the beginning of a record at a place of the log."""
    return HEAD.pack(size, magic) + bytes(COMMIT_LOG_OFFSET_POSITION - HEAD.size) + place.to_bytes(8) + bytes(100)


@pytest.mark.parametrize("fault", ["magic", "place", "beyond the end", "larger than any record", "smaller than a head"])
def test_no_more_is_read_of_a_false_record_than_its_head(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    store = opened(files, StoreSettings(segment_bytes=1 << 20))
    place, size, magic = FIXED_V4.size, 10_000, MAGIC_V1
    match fault:
        case "magic":
            magic += 1
        case "beyond the end":
            size = 100_000
        case "larger than any record":
            monkeypatch.setattr(log_scan, "MAX_RECORD_BYTES", 9_999)
        case "smaller than a head":
            size = 8
    forged = forged_head(place + (fault == "place"), size, magic)
    put(store, Sent("A", 0, (forged,)), Sent("A", 0, (bytes(20_000),)))
    before = files.read_bytes
    assert store.reader.record(place) is None
    assert files.read_bytes - before < 100
    assert store.reader.record(0) is not None
