"""White addresses: the table of forms, wrong forms, and any range against a plain comparison."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.servers.access.plain.addresses import address_rule


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("*", ["1.2.3.4", "fe80::1"], []),
        ("*.*.*.*", ["1.2.3.4", "fe80::1"], []),
        ("*:*:*:*:*:*:*:*", ["1.2.3.4", "fe80::1"], []),
        ("", [], ["1.2.3.4", "127.0.0.1", ""]),
        ("  ", [], ["127.0.0.1"]),
        ("10.1.2.3", ["10.1.2.3"], ["10.1.2.4", "110.1.2.3", "::ffff:10.1.2.3"]),
        ("10.1.2.3,10.1.2.4", ["10.1.2.3", "10.1.2.4"], ["10.1.2.5"]),
        ("10.1.2.{3,4}", ["10.1.2.3", "10.1.2.4"], ["10.1.2.5", "10.1.3.3"]),
        ("10.1.2.3-9", ["10.1.2.3", "10.1.2.9"], ["10.1.2.2", "10.1.2.10", "10.1.3.5"]),
        ("10.1.2.*", ["10.1.2.0", "10.1.2.255"], ["10.1.3.0"]),
        ("10.1.*.*", ["10.1.2.0", "10.1.255.255"], ["10.2.0.0"]),
        ("10.*.*.*", ["10.0.0.0", "10.255.0.1"], ["11.0.0.0", "100.0.0.0"]),
        ("10.1-5.*.*", ["10.1.0.0", "10.5.0.1"], ["10.6.0.0", "10.0.0.0", "10.15.0.0"]),
        ("10.1.7.0-0", ["10.1.7.0"], ["10.1.7.1"]),
        ("fe80::1", ["fe80::1", "FE80:0:0:0:0:0:0:1", "fe80::1%eth0"], ["fe80::2", "1.2.3.4"]),
        ("fe80::{1,2}", ["fe80::1", "fe80::2"], ["fe80::3"]),
        ("fe80::1-ff", ["fe80::1", "fe80::ff"], ["fe80::100", "fe80::1:1"]),
        ("fe80::7:*", ["fe80::7:1", "fe80::7:ffff"], ["fe80::8:1", "fe80::1"]),
        ("2::ac5:78:1-200:*", ["2::ac5:78:1:5", "2::ac5:78:200:5"], ["2::ac5:78:201:5"]),
        ("2001:db8:0:0:0:0:1:*", ["2001:db8::1:5"], ["2001:db8::2:5"]),
    ],
)
def test_each_form_stands_for_its_addresses(text: str, inside: list[str], outside: list[str]) -> None:
    rule = address_rule(text)
    assert [address for address in [*inside, *outside] if rule.matches(address)] == inside


@pytest.mark.parametrize(
    "text",
    [
        "10.1.2",
        "10.1.2.256",
        "10.1.2.x",
        "10.1.2.3, 10.1.2.4",
        "10.1.2.9-3",
        "10.1.2.3-256",
        "10.1.2.3-",
        "10.1.2.-3",
        "*.1.2.3",
        "10.1.2.*x",
        "10.1.2.1*",
        "10.1.{2,3}",
        "{10.1.2.3}",
        "10.1.2.{}",
        ",",
        "fe80::x",
        "fe80:*:1",
        "fe80::1-:*",
        "fe80::10000-20000",
        "1:2:3:4:5:6:7:8:*",
        "example.org",
        "10.1.2.3/24",
    ],
)
def test_a_text_that_stands_for_no_addresses_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="Netaddress examine Exception"):
        address_rule(text)


BYTE = st.integers(0, 255)


@given(st.tuples(BYTE, BYTE, BYTE, BYTE), st.integers(1, 3), BYTE, BYTE, st.booleans())
def test_any_range_of_ipv4(address: tuple[int, ...], at: int, bound: int, other: int, keeps_head: bool) -> None:
    first, last = sorted((bound, other))
    head = address[:at] if keeps_head else (1, 2, 3)[:at]
    text = ".".join([*map(str, head), f"{first}-{last}", *["*"] * (3 - at)])
    expected = address[:at] == head and first <= address[at] <= last
    assert address_rule(text).matches(".".join(map(str, address))) == expected


@given(st.text(max_size=40))
def test_any_text_is_a_rule_or_refused_by_name(text: str) -> None:
    try:
        rule = address_rule(text)
    except InvalidArgument:
        return
    assert rule.matches("127.0.0.1") in (True, False)
    assert not rule.matches("no address") or rule.is_all
