"""ACL signatures against Java's."""

from __future__ import annotations

import base64
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.protocol.acl import COPIED_BYTES, sign, signature
from tests.protocol.strategies import EXT
from tests.support import golden

KEY, SECRET = "rocketmq2", "12345678"


def java_signature(title: str) -> str:
    (line,) = [line for line in golden.text("vectors_java2.txt").splitlines() if line.startswith(f"acl {title} |")]
    return line.split("Signature=")[1].split(",")[0]


def test_a_request_without_a_body() -> None:
    assert sign({"topic": "TopicTest"}, b"", KEY, SECRET) == {
        "topic": "TopicTest",
        "AccessKey": KEY,
        "Signature": java_signature("route nobody"),
    }


def test_upper_case_names_sort_before_lower_case_ones() -> None:
    signed = sign({"a": "1", "b": "2", "B": "3"}, memoryview(b"body"), KEY, SECRET)
    assert signed["Signature"] == java_signature("body")


def test_with_a_security_token() -> None:
    ext = {"a": "please_rename_unique_group_name", "b": "TopicTest", "e": "3"}
    signed = sign(ext, b"hello", KEY, SECRET, "tok")
    assert signed["SecurityToken"] == "tok"
    assert signed["Signature"] == "fNDHuJEs3c9bTJrGQThY2VNxGwg="


@pytest.mark.parametrize("size", [0, COPIED_BYTES, COPIED_BYTES + 1, 3_000_000])
def test_a_body_of_any_length(size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    plain = hmac.new(SECRET.encode(), b"T" + body[:size], "sha1").digest()
    for form in (body[:size], memoryview(body)[:size]):
        assert base64.b64decode(signature({"topic": "T"}, form, SECRET)) == plain


def test_an_old_signature_is_not_signed() -> None:
    once = sign({"topic": "T"}, b"", KEY, SECRET)
    assert sign(once, b"", KEY, SECRET) == once


def test_the_fields_given_are_left_alone() -> None:
    ext = {"topic": "T"}
    sign(ext, b"", KEY, SECRET)
    assert ext == {"topic": "T"}


@pytest.mark.parametrize(("first", "second"), [("\uffff", "\U00010000"), ("\ue000", "\U0001f600")])
def test_names_are_sorted_by_utf_16_units_as_java_sorts(first: str, second: str) -> None:
    """A character outside the basic plane begins with d800 to dbff there, below e000 and ffff."""
    assert first < second
    swapped = signature({"1": "b", "2": "a"}, b"", SECRET)
    assert signature({first: "a", second: "b"}, b"", SECRET) == swapped


@given(EXT, st.binary(max_size=50))
def test_what_was_signed_is_verified_and_nothing_else(ext: dict[str, str], body: bytes) -> None:
    signed = sign(ext, body, KEY, SECRET)
    assert signature(signed, body, SECRET) == signed["Signature"]
    assert signature(signed, body + b"!", SECRET) != signed["Signature"]
    assert signature(signed, body, SECRET + "!") != signed["Signature"]


@given(st.dictionaries(st.text(), st.text()), st.text())
def test_any_text_can_be_signed(ext: dict[str, str], secret: str) -> None:
    assert len(sign(ext, b"", "k", secret)["Signature"]) == 28
