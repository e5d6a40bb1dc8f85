"""An administrator's changes of users and policies: functions that return new `UserRules` or raise `InvalidArgument`.

Sources: auth/authentication/manager/AuthenticationMetadataManagerImpl.java,
auth/authorization/manager/AuthorizationMetadataManagerImpl.java, auth/authorization/model/{Acl,Policy}.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.servers.access.users.rules import UserRules
from pyrmq_core.servers.access.users.values import USER_PREFIX, Policies, Policy, PolicyEntry, Resource, User


def create_user(rules: UserRules, user: User) -> UserRules:
    if not user.username.strip():
        raise InvalidArgument("username can not be blank")
    if not user.password.strip():
        raise InvalidArgument("password can not be blank")
    if user.username in rules.users:
        raise InvalidArgument("The user is existed")
    return replace(rules, users={**rules.users, user.username: user})


def update_user(
    rules: UserRules, username: str, password: str | None, user_type: str | None, user_status: str | None
) -> UserRules:
    """Returns the rules with a user's password, type and status changed.

    None, an empty text and a blank password keep the old value. Raises `InvalidArgument` if the user is unknown. The
    type and status must be valid: they are not checked here.
    """
    old = rules.users.get(username)
    if old is None:
        raise InvalidArgument("The user is not exist")
    user = replace(
        old,
        password=password if password and password.strip() else old.password,
        user_type=user_type or old.user_type,
        user_status=user_status or old.user_status,
    )
    return replace(rules, users={**rules.users, username: user})


def delete_user(rules: UserRules, username: str) -> UserRules:
    users = {name: user for name, user in rules.users.items() if name != username}
    return UserRules(users, _without(rules, USER_PREFIX + username))


def put_policies(rules: UserRules, subject: str, policies: Policies) -> UserRules:
    """Returns the rules with policies added to those of a user. The `subject` is the user, such as `User:alice`.

    An entry replaces an older entry of the same policy type about the same resource. Raises `InvalidArgument` if the
    user is unknown.
    """
    if subject.removeprefix(USER_PREFIX) not in rules.users:
        raise InvalidArgument(f"The subject of {subject} is not exist.")
    old = rules.policies.get(subject)
    merged = policies if old is None else _merged(old, policies)
    return replace(rules, policies={**rules.policies, subject: merged})


def delete_policies(rules: UserRules, subject: str, policy_type: str, resource: Resource | None) -> UserRules:
    """Returns the rules without a user's first policy entry of `policy_type` about a resource.

    If `resource` is None, all policies of the user are removed. The `subject` is the user, such as `User:alice`. Raises
    `InvalidArgument` if the user is unknown or has no policies.
    """
    if subject.removeprefix(USER_PREFIX) not in rules.users:
        raise InvalidArgument("The subject is not exist.")
    old = rules.policies.get(subject)
    if old is None:
        raise InvalidArgument("The acl is not exist.")
    left = () if resource is None else _without_entry(old, policy_type, resource)
    policies = {**rules.policies, subject: left} if left else _without(rules, subject)
    return replace(rules, policies=policies)


def _without(rules: UserRules, subject: str) -> dict[str, Policies]:
    return {name: policies for name, policies in rules.policies.items() if name != subject}


def _merged(old: Policies, new: Iterable[Policy]) -> Policies:
    policies: dict[str, Policy] = {}
    for policy in old:
        policies.setdefault(policy.policy_type, policy)  # if a type has several policies, the checks use the first
    for policy in new:
        before = policies.get(policy.policy_type)
        entries = {entry.resource: entry for entry in before.entries} if before else {}
        entries.update((entry.resource, entry) for entry in policy.entries)
        policies[policy.policy_type] = Policy(policy.policy_type, tuple(entries.values()))
    return tuple(policies.values())


def _without_entry(policies: Policies, policy_type: str, resource: Resource) -> Policies:
    left = []
    for policy in policies:
        entries = policy.entries
        if policy.policy_type == policy_type:
            entries = _without_first(entries, resource)
        if entries:
            left.append(replace(policy, entries=entries))
    return tuple(left)


def _without_first(entries: tuple[PolicyEntry, ...], resource: Resource) -> tuple[PolicyEntry, ...]:
    at = next((number for number, entry in enumerate(entries) if entry.resource == resource), len(entries))
    return entries[:at] + entries[at + 1 :]
