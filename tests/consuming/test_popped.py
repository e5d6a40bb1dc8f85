"""The deciders of consumers that pop: delays after failures, and the receipts of an answer's messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import ConsumeLater
from pyrmq_core.client.consumer.consume.handler_exceptions import NotHandled
from pyrmq_core.client.consumer.pop.popped import pulls_of, with_receipts
from pyrmq_core.client.consumer.pop.settings import delay_of
from pyrmq_core.errors import HeaderError
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.frame import FrameDecoder
from pyrmq_core.protocol.messages.payload import decode
from pyrmq_core.protocol.requests.pop.pop_message import PopAnswer
from tests.consuming.test_pop import TOPIC, PopBroker
from tests.support import golden

Code = RequestCode


@pytest.mark.parametrize(
    ("error", "tries", "ordered", "seconds"),
    [
        (None, 0, False, 10.0),
        (ValueError(), 1, False, 30.0),
        (ValueError(), 15, False, 7200.0),
        (ValueError(), 16, False, None),
        (ValueError(), 3, True, 1.0),
        (ConsumeLater(0), 0, False, 10.0),
        (ConsumeLater(1), 15, False, 1.0),
        (ConsumeLater(18), 0, True, 7200.0),
        (ConsumeLater(-1), 0, False, None),
        (ConsumeLater(1), 16, False, None),
        (NotHandled(), 16, False, 0.0),
        (KeyboardInterrupt(), 99, True, 0.0),
    ],
)
def test_the_delay_of_a_failed_message(
    error: BaseException | None, tries: int, ordered: bool, seconds: float | None
) -> None:
    assert delay_of(error, tries, 16, ordered=ordered) == seconds


def test_recorded_pops_have_the_receipts_that_java_made() -> None:
    """The client of 5.4.0 acknowledged these receipts, but one that it made up."""
    expected, acked = set(), set()
    for frame in golden.answers(Code.POP_MESSAGE):
        if frame.code == 0:
            answer = PopAnswer.from_command(_command(frame.raw))
            messages = [message for pull in pulls_of(answer, "Jobs", "broker-a") for message in decode(pull)]
            popped = with_receipts(answer, messages, "Jobs", "broker-a")
            expected |= {entry.receipt.encode() for entry in popped}
            assert {entry.message.topic for entry in popped} == {"Jobs"}
            assert [entry.receipt.queue_id for entry in popped] == [entry.message.queue_id for entry in popped]
    for frame in golden.requests(Code.ACK_MESSAGE):
        acked.add(_command(frame.raw).ext["extraInfo"])
    assert {receipt.rpartition(" ")[2] for receipt in acked - expected} == {"999"}
    assert len(acked & expected) >= 4


def test_recorded_ordered_pops_count_their_tries() -> None:
    answers = [PopAnswer.from_command(_command(frame.raw)) for frame in golden.answers(Code.POP_MESSAGE)]
    (answer,) = [answer for answer in answers if "qo" in (answer.order_count_info or "")]
    messages = [message for pull in pulls_of(answer, "Ordered", "broker-a") for message in decode(pull)]
    popped = with_receipts(answer, messages, "Ordered", "broker-a")
    assert [(entry.message.body, entry.message.reconsume_times) for entry in popped] == [(b"step-1", 1), (b"step-2", 0)]
    assert all(entry.receipt.is_ordered for entry in popped)


@given(st.text(alphabet="012 ,;qo%", max_size=20), st.text(alphabet="012 ,;qo%", max_size=20))
def test_any_offsets_in_an_answer_make_receipts_or_are_named(starts: str, counts: str) -> None:
    record = PopBroker("broker-a").record(b"x", 5)
    answer = PopAnswer(0, None, 1, 2, 3, 4, starts, None, counts, record)
    messages = [message for pull in pulls_of(answer, TOPIC, "broker-a") for message in decode(pull)]
    try:
        (entry,) = with_receipts(answer, messages, TOPIC, "broker-a")
    except HeaderError:
        return
    assert entry.receipt.queue_offset == 5


def _command(raw: bytes) -> Command:
    decoder = FrameDecoder()
    decoder.feed(raw)
    command = decoder.next_command()
    assert command is not None
    return command
