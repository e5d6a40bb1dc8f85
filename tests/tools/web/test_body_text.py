"""Bodies as the page shows them: JSON, text or hex, cut, and always text that a browser can take."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.tools.web import body_text as body_text_module
from pyrmq_core.tools.web.body_text import (
    FORMS,
    HEX_PART_BYTES,
    JSON_BYTES,
    PART_BYTES,
    SUMMARY_BYTES,
    SUMMARY_CHARACTERS,
    body_text,
    file_name,
    summary,
)

ORDER = (
    b'{"total": 12.50, "id": 12345678901234567890123.0, "a": 1, "a": 2, "big": 1e400, '
    rb'"esc": "\u0041, {\"b\" :[]}", "minus": -0.0}'
)


@pytest.mark.parametrize(
    ("body", "form"),
    [
        (b'{"a": [1, 2]}', "json"),
        (b' ["\\ud800"]', "json"),
        (b'{"n": 1' + b"0" * 5000 + b"}", "json"),
        (b"[" * 100_000, "text"),
        (b"[]" + b" " * PART_BYTES, "json"),
        (b"[]" + b" " * JSON_BYTES, "text"),
        (b"[]" + b" " * PART_BYTES + b"x", "text"),
        (b"[]" + b" " * PART_BYTES + b"\xff", "text"),
        (b"[NaN]", "text"),
        (b"12", "text"),
        ("größe".encode(), "text"),
        (b"\xff\xfe", "hex"),
        (b"a\x00b", "hex"),
        (b"", "text"),
    ],
)
def test_the_form_fits_the_body(body: bytes, form: str) -> None:
    assert body_text(body, "json").form == form
    assert body_text(body).form == ("text" if len(body) > PART_BYTES and form == "json" else form)


def test_a_body_is_shown_as_it_is() -> None:
    assert body_text(ORDER, "text").text == ORDER.decode()
    assert body_text(ORDER) == body_text(ORDER, "json")


def test_json_is_laid_out() -> None:
    assert body_text(b'{"a":{"b":"\xc3\xa9"},"c":[],"d":[ 1,{ }]}', "json").text.splitlines() == [
        "{",
        '  "a": {',
        '    "b": "é"',
        "  },",
        '  "c": [],',
        '  "d": [',
        "    1,",
        "    {}",
        "  ]",
        "}",
    ]


def test_json_keeps_names_and_numbers() -> None:
    assert body_text(ORDER, "json").text.splitlines() == [
        "{",
        '  "total": 12.50,',
        '  "id": 12345678901234567890123.0,',
        '  "a": 1,',
        '  "a": 2,',
        '  "big": 1e400,',
        r'  "esc": "\u0041, {\"b\" :[]}",',
        '  "minus": -0.0',
        "}",
    ]


@given(st.recursive(st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.text(), st.lists))
def test_json_differs_in_blanks_alone(value: object) -> None:
    body = json.dumps({"a": value, "b": [value, {}]}, indent=3).encode()
    shown = body_text(body, "json")
    assert shown.form == ("hex" if "\x7f" in body.decode() else "json")
    if shown.form == "json":
        assert "".join(shown.text.split()) == "".join(body.decode().split())
        assert json.loads(shown.text) == json.loads(body)


@given(
    st.recursive(st.integers() | st.text(), lambda values: st.lists(values) | st.dictionaries(st.text(), values)),
    st.integers(0, 3),
    st.integers(4, 12),
)
def test_the_parts_of_json_together_are_all_of_it(value: object, indent: int, size: int) -> None:
    body = json.dumps([value], indent=indent or None, ensure_ascii=False).encode(errors="replace")
    laid_out = body_text(body, "json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(body_text_module, "PART_BYTES", size)
        first = body_text(body, "json")
        parts = [body_text(body, "json", number) for number in range(1, first.parts + 1)]
    if laid_out.form == "json":
        assert {part.form for part in parts} == {"json"}
        assert "".join(part.text for part in parts) == laid_out.text


def test_json_nested_deeply_is_not_indented_without_end() -> None:
    shown = body_text(b"[" * 300 + b"1," * 20_000 + b"1" + b"]" * 300, "json")
    assert shown.form == "json"
    assert len(shown.text) < 20_000 * 100


def test_hex_has_places_and_letters() -> None:
    assert body_text(b"A\x00" + b"z" * 15, "hex").text.splitlines() == [
        "00000000  41 00 7a 7a 7a 7a 7a 7a 7a 7a 7a 7a 7a 7a 7a 7a  A.zzzzzzzzzzzzzz",
        "00000010  7a                                               z",
    ]


@pytest.mark.parametrize("extra", [0, 1, 2, 3])
def test_a_character_on_the_edge_is_no_binary(extra: int) -> None:
    body = b"a" * extra + "𝄞".encode() * (PART_BYTES // 4)
    shown = body_text(body)
    assert (shown.form, shown.size_bytes, shown.parts) == ("text", len(body), 1 + (extra > 0))
    assert body.startswith(shown.text.encode())
    assert len(shown.text.encode()) == shown.end > PART_BYTES - 4


BODIES = st.binary(max_size=200) | st.text().map(lambda text: text.encode(errors="surrogatepass"))


@given(BODIES, st.sampled_from(["", *FORMS]))
def test_any_body_can_be_shown(body: bytes, form: str) -> None:
    shown = body_text(body, form)
    shown.text.encode()
    assert shown.form == form or form in ("", "json")
    assert form != "json" or "".join(shown.text.split()) == "".join(body_text(body).text.split())
    assert shown.size_bytes == len(body)


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (rb'{"name": "\u674e\u96f7", "n": 1.50, "of": {"e": ""}}', 'name: 李雷, n: 1.50, of: {e: ""}'),
        (rb'[{"a": "1\n2"}, ["\ud83d\ude00"]]', "[{a: 1 2}, [😀]]"),
        (rb'{"a": "x\u202e\u001b\ud800 \\u674e \"b\""}', r'a: x\u202e\x1b\ud800 \u674e "b"'),
        (b"{}", "{}"),
        (rb'[1,"\u674e"]', "[1, 李]"),
        (b'{"a" 1}', '{"a" 1}'),
        (b"[12:00] {order} paid", "[12:00] {order} paid"),
        (b'{"a":"' + rb"\u674e" * 300, "a: " + "李" * 146 + "…"),
        (b'{"a":[' + b"1," * 900, "a: [" + "1, " * 48 + "1…"),
        (b'{"order": 7, "name": "' + b"x" * 900, "order: 7, name: " + "x" * 133 + "…"),
    ],
)  # fmt: skip
def test_the_summary_of_json_is_its_members(body: bytes, line: str) -> None:
    assert summary(body) == line


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_a_summary_holds_the_texts_of_json(value: object) -> None:
    texts = [" ".join(text.split()) for text in _texts(value) if text.isprintable()]
    line = summary(json.dumps(value).encode())
    assert len(line) == SUMMARY_CHARACTERS or all(text in line or not isinstance(value, dict | list) for text in texts)


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for name, inner in value.items() for text in (*_texts(inner), name)]
    if isinstance(value, list):
        return [text for inner in value for text in _texts(inner)]
    return [value] if isinstance(value, str) else []


@given(st.binary(max_size=2000))
def test_a_summary_is_one_short_line(body: bytes) -> None:
    line = summary(body)
    assert len(line) <= SUMMARY_CHARACTERS
    assert len(line.splitlines()) <= 1


def test_a_large_body_has_parts() -> None:
    body = b"\x00" * 4_000_000
    first, last = body_text(body), body_text(body, "hex", 10**9)
    assert (first.form, first.part, first.parts, first.end) == ("hex", 1, 977, HEX_PART_BYTES)
    assert (last.part, last.end, last.size_bytes) == (977, len(body), len(body))
    assert last.text.splitlines()[0].startswith(f"{976 * HEX_PART_BYTES:08x}  00 00")


@given(st.text(max_size=90) | st.binary(max_size=90), st.sampled_from(["", "text", "hex"]))
def test_the_parts_together_are_the_body(content: str | bytes, form: str) -> None:
    body = content if isinstance(content, bytes) else content.encode(errors="replace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(body_text_module, "PART_BYTES", 8)
        patch.setattr(body_text_module, "HEX_PART_BYTES", 8)
        first = body_text(body, form)
        parts = [body_text(body, first.form, number) for number in range(1, first.parts + 1)]
    assert parts[0] == first
    assert [part.start for part in parts] == [0, *(part.end for part in parts[:-1])]
    assert parts[-1].end == len(body)
    if first.form == "text" and isinstance(content, str):
        assert "".join(part.text for part in parts).encode() == body
    if first.form == "hex":
        digits = "".join(line[10:57] for part in parts for line in part.text.splitlines())
        assert bytes.fromhex(digits) == body


@given(BODIES)
def test_a_summary_needs_the_beginning_of_a_body_alone(body: bytes) -> None:
    assert summary(body[:SUMMARY_BYTES]) == summary(body)
    assert summary(body * 9) == summary((body * 9)[:SUMMARY_BYTES])


@given(st.text(max_size=300))
def test_the_name_of_a_file_is_no_path_and_no_header(name: str) -> None:
    safe = file_name(name, "broker-a", 0, 12)
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,120}\.bin", safe)


def test_names_of_files() -> None:
    assert file_name("orders", "broker-a", 0, 12) == "orders-broker-a-0-12.bin"
    assert file_name("%RETRY%..\\x", 'b"\r\n', 0) == "_RETRY_.._x-b___-0.bin"
    assert file_name("../../etc/passwd") == "_.._etc_passwd.bin"
    assert file_name("..") == "body.bin"
