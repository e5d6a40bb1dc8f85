"""Batch bodies: Java's bytes, and every body that must not trip a broker."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import BodyError, InvalidMessage
from pyrmq_core.protocol.messages.batch import (
    OVERHEAD_BYTES,
    BatchItem,
    encode_batch_body,
    iterate_batch_body,
)
from tests.protocol.strategies import BATCH_ITEMS
from tests.support import golden

ID_1 = b"UNIQ_KEY\x017F0000010001000000000000000A0001\x02"
ID_2 = b"UNIQ_KEY\x017F0000010001000000000000000A0002\x02"
ITEMS = [
    BatchItem(0, b"b1", b"KEYS\x01K1\x02" + ID_1 + b"WAIT\x01true\x02TAGS\x01TagA\x02"),
    BatchItem(0, b"body2", ID_2 + b"WAIT\x01true\x02"),
]
ELEMENT = "0000003500000000000000000000000500000002626f001d4b455953016b31206b3202574149540174727565025441475301746702"


def test_javas_batch() -> None:
    assert encode_batch_body(ITEMS).hex() == golden.vectors()["batch"]
    assert list(iterate_batch_body(bytes.fromhex(golden.vectors()["batch"]))) == ITEMS


def test_javas_element() -> None:
    item = BatchItem(5, b"bo", b"KEYS\x01k1 k2\x02WAIT\x01true\x02TAGS\x01tg\x02")
    assert encode_batch_body([item]).hex() == ELEMENT
    assert list(iterate_batch_body(bytes.fromhex(ELEMENT))) == [item]


def test_the_batches_of_the_recorded_questions() -> None:
    bodies = [
        bytes.fromhex(row["request"]["body"]["hex"])
        for row in golden.rows()
        if row["request"]["code"] in (10, 320)
        and "hex" in (row["request"].get("body") or {})
        and isinstance(row["request"]["body"], dict)
    ]
    assert len(bodies) >= 4
    for body in bodies:
        items = list(iterate_batch_body(body))
        assert len(items) == 2
        assert encode_batch_body(items) == body


@given(BATCH_ITEMS)
def test_batches_survive(items: list[BatchItem]) -> None:
    body = encode_batch_body(items)
    assert len(body) == sum(item.size_bytes for item in items)
    assert list(iterate_batch_body(body)) == items
    assert [BatchItem(flag, bytes(text), props) for flag, text, props in iterate_batch_body(memoryview(body))] == items


def test_a_batch_cut_off_anywhere_is_reported() -> None:
    body = encode_batch_body(ITEMS)
    for cut in range(1, len(body)):
        if cut != ITEMS[0].size_bytes:
            with pytest.raises(BodyError, match=r"message at byte (0|94)"):
                list(iterate_batch_body(body[:cut]))


def test_magic_and_crc_are_not_looked_at() -> None:
    body = bytearray(encode_batch_body(ITEMS[:1]))
    body[4:12] = b"whatever"
    assert list(iterate_batch_body(bytes(body))) == ITEMS[:1]


@pytest.mark.parametrize("size", [0, -1, -(2**31), 21, 93, 95, 2**31 - 1])
def test_a_size_that_lies_is_reported(size: int) -> None:
    body = bytearray(encode_batch_body(ITEMS))
    struct.pack_into(">i", body, 0, size)
    with pytest.raises(BodyError, match="the message at byte 0"):
        list(iterate_batch_body(bytes(body)))


@pytest.mark.parametrize("size", [-1, -(2**31), 1, 3, 72, 2**31 - 1])
def test_a_body_length_that_lies_is_reported(size: int) -> None:
    body = bytearray(encode_batch_body(ITEMS))
    struct.pack_into(">i", body, 16, size)
    with pytest.raises(BodyError, match="the message at byte 0"):
        list(iterate_batch_body(bytes(body)))


def test_zeros_do_not_go_on_for_ever() -> None:
    """Such a body keeps a thread of a 5.4.0 broker busy until it is killed."""
    with pytest.raises(BodyError, match="declares 0 bytes"):
        list(iterate_batch_body(bytes(100)))


def test_properties_longer_than_their_length_field_are_refused() -> None:
    assert OVERHEAD_BYTES == 22
    encode_batch_body([BatchItem(0, b"x", bytes(32_767))])
    with pytest.raises(InvalidMessage, match="32768 bytes; a batch holds 32767"):
        encode_batch_body([BatchItem(0, b"x", bytes(32_768))])


@given(st.binary(max_size=200))
def test_garbage_gives_body_errors_only(garbage: bytes) -> None:
    with contextlib.suppress(BodyError):
        list(iterate_batch_body(garbage))


@given(st.data())
def test_flipped_bits_give_body_errors_only(data: st.DataObject) -> None:
    raw = bytearray(encode_batch_body(ITEMS * 3))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(BodyError):
        list(iterate_batch_body(bytes(raw)))
