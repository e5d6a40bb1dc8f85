"""Java's string hashes."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.protocol.java.string_hash import consistent_bucket, string_hash_code, tags_code
from tests.support import golden


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("标签", 857175),
        ("\U0001f600", 1772899),
        ("", 0),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_hash_codes(text: str, expected: int) -> None:
    assert string_hash_code(text) == expected


@given(st.text(alphabet="ab[, 1]@", max_size=300))
def test_the_hash_of_a_long_text_is_that_of_its_letters(text: str) -> None:
    code = 0
    for letter in text:
        code = (code * 31 + ord(letter)) % 2**32
    assert string_hash_code(text) == (code if code < 2**31 else code - 2**32)


@pytest.mark.parametrize("text", ["order-1", "order-2", "1001", ""])
def test_what_java_printed(text: str) -> None:
    code, modulo = golden.vectors()[f"String.hashCode {text}".strip()].split(" mod8=")
    assert string_hash_code(text) == int(code)
    # Java's remainder keeps the sign: abs() after it, as SelectMessageQueueByHash does.
    assert abs(string_hash_code(text)) % 8 == int(modulo)


def test_the_buckets_of_10_000_names_are_those_of_java() -> None:
    java = golden.load("lite_buckets_5.5.0.json")
    hexes = [f"{(number * 0x9E3779B1) & 0xFFFFFFFF:x}_{number * 7919}" for number in range(10_000)]
    codes = [string_hash_code(hexes[number] if number % 2 else f"session-{number}") for number in range(10_000)]
    for buckets, expected in java["buckets"].items():
        text = " ".join(str(consistent_bucket(code, int(buckets))) for code in codes)
        assert text.startswith(expected["first"]), buckets
        assert hashlib.sha256(text.encode()).hexdigest() == expected["sha256"], buckets
    # Among these are two numbers at which Guava's sum overflows, in the first and in the second step.
    assert {code: consistent_bucket(int(code), 1000) for code in java["codes"]} == java["codes"]


def test_no_tags_are_code_0() -> None:
    assert tags_code(None) == tags_code("") == 0
    assert tags_code("TagA") == 2598919


@given(st.text())
def test_it_is_a_polynomial_over_utf_16(text: str) -> None:
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = 31 * code + (high << 8) + low
    assert (string_hash_code(text) - code) % 2**32 == 0
    assert -(2**31) <= string_hash_code(text) < 2**31
