"""No text of an error shows the content of a message, wherever a caller's body went astray."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import Message, MessageQueue, RocketMQError
from pyrmq_core.blocking import Producer

MARK = "the-content-of-a-message"
bodies = st.one_of(
    st.binary(max_size=400).map(lambda rest: MARK.encode() + rest),
    st.text(max_size=400).map(lambda rest: MARK + rest),
    st.binary(max_size=40).map(lambda rest: bytearray(MARK.encode() + rest)),
    st.binary(max_size=40).map(lambda rest: [MARK.encode() + rest]),
    st.text(max_size=40).map(lambda rest: {"body": MARK + rest}),
)
A0 = MessageQueue("T", "broker-a", 0)

CALLS: dict[str, Callable[[Producer, Any], object]] = {
    "send": lambda producer, body: producer.send(body),
    "send_oneway": lambda producer, body: producer.send_oneway(body),
    "send_soon": lambda producer, body: producer.send_soon(body).result(30),
    "send_batch": lambda producer, body: producer.send_batch(body),
    "send_batch of bodies": lambda producer, body: producer.send_batch([body, body]),
    "send_batch_soon": lambda producer, body: producer.send_batch_soon([body]).result(30),
    "request": lambda producer, body: producer.request(body, timeout=0.2),
    "send_in_transaction": lambda producer, body: producer.send_in_transaction(body, lambda *_: None),  # type: ignore[arg-type]
    "to a queue that is a body": lambda producer, body: producer.send(Message("T", b"x"), queue=body),
    "by a function that is a body": lambda producer, body: producer.send(Message("T", b"x"), select=body),
    "for a time that is a body": lambda producer, body: producer.send(Message("T", b"x"), timeout=body),
    "as properties": lambda producer, body: producer.send(Message("T", b"x", properties=body)),
    "as an empty topic's message": lambda producer, body: producer.send(Message("", body)),
    "in a wrong message": lambda producer, body: producer.send(Message("T", body, flag="x")),  # type: ignore[arg-type]
    "with a wrong delay": lambda producer, body: producer.send(Message("T", body, delay_level=99)),
    "to nobody": lambda producer, body: producer.send(Message("T", body), timeout=0.2),
    "to a queue of nobody": lambda producer, body: producer.send(Message("T", body), queue=A0, timeout=0.2),
}


@pytest.fixture(scope="module")
def producer() -> Iterator[Producer]:
    with Producer("g", nameserver="127.0.0.1:1", retry_times_when_send_failed=0) as producer:
        yield producer


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@given(body=bodies)
def test_no_error_shows_a_body(producer: Producer, call: Callable[[Producer, Any], object], body: Any) -> None:
    with pytest.raises(RocketMQError) as caught:
        call(producer, body)
    error: BaseException | None = caught.value
    while error is not None:
        for text in (str(error), repr(error), *getattr(error, "__notes__", ())):
            assert MARK not in text
            assert len(text) < 2000
        error = error.__cause__ or error.__context__


def test_a_large_body_in_the_place_of_a_message(producer: Producer) -> None:
    with pytest.raises(RocketMQError) as caught:
        producer.send(b"x" * 1_200_000)  # type: ignore[arg-type]
    assert str(caught.value) == "what is sent is a bytes of 1200000, and no Message; write Message(topic, body)"
