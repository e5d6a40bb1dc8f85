"""White addresses of `plain_acl.yml`: one address, a list, a range, or all.

| text | addresses |
|---|---|
| `*`, `*.*.*.*`, `*:*:*:*:*:*:*:*` | all |
| blank | none |
| `10.1.2.3`, `fe80::1` | this address |
| `10.1.2.3,10.1.2.4` | both addresses |
| `10.1.2.{3,4}`, `fe80::{1,2}` | both addresses |
| `10.1.2.3-9`, `10.1.*.*`, `10.1-5.*.*` | a range of the second, third or fourth part |
| `fe80::1:*`, `fe80::1-ff`, `fe80::1-ff:*` | a range of the last part, or of the part before it |

Source: acl/plain/RemoteAddressStrategyFactory.java (4.9.7). A pattern that matches no address in RocketMQ, or makes
requests fail there, is refused here when it is parsed.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pyrmq_core.errors import InvalidArgument

ALL: Final = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
V4_PARTS: Final = 4
V6_PARTS: Final = 8
V4_MAX: Final = 255
V6_MAX: Final = 0xFFFF
# The number of addresses whose parsed form is cached, since each request compares its sender's address.
KEPT_ADDRESSES: Final = 1024


@dataclass(frozen=True, slots=True)
class AddressRule:
    """A parsed white address: all addresses (`is_all`), a list of `addresses`, or a range.

    A range contains the addresses that consist of `parts` numbers, begin with the numbers `head`, and continue with a
    number from `first` to `last`.
    """

    is_all: bool = False
    addresses: frozenset[str] = frozenset()
    head: tuple[int, ...] = ()
    first: int = 0
    last: int = -1
    parts: int = 0

    def matches(self, address: str) -> bool:
        if self.is_all:
            return True
        if not self.parts:
            return bool(self.addresses) and _canonical(address) in self.addresses
        numbers = _numbers(address)
        at = len(self.head)
        return len(numbers) == self.parts and numbers[:at] == self.head and self.first <= numbers[at] <= self.last


def address_rule(text: str | None) -> AddressRule:
    """Parses a white address. None or a blank text matches no address. Raises `InvalidArgument` for an invalid text."""
    text = text or ""
    if not text.strip():
        return AddressRule()
    if text in ALL:
        return AddressRule(is_all=True)
    if text.endswith("}"):
        return _list(text, _expanded(text))
    if "," in text:
        return _list(text, text.split(","))
    if "*" in text or "-" in text:
        return _v6_range(text) if ":" in text else _v4_range(text)
    return _list(text, [text])


def _expanded(text: str) -> list[str]:
    head, _, tail = text.partition("{")
    if not head.endswith((".", ":")):
        raise _wrong(text)
    return [head + last for last in tail[:-1].split(",")]


def _list(text: str, addresses: list[str]) -> AddressRule:
    canonical = [_canonical(address) for address in addresses if address]
    if not canonical or "" in canonical:
        raise _wrong(text)
    return AddressRule(addresses=frozenset(canonical))


def _v4_range(text: str) -> AddressRule:
    parts = text.split(".")
    at = next((number for number, part in enumerate(parts) if "*" in part or "-" in part), 0)
    if len(parts) != V4_PARTS or at == 0:
        raise _wrong(text)
    head = tuple(_number(part, 10, V4_MAX, text) for part in parts[:at])
    first, last = _bounds(parts[at].strip(), 10, V4_MAX, text)
    return AddressRule(head=head, first=first, last=last, parts=V4_PARTS)


def _v6_range(text: str) -> AddressRule:
    parts = text.split(":")
    at = len(parts) - 1
    if at > 0 and parts[at] == "*" and "-" in parts[at - 1]:
        at -= 1
    head = ":".join(parts[:at])
    if "*" in head or "-" in head:
        raise _wrong(text)
    width = V6_PARTS - (len(parts) - at)
    numbers = _v6_head(head, width, text)
    if len(numbers) > width:
        raise _wrong(text)
    first, last = _bounds(parts[at].strip(), 16, V6_MAX, text)
    return AddressRule(head=numbers, first=first, last=last, parts=V6_PARTS)


def _v6_head(head: str, width: int, text: str) -> tuple[int, ...]:
    if head.endswith(":"):  # the split at ":" took one colon of a `::` before the range
        head += ":"
    if not head or ":::" in head or head.count("::") > 1:
        raise _wrong(text)
    before, double, after = head.partition("::")
    left = [_number(part, 16, V6_MAX, text) for part in before.split(":") if before]
    right = [_number(part, 16, V6_MAX, text) for part in after.split(":") if after]
    zeros = [0] * (width - len(left) - len(right)) if double else []
    return (*left, *zeros, *right)


def _bounds(part: str, base: int, most: int, text: str) -> tuple[int, int]:
    if part == "*":
        return 0, most
    low, dash, other = part.partition("-")
    if not dash:
        raise _wrong(text)
    first, last = _number(low, base, most, text), _number(other, base, most, text)
    if first > last:
        raise _wrong(text)
    return first, last


def _number(part: str, base: int, most: int, text: str) -> int:
    try:
        number = int(part, base) if part.isalnum() and part.isascii() else -1
    except ValueError:
        number = -1
    if not 0 <= number <= most:
        raise _wrong(text)
    return number


@lru_cache(KEPT_ADDRESSES)
def _canonical(address: str) -> str:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).compressed
    except ValueError:
        return ""


@lru_cache(KEPT_ADDRESSES)
def _numbers(address: str) -> tuple[int, ...]:
    try:
        value = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ()
    size = 1 if value.version == V4_PARTS else 2
    packed = value.packed
    return tuple(int.from_bytes(packed[at : at + size]) for at in range(0, len(packed), size))


def _wrong(text: str) -> InvalidArgument:
    return InvalidArgument(f"Netaddress examine Exception netaddress is {text}")
