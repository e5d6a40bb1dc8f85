"""Bodies as the page shows them: JSON, text or hex, cut, and always text that a browser can take."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.web.body_text import FORMS, HEX_SHOWN_BYTES, SHOWN_BYTES, SUMMARY_CHARACTERS, body_text, summary

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
        (b"[]" + b" " * SHOWN_BYTES, "text"),
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
    assert body_text(body).form == {"json": "text"}.get(form, form)


def test_a_body_is_shown_as_it_is() -> None:
    assert body_text(ORDER).text == ORDER.decode()


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
    body = b"a" * extra + "𝄞".encode() * (SHOWN_BYTES // 4)
    shown = body_text(body)
    assert (shown.form, shown.size_bytes, shown.left_out_bytes) == ("text", len(body), extra)
    assert body.startswith(shown.text.encode())
    assert len(shown.text.encode()) > SHOWN_BYTES - 4


BODIES = st.binary(max_size=200) | st.text().map(lambda text: text.encode(errors="surrogatepass"))


@given(BODIES, st.sampled_from(["", *FORMS]))
def test_any_body_can_be_shown(body: bytes, form: str) -> None:
    shown = body_text(body, form)
    shown.text.encode()
    assert shown.form == form or form in ("", "json")
    assert form != "json" or "".join(shown.text.split()) == "".join(body_text(body).text.split())
    assert shown.size_bytes == len(body)


@given(st.binary(max_size=2000))
def test_a_summary_is_one_short_line(body: bytes) -> None:
    line = summary(body)
    assert len(line) <= SUMMARY_CHARACTERS
    assert len(line.splitlines()) <= 1


def test_a_large_body_is_cut() -> None:
    shown = body_text(b"\x00" * 4_000_000)
    assert (shown.form, shown.left_out_bytes) == ("hex", 4_000_000 - HEX_SHOWN_BYTES)
