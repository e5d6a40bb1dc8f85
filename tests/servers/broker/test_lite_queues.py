"""The queues of lite topics in the store: whatever stops it, they are what a plain list of the puts says."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import StoreError
from pyrmq_core.protocol.messages.lite_topics import lite_queue_name, with_lite_offsets
from pyrmq_core.protocol.messages.properties import decode_properties, encode_properties
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.store.appending import Append, AppendResult
from pyrmq_core.servers.broker.store.batch_pieces import piece
from pyrmq_core.servers.broker.store.consume_queue import ENTRY_BYTES
from pyrmq_core.servers.broker.store.disk.disk_files import DiskFiles
from pyrmq_core.servers.broker.store.disk.paths import UnsafePath
from pyrmq_core.servers.broker.store.formats import ENTRY, file_name
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store.reading import GetStatus, QueueKey
from pyrmq_core.servers.broker.store.replay import UnknownTopic
from pyrmq_core.servers.broker.store_services.flush import Flusher
from pyrmq_core.servers.broker.store_services.queue_removal import is_old_lite_queue, remove_queues
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.topics import TopicTable
from pyrmq_core.servers.embedded.forgetful_files import ForgetfulFiles
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.stores import ALL, NOW_MS, SMALL, Sent, opened
from tests.servers.broker.test_removal import call, clean_queues, remove_segment

SETTINGS = replace(SMALL, keeps_lite_queues=True)
NAMES = ["s", "t", "s-t"]


@dataclass(frozen=True)
class Lite:
    """A message of a lite topic of `topic`."""

    topic: str
    name: str
    body: bytes
    queue_id: int = 0

    def append(self) -> Append:
        plain = Sent(self.topic, self.queue_id, (self.body,), "TagA").append()
        return replace(plain, lite_queue=lite_queue_name(self.topic, self.name))


def lite_bodies(store: MessageStore, topic: str, name: str, start: int = 0) -> list[bytes]:
    """Returns a lite topic's messages from an offset on, and checks their offsets."""
    queue = lite_queue_name(topic, name)
    records = store.reader.get((queue, 0), start, ALL).records
    read = list(iterate_records(with_lite_offsets(records, queue), check_crc=True))
    assert [record.queue_offset for record in read] == list(range(start, start + len(read)))
    assert store.reader.bounds((queue, 0))[1] == start + len(read)
    assert {record.topic for record in read} <= {topic}
    return [record.body for record in read]


lites = st.builds(Lite, st.sampled_from(["A", "B"]), st.sampled_from(NAMES), st.binary(max_size=60), st.integers(0, 1))
plain = st.builds(lambda body: Sent("A", 0, (body,)), st.binary(max_size=60))
stops = st.sampled_from(["close", "kill", "flush", "power cut", "delete A", "delete s"])
steps = st.lists(st.one_of(lites, lites, plain, stops), max_size=30)
S_OF_A = lite_queue_name("A", "s")


def without_name(put: Lite | Sent) -> Lite | Sent:
    return replace(put, name="") if isinstance(put, Lite) and put.name == "s" else put


@given(steps, st.randoms(use_true_random=False))
def test_a_lite_queue_has_its_messages_in_order_after_any_stop(
    steps: list[Lite | Sent | str], chance: random.Random
) -> None:
    medium = MemoryFiles()
    files = ForgetfulFiles(medium)
    store, sent = opened(files, SETTINGS), list[Lite | Sent]()
    for step in steps:
        match step:
            case Lite() | Sent():
                store.put(step.append(), NOW_MS)
                sent.append(step)
            case "flush":
                store.flush()
            case "delete A":
                call(store.delete_topic("A"))
                sent = [put for put in sent if put.topic != "A"]
            case "delete s":
                call(store.delete_queues({(S_OF_A, 0)}, [f"consumequeue/{S_OF_A}"]))
                sent = [without_name(put) if put.topic == "A" else put for put in sent]
            case _:
                if step == "power cut":
                    store.flush()
                store.close() if step == "close" else store.abandon()
                if step == "power cut":
                    files.power_cut(lambda page: chance.random() < 0.5)
                store = opened(files, SETTINGS)
    for topic in ("A", "B"):
        parents = [put for put in sent if put.topic == topic]
        for name in NAMES:
            wanted = [put.body for put in parents if isinstance(put, Lite) and put.name == name]
            assert lite_bodies(store, topic, name) == wanted
        assert sum(store.reader.bounds((topic, queue_id))[1] for queue_id in (0, 1)) == len(parents)
    used = {(put.topic, put.name) for put in sent if isinstance(put, Lite) and put.name}
    assert store.queues.lite_queues == len(used)


@given(st.lists(lites, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_a_power_cut_leaves_the_first_messages_of_each_queue(sent: list[Lite], chance: random.Random) -> None:
    files = ForgetfulFiles(MemoryFiles())
    store = opened(files, SETTINGS)
    for number, put in enumerate(sent):
        store.put(put.append(), NOW_MS)
        if number == len(sent) // 2:
            store.flush()
    files.power_cut(lambda page: chance.random() < 0.5)
    store = opened(files, SETTINGS)
    kept = sent[: sum(store.reader.bounds((topic, queue_id))[1] for topic in "AB" for queue_id in (0, 1))]
    assert len(kept) > len(sent) // 2
    for topic in ("A", "B"):
        for name in NAMES:
            assert lite_bodies(store, topic, name) == [
                put.body for put in kept if (put.topic, put.name) == (topic, name)
            ]


def test_record_and_entry_are_as_rocketmq_writes_them() -> None:
    """Both properties and the entry, in queue 0 with the hash of the tags, are what 5.5.0 wrote."""
    files = MemoryFiles()
    store = opened(files, SETTINGS)
    places = [store.put(Lite("orders", "s-1", b"x", 1).append(), NOW_MS).positions[0] for _ in range(2)]
    records = list(iterate_records(store.reader.log_part(0, 10_000)))
    assert [(record.topic, record.queue_id, record.queue_offset) for record in records] == [
        ("orders", 1, 0),
        ("orders", 1, 1),
    ]
    assert [decode_properties(record.properties) for record in records] == [
        {"TAGS": "TagA", "INNER_MULTI_DISPATCH": "%LMQ%$orders$s-1", "INNER_MULTI_QUEUE_OFFSET": offset}
        for offset in "01"
    ]
    written = files.contents[f"consumequeue/%LMQ%$orders$s-1/0/{file_name(0)}"]
    assert [*ENTRY.iter_unpack(written[: 2 * ENTRY_BYTES])] == [
        (place, record.store_size, 2598919) for place, record in zip(places, records, strict=True)
    ]
    assert written[: 2 * ENTRY_BYTES] == files.contents[f"consumequeue/orders/1/{file_name(0)}"][: 2 * ENTRY_BYTES]


def raise_unknown(topic: str) -> None:
    raise UnknownTopic(topic)


def test_a_copy_elsewhere_is_in_no_lite_queue() -> None:
    """A retry or half message keeps the properties. A slave and a start from the whole log make the same queues."""
    master, slave = MessageStore(MemoryFiles(), SETTINGS), MessageStore(MemoryFiles(), SETTINGS)
    master.open(1)
    slave.open(1, is_copy=True)
    slave.queues.is_batch_topic = lambda topic: None if "LMQ" in topic else False
    slave.queues.on_unknown_topic = raise_unknown
    name = lite_queue_name("A", "s")
    copied = encode_properties({"INNER_MULTI_DISPATCH": name, "INNER_MULTI_QUEUE_OFFSET": "1"}).encode()
    master.put(Lite("A", "s", b"first").append(), NOW_MS)
    for topic in ("%RETRY%G", "RMQ_SYS_TRANS_HALF_TOPIC"):
        master.put(replace(Sent(topic, 0, (b"",)).append(), pieces=[piece(0, b"copy", copied)]), NOW_MS)
    master.put(Lite("A", "s", b"second").append(), NOW_MS)
    for start in range(0, master.end, 100):
        slave.copy(start, master.reader.log_part(start, 100))
        while slave.replay():
            pass
    rebuilt = MemoryFiles({"commitlog/" + file_name(0): bytearray(master.reader.log_part(0, 1024).ljust(1024, b"\0"))})
    for store in (master, slave, opened(rebuilt, SETTINGS)):
        assert lite_bodies(store, "A", "s") == [b"first", b"second"]
    without = MemoryFiles({path: bytearray(data) for path, data in rebuilt.contents.items() if "commitlog" in path})
    assert opened(without).queues.lite_queues == 0, "nothing is made while enableLmq is off"


@pytest.mark.parametrize("keeps_lite", [True, False])
def test_a_sender_places_no_record_in_a_lite_queue(keeps_lite: bool) -> None:
    """Neither a message nor a batch as one record, also if the settings come later."""
    files, own = MemoryFiles(), encode_properties({"INNER_MULTI_DISPATCH": S_OF_A, "INNER_MULTI_QUEUE_OFFSET": "0"})
    store = MessageStore(files, replace(SETTINGS, keeps_lite_queues=keeps_lite))
    store.open(1)
    batch = replace(Sent("A", 1, (b"",)).append(), pieces=[piece(0, b"x", own.encode())])
    for append in (replace(batch, queue_id=0), replace(batch, sys_flag=BATCH_RECORD, inner_num=2)):
        store.put(append, NOW_MS)
    records = list(iterate_records(store.reader.log_part(0, 10_000)))
    assert len(records) == 2
    assert not any("INNER_MULTI_QUEUE_OFFSET" in decode_properties(record.properties) for record in records)


def test_a_queue_whose_name_no_folder_can_have_stops_nothing(tmp_path: Path) -> None:
    """An append to it is refused alone, and a slave passes over its record."""
    long, own = "x" * 200, lite_queue_name("x" * 200, "y" * 64)
    stores = [MessageStore(DiskFiles(tmp_path / role), replace(SETTINGS, segment_bytes=4096)) for role in ("m", "s")]
    master, slave = stores
    master.open(1)
    refused, stored = master.put_all([Lite(long, "y" * 64, b"x").append(), Lite(long, "y", b"x").append()], NOW_MS)
    assert (type(refused), type(stored)) == (UnsafePath, AppendResult)
    slave.open(1, is_copy=True)
    named = encode_properties({"INNER_MULTI_DISPATCH": own, "INNER_MULTI_QUEUE_OFFSET": "0"})
    (first,) = iterate_records(master.reader.log_part(0, master.end))
    record = replace(first, properties=named).encode()
    after = replace(first, queue_offset=1, commit_log_offset=len(record)).encode()
    slave.copy(0, record + after)
    while slave.replay():
        pass
    assert slave.take_damage() == [(0, len(record))]
    assert slave.readable_end == slave.end
    for store in stores:
        store.close()


def test_a_deletion_on_a_slave_keeps_what_is_not_replayed() -> None:
    master, files = opened(MemoryFiles(), SETTINGS), MemoryFiles()
    slave = MessageStore(files, SETTINGS)
    slave.open(1, is_copy=True)
    for number in range(3):
        end = master.end
        master.put(Lite("A", "st"[number % 2], b"x").append(), NOW_MS)
        slave.copy(end, master.reader.log_part(end, 1024))
        if not number:
            assert not slave.replay()
    call(slave.delete_queues({(S_OF_A, 0)}, [f"consumequeue/{S_OF_A}"]))
    slave.abandon()
    slave = MessageStore(files, SETTINGS)
    slave.open(1, is_copy=True)
    assert slave.reader.bounds(("A", 0)) == (0, 3)
    assert lite_bodies(slave, "A", "t") == [b"x"]


def test_old_messages_leave_a_lite_queue_too() -> None:
    files = MemoryFiles()
    store = opened(files, SETTINGS)
    while store.end < 5 * SETTINGS.segment_bytes:
        store.put(Lite("A", "s", b"x" * 60).append(), NOW_MS)
    assert remove_segment(store)
    clean_queues(store)
    start, end = store.reader.bounds((S_OF_A, 0))
    assert (start, end) == store.reader.bounds(("A", 0))
    assert 0 < start < end
    assert store.reader.get((S_OF_A, 0), 0, ALL).status is GetStatus.OFFSET_TOO_SMALL
    assert not store.queues.is_expired((S_OF_A, 0))
    left = lite_bodies(store, "A", "s", start)
    assert f"consumequeue/{S_OF_A}/0/{file_name(0)}" not in files.contents or start * ENTRY_BYTES < 100
    store.abandon()
    again = opened(files, SETTINGS)
    assert lite_bodies(again, "A", "s", start) == left
    assert again.put(Lite("A", "s", b"next").append(), NOW_MS).queue_offset == end


async def test_a_lite_queue_that_a_failure_left_empty_is_removed() -> None:
    files = MemoryFiles()
    store, config = opened(files, SETTINGS), BrokerConfig()
    store.put(Lite("A", "s", b"x").append(), NOW_MS)
    files.room = 0
    with pytest.raises(StoreError, match="no space left"):
        store.put(Lite("A", "t", b"x").append(), NOW_MS)
    files.room = None
    assert store.queues.lite_queues == 2
    topics, offsets = TopicTable(files, config), GroupOffsets(files)
    is_gone = partial(is_old_lite_queue, store, topics, config, now_ms=NOW_MS)
    await remove_queues(store, Flusher(store, config), offsets, lambda group: False, is_gone)
    assert (store.queues.lite_queues, lite_bodies(store, "A", "s")) == (1, [b"x"])
    store.put(Lite("A", "t", b"y").append(), NOW_MS)
    assert lite_bodies(store, "A", "t") == [b"y"]


def test_a_start_without_the_settings_loses_no_entry() -> None:
    files = MemoryFiles()
    store = opened(files, SETTINGS)
    for number in range(3):
        store.put(Lite("A", "s", b"%d" % number).append(), NOW_MS)
        if not number:
            store.flush()
    store.abandon()
    store = opened(files)
    store.put(Sent("A", 0, (b"plain",)).append(), NOW_MS)
    store.abandon()
    store = opened(files, SETTINGS)
    assert lite_bodies(store, "A", "s") == [b"0", b"1", b"2"]
    assert store.put(Lite("A", "s", b"next").append(), NOW_MS).queue_offset == 4
    assert lite_bodies(store, "A", "s", 3) == [b"next"]


async def test_checks_of_age_read_no_body_and_other_tasks_run_between_them() -> None:
    files = MemoryFiles()
    store, config = opened(files, replace(SETTINGS, segment_bytes=8192)), BrokerConfig()
    for name in "abcde":
        store.put(Lite("A", name, b"x" * 500).append(), NOW_MS)
    before = files.read_bytes
    assert store.reader.store_time((S_OF_A.replace("s", "e"), 0), 0) == NOW_MS
    assert files.read_bytes - before < 400
    steps: list[str] = []

    def check(key: QueueKey) -> bool:
        steps.append("check")
        return False

    async def note() -> None:
        while True:
            steps.append("other task")
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(note)
        await remove_queues(store, Flusher(store, config), GroupOffsets(files), lambda group: False, check)
        nursery.cancel_scope.cancel()
    assert steps.count("check") == 6
    assert steps.count("other task") >= 5


@pytest.mark.parametrize("fault", ["another lite topic", "its own other offset", "no record", "a size too large"])
def test_an_entry_that_names_another_record_serves_nothing(fault: str) -> None:
    files = MemoryFiles()
    store = opened(files, SETTINGS)
    places = [store.put(Lite("A", name, b"x").append(), NOW_MS).positions[0] for name in "ssts"]
    size = places[1]
    place, size = {
        "another lite topic": (places[2], size),
        "its own other offset": (places[1], size),
        "no record": (places[0] + 1, size),
        "a size too large": (places[0], size * 2),
    }[fault]
    files.contents[f"consumequeue/{S_OF_A}/0/{file_name(0)}"][:ENTRY_BYTES] = ENTRY.pack(place, size, 0)
    with pytest.raises(StoreError, match="another record, or none"):
        store.reader.get((S_OF_A, 0), 0, ALL)
    with pytest.raises(StoreError, match="another record, or none"):
        store.reader.store_time((S_OF_A, 0), 0)
    assert store.reader.store_time((S_OF_A, 0), 1) == NOW_MS
    assert lite_bodies(store, "A", "s", 1) == [b"x", b"x"]
