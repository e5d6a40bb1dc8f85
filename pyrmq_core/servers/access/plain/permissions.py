"""Permissions of plain ACL: their bits, their texts in `plain_acl.yml`, and the comparison of granted and needed bits.

Source: acl/common/Permission.java (4.9.7).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyrmq_core.errors import InvalidArgument

DENY: Final = 1
PUB: Final = 1 << 2
SUB: Final = 1 << 3

# Any other text means DENY, even ANY.
_BITS: Final = {"PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}
# The characters that Java's String.trim removes.
BLANKS: Final = "".join(map(chr, range(0x21)))


def permission(text: str | None) -> int:
    return DENY if text is None else _BITS.get(text.strip(BLANKS), DENY)


def is_permitted(needed: int, granted: int) -> bool:
    return not granted & DENY and bool(needed & granted)


def named_permissions(entries: Iterable[str], kind: str) -> dict[str, int]:
    """Returns permission bits by name, parsed from entries of the form `name=permission`.

    Raises `InvalidArgument` for any other form. `kind` is "topic" or "group", for the error's text.
    """
    granted = {}
    for entry in entries:
        parts = _parts(entry)
        if len(parts) != 2:
            raise InvalidArgument(f"Parse resource permission failed for {kind}:{entry}")
        granted[parts[0].strip(BLANKS)] = permission(parts[1])
    return granted


def check_entries(entries: Iterable[str]) -> None:
    """Raises `InvalidArgument`, in RocketMQ's words, for an entry that is not `name=permission`.

    A permission is PUB, SUB, PUB|SUB, SUB|PUB or DENY.
    """
    for entry in entries:
        parts = _parts(entry)
        if len(parts) != 2:
            raise InvalidArgument(
                f"Parse Resource format error for {entry}.\n"
                "The expected resource format is 'Res=Perm'. For example: topicA=SUB"
            )
        if parts[1].strip(BLANKS) != "DENY" and permission(parts[1]) == DENY:
            raise InvalidArgument(
                f"Parse resource permission error for {entry}.\n"
                "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
            )


def _parts(entry: str) -> list[str]:
    return [part for part in entry.split("=") if part]
