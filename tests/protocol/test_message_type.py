"""The kind of message that a properties string makes."""

import pytest

from pyrmq_core.protocol.messages.properties import MessageType, encode_properties, has_timer, is_reply, message_type

N, H, D = MessageType.NORMAL, MessageType.TRANSACTION_HALF, MessageType.DELAY


@pytest.mark.parametrize(
    ("properties", "kind", "timer", "reply"),
    [
        ({}, N, False, False),
        ({"WAIT": "true", "TAGS": "a"}, N, False, False),
        ({"TRAN_MSG": "true", "PGROUP": "g"}, H, False, False),
        ({"TRAN_MSG": "false"}, N, False, False),
        ({"WAIT": "true", "DELAY": "3"}, D, False, False),
        ({"TIMER_DELIVER_MS": "1"}, D, True, False),
        ({"A": "b", "TIMER_DELAY_MS": "1"}, D, True, False),
        ({"A": "b", "TIMER_DELAY_SEC": "1"}, D, True, False),
        ({"MSG_TYPE": "reply"}, N, False, True),
        # names and values that only look alike
        ({"MY_TIMER_DELAY_MS": "1"}, N, False, False),
        ({"A": "TIMER_DELAY_MS"}, N, False, False),
        ({"XDELAY": "3"}, N, False, False),
        ({"XTRAN_MSG": "true"}, N, False, False),
        ({"XDELAY": "3", "DELAY": "3"}, D, False, False),
        ({"MSG_TYPE": "replying"}, N, False, False),
    ],
)
def test_by_the_properties(properties: dict[str, str], kind: MessageType, timer: bool, reply: bool) -> None:
    text = encode_properties(properties)
    assert message_type(text) is kind
    assert has_timer(text) is timer
    assert is_reply(text) is reply
