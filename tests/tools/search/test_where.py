"""The language of `--where`: what holds for a message, and which character is wrong."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import InvalidArgument, MessageExt, MissingLibrary
from pyrmq_core.tools.search.conditions import Members, NoJson, Pattern, TextIn, condition_of, json_of
from pyrmq_core.tools.search.where import MAX_DEPTH, ROOTS, Where

BODY = """{"user": {"id": 42, "name": "O'Neil"}, "items": [{"sku": "a-1"}, {"sku": "b-2"}], "paid": true,
"none": null, "big": 9007199254740993, "price": 0.10, "tags of": ["x", "y"], "user-id": "u7", "$type": "t",
"exact": 1.00000000000000000001}"""


def message(body: str | bytes = BODY) -> MessageExt:
    content = body.encode() if isinstance(body, str) else body
    properties = {"TAGS": "paid", "KEYS": "order-1 order-12", "region": "eu", "a b": "c"}
    return MessageExt(
        topic="T",
        body=content,
        properties=properties,
        queue_id=0,
        queue_offset=7,
        born_timestamp_ms=1_777_636_800_000,  # 2026-05-01T12:00Z
        store_timestamp_ms=1_777_636_800_005,
        born_host="127.0.0.1:1",
        store_host="127.0.0.1:2",
        broker_name="broker-a",
        flag=0,
        sys_flag=0,
        commit_log_offset=0,
        store_size=0,
        body_crc=0,
        reconsume_times=0,
        prepared_transaction_offset=0,
        msg_id="id",
        offset_msg_id="id",
    )


def holds(text: str, body: str | bytes = BODY) -> bool:
    return Members(Where.parse(text)).holds(message(body))


@pytest.mark.parametrize(
    "text",
    [
        "json.user.id == 42",
        "json.user.id==42.0",
        "json['user'][\"id\"] >= 42 and json.user.id < 43",
        'json.user.name == "O\'Neil"',
        r"json.user.name == 'O\'Neil'",
        "json.items[1].sku == 'b-2'",
        "json.items[2].sku == null",
        "json.paid",
        "not json.none",
        "json.none == null and json.missing == null",
        "json.big == 9007199254740993",
        "json.big != 9007199254740992",
        "json.price == 0.1",
        "json.exact > 1 and json.exact != 1",
        "'x' in json['tags of']",
        "'z' not in json['tags of']",
        "'Nei' in json.user.name",
        "'id' in json.user",
        "json.user-id == 'u7' and json.$type == 't'",
        "json.user.id in [1, 2, 42]",
        "tags in ['paid', 'sent']",
        "'order-1' in keys and 'order' not in keys",
        "keys == 'order-1 order-12'",
        "properties.region == 'eu' and properties['a b'] == 'c'",
        "born >= '2026-05-01T12:00+00:00' and '2026-05-01T14:00:01+02:00' > stored",
        "born == '2026-05-01T12:00Z' or false",
        "not (json.user.id == 41 or tags == 'sent')",
        "json.user.id == 41 or json.user.id == 42 and tags == 'paid'",
    ],
)
def test_what_holds(text: str) -> None:
    assert holds(text)


@pytest.mark.parametrize(
    "text",
    [
        "json.user.id == '42'",
        "json.paid == 1",
        "json.user.id < '9'",
        "json.missing < 1",
        "json.big == 9007199254740992",
        "json.exact == 1",
        "json.user.id",
        "1 in json.user.name",
        "born < '2026-05-01T12:00Z'",
        "tags == null",
        "json.items['sku'] == 'a-1'",
        "json.user[0] == 42",
    ],
)
def test_what_does_not_hold(text: str) -> None:
    assert not holds(text)


@pytest.mark.parametrize(
    ("text", "character"),
    [
        ("", "character 1, the end"),
        ("json.user.id = 42", "character 14, '='"),
        ("json.user.id == ", "character 17, the end"),
        ("json.user.id == 42 &&", "character 20, '&'"),
        ("user.id == 42", "character 1, 'u'"),
        ("json. == 1", "character 6, ' '"),
        ("json[x] == 1", "character 6, 'x'"),
        ("json.data.0.id == 1", "character 11, '0': a number stands in brackets: [0] is an element, ['0'] a name"),
        ("json.a == 1 and json.12 == 1", "character 22, '1'"),
        ("(json.a == 1", "character 13, the end"),
        ("json.a == 'open", 'character 11, "\'"'),
        ("born == 'yesterday'", 'character 9, "\'"'),
        ("born > 5", "character 8, '5'"),
        ("born", "character 5, the end"),
        ("json.a not 5", "character 12, '5'"),
        ("json.a in [1 2]", "character 14, '2'"),
        ("json.a in [[1]]", "character 12, '['"),
        ("properties == 1", "character 1, 'p'"),
        ("tags.x == 1", "character 1, 't'"),
        ("__import__('os')", "character 1, '_'"),
        ("stored in ['2026-05-01']", "character 1, 's'"),
        ("not " * (MAX_DEPTH + 2) + "true", "stand within one another"),
        ("(" * (MAX_DEPTH + 2) + "true", "conditions stand within one another"),
        ("json.a == 1 or " * 500, "characters; 4096 are possible"),
    ],
)
def test_the_wrong_character_is_named(text: str, character: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        Where.parse(text)
    assert character in str(refused.value)


@given(st.text(alphabet="jsontag.['\"]()=<>! 0123456789eE-+,orandi\\nul☃", max_size=40))
def test_any_text_is_a_condition_or_is_refused(text: str) -> None:
    try:
        where = Where.parse(text)
    except InvalidArgument:
        return
    assert Members(where).holds(message()) in (True, False)


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)),
    st.integers(),
)
def test_whole_numbers_equal_those_of_the_body_alone(value: object, number: int) -> None:
    assert holds(f"json == {number}", json.dumps(value)) is (type(value) is int and value == number)


@pytest.mark.parametrize(
    "body",
    [
        b"text",
        b"",
        b"\xff\xfe",
        b'{"a": NaN}',
        b"[" * 100_000,
        b'{"a": 1',
        '{"a": 1}'.encode("utf-16"),
        b"1e99999999999999999999",
    ],
)
def test_a_body_that_is_no_json_meets_no_condition(body: bytes) -> None:
    for text in ("json.a == null", "not json.a == 1", "tags == 'paid' or json.a == 1"):
        with pytest.raises(NoJson):
            holds(text, body)
    assert holds("tags == 'paid'", body)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (r"json['it\'s'] == 1", "it's"),
        (r'json["it\"s"] == 1', 'it"s'),
        (r"json['a\\b'] == 1", r"a\b"),
        (r"json['a\nb'] == 1", "anb"),
        ("json['it\"s'] == 1", 'it"s'),
        ("json['0'] == 1", "0"),
        ("json['']== 1", ""),
    ],
)
def test_a_name_in_brackets_is_read_as_a_text_is(text: str, name: str) -> None:
    assert holds(text, json.dumps({name: 1}).encode())
    assert holds(f"json.of[0]{text.removeprefix('json')}", json.dumps({"of": [{name: 1}]}).encode())
    if name:
        within = text.replace("json", "properties").replace("== 1", "== '1'")
        assert Members(Where.parse(within)).holds(replace(message(), properties={name: "1"}))


def test_a_body_with_a_mark_and_whole_numbers_beyond_those_of_python() -> None:
    assert holds("json.a == 1", b'\xef\xbb\xbf{"a": 1}')
    long = b'{"n": ' + b"9" * 5000 + b', "more": -' + b"9" * 5001 + b', "id": 7}'
    assert holds("json.id == 7", long)
    assert holds("json.n > 1e4999 and json.n < 1e5000 and json.more < -1e5000", long)
    assert not holds("json.n == 1 or json.n == '9'", long)


def test_numbers_of_any_length_and_size() -> None:
    assert holds(f"json == {'9' * 4000}", "9" * 4000)
    assert holds("json > 1e9999", "1e999999999999")
    assert json_of(b"0.1") != 0.1


def test_every_root_is_there() -> None:
    for root in ROOTS:
        end = ".a == 'x'" if root == "properties" else " == '2026-05-01T12:00Z'"
        Where.parse(root + end)


def test_a_pattern_without_arrow_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingLibrary, match=r'^regular expressions need pyarrow, .*pyrmq-spark\[arrow\]"'):
        condition_of(None, None, "a")


def test_texts_and_patterns() -> None:
    assert TextIn("héllo").holds(message("say héllo"))
    assert not TextIn("hello").holds(message("say héllo"))
    for wrong in ("(", "a(?=b)", "(a)\\1", "\ud800"):
        with pytest.raises(InvalidArgument, match="is no regular expression of RE2: "):
            Pattern(wrong)
    with pytest.raises(InvalidArgument, match=r"^str of length 5000 is no regular expression of RE2: .{100}$"):
        Pattern("(" * 5000)
    with pytest.raises(InvalidArgument, match="is empty"):
        TextIn("")
    for none_or_two in ((None, None, None), ("a", "true", None)):
        with pytest.raises(InvalidArgument, match="one condition"):
            condition_of(*none_or_two)
