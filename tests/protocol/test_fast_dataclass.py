"""Values of a maker are the frozen values themselves; a template's request is the whole request."""

from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import InvalidMessage
from pyrmq_core.model import Message
from pyrmq_core.protocol.framing.fast_dataclass import maker_of
from pyrmq_core.protocol.messages.payload import Payload, encode_one
from pyrmq_core.protocol.messages.properties import encode_properties, message_properties, message_properties_string
from pyrmq_core.protocol.requests.broker.send_message import SendMessage

WORDS = st.text(max_size=8) | st.sampled_from(["a\x01b", "\x02", "é", "\ud800", "k"])
MESSAGES = st.builds(
    Message,
    st.just("orders"),
    st.just(b"x"),
    tags=st.none() | WORDS,
    keys=st.none() | WORDS | st.lists(WORDS, max_size=3),
    sharding_key=st.none() | WORDS,
    properties=st.dictionaries(WORDS, WORDS, max_size=2),
    delay_level=st.none() | st.integers(1, 18),
    wait_store_msg_ok=st.booleans(),
)


def test_what_is_made_is_the_value() -> None:
    made = maker_of(Payload)("orders", b"x", 1, "", 0, 0, False, ("id",), False)
    assert made == Payload("orders", b"x", 1, "", unique_ids=("id",))
    assert hash(made) == hash(Payload("orders", b"x", 1, "", unique_ids=("id",)))
    with pytest.raises(FrozenInstanceError):
        made.count = 2  # type: ignore[misc]
    assert type(encode_one(Message("orders", b"x"), "id")) is Payload


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
    made = first.to_form().request((born_ms,), properties, b"body").command()
    assert made == whole.to_command()
    assert SendMessage.from_command(made) == whole
