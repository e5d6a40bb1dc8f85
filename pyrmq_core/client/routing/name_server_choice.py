"""NameServer addresses as users write them, and the one that a client has chosen.

Source: remoting/netty/NettyRemotingClient.java (choice of NameServer), 5.3.3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from pyrmq_core.errors import InvalidArgument


def parse_nameservers(nameserver: str | Sequence[str]) -> tuple[str, ...]:
    """Parses `host:port;host:port`, or checks a list of addresses. Ignores blanks around them.

    An address may be `http://host:port` (an endpoint, common/utils/NameServerAddressUtils.java). Raises
    `InvalidArgument` for any other form.
    """
    parts = nameserver.split(";") if isinstance(nameserver, str) else _texts(nameserver)
    addresses = tuple(dict.fromkeys(part.strip().rpartition("//")[2].rstrip("/") for part in parts if part.strip()))
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or set(host) & set(", /") or not port.isdecimal() or len(port) > 5 or not 0 < int(port) < 65536:
            raise InvalidArgument(
                f"the NameServer address {address[:300]!r} is not host:port (several are joined by ;)"
            )
    return addresses


def _texts(nameserver: object) -> list[str]:
    parts = list(nameserver) if isinstance(nameserver, Iterable) else [nameserver]
    texts = [part for part in parts if isinstance(part, str)]
    if texts != parts:
        raise InvalidArgument(f"nameserver={nameserver!r}: it is a text host:port;host:port, or a list of host:port")
    return texts


@dataclass(frozen=True, slots=True)
class NameServerChoice:
    """The NameServers and the index of the chosen one. It stays chosen while it answers."""

    addresses: tuple[str, ...]
    chosen: int

    @classmethod
    def starting_at(cls, addresses: Sequence[str], start: int) -> NameServerChoice:
        return cls(tuple(addresses), start % len(addresses) if addresses else 0)

    @property
    def address(self) -> str:
        return self.addresses[self.chosen]

    def next_but(self, queried: Collection[str]) -> NameServerChoice:
        """Returns this choice, or the first behind it whose address is not in `queried`, or this if all are."""
        choice = self
        for _ in self.addresses:
            if choice.address not in queried:
                return choice
            choice = choice.next()
        return self

    def next(self) -> NameServerChoice:
        return replace(self, chosen=(self.chosen + 1) % len(self.addresses))
