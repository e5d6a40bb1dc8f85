"""Sends: V2 and V1 headers, the batch code, the answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import HeaderError
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, Serialization
from pyrmq_core.protocol.framing.headers import LazyFields
from pyrmq_core.protocol.requests.broker.send_message import MessageStored, SendMessage
from tests.protocol.conversations import SERIALIZATIONS, assert_garbage_is_named, assert_survives, over_the_wire
from tests.protocol.strategies import INT32, INT64, SOME_TEXT
from tests.protocol.test_frame import SEND_V1, SEND_V2, SENT
from tests.support.wire_forms import send_of_code_10

GOLDEN = SendMessage(
    producer_group="PG",
    topic="TopicTest",
    default_topic="TBW102",
    default_topic_queue_nums=4,
    queue_id=2,
    sys_flag=0,
    born_timestamp_ms=1700000000000,
    flag=0,
    properties=SEND_V2.ext["i"],
    broker_name="broker-a",
    body=b"hello",
)
SENDS = st.builds(
    SendMessage,
    producer_group=SOME_TEXT,
    topic=SOME_TEXT,
    default_topic=SOME_TEXT,
    default_topic_queue_nums=INT32,
    queue_id=INT32,
    sys_flag=INT32,
    born_timestamp_ms=INT64,
    flag=INT32,
    properties=st.none() | SOME_TEXT,
    reconsume_times=INT32,
    unit_mode=st.booleans(),
    max_reconsume_times=st.none() | INT32,
    batch=st.booleans(),
    broker_name=st.none() | SOME_TEXT,
    body=st.binary(max_size=20),
)
STORED = st.builds(
    MessageStored,
    msg_ids=SOME_TEXT,
    queue_id=INT32,
    queue_offset=INT64,
    transaction_id=st.none() | SOME_TEXT,
    batch_uniq_id=st.none() | SOME_TEXT,
    region_id=st.none() | SOME_TEXT,
    trace_on=st.none() | SOME_TEXT,
    recall_handle=st.none() | SOME_TEXT,
)


def test_javas_headers() -> None:
    assert SendMessage.from_command(SEND_V2) == GOLDEN
    assert SendMessage.from_command(SEND_V1) == GOLDEN
    assert GOLDEN.to_command().ext == SEND_V2.ext
    assert send_of_code_10(GOLDEN).ext == SEND_V1.ext
    assert MessageStored.from_command(SENT).queue_offset == 5


def test_codes() -> None:
    assert GOLDEN.to_command().code == RequestCode.SEND_MESSAGE_V2
    assert send_of_code_10(GOLDEN).code == RequestCode.SEND_MESSAGE
    fields = {**SEND_V2.ext, "m": "true"}
    batch = SendMessage.from_command(Command(RequestCode.SEND_MESSAGE_V2, fields, b"x"))
    assert batch.batch
    assert batch.to_command().code == RequestCode.SEND_BATCH_MESSAGE


@given(SENDS, SERIALIZATIONS)
def test_requests_survive(send: SendMessage, serialization: Serialization) -> None:
    assert_survives(send, serialization)
    assert SendMessage.from_command(over_the_wire(send_of_code_10(send), serialization)) == send


@given(STORED, SERIALIZATIONS)
def test_answers_survive(stored: MessageStored, serialization: Serialization) -> None:
    assert_survives(stored, serialization)
    received = over_the_wire(stored.to_command(), serialization)
    assert (MessageStored.queue_id_of(received), MessageStored.queue_offset_of(received)) == (
        stored.queue_id,
        stored.queue_offset,
    )


@given(st.lists(SOME_TEXT | st.sampled_from(('"queueOffset":"7"', '"queueId":"7"')), min_size=200, max_size=300), INT64)
def test_the_offset_of_a_long_answer_is_read_alone(texts: list[str], queue_offset: int) -> None:
    """A text with the field's name in it is not mistaken for the field; a long header is parsed late."""
    stored = MessageStored(",".join(texts), 3, queue_offset, transaction_id=texts[0], recall_handle=texts[-1])
    received = over_the_wire(stored.to_command(), Serialization.JSON)
    assert (MessageStored.queue_id_of(received), MessageStored.queue_offset_of(received)) == (3, queue_offset)


@pytest.mark.parametrize("broken", [b'{"queueOffset":"77}', b'{"queueOffset":"77', b'{"queueOffset":"' + b"7" * 20])
def test_an_offset_without_an_end_is_no_offset(broken: bytes) -> None:
    with pytest.raises(HeaderError):
        MessageStored.queue_offset_of(Command(0, LazyFields(broken)))
    with pytest.raises(HeaderError):
        MessageStored.queue_id_of(Command(0, LazyFields(broken.replace(b"queueOffset", b"queueId"))))


@pytest.mark.parametrize("letter", "abcdefgh")
def test_a_required_field_is_named(letter: str) -> None:
    ext = {name: text for name, text in SEND_V2.ext.items() if name != letter}
    with pytest.raises(HeaderError, match=f"SEND_MESSAGE: field {letter} is missing"):
        SendMessage.from_command(Command(310, ext, b"x"))


@given(st.data(), SENDS, STORED)
def test_garbage_is_named(data: st.DataObject, send: SendMessage, stored: MessageStored) -> None:
    assert_garbage_is_named(SendMessage, send, data)
    assert_garbage_is_named(MessageStored, stored, data)
