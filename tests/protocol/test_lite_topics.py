"""The offsets of records in the queues of lite topics."""

from __future__ import annotations

import pytest

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.messages.lite_topics import lite_places, lite_queue_name, with_lite_offsets
from pyrmq_core.protocol.messages.record import iterate_records, unpack_record
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD
from tests.columnar.stored import record

QUEUE = "%LMQ%$orders$session-42"


def offsets(*properties: str) -> list[int]:
    records = b"".join(record(number, properties=text) for number, text in enumerate(properties, 100))
    return [read.queue_offset for read in iterate_records(with_lite_offsets(records, QUEUE))]


def pairs(queues: str, places: str) -> str:
    return f"INNER_MULTI_DISPATCH\x01{queues}\x02INNER_MULTI_QUEUE_OFFSET\x01{places}\x02"


def test_a_record_has_its_offset_in_the_lite_topic() -> None:
    assert offsets(pairs(QUEUE, "0"), pairs(f"%LMQ%x,{QUEUE}", "7,1"), pairs(f"{QUEUE},%LMQ%x", "2,9")) == [0, 1, 2]


@pytest.mark.parametrize(
    "text", ["", pairs("%LMQ%x", "1"), pairs(QUEUE, "x"), pairs(QUEUE, "-1"), pairs(QUEUE, "9" * 19)]
)
def test_a_record_that_does_not_say_its_offset_stays(text: str) -> None:
    assert offsets(text, pairs(QUEUE, "5")) == [100, 5]


def test_what_follows_a_damaged_record_stays() -> None:
    whole = record(100, properties=pairs(QUEUE, "5"))
    assert with_lite_offsets(whole + whole[:-1], QUEUE)[len(whole) :] == whole[:-1]


def test_the_name_of_a_queue() -> None:
    assert lite_queue_name("orders", "session-42") == QUEUE
    for name in ("", "a$b", "a" * 65):
        with pytest.raises(InvalidArgument, match="a lite topic's name has 1 to 64 letters"):
            lite_queue_name("orders", name)


def test_a_record_is_in_lite_queues_of_its_own_topic_alone() -> None:
    """A broker of 5.5 copies the properties into retry topics and half messages."""
    raw = unpack_record(record(100, properties=pairs(f"{QUEUE},%LMQ%$T$s,%LMQ%x", "5,6,7")), 0)
    for topic, places in ((b"orders", {QUEUE: 5}), (b"T", {"%LMQ%$T$s": 6}), (b"%RETRY%G", {})):
        assert lite_places(raw._replace(topic=topic)) == places
    assert lite_places(raw._replace(topic=b"orders", sys_flag=BATCH_RECORD)) == {}


@pytest.mark.parametrize("name", ["", "a$b", "a" * 65, "..", "a/b"])
def test_a_record_is_in_no_queue_of_an_impossible_lite_topic(name: str) -> None:
    raw = unpack_record(record(100, properties=pairs(f"%LMQ%$orders${name},orders,{QUEUE}", "0,0,1")), 0)
    assert lite_places(raw._replace(topic=b"orders")) == {QUEUE: 1}
