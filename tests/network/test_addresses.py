"""Addresses: both forms of host, and the refused ones."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.network import format_address, local_ip, parse_address

HOSTS = (st.ip_addresses().map(str)) | st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True)


@given(HOSTS, st.integers(0, 65_535))
def test_an_address_survives(host: str, port: int) -> None:
    assert parse_address(format_address(host, port)) == (host, port)


def test_both_forms() -> None:
    assert format_address("10.0.0.1", 9876) == "10.0.0.1:9876"
    assert format_address("fd00::2", 9876) == "[fd00::2]:9876"
    assert parse_address(" broker-a:10911 ") == ("broker-a", 10911)
    assert parse_address("[::1]:80") == ("::1", 80)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "host",
        "host:",
        ":9876",
        "host:port",
        "host:-1",
        "host:65536",
        "::1:80",
        "[::1]",
        "[]:1",
        "h:١",
        "h: 1",
        "h:" + "9" * 5000,
    ],
)
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(InvalidArgument, match="write host:port"):
        parse_address(text)


def test_the_local_ip_is_an_ip() -> None:
    assert ipaddress.ip_address(local_ip()).max_prefixlen in (32, 128)
