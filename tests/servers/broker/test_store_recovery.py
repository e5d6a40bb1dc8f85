"""The store after a stop, a kill and a power cut, compared with a plain list of its puts."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.servers.broker.store.checkpoint import Checkpoint
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.store.formats import ENTRY, FILLER, file_name
from pyrmq_core.servers.broker.store.layout import CHECKPOINT_NAME, OWN_CHECKPOINT_NAME
from pyrmq_core.servers.broker.store.message_store import MessageStore, StoreListener
from pyrmq_core.servers.embedded.forgetful_files import ForgetfulFiles, Page
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.stores import NOW_MS, Sent, contents, expected, opened, put, read

KEYS = [("A", 0), ("A", 1), ("%RETRY%G", 0)]
LOG = "commitlog/" + file_name(0)

sends = st.builds(
    lambda key, sizes, fill: Sent(key[0], key[1], tuple(bytes([fill]) * size for size in sizes), "TagA"),
    st.sampled_from(KEYS),
    st.lists(st.integers(0, 90), min_size=1, max_size=3),
    st.integers(1, 255),
)
steps = st.lists(st.one_of(sends, st.sampled_from(["flush", "flush log", "stop", "kill"])), min_size=1, max_size=25)


def do(store: MessageStore, files: Files, step: "Sent | str") -> MessageStore:
    match step:
        case Sent():
            put(store, step)
        case "flush":
            store.flush()
        case "flush log":
            end, syncs = store.unsynced()
            for sync in syncs:
                sync()
            store.synced(end)
        case "stop":
            store.close()
            store = opened(files)
        case _:
            store.abandon()
            store = opened(files)
    return store


@given(steps)
def test_reopening_gives_what_was_put(steps: list["Sent | str"]) -> None:
    files = MemoryFiles()
    store = opened(files)
    for step in steps:
        store = do(store, files, step)
    sent = [step for step in steps if isinstance(step, Sent)]
    assert contents(store, KEYS) == expected(sent, KEYS)
    store.close()
    assert contents(opened(files), KEYS) == expected(sent, KEYS)


@given(steps, st.randoms(use_true_random=False), st.lists(sends, max_size=3))
def test_a_power_cut_takes_only_what_was_not_synced(
    steps: list["Sent | str"], chance: random.Random, later: list[Sent]
) -> None:
    memory = MemoryFiles()
    files = ForgetfulFiles(memory)
    store = opened(files)
    sent: list[Sent] = []
    synced = 0
    for step in steps:
        store = do(store, files, step)
        if isinstance(step, Sent):
            sent.append(step)
        else:
            synced = len(sent)
    files.power_cut(lambda page: chance.random() < 0.5)
    store = opened(files)
    queues = contents(store, KEYS)
    kept = prefix(sent, queues)
    assert kept >= synced
    # The rest is a whole store: it takes messages, and a kill changes nothing.
    put(store, *later)
    store.abandon()
    partly = {key: bodies + expected(later, KEYS)[key] for key, bodies in queues.items()}
    assert contents(opened(files), KEYS) == partly


def prefix(sent: list[Sent], queues: dict[tuple[str, int], list[bytes]]) -> int:
    """Returns how many puts are stored whole; checks that only a part of the next one may be stored besides."""
    messages = [(batch.topic, batch.queue_id, body) for batch in sent for body in batch.bodies]
    count = sum(map(len, queues.values()))
    lists: dict[tuple[str, int], list[bytes]] = {key: [] for key in KEYS}
    for topic, queue_id, body in messages[:count]:
        lists[topic, queue_id].append(body)
    assert queues == lists
    whole = 0
    for batch in sent:
        count -= len(batch.bodies)
        whole += count >= 0
    return whole


SENT = [Sent("A", 0, (b"first",), "TagA"), Sent("A", 1, (b"", b"b" * 30)), Sent("A", 0, (b"last",))]


def three_puts() -> tuple[MemoryFiles, list[int]]:
    """Returns the files of a killed store, and the end of each put."""
    files = MemoryFiles()
    store = opened(files)
    ends = []
    for batch in SENT:
        put(store, batch)
        ends.append(store.end)
    store.abandon()
    return files, ends


def test_a_cut_at_every_byte() -> None:
    files, _ = three_puts()
    whole = bytes(files.contents[LOG])
    starts = [record.commit_log_offset for key in KEYS for record in read(opened(files), *key)]
    end = max(starts) + 91 + 1 + 4
    for cut in range(end + 1):
        files, _ = three_puts()
        files.contents[LOG][cut:] = bytes(1024 - cut)
        files.remove(CHECKPOINT_NAME)
        store = opened(files)
        # The cut bytes may have been zeros anyway.
        assert store.end == max(start for start in [0, *starts, end] if not whole[cut:start].strip(b"\0"))
        queues = contents(store, KEYS)
        assert sum(map(len, queues.values())) == len([start for start in starts if start < store.end])
        put(store, Sent("A", 0, (b"after",)))
        assert read(store, "A", 0)[-1].body == b"after"


@pytest.mark.parametrize("clean", [False, True])
def test_the_first_bad_record_ends_the_log(clean: bool) -> None:
    files, ends = three_puts()
    files.remove(CHECKPOINT_NAME)
    if clean:
        files.remove("abort")
    files.contents[LOG][ends[0] + 4] ^= 0xFF
    store = opened(files)
    assert store.end == ends[0]
    assert contents(store, KEYS) == expected(SENT[:1], KEYS)
    assert not any(files.contents[LOG][ends[0] :])


def test_a_flipped_body_byte_is_found_by_its_crc() -> None:
    files, ends = three_puts()
    files.remove(CHECKPOINT_NAME)
    at = bytes(files.contents[LOG]).index(b"b" * 30)
    files.contents[LOG][at] ^= 1
    store = MessageStore(files, opened(MemoryFiles()).settings)
    recovery = store.open(1)
    assert (recovery.clean, recovery.reason, recovery.records) == (False, "the body's CRC differs", 2)
    assert ends[0] < recovery.end < ends[1]
    assert contents(store, [("A", 0)]) == {("A", 0): [b"first"]}


def test_phantom_entries_are_dropped() -> None:
    """The case seen on 5.4.0: dead entries behind the end, a log that has grown past them, a clean restart."""
    files, ends = three_puts()
    queue = files.contents["consumequeue/A/0/" + file_name(0)]
    queue[40:60] = ENTRY.pack(ends[0], 120, 0)
    queue[60:80] = ENTRY.pack(ends[0] + 7, 91, 0)
    for name in ("abort", CHECKPOINT_NAME):
        files.remove(name)
    mark = Checkpoint(NOW_MS, NOW_MS, safe_offset=ends[-1])
    files.save(CHECKPOINT_NAME, mark.encode(), keep_previous=False)
    files.save(OWN_CHECKPOINT_NAME, mark.encode_own(), keep_previous=False)
    store = MessageStore(files, opened(MemoryFiles()).settings)
    assert store.open(1).dropped_entries == 2
    assert contents(store, KEYS) == expected(SENT, KEYS)
    assert not any(queue[40:])


def test_without_queues_they_are_rebuilt() -> None:
    for gone in ("consumequeue", "consumequeue/A/0"):
        for flushed in (False, True):
            files, _ = three_puts()
            if flushed:
                opened(files).close()
            files.remove(gone)
            assert contents(opened(files), KEYS) == expected(SENT, KEYS)


def test_a_queue_missing_in_another_brokers_store_is_rebuilt_from_the_logs_beginning() -> None:
    files = MemoryFiles()
    store = opened(files)
    sent = [Sent("A", number % 2, (bytes([number]) * 200,)) for number in range(12)]
    put(store, *sent)
    store.close()
    files.remove(CHECKPOINT_NAME)
    files.remove("consumequeue/A/1")
    assert contents(opened(files), KEYS) == expected(sent, KEYS)


def test_a_trimmed_log_without_queues_gets_fillers() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, *[Sent("A", 0, (bytes([number]) * 200,)) for number in range(7)])
    store.close()
    files.remove("consumequeue")
    files.remove(LOG)
    store = opened(files)
    assert store.reader.bounds(("A", 0)) == (3, 7)
    assert bytes(files.contents["consumequeue/A/0/" + file_name(0)][:60]) == FILLER * 3
    assert [record.queue_offset for record in read(store, "A", 0, 3)] == [3, 4, 5, 6]
    store.close()
    assert opened(files).reader.bounds(("A", 0)) == (3, 7)


def test_a_trimmed_log_moves_the_queues_beginning() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, *[Sent("A", 0, (bytes([number]) * 200,)) for number in range(7)])
    store.close()
    files.remove(LOG)
    assert opened(files).reader.bounds(("A", 0)) == (3, 7)


def test_a_topic_made_again_begins_at_0_also_after_a_rebuild() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, Sent("A", 0, (b"old", b"older")), Sent("A", 1, (b"1",)))
    store.delete_topic("A")
    assert store.reader.bounds(("A", 0)) == (0, 0)
    store.abandon()
    store = MessageStore(files, store.settings)
    assert store.open(1).records == 0
    assert store.reader.bounds(("A", 0)) == (0, 0)
    put(store, Sent("A", 0, (b"new",)))
    assert contents(store, [("A", 0)]) == {("A", 0): [b"new"]}
    store.abandon()
    files.remove(CHECKPOINT_NAME)
    assert contents(opened(files), [("A", 0)]) == {("A", 0): [b"new"]}


def test_a_kill_reads_again_only_from_the_mark() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, *[Sent("A", 0, (b"x" * 300,)) for _ in range(10)])
    store.flush()
    marked = store.end
    put(store, Sent("A", 0, (b"y",)))
    store.abandon()
    again = MessageStore(files, store.settings)
    recovery = again.open(1)
    assert (recovery.read_from, recovery.records, recovery.end) == (marked, 1, store.end)


def test_a_killed_store_of_another_broker_is_read_from_the_segment_its_checkpoint_names() -> None:
    files = MemoryFiles()
    store = opened(files)
    for number in range(10):
        put(store, Sent("A", 0, (bytes([number]) * 300,)), now_ms=NOW_MS + number * 10_000)
    store.abandon()
    checkpoint = Checkpoint(NOW_MS + 55_000, NOW_MS + 55_000)
    files.save(CHECKPOINT_NAME, checkpoint.encode(), keep_previous=False)
    again = MessageStore(files, store.settings)
    assert again.open(1).read_from == 2048
    assert again.reader.bounds(("A", 0)) == (0, 10)


def sync_all(syncs: list[Callable[[], None]]) -> None:
    for sync in syncs:
        sync()


def test_with_sync_flush_a_message_is_readable_when_it_is_on_the_medium() -> None:
    files = ForgetfulFiles(MemoryFiles())
    settings = opened(MemoryFiles()).settings.__class__(1024, 100, readable_when_flushed=True)
    store = opened(files, settings)
    seen: list[tuple[tuple[str, int], int]] = []

    class Readable(StoreListener):
        def readable(self, key: tuple[str, int], entries: bytes) -> None:
            seen.append((key, len(entries) // ENTRY.size))

    store.listener = Readable()
    put(store, Sent("A", 0, (b"1",)), Sent("A", 0, (b"2",)))
    end, syncs = store.unsynced()
    put(store, Sent("A", 0, (b"3",)))
    assert (store.reader.bounds(("A", 0)), seen) == ((0, 0), [])
    sync_all(syncs)
    store.synced(end)
    assert [record.body for record in read(store, "A", 0)] == [b"1", b"2"]
    assert seen == [(("A", 0), 2)]
    store.abandon()
    files.power_cut()
    assert [record.body for record in read(opened(files, settings), "A", 0)][:2] == [b"1", b"2"]


def test_pages_not_synced_are_forgotten() -> None:
    memory = MemoryFiles()
    files = ForgetfulFiles(memory)
    file = files.open("f", 10_000)
    file.write(0, b"synced")
    file.sync()
    file.write(3, b"lost")
    file.write(5000, b"kept")
    survivors: Callable[[Page], bool] = lambda page: page == ("f", 1)  # noqa: E731
    files.power_cut(survivors)
    assert bytes(memory.contents["f"][:6]) == b"synced"
    assert bytes(memory.contents["f"][5000:5004]) == b"kept"
