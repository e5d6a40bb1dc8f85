"""Header fields of dataclasses: text both ways, required fields, invalid numbers."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import HeaderError
from pyrmq_core.protocol.framing.fields import decode_fields, encode_fields, parse_bool, wire, wire_int
from tests.protocol.strategies import INT64, TEXT


@dataclass(frozen=True, slots=True)
class Sample:
    """One field of each kind, and one that is not sent."""

    name: str = wire("theName")
    number: int = wire("theNumber")
    maybe: int | None = wire("maybe", None)
    switch: bool | None = wire("switch", True)
    share: float | None = wire("share", None)
    body: bytes = b""


@given(
    st.builds(
        Sample,
        TEXT,
        INT64,
        st.none() | INT64,
        st.none() | st.booleans(),
        st.none() | st.floats(allow_nan=False),
    )
)
def test_fields_survive(sample: Sample) -> None:
    fields = encode_fields(sample)
    assert all(isinstance(text, str) for text in fields.values())
    if sample.switch is None:  # None is not sent, so the default comes back
        sample = replace(sample, switch=True)
    assert decode_fields(Sample, fields) == sample


def test_texts_are_javas() -> None:
    assert encode_fields(Sample("n", -5, switch=False)) == {"theName": "n", "theNumber": "-5", "switch": "false"}


@pytest.mark.parametrize("text", ["true", "TRUE", "True"])
def test_true_in_any_case(text: str) -> None:
    assert parse_bool(text)


@pytest.mark.parametrize("text", ["false", "1", "", "yes", " true"])
def test_everything_else_is_false(text: str) -> None:
    assert not parse_bool(text)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(HeaderError, match=r"^PULL: field theNumber is missing$"):
        decode_fields(Sample, {"theName": "x"}, "PULL")


def test_no_number_is_named() -> None:
    with pytest.raises(HeaderError, match=r"Sample: field theNumber is 'zz'"):
        decode_fields(Sample, {"theName": "x", "theNumber": "zz"})


@pytest.mark.parametrize("text", ["9" * 10_000, str(2**63), str(-(2**63) - 1)])
def test_a_number_beyond_64_bits_is_refused(text: str) -> None:
    with pytest.raises(HeaderError, match="field theNumber is"):
        decode_fields(Sample, {"theName": "x", "theNumber": text})


@dataclass(frozen=True, slots=True)
class Small:
    """A field of 32 bits, and one that may be missing."""

    number: int = wire_int("theNumber")
    maybe: int | None = wire_int("maybe", None)


@pytest.mark.parametrize("text", ["9" * 10_000, str(2**31), str(-(2**31) - 1), str(2**63)])
def test_a_number_beyond_32_bits_is_refused(text: str) -> None:
    with pytest.raises(HeaderError, match="field theNumber is"):
        decode_fields(Small, {"theNumber": text})
    with pytest.raises(HeaderError, match="field maybe is"):
        decode_fields(Small, {"theNumber": "1", "maybe": text})


@pytest.mark.parametrize(
    ("text", "number"),
    [("+5", 5), ("-0", 0), ("007", 7), (str(2**31 - 1), 2**31 - 1), (str(-(2**31)), -(2**31)), ("\uff11\uff12", 12)],
)
def test_numbers_are_spelled_as_java_takes_them(text: str, number: int) -> None:
    """Integer.parseInt and Long.parseLong take any script's digits."""
    assert decode_fields(Small, {"theNumber": text}) == Small(number)
    assert decode_fields(Sample, {"theName": "x", "theNumber": text}) == Sample("x", number)


@pytest.mark.parametrize("text", ["", " 12", "12 ", "1_000", "1.0", "0x1", "+", "--1", "\u00b2", "1e3", "\n1"])
def test_what_java_does_not_take_is_refused(text: str) -> None:
    with pytest.raises(HeaderError, match="field theNumber is"):
        decode_fields(Small, {"theNumber": text})
    with pytest.raises(HeaderError, match="field theNumber is"):
        decode_fields(Sample, {"theName": "x", "theNumber": text})


def test_unknown_fields_are_left_alone() -> None:
    assert decode_fields(Sample, {"theName": "x", "theNumber": "1", "lo": "false"}) == Sample("x", 1)


@given(TEXT, TEXT, TEXT)
def test_garbage_gives_header_errors_only(number: str, maybe: str, share: str) -> None:
    with contextlib.suppress(HeaderError):
        decode_fields(Sample, {"theName": "x", "theNumber": number, "maybe": maybe, "share": share})
