"""Names and the rules of a message, as in Java's Validators."""

from __future__ import annotations

import pytest

from pyrmq_core.errors import InvalidArgument, InvalidMessage
from pyrmq_core.model import Message
from pyrmq_core.protocol.messages.names import (
    FORBIDDEN_TOPICS,
    check_group,
    check_topic,
    is_dead_letter_topic,
    is_retry_topic,
    is_system_topic,
)
from pyrmq_core.protocol.messages.payload import check_message
from tests.support import golden


def verdicts(kind: str) -> list[tuple[str, bool]]:
    """Returns the names of such lines, and whether Java accepts them.

    Lines are `topic bad | a b | reason |` or `topic ok | 127 |`; a bare number stands for a name of that length.
    """
    names = []
    for line in golden.text("vectors_java2.txt").splitlines():
        title, *parts = line.split(" | ")
        if title in (f"{kind} bad", f"{kind} ok"):
            name = parts[0]
            names.append(("x" * int(name) if name.isdecimal() and len(name) > 1 else name, title.endswith("ok")))
    return names


@pytest.mark.parametrize(("topic", "good"), verdicts("topic"), ids=lambda value: str(value)[:20])
def test_javas_verdict_on_topics(topic: str, good: bool) -> None:
    message = Message(topic, b"x")
    if good:
        check_topic(topic)
        check_message(message)
    else:
        with pytest.raises(InvalidMessage):
            check_message(message)
        if topic not in FORBIDDEN_TOPICS:
            with pytest.raises(InvalidArgument):
                check_topic(topic)


@pytest.mark.parametrize(("group", "good"), verdicts("group"), ids=lambda value: str(value)[:20])
def test_javas_verdict_on_groups(group: str, good: bool) -> None:
    if good:
        check_group(group if len(group) > 1 else "x" * 16)
    else:
        with pytest.raises(InvalidArgument):
            check_group(group)


def test_there_were_verdicts() -> None:
    assert len(verdicts("topic")) == 12
    assert len(verdicts("group")) == 5


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("", "the topic is ''; a topic needs a name"),
        (None, "the topic is None; a topic needs a name"),
        ("a.b", r"topic 'a\.b' holds characters .* letters, digits and % \| _ - are allowed"),
        ("T\n", "holds characters"),
        ("x" * 128, "has 128 characters; 127 at most"),
    ],
)
def test_a_wrong_topic_is_refused_with_the_reason(topic: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        check_topic(topic)


@pytest.mark.parametrize("group", ["DEFAULT_PRODUCER", "DEFAULT_CONSUMER"])
def test_javas_placeholders_are_no_groups(group: str) -> None:
    with pytest.raises(InvalidArgument, match="choose another one"):
        check_group(group)


@pytest.mark.parametrize("topic", sorted(FORBIDDEN_TOPICS))
def test_nothing_is_sent_to_rocketmqs_own_topics(topic: str) -> None:
    with pytest.raises(InvalidMessage, match="RocketMQ's own"):
        check_message(Message(topic, b"x"))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body is empty"),
        (None, "the body is NoneType; it has to be bytes"),
        ("text", r"the body is str; it has to be bytes \(text\.encode\(\)\)"),
        (bytearray(b"x"), "the body is bytearray"),
        (b"x" * 101, "the body has 101 bytes; 100 at most"),
    ],
)
def test_a_wrong_body_is_refused_with_the_reason(body: bytes, reason: str) -> None:
    with pytest.raises(InvalidMessage, match=reason):
        check_message(Message("T", body), 100)


def test_the_largest_body_is_taken() -> None:
    check_message(Message("T", b"x" * 100), 100)
    check_message(Message("T", bytes(4 * 1024 * 1024)))
    with pytest.raises(InvalidMessage, match="4194305 bytes; 4194304"):
        check_message(Message("T", bytes(4 * 1024 * 1024 + 1)))


def test_kinds_of_topics() -> None:
    assert is_system_topic("TBW102")
    assert is_system_topic("rmq_sys_wheel_timer")
    assert is_system_topic("SCHEDULE_TOPIC_XXXX")
    assert not is_system_topic("orders")
    assert is_retry_topic("%RETRY%g")
    assert not is_retry_topic("%DLQ%g")
    assert is_dead_letter_topic("%DLQ%g")
