"""Accounts of `plain_acl.yml`: the permissions that one entry of the file grants.

Scalars are read as fastjson does: a number instead of a text is accepted, and `admin` may be a text. Source:
common/PlainAccessConfig.java, acl/plain/PlainPermissionManager.java (buildPlainAccessResource), 4.9.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.messages.names import RETRY_PREFIX
from pyrmq_core.servers.access.plain.addresses import AddressRule, address_rule
from pyrmq_core.servers.access.plain.permissions import named_permissions, permission

# An access key or secret key must have more characters than this (AclConstants).
MIN_KEY_CHARS: Final = 6


@dataclass(frozen=True, slots=True)
class PlainAccount:
    """An account of `plain_acl.yml`. Requests with its key from `white_address` need no signature and no permission.

    `granted` has permission bits by the name of a topic or of a group's retry topic. The bits `default_topic` are for
    all other topics, and `default_group` for all other groups.
    """

    access_key: str
    secret_key: str
    white_address: AddressRule
    is_admin: bool
    default_topic: int
    default_group: int
    granted: Mapping[str, int]

    def __repr__(self) -> str:
        return f"<PlainAccount {self.access_key}>"


def check_keys(access_key: str | None, secret_key: str | None) -> None:
    """Raises `InvalidArgument`, with RocketMQ's text, if a key is missing or too short."""
    if min(len(access_key or ""), len(secret_key or "")) <= MIN_KEY_CHARS:
        raise InvalidArgument(
            f"The accessKey={access_key} and secretKey cannot be null and length should longer than 6"
        )


def account_of(entry: Mapping[str, object]) -> PlainAccount:
    """Returns the account in an entry of the file's `accounts`. Raises `InvalidArgument` if it is invalid."""
    access_key, secret_key = text_of(entry, "accessKey"), text_of(entry, "secretKey")
    check_keys(access_key, secret_key)
    assert access_key is not None
    assert secret_key is not None
    groups = named_permissions(texts_of(entry, "groupPerms"), "group")
    return PlainAccount(
        access_key=access_key,
        secret_key=secret_key,
        white_address=address_rule(text_of(entry, "whiteRemoteAddress")),
        is_admin=_flag(entry, "admin"),
        default_topic=permission(text_of(entry, "defaultTopicPerm")),
        default_group=permission(text_of(entry, "defaultGroupPerm")),
        granted={
            **{RETRY_PREFIX + group: bits for group, bits in groups.items()},
            **named_permissions(texts_of(entry, "topicPerms"), "topic"),
        },
    )


def text_of(entry: Mapping[str, object], name: str) -> str | None:
    """Returns a scalar member of an account's entry as a text, or None if it is missing.

    Raises `InvalidArgument` if the member is not a scalar.
    """
    return _text(entry.get(name), name)


def texts_of(entry: Mapping[str, object], name: str) -> list[str]:
    values = entry.get(name)
    if values is None:
        return []
    if not isinstance(values, list):
        raise InvalidArgument(f"{name} is no list; write one entry a line, each after a dash")
    return [text for value in values if (text := _text(value, name)) is not None]


def _text(value: object, name: str) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    if value is None:
        return None
    raise InvalidArgument(f"{name} is not a text; put it in quotes")


def _flag(entry: Mapping[str, object], name: str) -> bool:
    text = (text_of(entry, name) or "false").lower()
    if text not in ("true", "false", "1", "0"):
        raise InvalidArgument(f"{name} is {text!r}; true or false are possible")
    return text in ("true", "1")
