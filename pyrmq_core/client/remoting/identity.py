"""A client's identity at brokers and NameServers: its id, and its keys for signatures."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.messages.names import check_group

UNIT_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Credentials:
    """The keys for signatures. Neither the secret nor the token is in the `repr`."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)


def credentials_of(
    access_key: str | None, secret_key: str | None, security_token: str | None = None
) -> Credentials | None:
    """Returns the credentials, or None without keys. Raises `InvalidArgument` for one key, or a token without keys."""
    for name, key in (("access_key", access_key), ("secret_key", secret_key), ("security_token", security_token)):
        if key is not None and not _is_text(key):
            raise InvalidArgument(f"{name} is a {type(key).__name__}; it is a text")
    if not access_key and not secret_key:
        if security_token:
            raise InvalidArgument("a security_token belongs to an access_key and a secret_key; give all three")
        return None
    if not access_key or not secret_key:
        raise InvalidArgument("access_key and secret_key belong together; give both or neither")
    return Credentials(access_key, secret_key, security_token)


def client_id(
    ip: str,
    pid: int,
    instance_name: str | None,
    nameservers: Sequence[str],
    access_key: str | None,
    *,
    draw: int,
    unit_name: str | None = None,
) -> str:
    """Returns the client id `ip@instance#...[@unit]`, unique by process, cluster, credentials and client.

    `draw` is a random number. Brokers keep one channel for each client id, and divide a group's queues by it: two
    clients with one id would receive the same queues.
    """
    kin = hashlib.sha256("\n".join([*sorted(nameservers), access_key or ""]).encode()).hexdigest()[:8]
    name = f"{instance_name}#{pid}" if instance_name else str(pid)
    unit = f"@{unit_name}" if unit_name else ""
    return f"{_bracketed(ip)}@{name}#{kin}{draw & 0xFFFFFFFFFFFF:012x}{unit}"


def offsets_id(own_id: str, ip: str, instance_name: str | None, unit_name: str | None = None) -> str:
    """Returns the name of the folder for a broadcasting consumer's offsets: Java's `ip@instance[@unit]`.

    Unlike the client id, it is the same after a restart, so that the offsets are found again. Without an instance name
    it is the client id `own_id`, since two programs of one machine must not share a file.
    """
    if not instance_name:
        return own_id
    unit = f"@{unit_name}" if unit_name else ""
    return f"{_bracketed(ip)}@{instance_name}{unit}"


def checked_unit_name(unit_name: str | None) -> str | None:
    """Returns the unit name, or None if it is empty. Raises `InvalidArgument` if it cannot be in a client id or URL."""
    if unit_name and not (_is_text(unit_name) and UNIT_NAME.fullmatch(unit_name)):
        raise InvalidArgument(f"unit_name={unit_name!r}: letters, digits, _ and - only")
    return unit_name or None


def namespace_of(namespace: str | None) -> str | None:
    if namespace:
        check_group(namespace)
    return namespace or None


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _bracketed(ip: str) -> str:
    return f"[{ip}]" if ":" in ip else ip
