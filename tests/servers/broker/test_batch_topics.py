"""Batch topics on our broker: records, queue entries, pulls and recovery, compared with RocketMQ 5.4.0."""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import StoreError
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.batch import BatchItem, encode_batch_body, iterate_batch_body
from pyrmq_core.protocol.messages.properties import decode_properties
from pyrmq_core.protocol.messages.record import iterate_records, pack_host
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD
from pyrmq_core.protocol.requests.broker.offsets import GetMaxOffset, GetMinOffset, OffsetFound, SearchOffset
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage, PullSysFlag
from pyrmq_core.protocol.requests.broker.send_message import MessageStored
from pyrmq_core.protocol.requests.broker.topic_admin import UpdateTopic
from pyrmq_core.servers.broker.store.appending import Append, DoesNotFit
from pyrmq_core.servers.broker.store.batch_pieces import piece
from pyrmq_core.servers.broker.store.batch_queue import BatchEntry
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.store.formats import file_name
from pyrmq_core.servers.broker.store.layout import StoreSettings
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store.reading import GetLimits, GetStatus
from pyrmq_core.servers.embedded.forgetful_files import ForgetfulFiles
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.serving import Served, message, serving
from tests.servers.broker.stores import NOW_MS

SMALL = StoreSettings(segment_bytes=4096, queue_file_bytes=100, batch_queue_file_bytes=46 * 3)
BIG = StoreSettings(segment_bytes=1 << 24, queue_file_bytes=6000, batch_queue_file_bytes=460_000)
KEY = ("B", 0)
QUEUE_FILE = "batchconsumequeue/B/0/" + file_name(0)


@dataclass(frozen=True, slots=True)
class Put:
    """A batch stored as one record, or messages by themselves."""

    bodies: tuple[bytes, ...]
    whole: bool
    tags: str = ""

    def append(self) -> Append:
        properties = f"TAGS\x01{self.tags}\x02" if self.tags else ""
        template = Append("B", 0, [], NOW_MS, pack_host("10.0.0.5:50000"), pack_host("127.0.0.1:10911"))
        if not self.whole:
            return replace(template, pieces=[piece(0, body, properties.encode()) for body in self.bodies])
        own = piece(0, inner(self.bodies, self.tags), f"UNIQ_KEY\x01R\x02{properties}".encode())
        return replace(template, pieces=[own], sys_flag=BATCH_RECORD, inner_num=len(self.bodies))


def inner(bodies: Sequence[bytes], tags: str = "") -> bytes:
    properties = f"TAGS\x01{tags}\x02".encode() if tags else b""
    return encode_batch_body(BatchItem(0, body, properties) for body in bodies)


def opened(files: Files, settings: StoreSettings = SMALL) -> MessageStore:
    store = MessageStore(files, settings)
    store.queues.is_batch_topic = lambda topic: topic == "B"
    store.open(1)
    return store


def always(is_batch_topic: bool) -> Callable[[str], bool]:
    return lambda topic: is_batch_topic


def put(store: MessageStore, *given: Put, now_ms: int = NOW_MS) -> None:
    for batch in given:
        store.put(batch.append(), now_ms)


def bodies_of(records: bytes | memoryview) -> list[tuple[int, bytes]]:
    """Returns offset and body of each message in the records of a pull."""
    messages = []
    for record in iterate_records(records, check_crc=True):
        if record.sys_flag & BATCH_RECORD:
            own = decode_properties(record.properties)
            items = list(iterate_batch_body(record.body))
            assert (own["INNER_BASE"], own["INNER_NUM"]) == (str(record.queue_offset), str(len(items)))
            messages += [(record.queue_offset + number, bytes(item.body)) for number, item in enumerate(items)]
        else:
            messages.append((record.queue_offset, record.body))
    return messages


def contents(store: MessageStore) -> list[tuple[int, bytes]]:
    messages: list[tuple[int, bytes]] = []
    start, end = store.reader.bounds(KEY)
    while start < end:
        pulled = store.reader.get(KEY, start, GetLimits())
        assert pulled.status is GetStatus.FOUND
        messages += bodies_of(pulled.records)
        start = pulled.next_offset
    return messages


def listed(given: Sequence[Put]) -> list[tuple[int, bytes]]:
    return list(enumerate(body for batch in given for body in batch.bodies))


puts = st.builds(
    Put,
    st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=4).map(tuple),
    st.booleans(),
    st.sampled_from(["", "TagA"]),
)


@pytest.mark.parametrize("topic", ["B", "plain"])
def test_a_batch_record_is_not_stored_as_one_message(topic: str) -> None:
    """No way leads past the store: no retry, dead letter, delivery or transaction."""
    store = opened(MemoryFiles())
    with pytest.raises(DoesNotFit, match="where one message belongs"):
        store.put(replace(Put((b"a", b"b"), True).append(), topic=topic, inner_num=0), NOW_MS)
    put(store, Put((b"c",), False))
    assert contents(store) == [(0, b"c")]


steps = st.lists(st.one_of(puts, st.sampled_from(["flush", "stop", "kill", "forget queues"])), min_size=1, max_size=20)


@given(steps)
def test_reopening_gives_what_was_put(steps: list[Put | str]) -> None:
    files = MemoryFiles()
    store = opened(files)
    for step in steps:
        if isinstance(step, Put):
            put(store, step)
        elif step == "flush":
            store.flush()
        else:
            store.close() if step == "stop" else store.abandon()
            if step == "forget queues":
                files.remove("batchconsumequeue")
            store = opened(files)
    given = [step for step in steps if isinstance(step, Put)]
    assert contents(store) == listed(given)
    assert store.reader.bounds(KEY) == (0, len(listed(given)))


@given(st.lists(puts, max_size=8), st.lists(puts, max_size=8), st.lists(puts, max_size=3))
def test_a_power_cut_takes_only_what_was_not_synced(before: list[Put], lost: list[Put], later: list[Put]) -> None:
    memory = MemoryFiles()
    files = ForgetfulFiles(memory)
    store = opened(files)
    put(store, *before)
    store.flush()
    put(store, *lost)
    store.abandon()
    files.power_cut()
    store = opened(ForgetfulFiles(memory))
    kept = contents(store)
    assert kept[: len(listed(before))] == listed(before)
    assert kept == listed([*before, *lost])[: len(kept)]
    put(store, *later)
    bodies = [body for batch in later for body in batch.bodies]
    assert contents(store) == kept + list(enumerate(bodies, len(kept)))


def test_queue_entries_are_those_of_5_4_0() -> None:
    """The entry of 100 messages that was read from its store."""
    raw = BatchEntry(6820756, 11820, 2598919, 1795265434915, 200, 100).pack()
    assert raw == struct.pack(">qiqqqh", 6820756, 11820, 2598919, 1795265434915, 200, 100) + b"\xff" * 4 + bytes(4)
    files = MemoryFiles()
    put(opened(files), Put((b"x",) * 3, whole=True), Put((b"y", b"z"), whole=False, tags="TagA"))
    entries = [struct.unpack(">qiqqqhii", bytes(files.contents[QUEUE_FILE][at : at + 46])) for at in (0, 46, 92)]
    assert [(base, count) for *_, base, count, _, _ in entries] == [(0, 3), (3, 1), (4, 1)]
    assert [code for _, _, code, *_ in entries] == [0, 2598919, 2598919]


@pytest.mark.parametrize(
    ("size", "requested", "records"),
    [
        (10, 1, 1), (10, 8, 1), (10, 32, 3), (10, 64, 4), (10, 1000, 4),
        (30, 32, 1), (30, 64, 2), (30, 4096, 2), (100, 1000, 1), (1000, 4096, 1),
    ],
)  # fmt: skip
def test_how_many_records_one_pull_takes(size: int, requested: int, records: int) -> None:
    """The numbers were counted on 5.4.0 with its default caps."""
    store = opened(MemoryFiles(), BIG)
    put(store, *[Put((b"x" * 50,) * size, whole=True)] * 6)
    result = store.reader.get(KEY, 0, GetLimits(min(requested, 32), 262_144, requested))
    assert len(list(iterate_records(result.records))) == records
    assert result.next_offset == records * size


@pytest.mark.parametrize(
    ("cap", "requested", "size", "body_bytes", "records"),
    [(32_768, 1024, 10, 100, 102), (32_768, 100, 30, 100, 3), (4096, 4096, 100, 1000, 2)],
)
def test_raised_caps(cap: int, requested: int, size: int, body_bytes: int, records: int) -> None:
    store = opened(MemoryFiles(), BIG)
    put(store, *[Put((b"x" * body_bytes,) * size, whole=True)] * 110)
    result = store.reader.get(KEY, 0, GetLimits(min(requested, cap), 262_144, requested))
    assert result.next_offset == records * size


def test_a_pull_inside_a_batch_gives_it_whole() -> None:
    store = opened(MemoryFiles(), BIG)
    put(store, Put((b"a",) * 1000, whole=True), Put((b"b",), whole=False))
    for offset in (0, 500, 999):
        result = store.reader.get(KEY, offset, GetLimits())
        assert (result.next_offset, len(bodies_of(result.records))) == (1000, 1000)
    assert bodies_of(store.reader.get(KEY, 1000, GetLimits()).records) == [(1000, b"b")]
    assert store.reader.get(KEY, 1001, GetLimits()).status is GetStatus.OFFSET_OVERFLOW_ONE
    assert store.reader.get(KEY, 1002, GetLimits()).status is GetStatus.OFFSET_OVERFLOW_BADLY


@pytest.mark.parametrize(("size", "skipped"), [(1000, 1000), (10, 350)])
def test_tags_are_the_records(size: int, skipped: int) -> None:
    """A record with another tag, or from a batch without one, is skipped: few offsets at a time."""
    store = opened(MemoryFiles(), BIG)
    put(store, *[Put((b"x",) * size, whole=True)] * 40, Put((b"y",), whole=True, tags="TagA"))
    result = store.reader.get(KEY, 0, GetLimits(), {2598919})
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, skipped)
    assert bodies_of(store.reader.get(KEY, size * 40, GetLimits(), {2598919}).records) == [(size * 40, b"y")]


def test_few_offsets_are_skipped_behind_a_found_message() -> None:
    store = opened(MemoryFiles(), BIG)
    put(store, Put((b"y",), whole=True, tags="TagA"), *[Put((b"x",) * 10, whole=True)] * 100)
    result = store.reader.get(KEY, 0, GetLimits(), {2598919})
    assert (bodies_of(result.records), result.next_offset) == ([(0, b"y")], 351)


def test_times_are_the_records() -> None:
    store = opened(MemoryFiles(), BIG)
    for number in range(3):
        put(store, Put((b"x",) * 10, whole=True), now_ms=NOW_MS + number * 100)
    assert [store.reader.search(KEY, NOW_MS + ms, upper=False) for ms in (-5, 0, 1, 100, 101, 200, 201)] == [
        0, 0, 10, 10, 20, 20, 30,
    ]  # fmt: skip
    assert [store.reader.store_time(KEY, offset) for offset in (0, 9, 10)] == [NOW_MS, NOW_MS, NOW_MS + 100]


def test_queues_of_the_other_kind_end_the_start() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, Put((b"x",), whole=True))
    store.close()
    store = MessageStore(files, SMALL)
    store.queues.is_batch_topic = lambda topic: False
    with pytest.raises(StoreError, match="The queue type of topic: B should be SimpleCQ, but is BatchCQ"):
        store.open(1)


@pytest.mark.parametrize("damaged", [b"INNER_NUM\x01-", b"INNER_NUN\x013", b"INNER_NUM\x010"])
def test_a_batch_with_a_damaged_count_is_a_hole_and_the_store_opens(damaged: bytes) -> None:
    """No CRC covers properties."""
    files = MemoryFiles()
    store = opened(files)
    put(store, Put((b"a",), whole=True), Put((b"b", b"c", b"d"), whole=True), Put((b"e", b"f"), whole=True))
    store.close()
    log = files.contents["commitlog/" + file_name(0)]
    at = log.index(b"INNER_NUM\x013")
    log[at : at + len(damaged)] = damaged
    files.remove("batchconsumequeue")
    store = MessageStore(files, SMALL)
    store.queues.is_batch_topic = lambda topic: topic == "B"
    recovery = store.open(1)
    assert any("no record can be read between" in line for line in recovery.warnings())
    assert bodies_of(store.reader.get(KEY, 0, GetLimits()).records) == [(0, b"a"), (4, b"e"), (5, b"f")]


def test_a_topic_made_again_as_the_other_kind_keeps_its_later_messages() -> None:
    """All queues are also built again from the log, which holds records of both."""
    for kinds in ((True, False), (False, True)):
        files, given = MemoryFiles(), Put((b"new",), whole=kinds[1])
        store = opened(files)
        store.queues.is_batch_topic = always(kinds[0])
        put(store, Put((b"old", b"older"), whole=kinds[0]))
        store.delete_topic("B")
        store.queues.is_batch_topic = always(kinds[1])
        put(store, given)
        store.abandon()
        files.remove("consumequeue")
        files.remove("batchconsumequeue")
        files.remove("checkpoint")
        store = MessageStore(files, SMALL)
        store.queues.is_batch_topic = always(kinds[1])
        store.open(1)
        assert contents(store)[:1] == [(0, b"new")]


async def made(served: Served, attributes: str = "+queue.type=BatchCQ") -> None:
    answer = await served.ask(UpdateTopic("B", 1, 1, 6, attributes=attributes).to_command())
    assert answer.code == 0, answer.remark


async def send(
    served: Served, body: bytes, properties: str = "UNIQ_KEY\x01R\x02", sys_flag: int = 0, *, batch: bool = True
) -> Command:
    request = replace(message("B", body, properties), batch=batch, sys_flag=sys_flag)
    return await served.ask(request.to_command())


async def test_a_batch_is_one_record_and_outlives_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await made(served)
        stored = MessageStored.from_command(await send(served, inner([b"a", b"b", b"c"])))
        assert (stored.queue_offset, stored.batch_uniq_id, stored.transaction_id) == (0, "R", "R")
        assert len(stored.msg_ids) == 32
        split = MessageStored.from_command(await send(served, inner([b"d", b"e"]), properties=""))
        assert (split.queue_offset, split.batch_uniq_id, len(split.msg_ids)) == (3, None, 65)
        single = MessageStored.from_command(await send(served, b"f", "", batch=False))
        assert single.queue_offset == 5
        served.running.kill()
        await served.ended.wait()
    async with serving(tmp_path) as served:
        await send(served, inner([b"g", b"h"]))
        pulled = await served.pull("B", offset=1)
        assert bodies_of(pulled.records) == list(enumerate([b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"]))
        (first, *_) = iterate_records(pulled.records)
        assert set(decode_properties(first.properties)) == {
            "UNIQ_KEY", "MSG_REGION", "TRACE_ON", "CLUSTER", "INNER_NUM", "INNER_BASE",
        }  # fmt: skip
        assert (first.sys_flag & BATCH_RECORD, pulled.min_offset, pulled.max_offset) == (BATCH_RECORD, 0, 8)
        for request, expected in (
            (GetMaxOffset("B", 0), 8), (GetMinOffset("B", 0), 0),
            (SearchOffset("B", 0, 0), 0), (SearchOffset("B", 0, 1 << 50), 8),
        ):  # fmt: skip
            assert OffsetFound.from_command(await served.ask(request.to_command())).offset == expected


ILLEGAL = ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize(
    ("body", "properties", "sys_flag", "batch", "code", "said"),
    [
        (inner([b"x"] * 32_768), "UNIQ_KEY\x01R\x02", 0, True, ResponseCode.SYSTEM_ERROR, "NumberFormatException"),
        (inner([b"x"]), "UNIQ_KEY\x01R\x02", 0x301, True, ResponseCode.SYSTEM_ERROR, "compressed"),
        (bytes(30), "UNIQ_KEY\x01R\x02", 0, True, ILLEGAL, "declares 0 bytes"),
        (inner([b"x"])[:-1], "UNIQ_KEY\x01R\x02", 0, True, ILLEGAL, "a batch"),
        (inner([b"x"]), "UNIQ_KEY\x01R\x02DELAY\x013\x02", 0, True, ILLEGAL, "the message is illegal"),
        (b"x", "INNER_NUM\x013\x02", 0, False, ILLEGAL, "the message is illegal"),
        (b"x", "", 0xC0, False, ILLEGAL, "the message is illegal"),
        (inner([b"x"]), "", 0xC0, True, ILLEGAL, "the message is illegal"),
        (inner([b"x" * (4 << 20)]), "UNIQ_KEY\x01R\x02", 0, True, ILLEGAL, "the message is illegal"),
    ],
)
async def test_what_is_refused(
    tmp_path: Path, body: bytes, properties: str, sys_flag: int, batch: bool, code: ResponseCode, said: str
) -> None:
    async with serving(tmp_path) as served:
        await made(served)
        answer = await send(served, body, properties, sys_flag, batch=batch)
        assert answer.code == code
        assert said in (answer.remark or "")
        assert OffsetFound.from_command(await served.ask(GetMaxOffset("B", 0).to_command())).offset == 0


async def test_the_largest_batches_are_taken(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await made(served)
        assert (await send(served, inner([b"x"] * 32_767))).code == 0
        whole = MessageStored.from_command(await send(served, inner([b"x" * ((4 << 20) - 22)])))
        assert whole.queue_offset == 32_767


@pytest.mark.parametrize("change", ["+queue.type=BatchCQ", "+queue.type=SimpleCQ", "-queue.type"])
async def test_what_a_topic_is_it_stays(tmp_path: Path, change: str) -> None:
    async with serving(tmp_path) as served:
        await made(served)
        answer = await served.ask(UpdateTopic("B", 4, 4, 6, attributes=change).to_command())
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "attempt to update an unchangeable attribute. key: queue.type"
        await made(served, "")
        assert MessageStored.from_command(await send(served, inner([b"x", b"y"]))).batch_uniq_id == "R"


async def test_a_pull_that_waits_for_a_tag_hears_of_a_batch(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await made(served)
        answers: list[PullAnswer] = []
        flags = int(PullSysFlag.SUBSCRIPTION | PullSysFlag.SUSPEND)
        request = PullMessage("G", "B", 0, 0, 32, flags, suspend_timeout_ms=20_000, subscription="TagA")

        async def pull() -> None:
            answers.append(PullAnswer.from_command(await served.ask(request.to_command())))

        served.nursery.start_soon(pull)
        while not served.running.broker.clients.held.count:
            await served.ask(Command(RequestCode.GET_BROKER_RUNTIME_INFO))
        await send(served, inner([b"x", b"y"], "TagA"), "UNIQ_KEY\x01R\x02TAGS\x01TagA\x02")
        while not answers:
            await served.ask(Command(RequestCode.GET_BROKER_RUNTIME_INFO))
        assert bodies_of(answers[0].records) == [(0, b"x"), (1, b"y")]
