"""`UserRules`: all users and policies, and the decision about a request.

Sources: auth/authentication/chain/DefaultAuthenticationHandler.java,
auth/authorization/chain/{UserAuthorizationHandler,AclAuthorizationHandler}.java (5.4.0), with their error texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.acl import ACCESS_KEY
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.servers.access.signed_requests import is_signed_with
from pyrmq_core.servers.access.users.needs import Need, needs_of
from pyrmq_core.servers.access.users.values import (
    CUSTOM,
    DEFAULT,
    DENY,
    DISABLE,
    USER_PREFIX,
    Policies,
    PolicyEntry,
    User,
)

NO_SUBJECT: Final = "Authorization failed. Please verify your access rights and try again."


@dataclass(frozen=True, slots=True)
class CheckScope:
    """The extent of the access checks of a server in the named cluster.

    Unless `authorizes`, only signatures are checked, and no rights. The `unauthenticated_codes` are request codes that
    need no valid signature, and the `unauthorized_codes` those that need no rights.
    """

    cluster: str = ""
    authorizes: bool = False
    unauthenticated_codes: frozenset[str] = frozenset()
    unauthorized_codes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class UserRules:
    """All users by name, and the policies by subject (`User:name`)."""

    users: Mapping[str, User] = field(default_factory=dict)
    policies: Mapping[str, Policies] = field(default_factory=dict)

    def denial(self, request: Command, ip: str, scope: CheckScope) -> str:
        """Returns why a request is denied, or "" if it is allowed.

        Parses the body only with a valid signature, or for a code that needs none: a producer's heartbeat needs no
        rights, and only its body shows that it has no consumers.
        """
        name = request.ext.get(ACCESS_KEY, "")
        reason = self._unauthentic(request, name)
        if reason and str(request.code) not in scope.unauthenticated_codes:
            return reason
        if not scope.authorizes or str(request.code) in scope.unauthorized_codes:
            return ""
        return self._unauthorized(request, "" if reason else name, ip, scope.cluster)

    def _unauthentic(self, request: Command, name: str) -> str:
        if not name:
            return "username cannot be null."
        user = self.users.get(name)
        if user is None:
            return f"User:{name} is not found."
        if user.user_status == DISABLE:
            return f"User:{name} is disabled."
        return "" if is_signed_with(request, user.password) else "check signature failed."

    def _unauthorized(self, request: Command, name: str, ip: str, cluster: str) -> str:
        user = self.users.get(name)
        if user is not None and user.is_super:
            return ""
        try:
            needs = needs_of(request, cluster)
        except BodyError:
            return "parse authorization context error."
        if needs and user is None:
            return NO_SUBJECT
        policies = self.policies.get(USER_PREFIX + name, ())
        for need in needs:
            if fault := _fault(need, policies, ip):
                return f"User:{name} has no permission to access {need.key} from {ip}, {fault}"
        return ""


def _fault(need: Need, policies: Policies, ip: str) -> str:
    for policy_type in (CUSTOM, DEFAULT):
        entries = _fitting(policies, policy_type, need, ip)
        if entries:
            chosen = min(entries, key=lambda entry: entry.order)
            return "the decision is deny." if chosen.decision == DENY else ""
    return "no matched policies."


def _fitting(policies: Policies, policy_type: str, need: Need, ip: str) -> list[PolicyEntry]:
    policy = next((policy for policy in policies if policy.policy_type == policy_type), None)
    if policy is None:
        return []
    return [entry for entry in policy.entries if entry.fits(need.kind, need.name, need.actions, ip)]
