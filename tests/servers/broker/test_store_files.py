"""The store's files: RocketMQ's records, segments, blanks and queue entries; and files on a real disk."""

import json
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import BodyError, StoreError
from pyrmq_core.protocol.java.string_hash import tags_code
from pyrmq_core.protocol.messages.batch import BatchItem, encode_batch_body, iterate_batch_body
from pyrmq_core.protocol.messages.properties import decode_java_utf8, decode_properties
from pyrmq_core.protocol.messages.record import decode_record, encode_record, pack_host
from pyrmq_core.servers.broker.store.appending import Append, DoesNotFit, appended_bytes, build, properties_tags_code
from pyrmq_core.servers.broker.store.batch_pieces import BatchPieces, batch_pieces, piece, properties_of
from pyrmq_core.servers.broker.store.checkpoint import Checkpoint
from pyrmq_core.servers.broker.store.commit_log import CommitLog
from pyrmq_core.servers.broker.store.disk.disk_files import DiskFiles
from pyrmq_core.servers.broker.store.formats import Entry, blank_record, file_name, file_offset
from pyrmq_core.servers.broker.store.layout import StoreSettings
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.stores import SMALL, Sent, opened, put, read

GOLDEN = Path(__file__).parents[2] / "golden" / "real_pull_records.json"
HOSTS = ("127.0.0.1:10911", "[fd00::2]:10911")


def test_records_are_byte_for_byte_those_of_released_brokers() -> None:
    """Records stored by 5.4.0 and 4.9.7, taken apart and made again from the fields of a send."""
    records = [record for pull in json.loads(GOLDEN.read_text()) for record in split(bytes.fromhex(pull["body"]))]
    assert len(records) > 10
    for raw in records:
        record = decode_record(raw)
        append = Append(
            record.topic,
            record.queue_id,
            [piece(record.flag, record.body, record.properties.encode())],
            record.born_timestamp_ms,
            pack_host(record.born_host),
            pack_host(record.store_host),
            record.sys_flag,
            record.reconsume_times,
            record.prepared_transaction_offset,
        )
        built = build(append, record.commit_log_offset, record.queue_offset, record.store_timestamp_ms)
        assert built.records == raw


def split(body: bytes) -> list[bytes]:
    records = []
    while body:
        size = int.from_bytes(body[:4])
        records.append(body[:size])
        body = body[size:]
    return records


@given(
    topic=st.text("aZ9%|_-", min_size=1, max_size=200),
    items=st.lists(
        st.builds(BatchItem, st.integers(-(2**31), 2**31 - 1), st.binary(max_size=40), st.binary(max_size=40)),
        min_size=1,
        max_size=5,
    ),
    hosts=st.tuples(st.sampled_from(HOSTS), st.sampled_from(HOSTS)),
    sys_flag=st.sampled_from((0, 1, 8, 769)),
    offsets=st.tuples(st.integers(0, 2**60), st.integers(0, 2**60)),
)
def test_appended_bytes_are_those_of_encode_record(
    topic: str, items: list[BatchItem], hosts: tuple[str, str], sys_flag: int, offsets: tuple[int, int]
) -> None:
    append = Append(
        topic, 2, [piece(*item) for item in items], 5, pack_host(hosts[0]), pack_host(hosts[1]), sys_flag, 3, 4
    )
    physical, queue_offset = offsets
    built = build(append, physical, queue_offset, 6)
    whole = b""
    for number, item in enumerate(items):
        assert built.positions[number] == physical + len(whole)
        whole += encode_record(
            topic=topic,
            queue_id=2,
            queue_offset=queue_offset + number,
            commit_log_offset=physical + len(whole),
            body=item.body,
            properties=item.properties,
            born_timestamp_ms=5,
            born_host=hosts[0],
            store_timestamp_ms=6,
            store_host=hosts[1],
            flag=item.flag,
            sys_flag=sys_flag,
            reconsume_times=3,
            prepared_transaction_offset=4,
        )
    assert built.records == whole
    assert appended_bytes(append) == len(whole)


@given(st.binary(max_size=80), st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=5), st.binary(max_size=5))))
def test_a_batch_body_is_read_as_everywhere_else(tail: bytes, messages: list[tuple[int, bytes, bytes]]) -> None:
    body = encode_batch_body([BatchItem(*message) for message in messages]) + tail
    try:
        items = list(iterate_batch_body(body))
    except BodyError:
        with pytest.raises(BodyError):
            batch_pieces(body)
    else:
        assert list(batch_pieces(body)) == [piece(*item) for item in items]
        assert len(batch_pieces(body)) == len(items)


@pytest.mark.parametrize(("body_bytes", "properties_bytes"), [(0, 0), (2, 3)])
@pytest.mark.parametrize("change", [1, 3, 255])
def test_a_batch_with_a_changed_byte_is_read_as_everywhere_else(
    body_bytes: int, properties_bytes: int, change: int
) -> None:
    items = [BatchItem(number, b"x" * body_bytes, b"p" * properties_bytes) for number in range(3)]
    for at in range(len(encode_batch_body(items))):
        changed = bytearray(encode_batch_body(items))
        changed[at] = (changed[at] + change) % 256
        body = bytes(changed)
        try:
            expected = [piece(*item) for item in iterate_batch_body(body)]
        except BodyError:
            with pytest.raises(BodyError):
                batch_pieces(body)
        else:
            assert list(batch_pieces(body)) == expected


def some_bytes(alphabet: str) -> st.SearchStrategy[bytes]:
    return st.text(alphabet, max_size=20).map(str.encode)


@given(
    st.lists(
        st.builds(BatchItem, st.integers(-9, 9), some_bytes("TAGS\x01x"), some_bytes("ab\x02")), min_size=1, max_size=5
    ),
    st.sampled_from(
        (b"", b"TAGS\x01A\x02", b"\x02TAGS\x01A\x02", b"xTAGS\x01A", b"\x02TAGS\x01", b"TAGS\x01A\x02TAGS\x01B")
    ),
    st.sampled_from(HOSTS),
    st.booleans(),
)
def test_a_batch_is_built_as_its_messages_one_by_one(
    items: list[BatchItem], tags: bytes, host: str, is_last: bool
) -> None:
    """Their tags are those of all, of some, or lie in a body."""
    items = [item._replace(properties=item.properties + tags if is_last else tags + item.properties) for item in items]
    pieces = batch_pieces(encode_batch_body(items))
    assert isinstance(pieces, BatchPieces)
    batch = Append("T", 2, pieces, 5, pack_host(host), pack_host(HOSTS[0]), 1, 3, 4)
    plain = replace(batch, pieces=[piece(*item) for item in items])
    assert build(batch, 2**40, 2**33, 6) == build(plain, 2**40, 2**33, 6)
    assert appended_bytes(batch) == appended_bytes(plain)
    for first in range(len(items)):
        assert list(pieces[first:]) == plain.pieces[first:]
        assert properties_of(pieces, first, 2) == [part.properties for part in plain.pieces[first : first + 2]]


@pytest.mark.parametrize("batch_topic", [False, True])
@pytest.mark.parametrize("delay_ms", [None, 7])
def test_what_messages_become_is_the_appends_choice(batch_topic: bool, delay_ms: int | None) -> None:
    host = pack_host(HOSTS[0])
    items = [BatchItem(0, b"%d" % number, b"TAGS\x01%d" % (number // 2)) for number in range(4)]
    batch = Append("T", 0, batch_pieces(encode_batch_body(items)), 5, host, host, delay_ms=delay_ms)
    plain = replace(batch, pieces=[piece(*item) for item in items])
    assert build(batch, 1, 2, 3, batch_topic=batch_topic) == build(plain, 1, 2, 3, batch_topic=batch_topic)


@given(st.text("TAGS\x01\x02xé", max_size=30))
def test_the_tags_code_is_that_of_the_decoded_property(text: str) -> None:
    raw = text.encode()
    assert properties_tags_code(raw) == tags_code(decode_properties(decode_java_utf8(raw)).get("TAGS"))


def test_names_are_twenty_digits() -> None:
    assert file_name(1 << 30) == "00000000001073741824"
    assert file_offset("00000000001073741824") == 1 << 30
    assert file_offset("abort") is None


def test_a_log_that_is_cut_to_nothing_has_no_start() -> None:
    files = MemoryFiles()
    files.open("commitlog/" + file_name(1024), 1024)
    log = CommitLog(files, "commitlog", 1024)
    log.open()
    assert (log.start, log.end) == (1024, 2048)
    log.cut(1024)
    assert (log.start, log.end, log.segment_offsets) == (0, 1024, [])


def test_rocketmqs_checkpoint_has_rocketmqs_fields_alone() -> None:
    """5.5.0 reads the log offset after the times, at byte 40, and so may a later release with the bytes behind it."""
    files = MemoryFiles()
    store = opened(files)
    for number in range(8):
        put(store, Sent("T", 0, (bytes([number]) * 200,)))
    store.flush()
    data = bytes(files.contents["checkpoint"])
    assert struct.unpack_from(">qq", data, 32) == (store.end, store.end)
    assert data[:8] == data[8:16] > bytes(8)
    assert len(data) == 4096
    assert not any(data[48:])


def test_a_checkpoint_without_an_offset_has_no_time() -> None:
    """RocketMQ 5.5.0 does not start with such a file if its recovery is accelerated."""
    files = MemoryFiles()
    store = opened(files)
    put(store, Sent("T", 0, (b"1",)))
    for sync in store.unsynced_queues():
        sync()
    store.synced_queues()
    store.mark_safe(store.synced_mark)  # of the log nothing is synced yet
    for sync in store.unsynced_mark():
        sync()
    store.publish_mark()
    assert not any(files.contents["checkpoint"])


def test_the_own_checkpoint_counts_unless_another_broker_stored_messages_since() -> None:
    ours = Checkpoint(10_000, 9_000, 5_000, 0, 77, 77, 3, 12, 5, 99)
    assert Checkpoint.decode(ours.encode(), ours.encode_own()) == ours
    assert ours.safe_time_ms == 6_000
    # A crash may leave RocketMQ's file as it was earlier; the index may be built anew in between.
    for earlier in (Checkpoint(), Checkpoint(9_000, 8_000, 7_000, 0, 50, 50)):
        assert Checkpoint.decode(earlier.encode(), ours.encode_own()) == ours
    for later in (Checkpoint(10_001, 9_000, 0, 0, 77, 77), Checkpoint(10_000, 9_001, 0, 0, 77, 77)):
        assert Checkpoint.decode(later.encode(), ours.encode_own()) == replace(later, safe_offset=None)
    for other in (None, b"", b"short", bytes(4096), replace(ours, safe_offset=None).encode_own()):
        assert Checkpoint.decode(ours.encode(), other) == Checkpoint(10_000, 9_000, 5_000, 0, 77)
    assert Checkpoint.decode(None, ours.encode_own()) == Checkpoint.decode(b"short") == Checkpoint()


def test_a_segment_is_closed_by_a_blank_record() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, *[Sent("T", 0, (bytes([number]) * 200,)) for number in range(5)])
    size = 91 + 1 + 200
    first, second = files.contents["commitlog/" + file_name(0)], files.contents["commitlog/" + file_name(1024)]
    left = 1024 - 3 * size
    assert first[3 * size : 3 * size + 8] == blank_record(left)
    assert not any(first[3 * size + 8 :])
    assert int.from_bytes(second[28:36]) == 1024
    assert [record.body[0] for record in read(store, "T", 0)] == list(range(5))


def test_blank_of_197_bytes_as_seen() -> None:
    assert blank_record(197).hex() == "000000c5cbd43194"


def test_a_batch_is_one_write_and_stays_in_one_segment() -> None:
    store = opened(MemoryFiles())
    put(store, Sent("T", 0, (b"x" * 400,)), Sent("T", 0, (b"a" * 100, b"b" * 100, b"c" * 100)))
    offsets = [record.commit_log_offset for record in read(store, "T", 0)]
    assert offsets == [0, 1024, 1024 + 192, 1024 + 384]
    with pytest.raises(DoesNotFit, match="mappedFileSizeCommitLog"):
        put(store, Sent("T", 0, (b"x" * 300,) * 3))


def test_queue_entries_and_file_names() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, *[Sent("T", 1, (b"body",), "TagA") for _ in range(7)])
    names = files.names("consumequeue/T/1")
    assert names == [file_name(0), file_name(100)]  # five entries a file
    raw = files.contents["consumequeue/T/1/" + file_name(100)]
    size = 91 + 1 + 4 + 10
    assert bytes(raw[:20]).hex() == f"{5 * size:016x}{size:08x}{2598919:016x}"
    assert Entry(0, 0x7FFFFFFF, 0).is_filler
    assert not Entry(0, 0, 0).is_valid


def test_a_full_disk_refuses_and_keeps_nothing_of_it() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, Sent("T", 0, (b"kept",)))
    end = store.end
    files.room = 150
    with pytest.raises(StoreError, match="no space left"):
        put(store, Sent("T", 0, (b"refused", b"refused")))
    assert store.end == end
    assert not any(files.contents["commitlog/" + file_name(0)][end:])
    files.room = None
    put(store, Sent("T", 0, (b"later",)))
    assert [record.body for record in read(store, "T", 0)] == [b"kept", b"later"]


def test_a_queue_that_cannot_be_written_catches_up() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, Sent("T", 0, (b"kept",)))
    files.room = 91 + 1 + 7
    put(store, Sent("T", 0, (b"stored.",)))
    assert store.reader.bounds(("T", 0)) == (0, 1)
    with pytest.raises(StoreError, match="queues"):
        put(store, Sent("T", 0, (b"refused",)))
    files.room = None
    put(store, Sent("T", 0, (b"later",)))
    assert [record.body for record in read(store, "T", 0)] == [b"kept", b"stored.", b"later"]


def test_on_a_disk(tmp_path: Path) -> None:
    store = opened(DiskFiles(tmp_path, max_open_files=3))
    sent = [Sent(f"T{number % 7}", number % 3, (b"%d" % number,)) for number in range(60)]
    put(store, *sent)
    assert sum(len(read(store, f"T{topic}", queue)) for topic in range(7) for queue in range(3)) == 60
    assert (tmp_path / "abort").read_text() == "1"
    assert (tmp_path / "lock").read_text() == "lock"
    assert (tmp_path / "commitlog" / file_name(0)).stat().st_size == 1024
    store.close()
    assert not (tmp_path / "abort").exists()
    again = opened(DiskFiles(tmp_path))
    assert sum(len(read(again, f"T{topic}", queue)) for topic in range(7) for queue in range(3)) == 60
    again.close()


def test_zeroing_keeps_holes_and_clears_data(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    file = files.open("f", 3 << 20)
    file.write(5000, b"x" * 10)
    file.write((2 << 20) + 17, b"y" * 10)
    file.zero_from(5005)
    assert file.read(5000, 10) == b"x" * 5 + bytes(5)
    assert zlib.crc32(file.read(5005, (3 << 20) - 5005)) == zlib.crc32(bytes((3 << 20) - 5005))
    assert (tmp_path / "f").stat().st_blocks * 512 < 1 << 20
    files.close()


def test_saving_keeps_the_previous_version(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    files.save("config/topics.json", b"1")
    files.save("config/topics.json", b"2")
    assert files.load("config/topics.json") == b"2"
    assert files.load("config/topics.json.bak") == b"1"
    assert files.load("config/none") is None
    files.remove("config")
    assert files.names("config") == []


@pytest.mark.parametrize("settings", [StoreSettings(2048, 100), StoreSettings(1024, 200)])
def test_other_file_sizes_are_refused_by_name(settings: StoreSettings) -> None:
    files = MemoryFiles()
    put(opened(files), Sent("T", 0, (b"1",)))
    with pytest.raises(StoreError, match="mappedFileSize"):
        opened(files, settings)
    assert opened(files, SMALL).reader.bounds(("T", 0)) == (0, 1)
