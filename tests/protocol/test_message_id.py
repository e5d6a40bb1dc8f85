"""Message ids, both kinds, both address lengths."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.messages.message_id import (
    OffsetId,
    UniqueIdMaker,
    decode_offset_msg_id,
    month_start_ms,
    offset_msg_id,
    offset_msg_ids,
)
from tests.protocol.strategies import IPS
from tests.support import golden
from tests.support.wire_forms import UniqueId, decode_unique_id

PACKED_IPS = IPS.map(lambda ip: ip.packed)


def ms(*date: int, zone: timezone | ZoneInfo | None = None) -> int:
    return int(datetime(*date, tzinfo=zone or UTC).timestamp() * 1000)  # type: ignore[misc,arg-type]


def test_an_offset_message_id_of_java() -> None:
    ip = ipaddress.ip_address("192.168.2.101").packed
    text = golden.vectors()["offsetMsgId"]
    assert offset_msg_id(ip, 10911, 6668) == text == "C0A8026500002A9F0000000000001A0C"
    assert decode_offset_msg_id(text) == OffsetId(ip, 10911, 6668)


def test_a_unique_id_of_java() -> None:
    parts = decode_unique_id("C0A8026507741218025C3A983E8F0000")
    assert parts == UniqueId(bytes([192, 168, 2, 101]), 1908, 0x1218025C, 983_056_015, 0)


def test_a_unique_id_of_java_with_ipv6() -> None:
    text, *facts = golden.vectors()["uniq sample"].split(" ")
    fact_of = dict(fact.split("=") for fact in facts)
    parts = decode_unique_id(text)
    assert ipaddress.ip_address(parts.ip) == ipaddress.ip_address("fd00::2")
    assert parts.pid == int(fact_of["pid"])
    assert parts.discriminator == int(fact_of["cl"], 16)
    now = int(fact_of["now"])
    month = month_start_ms(now, UTC)
    assert UniqueIdMaker(parts.ip, parts.pid, parts.discriminator).make(now, month, parts.counter)[:48] == text[:48]
    assert now - month - parts.month_ms in range(1000)  # Java printed the time a moment after it made the id


@given(
    PACKED_IPS,
    st.integers(0, 2**22),
    st.integers(0, 2**32 - 1),
    st.integers(0, 31 * 86_400_000),
    st.integers(0, 2**40),
)
def test_unique_ids_survive(ip: bytes, pid: int, discriminator: int, since: int, counter: int) -> None:
    text = UniqueIdMaker(ip, pid, discriminator).make(1_700_000_000_000 + since, 1_700_000_000_000, counter)
    assert len(text) == 24 + 2 * len(ip)
    assert text == text.upper()
    assert decode_unique_id(text) == UniqueId(ip, pid & 0xFFFF, discriminator, since, counter & 0xFFFF)


def test_many_ids_are_those_made_one_by_one() -> None:
    maker = UniqueIdMaker(b"\x7f\0\0\1", 70_000, 0xABCDEF01)
    many = tuple(maker.run(5000, 1000, 65_530, 10).ids())
    assert many == tuple(maker.make(5000, 1000, 65_530 + i) for i in range(10))
    assert len(set(many)) == 10
    assert not list(maker.run(5000, 1000, 3, 0).ids())
    assert len(set(maker.run(5000, 1000, 3, 65_536).ids())) == 65_536
    with pytest.raises(InvalidArgument, match="65,536"):
        maker.run(5000, 1000, 3, 65_537)


@pytest.mark.parametrize(("drift", "expected"), [(-1, 0), (-999_999, 0), (-1_000_000, 2**32 - 1_000_000), (7, 7)])
def test_a_clock_that_went_back_a_little_stands_at_the_months_start(drift: int, expected: int) -> None:
    now = 1_700_000_000_000
    assert decode_unique_id(UniqueIdMaker(b"\x7f\0\0\1", 1, 2).make(now + drift, now, 0)).month_ms == expected


@pytest.mark.parametrize("ip", [b"", b"abc", b"12345", bytes(17)])
def test_an_address_has_four_or_sixteen_bytes(ip: bytes) -> None:
    with pytest.raises(InvalidArgument, match="4 or 16 bytes"):
        UniqueIdMaker(ip, 1, 2)


@pytest.mark.parametrize(
    ("now", "zone", "start"),
    [
        (ms(2023, 11, 14, 22, 13, 20), UTC, ms(2023, 11, 1)),
        (ms(2024, 2, 29, 23, 59, 59), UTC, ms(2024, 2, 1)),
        (ms(2024, 1, 1), UTC, ms(2024, 1, 1)),
        (ms(2024, 1, 31, 17), timezone(timedelta(hours=8)), ms(2024, 1, 31, 16)),
        (ms(2024, 2, 1, 3), timezone(timedelta(hours=-5)), ms(2024, 1, 1, 5)),
    ],
)
def test_where_a_month_begins(now: int, zone: timezone, start: int) -> None:
    assert month_start_ms(now, zone) == start


def test_a_month_begins_before_its_summer_time_does() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert month_start_ms(ms(2024, 3, 31, 12), berlin) == ms(2024, 2, 29, 23)


@given(PACKED_IPS, st.integers(0, 65_535), st.integers(0, 2**63 - 1))
def test_offset_ids_survive(ip: bytes, port: int, offset: int) -> None:
    text = offset_msg_id(ip, port, offset)
    assert len(text) == 24 + 2 * len(ip)
    assert decode_offset_msg_id(text) == OffsetId(ip, port, offset)
    assert decode_offset_msg_id(text.lower()) == OffsetId(ip, port, offset)


@given(
    st.text(max_size=60)
    | st.text("0123456789abcdefG \t", min_size=32, max_size=32)
    | st.text("0123456789ABCDEFé", min_size=56, max_size=56)
)
def test_anything_else_is_refused(text: str) -> None:
    digits = set(text) <= set("0123456789abcdefABCDEF") and len(text) in (32, 56)
    if digits:
        decode_offset_msg_id(text)
    else:
        with pytest.raises(InvalidArgument, match="32 or 56 hexadecimal digits"):
            decode_offset_msg_id(text)


@pytest.mark.parametrize("host", [bytes([127, 0, 0, 1]), bytes(range(16))])
@pytest.mark.parametrize("offsets", [[0], [1, 2**40, 2**63 - 1], list(range(0, 300, 7))])
def test_many_offset_ids_are_those_of_each(host: bytes, offsets: list[int]) -> None:
    assert offset_msg_ids(host, 10911, offsets) == ",".join([offset_msg_id(host, 10911, offset) for offset in offsets])
