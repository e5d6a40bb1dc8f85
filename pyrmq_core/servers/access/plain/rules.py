"""`PlainRules`: the rules of all files of plain ACL, the decision about a request, and the changes to one file.

A file's parsed content is a `Document`, which is changed in place. Unknown members stay. Source:
acl/plain/PlainPermissionManager.java (validate, checkPerm, updateAccessConfig, deleteAccessConfig, ...), 4.9.7, with
its order of checks and its error texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyrmq_core.errors import BodyError, InvalidArgument
from pyrmq_core.protocol.acl import ACCESS_KEY
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.names import RETRY_PREFIX, is_retry_topic
from pyrmq_core.servers.access.plain.accounts import PlainAccount, account_of, text_of, texts_of
from pyrmq_core.servers.access.plain.addresses import AddressRule, address_rule
from pyrmq_core.servers.access.plain.needs import ADMIN_CODES, needs_of
from pyrmq_core.servers.access.plain.permissions import PUB, is_permitted
from pyrmq_core.servers.access.signed_requests import is_signed_with

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
GLOBAL_ADDRESSES: Final = "globalWhiteRemoteAddresses"
ACCOUNTS: Final = "accounts"

Document = dict[str, Any]

DATA_VERSION: Final = "dataVersion"


@dataclass(frozen=True, slots=True)
class PlainRules:
    """The rules in all files of plain ACL. `files` maps each access key to the path of its file.

    `repeated` are the access keys that occur more than once.
    """

    white_addresses: tuple[AddressRule, ...] = ()
    accounts: Mapping[str, PlainAccount] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    repeated: tuple[str, ...] = ()

    def denial(self, request: Command, ip: str) -> str:
        """Returns why a request is denied, or "" if it is allowed. Parses the body only after a valid signature."""
        if any(rule.matches(ip) for rule in self.white_addresses):
            return ""
        key = request.ext.get(ACCESS_KEY)
        if key is None:
            return "No accessKey is configured"
        account = self.accounts.get(key)
        if account is None:
            return f"No acl config for {key}"
        if account.white_address.matches(ip):
            return ""
        if not is_signed_with(request, account.secret_key):
            return f"Check signature failed for accessKey={key}"
        return _missing_permission(request, account)


def _missing_permission(request: Command, account: PlainAccount) -> str:
    try:
        needed = needs_of(request)
    except BodyError as error:
        return str(error)
    if needed.get(TRACE_TOPIC) == PUB:
        return ""
    if request.code in ADMIN_CODES and not account.is_admin:
        return f"Need admin permission for request code={request.code}, but accessKey={account.access_key} is not"
    if account.is_admin and not account.granted:
        return ""
    for resource, permission in needed.items():
        is_group = is_retry_topic(resource)
        granted = account.granted.get(resource, account.default_group if is_group else account.default_topic)
        if not is_permitted(permission, granted):
            shown = f"group:{resource.removeprefix(RETRY_PREFIX)}" if is_group else f"topic:{resource}"
            return f"No default permission for {shown}"
    return ""


def rules_of(documents: Iterable[tuple[str, Mapping[str, object]]]) -> PlainRules:
    """Returns the rules in files, which are given as pairs of path and parsed content.

    If an access key is repeated, its first account is used. Raises `InvalidArgument`, with the file's path, for invalid
    content.
    """
    addresses: list[AddressRule] = []
    accounts: dict[str, PlainAccount] = {}
    files: dict[str, str] = {}
    repeated: list[str] = []
    for path, document in documents:
        try:
            addresses += [address_rule(text) for text in texts_of(document, GLOBAL_ADDRESSES)]
            for entry in entries_of(document):
                account = account_of(entry)
                if account.access_key in accounts:
                    repeated.append(account.access_key)
                else:
                    accounts[account.access_key], files[account.access_key] = account, path
        except InvalidArgument as error:
            raise InvalidArgument(f"{path}: {error}") from error
    return PlainRules(tuple(addresses), accounts, files, tuple(repeated))


def entries_of(document: Mapping[str, object]) -> list[dict[str, object]]:
    """Returns the entries under `accounts`. Raises `InvalidArgument` if `accounts` is not a list of mappings."""
    entries = document.get(ACCOUNTS)
    if entries is None:
        return []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InvalidArgument("accounts is no list of accounts; each begins with `- accessKey: ...`")
    return entries


def put_account(document: Document, account: Mapping[str, object]) -> None:
    """Adds an account to a file's content, or changes the members of the entry that has the same access key.

    The entry becomes the last in the file. If several entries have the access key, only the last of them stays.
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
    """Returns the counter and the time in ms of a file's data version, or 0 and 0 for a file without a version."""
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
