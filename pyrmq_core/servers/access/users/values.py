"""Users and policies, and their JSON form, in which administrators send them and the users' file stores them.

A policy's entry allows or denies actions on a resource: `*`, `Topic:orders`, `Topic:orders*`, `Group:*`, `Cluster:c`.
Sources: auth/authentication/model/User.java, auth/authorization/model/*.java, broker/auth/converter/*.java,
common/resource/ResourceType.java, common/action/Action.java (5.4.0). The texts of errors are RocketMQ's.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Self

from pyrmq_core.errors import InvalidArgument

SUPER, NORMAL = "Super", "Normal"
ENABLE, DISABLE = "enable", "disable"
ALLOW, DENY = "Allow", "Deny"
CUSTOM, DEFAULT = "Custom", "Default"
ALL: Final = "All"
ANY: Final = "Any"
ACTIONS: Final = ("Unknown", ALL, ANY, "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
KINDS: Final = ("Unknown", ANY, "Cluster", "Namespace", "Topic", "Group")
# Patterns of a resource's name, the most exact first.
LITERAL, PREFIXED, EVERY = 0, 1, 2
USER_PREFIX: Final = "User:"


@dataclass(frozen=True, slots=True)
class User:
    """A user with a password. A user of type Super may send any request, and one with status `disable` none."""

    username: str
    password: str = field(repr=False)
    user_type: str = NORMAL
    user_status: str = ENABLE

    @property
    def is_super(self) -> bool:
        return self.user_type == SUPER

    def to_members(self) -> dict[str, str]:
        return {
            "password": self.password,
            "userStatus": self.user_status,
            "userType": self.user_type,
            "username": self.username,
        }


@dataclass(frozen=True, slots=True)
class Resource:
    """The topics, groups or clusters (`kind`) that a policy entry covers.

    `name` is an exact name if `pattern` is LITERAL, a prefix of names if it is PREFIXED, and None if it is EVERY.
    """

    kind: str
    name: str | None
    pattern: int

    @classmethod
    def of(cls, key: object) -> Self | None:
        """Parses a key like `Topic:orders*`. Returns None if it is no text, is blank, or has an unknown kind."""
        if not isinstance(key, str) or not key.strip():
            return None
        kind, _, name = key.partition(":")
        resource_kind = ANY if key == "*" else known_name(kind, KINDS)
        if resource_kind is None:
            return None
        if resource_kind == ANY or (name.startswith("*") and name.endswith("*")):
            return cls(resource_kind, None, EVERY)
        if name.endswith("*"):
            return cls(resource_kind, name.partition("*")[0], PREFIXED)
        return cls(resource_kind, name, LITERAL)

    @property
    def key(self) -> str:
        return "*" if self.kind == ANY else f"{self.kind}:{self.name or ''}{'' if self.pattern == LITERAL else '*'}"

    def matches(self, kind: str, name: str | None) -> bool:
        if self.kind == ANY:
            return True
        if self.kind != kind:
            return False
        if self.name is None:
            return True
        return name == self.name if self.pattern == LITERAL else name is not None and name.startswith(self.name)


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A rule that allows or denies actions on a resource to requests from `source_ips` (empty: from any address)."""

    resource: Resource
    actions: tuple[str, ...]
    source_ips: tuple[str, ...]
    decision: str

    @property
    def order(self) -> tuple[bool, int, int, bool]:
        """The sort key of a request's matching entries, of which the first decides.

        More specific resources come first, and DENY comes before ALLOW.
        """
        length = len(self.resource.name or "") if self.resource.pattern == PREFIXED else 0
        return self.resource.kind == ANY, self.resource.pattern, -length, self.decision != DENY

    def fits(self, kind: str, name: str | None, actions: Iterable[str], ip: str) -> bool:
        return (
            self.resource.matches(kind, name)
            and (ALL in self.actions or any(action in self.actions for action in actions))
            and (not self.source_ips or any(_is_within(ip, source) for source in self.source_ips))
        )

    def to_members(self) -> dict[str, Any]:
        members: dict[str, Any] = {"actions": list(self.actions), "decision": self.decision}
        members["resource"] = self.resource.key
        return {**members, "sourceIps": list(self.source_ips)} if self.source_ips else members


@dataclass(frozen=True, slots=True)
class Policy:
    """A user's policy entries of one type. Entries of type Default are used only if none of type Custom matches."""

    policy_type: str
    entries: tuple[PolicyEntry, ...]

    def to_members(self) -> dict[str, Any]:
        return {"entries": [entry.to_members() for entry in self.entries], "policyType": self.policy_type}


Policies = tuple[Policy, ...]


def acl_members(subject: str, policies: Policies) -> dict[str, Any]:
    return {"policies": [policy.to_members() for policy in policies], "subject": subject}


def user_of(members: Mapping[str, Any]) -> User:
    """Decodes a user from a JSON object of the users' file. Raises `InvalidArgument` if it is incomplete or invalid."""
    name, password = members.get("username"), members.get("password")
    user_type, status = user_type_of(members.get("userType")), user_status_of(members.get("userStatus"))
    if not isinstance(name, str) or not isinstance(password, str) or user_type is None or status is None:
        raise InvalidArgument("a user has username, password, userType and userStatus")
    return User(name, password, user_type, status)


def user_type_of(text: object) -> str | None:
    return known_name(text, (SUPER, NORMAL))


def user_status_of(text: object) -> str | None:
    return known_name(text, (ENABLE, DISABLE))


def policy_type_of(text: object) -> str | None:
    return known_name(text, (CUSTOM, DEFAULT))


def policies_of(members: object) -> Policies:
    """Decodes a list of policies. Raises `InvalidArgument`, with RocketMQ's text, if one is invalid."""
    policies = tuple(
        Policy(policy_type_of(policy.get("policyType")) or CUSTOM, tuple(map(_entry, _objects(policy["entries"]))))
        for policy in _objects(members)
        if policy.get("entries")
    )
    if not policies:
        raise InvalidArgument("The policies is empty.")
    return policies


def _entry(members: Mapping[str, Any]) -> PolicyEntry:
    resource = Resource.of(members.get("resource"))
    if resource is None:
        raise InvalidArgument("The resource is null.")
    texts = members.get("actions")
    actions_read = [known_name(text, ACTIONS) for text in texts] if isinstance(texts, list) else []
    actions = tuple(dict.fromkeys(action for action in actions_read if action is not None))
    if not actions:
        raise InvalidArgument("The actions is empty.")
    if ANY in actions:
        raise InvalidArgument("The actions can not be Any.")
    sources = members.get("sourceIps") or []
    for source in sources if isinstance(sources, list) else [""]:
        if not isinstance(source, str) or not source.strip():
            raise InvalidArgument("The source ip is empty.")
        if _network(source) is None:
            raise InvalidArgument("The source ip is invalid.")
    decision = known_name(members.get("decision"), (ALLOW, DENY))
    if decision is None:
        raise InvalidArgument("The decision is null or illegal.")
    return PolicyEntry(resource, actions, tuple(sources), decision)


def _objects(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InvalidArgument("The policies is empty.")
    return value


def known_name(text: object, names: Iterable[str]) -> str | None:
    wanted = text.lower() if isinstance(text, str) else None
    return next((name for name in names if name.lower() == wanted), None)


@lru_cache(maxsize=1024)
def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _is_within(ip: str, source: str) -> bool:
    network = _network(source)
    try:
        return network is not None and ipaddress.ip_address(ip) in network
    except ValueError:
        return False
