"""Changes of a `plain_acl.yml` by an administrator, on the members of its document.

Each function changes the document that it gets, which the caller has just read, and leaves other members as they are.
Source: acl/plain/PlainPermissionManager.java (updateAccessConfig, deleteAccessConfig, ...), 4.9.7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyrmq_core.access.plain.accounts import text_of
from pyrmq_core.access.plain.rules import ACCOUNTS, GLOBAL_ADDRESSES, entries_of

Document = dict[str, Any]

DATA_VERSION: Final = "dataVersion"


def put_account(document: Document, account: Mapping[str, object]) -> None:
    """Adds an account, or changes these members of it; it becomes the last one.

    Of several entries with its access key the last one counts, as for requests; the others are removed.
    """
    entries = entries_of(document)
    same = [entry for entry in entries if _is(entry, account["accessKey"])]
    others = [entry for entry in entries if not _is(entry, account["accessKey"])]
    document[ACCOUNTS] = [*others, {**(same[-1] if same else {}), **account}]


def remove_account(document: Document, access_key: str) -> None:
    document[ACCOUNTS] = [entry for entry in entries_of(document) if not _is(entry, access_key)]


def put_white_addresses(document: Document, addresses: Sequence[str]) -> None:
    document[GLOBAL_ADDRESSES] = list(addresses)


def advance_version(document: Document, now_ms: int) -> None:
    counter, _ = version_of(document)
    document[DATA_VERSION] = [{"counter": counter + 1, "timestamp": now_ms}]


def version_of(document: Mapping[str, object]) -> tuple[int, int]:
    """Returns the counter and the time (ms) of a file's version; 0 and 0 for a file that no administrator changed."""
    versions = document.get(DATA_VERSION)
    first = versions[0] if isinstance(versions, list) and versions else None
    if not isinstance(first, dict):
        return 0, 0
    numbers = first.get("counter"), first.get("timestamp")
    return _whole(numbers[0]), _whole(numbers[1])


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _is(entry: Mapping[str, object], access_key: object) -> bool:
    return text_of(entry, "accessKey") == access_key
