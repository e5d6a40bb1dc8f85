"""The index of keys against a plain copy of Java's: the same bytes and look-ups, whatever happened in between."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyrmq_core.errors import StoreError
from pyrmq_core.servers.broker.store.batch_pieces import piece
from pyrmq_core.servers.broker.store.formats import file_name
from pyrmq_core.servers.broker.store.index import key_index, log_messages, step_bounds
from pyrmq_core.servers.broker.store.index.index_file import HEADER, Layout
from pyrmq_core.servers.broker.store.index.key_index import FOLDER
from pyrmq_core.servers.broker.store.layout import CHECKPOINT_NAME, StoreSettings
from pyrmq_core.servers.embedded.forgetful_files import ForgetfulFiles
from tests.servers.broker.indexed_stores import LAYOUT, IndexedStore, Keyed, keyed, try_put, try_settle
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.stores import NOW_MS, opened

# "Aa" and "BB" have one hash.
WORDS = ("a", "b", "Aa", "BB", "id0", "red")
FILES = [f"{FOLDER}/{name}" for name in ("20231114221320000", "20231114221320001")]


@dataclass(frozen=True, slots=True)
class Room:
    """The disk takes so many bytes more; None for any number."""

    count: int | None


def properties_of(keys: list[str], unique: str, tags: str) -> str:
    pairs = (("KEYS", " ".join(keys)), ("UNIQ_KEY", unique), ("TAGS", tags))
    return "".join([f"{name}\x01{value}\x02" for name, value in pairs if value])


properties = st.builds(
    properties_of,
    st.lists(st.sampled_from(WORDS), max_size=3),
    st.sampled_from(["", "id0"]),
    st.sampled_from(["", "a"]),
)
sends = st.builds(
    Keyed,
    st.lists(properties, min_size=1, max_size=3).map(tuple),
    st.sampled_from(["T", "U"]),
    st.sampled_from([0, 0, 0, 4, 8, 12]),
)
ordinary = st.one_of(sends, sends, st.sampled_from(["settle", "seal", "stop", "kill", "later", "earlier"]))
rooms = st.builds(Room, st.integers(0, 400) | st.none())


def do(indexed_store: IndexedStore, step: Keyed | Room | str, clock: list[int]) -> IndexedStore:
    match step:
        case Keyed():
            try_put(indexed_store, step, clock[0])
        case Room():
            assert isinstance(indexed_store.files, MemoryFiles)
            indexed_store.files.room = step.count
        case "settle":
            try_settle(indexed_store)
        case "seal":
            with contextlib.suppress(StoreError):
                indexed_store.seal()
        case "later":
            clock[0] += 2500
        case "earlier":
            clock[0] -= 4000
        case "stop" | "kill":
            if isinstance(indexed_store.files, MemoryFiles):
                indexed_store.files.room = None
            if step == "stop":
                indexed_store.stop()
            else:
                indexed_store.store.abandon()
            return IndexedStore(indexed_store.files)
    return indexed_store


def check(indexed_store: IndexedStore) -> None:
    """Checks that bytes and look-ups are Java's, before and after a stop."""
    indexed_store.settle()
    java = indexed_store.java()
    for topic in ("T", "U"):
        for word in (*WORDS, "other"):
            for times in ((0, 1 << 60), (NOW_MS - 3000, NOW_MS + 1000), (NOW_MS + 1, 1 << 60), (0, NOW_MS)):
                for most in (64, 2):
                    assert indexed_store.find(word, most, times, topic) == java.find(f"{topic}#{word}", most, *times)
    indexed_store.stop()
    assert indexed_store.contents() == java.contents()


FULL_FILE = Keyed(("TAGS\x01a\x02", "KEYS\x01a a a\x02", "KEYS\x01a a a\x02"))
SECOND_FILE = (Keyed(("KEYS\x01a a a\x02",)), Keyed(("KEYS\x01a a a\x02TAGS\x01a\x02",)))


@given(st.lists(ordinary, max_size=25))
@example([FULL_FILE, "settle", SECOND_FILE[0], "seal", SECOND_FILE[1], "settle", Keyed(("",)), "kill"])
def test_stops_and_kills_leave_no_trace(steps: list[Keyed | str]) -> None:
    indexed_store, clock = IndexedStore(MemoryFiles()), [NOW_MS]
    for step in steps:
        indexed_store = do(indexed_store, step, clock)
    check(indexed_store)


@given(st.lists(st.one_of(ordinary, rooms), max_size=25))
def test_full_disks_leave_no_trace(steps: list[Keyed | Room | str]) -> None:
    files = MemoryFiles()
    indexed_store, clock = IndexedStore(files), [NOW_MS]
    for step in steps:
        indexed_store = do(indexed_store, step, clock)
    files.room = None
    indexed_store.store.dispatch(indexed_store.store.end)
    check(indexed_store)


@given(st.lists(ordinary, max_size=20), st.randoms(use_true_random=False), st.lists(sends, max_size=3))
def test_power_cuts_leave_no_trace(steps: list[Keyed | str], chance: random.Random, later: list[Keyed]) -> None:
    files = ForgetfulFiles(MemoryFiles())
    indexed_store, clock = IndexedStore(files), [NOW_MS]
    for step in steps:
        indexed_store = do(indexed_store, step, clock)
    files.power_cut(lambda page: chance.random() < 0.5)
    indexed_store = IndexedStore(files)
    for sent in later:
        indexed_store.put(sent)
    check(indexed_store)


def test_entries_of_messages_that_a_power_cut_took_go() -> None:
    """The next message lies where the lost one lay, and is stored before the index is checked."""
    files = ForgetfulFiles(MemoryFiles())
    indexed_store = IndexedStore(files)
    indexed_store.put(keyed("a"))
    indexed_store.stop()
    indexed_store = IndexedStore(files)
    (lost,) = indexed_store.put(keyed("lost"))
    indexed_store.settle()
    files.power_cut(lambda page: page[0].startswith(FOLDER))
    indexed_store = IndexedStore(files)
    assert indexed_store.put(Keyed(("",))) == [lost]
    indexed_store.settle()
    assert indexed_store.find("lost") == []
    check(indexed_store)


def filled(files: MemoryFiles, count: int = 20) -> IndexedStore:
    """Returns a settled store of messages with the key `k` and one of their own."""
    indexed_store = IndexedStore(files)
    for number in range(count):
        indexed_store.put(keyed(f"k n{number}"))
    indexed_store.settle()
    return indexed_store


@given(st.data(), st.booleans())
def test_damaged_files_end_nothing(data: st.DataObject, is_clean: bool) -> None:
    files = MemoryFiles()
    indexed_store = filled(files, 6)
    indexed_store.stop() if is_clean else indexed_store.store.abandon()
    for name in files.names(FOLDER):
        content = files.contents[f"{FOLDER}/{name}"]
        for at in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=3)):
            content[at] = data.draw(st.integers(0, 255))
    indexed_store = IndexedStore(files)
    indexed_store.settle()
    for word in ("k", "n0", "n5"):
        indexed_store.find(word)
    log_offset = indexed_store.put(keyed("fresh"))
    indexed_store.settle()
    assert indexed_store.find("fresh") == log_offset
    indexed_store.stop()
    IndexedStore(files).settle()


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(
    "fault",
    [
        *("missing", "first missing", "middle missing", "last missing"),
        *("short", "other settings", "no header", "unreadable"),
    ],
)
def test_missing_and_wrong_files_are_made_anew(fault: str, is_clean: bool) -> None:
    files = MemoryFiles()
    indexed_store = filled(files)
    indexed_store.seal()
    java_index = indexed_store.java()
    indexed_store.stop() if is_clean else indexed_store.store.abandon()
    paths = [f"{FOLDER}/{name}" for name in files.names(FOLDER)]
    assert len(paths) == 6
    layout = LAYOUT
    match fault:
        case "missing":
            for path in paths:
                del files.contents[path]
        case "first missing":
            del files.contents[paths[0]]
        case "middle missing":
            del files.contents[paths[2]]
        case "last missing":
            del files.contents[paths[-1]]
        case "short":
            del files.contents[paths[2]][100:]
        case "unreadable":
            files.unreadable[paths[2]] = 0
        case "no header":
            files.contents[paths[2]][36:40] = b"\x7f\0\0\0"
        case _:
            layout = replace(LAYOUT, slots=7)
    indexed_store = IndexedStore(files, layout)
    files.unreadable.clear()
    assert bool(indexed_store.warnings) is (fault in ("short", "no header", "other settings", "unreadable"))
    indexed_store.settle()
    assert indexed_store.find("k") == java_index.find("T#k", 64, 0, 1 << 60)
    indexed_store.stop()
    assert indexed_store.contents() == indexed_store.java().contents()


@pytest.mark.parametrize("is_power_cut", [True, False])
@pytest.mark.parametrize("fault", ["missing", "last missing", "short"])
def test_files_that_are_made_anew_do_not_count_as_synced(fault: str, is_power_cut: bool) -> None:
    """They have the names of those that were synced; a power cut may keep their pages, and lose the checkpoint's."""
    memory = MemoryFiles()
    indexed_store = filled(memory)
    indexed_store.seal()
    indexed_store.store.abandon()
    for name in memory.names(FOLDER)[0 if fault == "missing" else -2 :]:
        if fault == "short":
            del memory.contents[f"{FOLDER}/{name}"][100:]
        else:
            del memory.contents[f"{FOLDER}/{name}"]
    files = ForgetfulFiles(memory)
    again = IndexedStore(files)
    again.settle()
    assert again.index.full_file() is not None
    if is_power_cut:
        files.power_cut(lambda page: page[0] != CHECKPOINT_NAME)
    else:
        again.store.abandon()
    after = IndexedStore(memory)
    after.settle()
    assert after.find("k") == indexed_store.java().find("T#k", 64, 0, 1 << 60)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_file_whose_entries_cannot_be_read_is_made_anew(is_clean: bool) -> None:
    files = MemoryFiles()
    indexed_store = filled(files)
    indexed_store.stop() if is_clean else indexed_store.store.abandon()
    files.unreadable[f"{FOLDER}/{files.names(FOLDER)[-1]}"] = HEADER.size
    indexed_store = IndexedStore(files)
    indexed_store.settle()
    files.unreadable.clear()
    assert len(indexed_store.find("k")) == 20
    indexed_store.stop()
    assert indexed_store.contents() == indexed_store.java().contents()


def test_an_index_that_begins_with_the_log_is_whole() -> None:
    files = MemoryFiles()
    indexed_store = IndexedStore(files)
    for number in range(60):
        indexed_store.put(keyed(f"k n{number}"))
    indexed_store.settle()
    indexed_store.stop()
    names = files.names(FOLDER)
    del files.contents["commitlog/" + file_name(0)]
    indexed_store = IndexedStore(files)
    start = indexed_store.store.start
    assert start == 4096
    indexed_store.settle()
    assert files.names(FOLDER) == names
    assert retire_before(indexed_store, start) == len(names) - len(files.names(FOLDER)) > 5
    kept = indexed_store.find("n59")
    assert kept
    others = len(files.names(FOLDER)) - 1
    assert retire_before(indexed_store, 1 << 50) == others > 1
    assert len(files.names(FOLDER)) == 1, "the last file stays"
    assert indexed_store.find("n59") == kept
    indexed_store.put(keyed("more"))
    indexed_store.stop()
    indexed_store = IndexedStore(files)
    indexed_store.settle()
    assert indexed_store.find("more")


def retire_before(indexed_store: IndexedStore, log_start: int) -> int:
    """Removes the files of messages before the log's start; returns their number."""
    names = indexed_store.files.names(FOLDER)
    removals = indexed_store.index.retire_before(log_start)
    assert indexed_store.files.names(FOLDER) == names, "nothing is removed on the loop"
    assert (
        indexed_store.index.stored_bytes(log_start)
        == (len(names) - len(removals) - 1) * indexed_store.layout.file_bytes
    )
    for remove in removals:
        remove()
    return len(removals)


def test_10_000_messages_of_one_key() -> None:
    indexed_store = IndexedStore(MemoryFiles(), Layout(slots=50, entries=6000), segment_bytes=1 << 20)
    places = []
    for number in range(100):
        batch = Keyed(tuple([f"KEYS\x01k\x02UNIQ_KEY\x01{number:04d}{serial:04d}\x02" for serial in range(100)]))
        places += indexed_store.put(batch, NOW_MS + 1000 * number)
    indexed_store.settle()
    assert indexed_store.find("k") == places[:-65:-1]
    assert indexed_store.find("k", 3, (NOW_MS, NOW_MS + 9999)) == places[999:996:-1]
    assert indexed_store.find("k", 20_000) == places[::-1]
    assert indexed_store.find("00990099") == places[-1:]
    offsets: list[int] = []
    assert sum(1 for _ in indexed_store.index.find(("T", "k", None), 3, (NOW_MS, NOW_MS + 9999), offsets)) > 5, (
        "many steps"
    )
    indexed_store.stop()
    assert indexed_store.contents() == indexed_store.java().contents()


def test_one_step_enters_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_bounds, "MESSAGES_AT_ONCE", 30)
    indexed_store = IndexedStore(MemoryFiles(), Layout(slots=50, entries=6000), segment_bytes=1 << 20)
    indexed_store.settle()
    places = [indexed_store.put(keyed(*["k"] * count)) for count in (20, 20, 1, 70, 1)]
    counts = [0]
    while indexed_store.index.has_waiting:
        indexed_store.index.step()
        counts.append(len(indexed_store.find("k", 9999)))
    assert counts == [0, 40, 41, 71, 101, 111, 112]
    assert indexed_store.find("k", 9999) == [place for part in places for place in part][::-1]


def test_one_step_enters_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_bounds, "WEIGHT_AT_ONCE", 30)
    indexed_store = IndexedStore(MemoryFiles(), Layout(slots=50, entries=6000), segment_bytes=1 << 20)
    indexed_store.settle()
    # Each has 10 bytes of properties, and the long one 110.
    places = [indexed_store.put(keyed(*["k123"[:2]] * count)) for count in (2, 2, 1, 5, 64)]
    places.insert(3, indexed_store.put(keyed("k1" + 50 * " x")))
    counts = [0]
    while indexed_store.index.has_waiting:
        indexed_store.index.step()
        counts.append(len(indexed_store.find("k1", 9999)))
    steps = [after - before for before, after in itertools.pairwise(counts)]
    assert sum(steps) == 75
    assert max(steps) == 3
    indexed_store.stop()
    assert indexed_store.contents() == indexed_store.java().contents()


@pytest.mark.parametrize(
    ("record_weight", "body_bytes", "value_bytes"), [(300, 0, 1), (1, 9600, 1), (1, 0, 300)], ids=str
)
def test_one_step_reads_a_bounded_part_of_the_log(
    record_weight: int, body_bytes: int, value_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_bounds, "WEIGHT_AT_ONCE", 1000)
    monkeypatch.setattr(log_messages, "RECORD_WEIGHT", record_weight)
    store = opened(MemoryFiles(), StoreSettings(segment_bytes=1 << 20))
    places = []
    for number in range(30):
        properties = b"name\x01" + b"v" * (value_bytes + number % 2) + b"\x02"
        keyless = replace(Keyed(("",)).append(), pieces=[piece(0, bytes(body_bytes), properties)])
        places += store.put(keyless, NOW_MS).positions
    places += store.put(keyed("k").append(), NOW_MS).positions
    parts = list(log_messages.unread_messages(store, 0, store.end))
    steps = [messages for messages, _ in parts]
    assert [message.offset for messages in steps for message in messages] == places
    assert [end for _, end in parts] == [*[messages[0].offset for messages in steps[1:]], store.end]
    assert max(len(messages) for messages in steps) <= 4
    offsets: list[int] = []

    def search() -> Iterator[None]:
        offsets.append((yield from log_messages.next_with_keys(store, 0)))

    assert len(list(search())) >= 7
    assert offsets == places[-1:]


def test_more_messages_than_may_wait_are_read_from_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "MOST_WAITING_BYTES", 200)
    indexed_store = IndexedStore(MemoryFiles())
    indexed_store.settle()
    for number in range(5):
        indexed_store.put(keyed(f"k{number}"))
    assert not indexed_store.index.is_live
    assert not indexed_store.index.has_waiting
    indexed_store.settle()
    assert all(indexed_store.find(f"k{number}") for number in range(5))
    indexed_store.stop()
    assert indexed_store.contents() == indexed_store.java().contents()
