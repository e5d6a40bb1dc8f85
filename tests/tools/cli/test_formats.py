"""The forms of messages that `pyrmq tail -o` and `consume -o` print, as values."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest

from pyrmq_core import MessageExt
from pyrmq_core.tools.cli.formats import message_form
from pyrmq_core.tools.cli.message_lines import LineForm
from pyrmq_core.tools.search.written_messages import FIELDS

PROPERTIES = {"TAGS": "paid", "KEYS": "1 2", "UNIQ_KEY": "ID", "WAIT": "true", "region": "eu", "__SHARDINGKEY": "k"}


def message(body: bytes = b"the body", **properties: str) -> MessageExt:
    return MessageExt(
        topic="orders",
        broker_name="broker-a",
        queue_id=3,
        queue_offset=17,
        body=body,
        properties=properties or PROPERTIES,
        flag=7,
        sys_flag=0,
        born_timestamp_ms=1_700_000_000_000,
        born_host="10.0.0.1:5",
        store_timestamp_ms=1_700_000_000_001,
        store_host="10.0.0.2:6",
        commit_log_offset=0,
        store_size=100,
        body_crc=0,
        reconsume_times=1,
        prepared_transaction_offset=0,
        msg_id="ID",
        offset_msg_id="OFFSET",
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("text", "broker-a/3@17 paid 1 2 the body"),
        ("raw", b"the body"),
        ("{queueId}@{queueOffset} {body}", "3@17 the body"),
        (r"{tags}\t{keys}\n{{{shardingKey}}}", "paid\t1 2\n{k}"),
        ("{properties[region]}|{properties[nothing]}|{bodyBytes:>5}", "eu||    8"),
        ("{storeTimestamp} {bornTimestamp}", "2023-11-14T22:13:20.001000+00:00 2023-11-14T22:13:20+00:00"),
    ],
)
def test_a_form_has_its_fields(text: str, line: str | bytes) -> None:
    assert message_form(text)(message()) == line


def test_every_field_can_be_printed() -> None:
    line = message_form("|".join(f"{{{name}}}" for name in FIELDS))(message())
    assert isinstance(line, str)
    assert line.count("|") == len(FIELDS) - 1
    assert line.endswith("|8|the body")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("yaml", "text, json, raw, or a template"),
        ("{nothing}", "there is no field {nothing}; there are topic, brokerName"),
        ("{body.__class__}", "there is no field"),
        ("{properties[a][b]}", "there is no field"),
        ("{}", "there is no field {}"),
        ("{body!r}", "!r is not possible"),
        ("{queueId:08d}", "{queueId:08d}"),
        ("{body", "expected '}'"),
        ("body}{", "ingle '}'"),
    ],
)
def test_a_wrong_form_is_refused_with_what_there_is(text: str, error: str) -> None:
    with pytest.raises(click.BadParameter) as raised:
        message_form(text)
    assert error in raised.value.message


@pytest.mark.parametrize("body", [b"text", "größe".encode(), b"\xff\x00", b"\xef\xbf\xbd"])
def test_json_is_sent_as_the_message_that_it_was(body: bytes) -> None:
    line = message_form("json")(message(body))
    assert isinstance(line, str)
    members: dict[str, Any] = json.loads(line)
    assert members["queueOffset"] == 17
    assert ("bodyBase64" in members) == (body == b"\xff\x00")
    again = LineForm("copies", {}, as_json=True).message(line.encode())
    assert (again.topic, again.body, again.tags, again.keys) == ("copies", body, "paid", "1 2")
    assert (again.sharding_key, again.flag, again.properties) == ("k", 7, {"region": "eu"})


STEERING = "\x1b]0;title\x07\x1b[2J\x9b31m\u202etxt.exe\r\x7f"
VISIBLE = r"\x1b]0;title\x07\x1b[2J\x9b31m\u202etxt.exe\r\x7f"


@pytest.mark.parametrize("name", ["body", "tags", "keys", "properties[region]"])
@pytest.mark.parametrize("text", ["text", "{tags} {keys} {properties[region]} {body}", "{properties} {body}"])
def test_no_form_for_people_steers_a_terminal(text: str, name: str) -> None:
    texts = {"body": "one\ttwo\n", "tags": "t", "keys": "k", "properties[region]": "eu"} | {name: STEERING}
    properties = {"TAGS": texts["tags"], "KEYS": texts["keys"], "region": texts["properties[region]"]}
    stranger = message(texts["body"].encode(), **properties)
    line = message_form(text)(stranger)
    assert isinstance(line, str)
    assert line.replace("\t", "").replace("\n", "").isprintable()
    encoded = message_form(text, raw=True)(stranger)
    assert isinstance(encoded, bytes)
    as_it_is = encoded.decode()
    if "{properties}" not in text and (name != "properties[region]" or "region" in text):
        assert VISIBLE in line
        assert STEERING in as_it_is
        assert line == as_it_is.replace(STEERING, VISIBLE)


def test_an_escape_of_the_template_itself_stays() -> None:
    assert message_form("\x1b[1m{body}\x1b[0m")(message(b"\x1b")) == "\x1b[1m\\x1b\x1b[0m"


def test_json_and_raw_keep_every_character() -> None:
    stranger = message(STEERING.encode())
    line = message_form("json")(stranger)
    assert isinstance(line, str)
    assert line.isprintable()
    assert json.loads(line)["body"] == STEERING
    assert message_form("raw")(stranger) == STEERING.encode()
