"""Properties: Java's parser to the letter, and the properties that a message may and may not carry."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import InvalidMessage
from pyrmq_core.model import RESERVED_NAMES, Message
from pyrmq_core.protocol.messages.properties import (
    MAX_PROPERTIES_BYTES,
    decode_java_utf8,
    decode_properties,
    encode_properties,
    message_properties,
    message_properties_string,
    properties_around_id,
)
from tests.protocol.strategies import MESSAGES, PROPERTIES
from tests.support import golden

MESSAGE = Message("T", b"x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\x011\x02b\x01\x02c\x013", {"a": "1", "c": "3"}),
        ("x\x02k\x01v\x02", {"k": "v"}),
        ("\x01v\x02a\x01b", {"a": "b"}),
        ("a\x01b\x01c\x02", {"a": "b\x01c"}),
        ("a\x011\x02a\x012\x02", {"a": "2"}),
        ("a\x011\x02a\x01\x02", {"a": "1"}),
        ("", {}),
        ("\x02\x02\x02", {}),
        ("ab", {}),
    ],
)
def test_javas_parser(text: str, expected: dict[str, str]) -> None:
    assert decode_properties(text) == expected


def test_javas_string() -> None:
    text = bytes.fromhex(golden.vectors()["props"]).decode()
    properties = {"KEYS": "K1", "UNIQ_KEY": "7F0000010001000000000000000A0000", "WAIT": "true", "TAGS": "TagA"}
    assert decode_properties(text) == properties
    assert encode_properties(properties) == text
    assert message_properties_string(Message("T", b"x", keys="K1", tags="TagA"), properties["UNIQ_KEY"]) == text


@given(PROPERTIES)
def test_properties_survive(properties: dict[str, str]) -> None:
    text = encode_properties(properties)
    assert decode_properties(text) == properties
    assert decode_properties(text[:-1]) == properties


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    properties = decode_properties(text)
    assert decode_properties(encode_properties(properties)) == properties


def java_texts() -> list[tuple[bytes, str]]:
    lines = (line.split(" ") for line in golden.text("java_text.txt").splitlines())
    return [(bytes.fromhex(raw), bytes.fromhex(utf16).decode("utf-16-be")) for raw, utf16 in lines]


def test_text_is_read_as_java_reads_it() -> None:
    rows = java_texts()
    assert len(rows) == 400
    assert [decode_java_utf8(raw) for raw, _ in rows] == [text for _, text in rows]


@given(st.binary(max_size=40))
def test_no_bytes_are_refused_as_text(raw: bytes) -> None:
    text = decode_java_utf8(raw)
    assert text.encode() == raw or "\ufffd" in text


def test_a_message_in_full() -> None:
    message = Message(
        "T",
        b"x",
        tags="TagA",
        keys=("k1", "k2"),
        sharding_key="customer-7",
        properties={"color": "red", "blank": " "},
        delay_level=3,
        wait_store_msg_ok=False,
    )
    assert message_properties(message, "ID") == {
        "KEYS": "k1 k2",
        "UNIQ_KEY": "ID",
        "WAIT": "false",
        "TAGS": "TagA",
        "__SHARDINGKEY": "customer-7",
        "DELAY": "3",
        "color": "red",
        "blank": " ",
    }
    assert message_properties(MESSAGE, None) == {"WAIT": "true"}
    assert message_properties(replace(MESSAGE, keys=()), None) == {"WAIT": "true"}
    assert message_properties(replace(MESSAGE, keys="a b"), None)["KEYS"] == "a b"


@given(MESSAGES, st.text("0123456789ABCDEF", min_size=32, max_size=32))
def test_a_messages_properties_survive(message: Message, unique_id: str) -> None:
    expected = message_properties(message, unique_id)
    text = message_properties_string(message, unique_id)
    assert decode_properties(text) == expected
    assert text == encode_properties(expected)
    assert unique_id.join(properties_around_id(message)) == text.replace(f"UNIQ_KEY\x01{unique_id}\x02", unique_id)
    for name, value in message.properties.items():
        assert expected[name] == value


def test_a_sharding_key_stands_once() -> None:
    message = Message("T", b"x", tags="t", sharding_key="k", properties={"a": "b", "__SHARDINGKEY": "k"})
    expected = "UNIQ_KEY\x01ID\x02WAIT\x01true\x02TAGS\x01t\x02__SHARDINGKEY\x01k\x02a\x01b\x02"
    assert message_properties_string(message, "ID") == expected
    assert message_properties_string(replace(message, properties={"a": "b"}), "ID") == expected


@pytest.mark.parametrize(
    ("deliver_at", "expected"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), "0"),
        (datetime(2023, 11, 14, 22, 13, 20, 1999, tzinfo=UTC), "1700000000001"),
        (datetime(2023, 11, 15, 6, 13, 20, tzinfo=timezone(timedelta(hours=8))), "1700000000000"),
    ],
)
def test_deliver_at_is_an_instant_in_milliseconds(deliver_at: datetime, expected: str) -> None:
    assert message_properties(replace(MESSAGE, deliver_at=deliver_at), None)["TIMER_DELIVER_MS"] == expected


@pytest.mark.parametrize(
    ("delay", "expected"),
    [
        (timedelta(seconds=1.5), "1500"),
        (timedelta(days=40), "3456000000"),
        (timedelta.max, "86399999999999999"),
        (timedelta(microseconds=1), "1"),
    ],
)
def test_delay_is_in_milliseconds(delay: timedelta, expected: str) -> None:
    assert message_properties(replace(MESSAGE, delay=delay), None)["TIMER_DELAY_MS"] == expected


@pytest.mark.parametrize("priority", [0, 7, 2**31 - 1])
def test_a_priority_is_a_property(priority: int) -> None:
    message = Message("T", b"x", tags="t", properties={"a": "b"}, priority=priority)
    pair = f"_SYS_MSG_PRIORITY_\x01{priority}\x02"
    assert (
        message_properties_string(message, "ID") == f"UNIQ_KEY\x01ID\x02WAIT\x01true\x02TAGS\x01t\x02a\x01b\x02{pair}"
    )


def test_a_lite_topic_is_a_property() -> None:
    message = Message("T", b"x", properties={"a": "b"}, lite_topic="Session-42_" + "x" * 53)
    pair = f"__LITE_TOPIC\x01{message.lite_topic}\x02"
    assert message_properties_string(message, "ID") == f"UNIQ_KEY\x01ID\x02WAIT\x01true\x02a\x01b\x02{pair}"


NOW = datetime(2026, 1, 1, tzinfo=UTC)
REFUSED = [
    (Message("T", b"x", tags=""), "property 'TAGS' has an empty value"),
    (Message("T", b"x", tags=5), "TAGS is 5; it has to be text"),  # type: ignore[arg-type]
    (Message("T", b"x", sharding_key=b"a"), "__SHARDINGKEY is bytes of length 1; it has to be text"),  # type: ignore[arg-type]
    (Message("T", b"x", sharding_key=""), "property '__SHARDINGKEY' has an empty value"),
    (Message("T", b"x", tags="a\x01b"), "value of property 'TAGS' holds U\\+0001 or U\\+0002"),
    (Message("T", b"x", keys="a\x02b"), "value of property 'KEYS' holds U\\+0001 or U\\+0002"),
    (Message("T", b"x", keys=("a\x02b",)), "value of property 'KEYS' holds"),
    (Message("T", b"x", keys=""), "keys holds no word"),
    (Message("T", b"x", keys="  "), "keys holds no word"),
    (Message("T", b"x", keys=["a", "b c"]), "keys: 'b c' is no key"),
    (Message("T", b"x", keys=["a", ""]), "keys: '' is no key"),
    (Message("T", b"x", keys=["a", 7]), "keys: 7 is no key"),  # type: ignore[list-item]
    (Message("T", b"x", properties={"": "v"}), "property '' has an empty name"),
    (Message("T", b"x", properties={"n": ""}), "property 'n' has an empty value"),
    (Message("T", b"x", properties={"n\x01": "v"}), "name of property .* holds U\\+0001"),
    (Message("T", b"x", properties={"n": "\x02"}), "value of property 'n' holds"),
    (Message("T", b"x", properties={"n": 5}), "property 'n' is 5; names and values are text"),  # type: ignore[dict-item]
    (Message("T", b"x", properties={7: "v"}), "property 7 is 'v'"),  # type: ignore[dict-item]
    (Message("T", b"x", properties={"TAGS": "v"}), "TAGS is a name RocketMQ keeps"),
    (Message("T", b"x", properties={"UNIQ_KEY": "v"}), "UNIQ_KEY is a name RocketMQ keeps"),
    (Message("T", b"x", properties={"INNER_NUM": "1"}), "INNER_NUM is a name RocketMQ keeps"),
    (Message("T", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%$T$s"}), "INNER_MULTI_DISPATCH is a name RocketMQ"),
    (Message("T", b"x", properties={"__LITE_TOPIC": "a"}), "__LITE_TOPIC is a name .* lite_topic"),
    (Message("T", b"x", lite_topic="a b"), "lite_topic is 'a b'; a lite topic's name has 1 to 64"),
    (Message("T", b"x", lite_topic="a$b"), "lite_topic is 'a\\$b'"),
    (Message("T", b"x", lite_topic="a\n"), "lite_topic is "),
    (Message("T", b"x", lite_topic="é"), "lite_topic is 'é'"),
    (Message("T", b"x", lite_topic=""), "lite_topic is ''"),
    (Message("T", b"x", lite_topic=7), "lite_topic is 7"),  # type: ignore[arg-type]
    (Message("T", b"x", lite_topic="a" * 65), "lite_topic is str of length 65"),
    (Message("T", b"x", lite_topic="a", delay_level=1), "a message of a lite topic has no delay"),
    (Message("T", b"x", lite_topic="a", delay=timedelta(1)), "a message of a lite topic has no delay"),
    (Message("T", b"x", lite_topic="a", priority=1), "a message of a lite topic has no delay, priority"),
    (Message("T", b"x", lite_topic="a", sharding_key="k"), "a message of a lite topic has no .* sharding key"),
    (Message("T", b"x", lite_topic="a", properties={"__SHARDINGKEY": "k"}), "has no .* sharding key"),
    (Message("T", b"x", properties={"n": "\ud800"}), "no valid Unicode text"),
    (Message("T", b"x", tags="\ud800"), "no valid Unicode text"),
    (Message("T", b"x", sharding_key="a", properties={"__SHARDINGKEY": "b"}), "__SHARDINGKEY and sharding_key differ"),
    (Message("T", b"x", delay_level=0), "delay_level is 0; levels are 1"),
    (Message("T", b"x", delay_level=19), "delay_level is 19"),
    (Message("T", b"x", delay_level=1, deliver_at=NOW), "exclude one another"),
    (Message("T", b"x", delay=timedelta(1), deliver_at=NOW), "exclude one another"),
    (Message("T", b"x", deliver_at=datetime(2026, 1, 1)), "deliver_at has no time zone"),
    (Message("T", b"x", delay=timedelta(0)), "delay is 0:00:00"),
    (Message("T", b"x", delay=timedelta(days=-1)), "it is more than nothing"),
    (Message("T", b"x", properties={"_SYS_MSG_PRIORITY_": "1"}), "_SYS_MSG_PRIORITY_ is a name .* priority"),
    (Message("T", b"x", priority=-1), "priority is -1; it is a whole number from 0 on"),
    (Message("T", b"x", priority=2**31), "priority is 2147483648"),
    (Message("T", b"x", priority=True), "priority is True"),
    (Message("T", b"x", priority="3"), "priority is '3'"),  # type: ignore[arg-type]
    (Message("T", b"x", priority=1, delay_level=1), "a delayed message has no priority"),
    (Message("T", b"x", priority=1, deliver_at=NOW), "a delayed message has no priority"),
    (Message("T", b"x", priority=1, sharding_key="k"), "a priority and a sharding key both choose the queue"),
    (Message("T", b"x", priority=1, properties={"__SHARDINGKEY": "k"}), "both choose the queue"),
]


@pytest.mark.parametrize(("message", "reason"), REFUSED)
def test_a_message_that_breaks_a_rule_is_refused_by_name(message: Message, reason: str) -> None:
    with pytest.raises(InvalidMessage, match=reason):
        message_properties_string(message, "ID")


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_reserved_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidMessage, match="is a name RocketMQ keeps for itself"):
        message_properties_string(Message("T", b"x", properties={name: "v"}), "ID")


def test_names_java_lets_through_are_let_through() -> None:
    names = ("__SHARDINGKEY", "CHECK_IMMUNITY_TIME_IN_SECONDS")
    for name in (*names, "__transactionId__", "__STARTDELIVERTIME", "keys"):
        assert message_properties(Message("T", b"x", properties={name: "v"}), None)[name] == "v"


def test_the_limit_counts_bytes_and_leaves_room_for_the_broker() -> None:
    rest = len(message_properties_string(Message("T", b"x", properties={"n": "v"}), "ID")) - 1
    largest = Message("T", b"x", properties={"n": "v" * (MAX_PROPERTIES_BYTES - rest)})
    assert len(message_properties_string(largest, "ID")) == 32_600
    for value in ("v" * (MAX_PROPERTIES_BYTES - rest + 1), "é" * (MAX_PROPERTIES_BYTES // 2)):
        with pytest.raises(InvalidMessage, match=r"the properties take \d+ bytes; 32600 at most .* 32767"):
            message_properties_string(Message("T", b"x", properties={"n": value}), "ID")
