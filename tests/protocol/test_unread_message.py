"""Messages that are read when they are used, beside the plain form."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import MessageExt, MessageQueue
from pyrmq_core.errors import RecordError
from pyrmq_core.protocol.messages.properties import decode_java_utf8
from pyrmq_core.protocol.messages.record import (
    CRC_MASK,
    FIXED_V4,
    MAGIC_V1,
    encode_record,
    iterate_records,
    unpack_record,
)
from pyrmq_core.protocol.messages.unread_message import (
    UnreadMessage,
    add_plain_messages,
    read_message,
    reconsume_times_of,
    unread_message,
)

QUEUE = MessageQueue("orders", "broker-a", 3)
AT_ONCE = ("topic", "broker_name", "queue_id", "queue_offset", "body")
USUAL = "KEYS\x01k1\x02UNIQ_KEY\x017F0000010000\x02TAGS\x01paid\x02"


def both(properties: str = USUAL, host: str = "10.0.0.1:5") -> tuple[MessageExt, MessageExt]:
    record = encode_record(
        topic="orders",
        queue_id=3,
        queue_offset=7,
        commit_log_offset=900,
        body=b"body",
        properties=properties,
        born_timestamp_ms=1,
        born_host=host,
        store_timestamp_ms=2,
        store_host="127.0.0.1:10911",
        sys_flag=0x10 if host.startswith("[") else 0,
        reconsume_times=2,
    )
    raw = unpack_record(record, 0)
    parts = (QUEUE, "orders", raw, 7, raw.body, raw.properties, raw.flag)
    return unread_message(*parts), read_message(*parts)


@given(st.text(max_size=80), st.sampled_from(["10.0.0.1:5", "[fd00::2]:5"]))
def test_every_field_is_that_of_the_plain_form(properties: str, host: str) -> None:
    for name in [field.name for field in dataclasses.fields(MessageExt)]:
        unread, plain = both(properties, host)
        assert getattr(unread, name) == getattr(plain, name)
        assert type(unread) is (UnreadMessage if name in AT_ONCE else MessageExt)


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=9),
            st.text(max_size=9),
            st.sampled_from(["t", "orders", "\u00e4", "x" * 127, "x" * 130]),
            st.sampled_from(["10.0.0.1:5", "[fd00::2]:5"]),
        ),
        max_size=6,
    ),
    st.data(),
)
def test_plain_records_are_read_as_all_records_are(
    parts: list[tuple[bytes, str, str, str]], data: st.DataObject
) -> None:
    """Also where one byte is wrong: what is added before the end is what `unpack_record` reads."""
    records = bytearray()
    for offset, (body, properties, topic, host) in enumerate(parts):
        records += encode_record(
            topic=topic,
            queue_id=3,
            queue_offset=offset,
            commit_log_offset=len(records),
            body=body,
            properties=properties,
            born_timestamp_ms=1,
            born_host=host,
            store_timestamp_ms=2,
            store_host="127.0.0.1:10911",
            sys_flag=0x10 if host.startswith("[") else 0,
            flag=offset,
        )
    if records and data.draw(st.booleans()):
        records[data.draw(st.integers(0, len(records) - 1))] ^= data.draw(st.integers(1, 255))
    stored, messages = bytes(records), list[MessageExt]()
    end = 0
    with suppress(RecordError):  # a topic that is no text
        end = add_plain_messages(messages, stored, 0, QUEUE, 0, 100, crc=True)
    position, expected = 0, list[MessageExt]()
    while position < end:
        raw = unpack_record(stored, position)
        position += raw.store_size
        if 0 <= raw.queue_offset < 100:
            assert not raw.body or zlib.crc32(raw.body) & CRC_MASK == raw.body_crc
            topic = decode_java_utf8(raw.topic)
            expected.append(read_message(QUEUE, topic, raw, raw.queue_offset, raw.body, raw.properties, raw.flag))
    if end:
        assert position == end
        assert messages == expected
    if all(len(topic) < 128 and host[0] != "[" for _, _, topic, host in parts) and is_whole(stored, len(parts)):
        assert end == len(stored)


def longer(records: bytes, position: int, size: int, by: int) -> bytes:
    """Returns a record whose field at `position`, after its length of `size` bytes, and which itself is longer."""
    length = int.from_bytes(records[position : position + size]) + by
    grown = bytearray(records)
    grown[position + size : position + size] = bytes(by)
    grown[position : position + size] = length.to_bytes(size)
    grown[0:4] = (len(records) + by).to_bytes(4)
    return bytes(grown)


PLAIN = encode_record(
    topic="orders",
    queue_id=3,
    queue_offset=7,
    commit_log_offset=0,
    body=b"body",
    properties="k\x01v\x02",
    born_timestamp_ms=1,
    born_host="10.0.0.1:5",
    store_timestamp_ms=2,
    store_host="127.0.0.1:10911",
)
BODY_AT = FIXED_V4.size
TOPIC_AT = BODY_AT + len(b"body")
DAMAGED = {
    "cut off": PLAIN[:-1],
    "a topic of more than 127 bytes": longer(PLAIN, TOPIC_AT, 1, 200),
    "properties of more than 32,767 bytes": longer(PLAIN, TOPIC_AT + 1 + len("orders"), 2, 40_000),
    "another body": PLAIN[:BODY_AT] + b"B" + PLAIN[BODY_AT + 1 :],
    "a negative body": PLAIN[: BODY_AT - 4] + b"\xff" + PLAIN[BODY_AT - 3 :],
    "another magic number": PLAIN[:4] + b"\x00" + PLAIN[5:],
    "a size that is not its fields'": PLAIN[:3] + bytes([PLAIN[3] - 1]) + PLAIN[4:],
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_record_is_left_to_the_full_reading(damage: str) -> None:
    messages: list[MessageExt] = []
    records = PLAIN + DAMAGED[damage]
    assert add_plain_messages(messages, records, 0, QUEUE, 0, 100, crc=True) == len(PLAIN)
    assert [message.body for message in messages] == [b"body"]
    with pytest.raises(RecordError):
        list(iterate_records(DAMAGED[damage], check_crc=True))


def is_whole(records: bytes, count: int) -> bool:
    """Returns whether these are so many records with their own CRC and offsets, which nothing has damaged."""
    try:
        read = list(iterate_records(records, check_crc=True))
    except RecordError:
        return False
    return len(read) == count and all(record.sys_flag == 0 and record.magic == MAGIC_V1 for record in read)


USES: list[Callable[[MessageExt], object]] = [
    lambda message: message.tags,
    lambda message: message.keys,
    repr,
    dataclasses.asdict,
    copy.copy,
    copy.deepcopy,
    pickle.dumps,
    lambda message: dataclasses.replace(message, flag=1),
    lambda message: message == both()[1],
    lambda message: both()[1] == message,
]


@pytest.mark.parametrize("use", USES)
def test_each_use_of_the_whole_message_reads_it(use: Callable[[MessageExt], object]) -> None:
    unread, plain = both()
    assert use(unread) == use(plain)
    assert type(unread) is MessageExt
    assert unread == plain


def test_a_pickled_message_is_a_plain_one() -> None:
    unread, plain = both()
    again = pickle.loads(pickle.dumps(unread))
    assert type(again) is MessageExt
    assert again == plain


def test_two_unread_messages_are_compared_by_their_fields() -> None:
    assert both()[0] == both()[0]
    assert both()[0] != both("TAGS\x01other\x02")[0]
    other: object = "a text"
    assert both()[0] != other


def test_threads_that_read_one_message_at_once_see_the_same() -> None:
    for _ in range(50):
        unread, plain = both()
        barrier = threading.Barrier(4)
        seen: list[object] = []

        def read(message: MessageExt = unread, at: threading.Barrier = barrier, to: list[object] = seen) -> None:
            at.wait()
            to.append((message.properties, message.msg_id, message.store_host))

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [(plain.properties, plain.msg_id, plain.store_host)] * 4


def test_the_tries_of_a_message_are_known_before_its_record_is_parsed() -> None:
    messages: list[MessageExt] = []
    record = encode_record(
        topic="orders",
        queue_id=3,
        queue_offset=7,
        commit_log_offset=900,
        body=b"body",
        properties=USUAL,
        born_timestamp_ms=1,
        born_host="10.0.0.1:5",
        store_timestamp_ms=2,
        store_host="127.0.0.1:10911",
        reconsume_times=5,
    )
    add_plain_messages(messages, record, 0, QUEUE, 0, 9, crc=True)
    assert [reconsume_times_of(message) for message in (*messages, *both())] == [5, 2, 2]
    assert type(messages[0]) is UnreadMessage
