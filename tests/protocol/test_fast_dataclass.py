"""Values of a maker are the frozen values themselves; a template's request is the whole request."""

import pickle
from copy import copy
from dataclasses import FrozenInstanceError, fields, replace
from inspect import signature

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import InvalidMessage
from pyrmq_core.model import Message
from pyrmq_core.protocol.framing.fast_dataclass import maker_of
from pyrmq_core.protocol.messages.payload import Payload, encode_one
from pyrmq_core.protocol.messages.properties import encode_properties, message_properties, message_properties_string
from pyrmq_core.protocol.requests.broker.send_message import SendMessage

WORDS = st.text(max_size=8) | st.sampled_from(["a\x01b", "\x02", "é", "\ud800", "k", "  ", " k"])
MESSAGES = st.builds(
    Message,
    st.just("orders"),
    st.just(b"x"),
    tags=st.none() | WORDS,
    keys=st.none() | WORDS | st.lists(WORDS, max_size=3),
    sharding_key=st.none() | WORDS,
    properties=st.dictionaries(WORDS, WORDS, max_size=2),
    delay_level=st.none() | st.integers(1, 18),
    priority=st.none() | st.integers(0, 9),
    lite_topic=st.none() | WORDS,
    wait_store_msg_ok=st.booleans(),
)


def test_what_is_made_is_the_value() -> None:
    payload = maker_of(Payload)("orders", b"x", 1, "", 0, 0, False, ("id",), False)
    assert payload == Payload("orders", b"x", 1, "", unique_ids=("id",))
    assert hash(payload) == hash(Payload("orders", b"x", 1, "", unique_ids=("id",)))
    with pytest.raises(FrozenInstanceError):
        payload.count = 2  # type: ignore[misc]
    assert type(encode_one(Message("orders", b"x"), "id")) is Payload


def test_a_message_is_the_frozen_value_that_a_dataclass_makes() -> None:
    message = Message("orders", b"x", "tag", keys=["k"], flag=3)
    assert [field.name for field in fields(message)] == list(signature(Message).parameters)
    assert repr(message).startswith("Message(topic='orders', body=b'x', tags='tag', keys=['k'], sharding_key=None, ")
    assert type(message) is Message
    assert replace(message, flag=0) == Message(topic="orders", body=b"x", tags="tag", keys=["k"])
    plain = replace(message, properties={"a": "b"})
    assert pickle.loads(pickle.dumps(plain)) == plain
    assert copy(message) == message
    with pytest.raises(FrozenInstanceError):
        message.flag = 2  # type: ignore[misc]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'body'"):
        Message("orders")  # type: ignore[call-arg]


def test_a_message_of_a_subclass_has_all_fields() -> None:
    class Order(Message):
        """A message with room of its own."""

    order = Order("orders", b"x", keys="k", wait_store_msg_ok=False)
    assert type(order) is Order
    assert [getattr(order, field.name) for field in fields(Message)] == [
        *("orders", b"x", None, "k", None, {}, 0, None, None, None, False, None, None)
    ]
    with pytest.raises(FrozenInstanceError):
        order.flag = 2  # type: ignore[misc]


@given(MESSAGES)
def test_the_string_of_a_plain_message_is_that_of_its_properties(message: Message) -> None:
    """Both ways of writing give the same string, and refuse the same messages."""
    try:
        properties = message_properties(message, "ID")
    except InvalidMessage:
        with pytest.raises(InvalidMessage):
            message_properties_string(message, "ID")
        return
    pairs = [*properties, *properties.values()]
    if all(pairs) and not any("\x01" in text or "\x02" in text or "\ud800" in text for text in pairs):
        assert message_properties_string(message, "ID") == encode_properties(properties)
    else:
        with pytest.raises(InvalidMessage):
            message_properties_string(message, "ID")


@given(st.integers(0, 2**62), st.text(alphabet=st.characters(exclude_categories=["Cs"])), st.booleans())
def test_a_form_is_the_whole_request(born_ms: int, properties: str, batch: bool) -> None:
    first = SendMessage("G", "T%", "TBW102", 4, 3, 1, 5, 7, "x", batch=batch, broker_name='b"1')
    whole = replace(first, born_timestamp_ms=born_ms, properties=properties, body=b"body")
    request = first.to_form().request((born_ms,), properties, b"body").command()
    assert request == whole.to_command()
    assert SendMessage.from_command(request) == whole
