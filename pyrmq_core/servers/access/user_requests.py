"""Administrators' requests about users and policies (codes 3001 to 3010), as brokers and NameServers answer them.

Queries of users (3004, 3005) need the action Get on the cluster. As in RocketMQ, their answers contain passwords.
Source: broker/processor/AdminBrokerProcessor.java (createUser, ...), 5.4.0, with its response codes and error texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pyrmq_core.errors import BodyError, InvalidArgument, StoreError
from pyrmq_core.protocol.acl import ACCESS_KEY
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.requests.broker.users import (
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteUser,
    GetAcl,
    GetUser,
    ListAcls,
    ListUsers,
)
from pyrmq_core.servers.access.user_file import UserFile
from pyrmq_core.servers.access.users.changes import create_user, delete_policies, delete_user, put_policies, update_user
from pyrmq_core.servers.access.users.rules import UserRules
from pyrmq_core.servers.access.users.values import (
    CUSTOM,
    ENABLE,
    NORMAL,
    SUPER,
    USER_PREFIX,
    Policies,
    Policy,
    Resource,
    User,
    acl_members,
    policies_of,
    policy_type_of,
    user_status_of,
    user_type_of,
)

# What each request about users and policies does, for a list of requests in the documentation.
ABOUT: Final[Mapping[int, str]] = {
    RequestCode.AUTH_CREATE_USER: "makes a user",
    RequestCode.AUTH_UPDATE_USER: "changes a user",
    RequestCode.AUTH_DELETE_USER: "removes a user and its policies",
    RequestCode.AUTH_GET_USER: "one user",
    RequestCode.AUTH_LIST_USER: "all users",
    RequestCode.AUTH_CREATE_ACL: "adds policies about a user",
    RequestCode.AUTH_UPDATE_ACL: "changes policies about a user",
    RequestCode.AUTH_DELETE_ACL: "removes policies",
    RequestCode.AUTH_GET_ACL: "a user's policies",
    RequestCode.AUTH_LIST_ACL: "all policies",
}
BLANK_NAME: Final = "The username is blank"
OFF: Final = "authenticationEnabled is false at this server, which keeps no users"


class _Refused(Exception):
    """Raised to refuse a change, with the response code as `code`."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code


async def answer(users: UserFile | None, request: Command) -> Command:
    """Answers a request about users or policies. A change is written to the file before the response is returned."""
    if users is None:
        return refusal(ResponseCode.SYSTEM_ERROR, OFF)
    show, make = SHOWN.get(request.code), CHANGES.get(request.code)
    try:
        if show is not None:
            return show(users.rules, request)
        if make is None:
            return refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"{request.code} is no such request")
        await users.change(lambda rules: make(rules, request))
    except _Refused as refused:
        return refusal(refused.code, str(refused))
    except BodyError as error:
        return refusal(ResponseCode.SYSTEM_ERROR, str(error))
    except InvalidArgument as error:
        return refusal(ResponseCode.NO_PERMISSION, str(error))
    except StoreError as error:
        return refusal(ResponseCode.SYSTEM_ERROR, str(error))
    return success()


def _is_no_super_user(rules: UserRules, request: Command) -> bool:
    sender = rules.users.get(request.ext.get(ACCESS_KEY, ""))
    return sender is None or not sender.is_super


def _create_user(rules: UserRules, request: Command) -> UserRules:
    wanted = CreateUser.from_command(request)
    if not wanted.username:
        raise _Refused(ResponseCode.INVALID_PARAMETER, BLANK_NAME)
    user = User(
        wanted.username,
        _text(wanted.members, "password"),
        user_type_of(wanted.members.get("userType")) or NORMAL,
        user_status_of(wanted.members.get("userStatus")) or ENABLE,
    )
    if user.is_super and _is_no_super_user(rules, request):
        raise _Refused(ResponseCode.SYSTEM_ERROR, "The super user can only be create by super user")
    return create_user(rules, user)


def _update_user(rules: UserRules, request: Command) -> UserRules:
    wanted = CreateUser.from_command(request)
    if not wanted.username:
        raise _Refused(ResponseCode.INVALID_PARAMETER, BLANK_NAME)
    user_type, only_super = user_type_of(wanted.members.get("userType")), _is_no_super_user(rules, request)
    if user_type == SUPER and only_super:
        raise _Refused(ResponseCode.SYSTEM_ERROR, "The super user can only be update by super user")
    _check_super(rules, wanted.username, only_super)
    return update_user(
        rules,
        username=wanted.username,
        password=_text(wanted.members, "password"),
        user_type=user_type,
        user_status=user_status_of(wanted.members.get("userStatus")),
    )


def _delete_user(rules: UserRules, request: Command) -> UserRules:
    username = DeleteUser.from_command(request).username
    if not username.strip():
        raise InvalidArgument("username can not be blank")
    if username not in rules.users:
        return rules
    _check_super(rules, username, _is_no_super_user(rules, request))
    return delete_user(rules, username)


def _check_super(rules: UserRules, username: str, only_super: bool) -> None:
    user = rules.users.get(username)
    if only_super and user is not None and user.is_super:
        raise InvalidArgument("The super user can only be update by super user")


def _get_user(rules: UserRules, request: Command) -> Command:
    username = GetUser.from_command(request).username
    if not username.strip():
        return refusal(ResponseCode.INVALID_PARAMETER, BLANK_NAME)
    user = rules.users.get(username)
    return success() if user is None else success(body=dumps(user.to_members()))


def _list_users(rules: UserRules, request: Command) -> Command:
    wanted = ListUsers.from_command(request).filter.strip()
    listed = [user.to_members() for name, user in sorted(rules.users.items()) if wanted in name]
    return success(body=dumps(listed)) if listed else success()


def _put_acl(rules: UserRules, request: Command) -> UserRules:
    wanted = CreateAcl.from_command(request)
    if not wanted.members.get("policies"):
        raise BodyError("The body of acl is null")
    subject = _subject(wanted.members.get("subject")) or _subject(wanted.subject)
    if subject is None:
        raise BodyError("The subject is null.")
    return put_policies(rules, subject, policies_of(wanted.members.get("policies")))


def _delete_acl(rules: UserRules, request: Command) -> UserRules:
    wanted = DeleteAcl.from_command(request)
    subject = _subject(wanted.subject)
    if subject is None:
        raise InvalidArgument("The subject is null.")
    policy_type = policy_type_of(wanted.policy_type) or CUSTOM
    resource = Resource.of(wanted.resource)
    if resource is None and (wanted.resource or "").strip():
        raise InvalidArgument("The resource is null.")  # for an invalid resource RocketMQ would remove all policies
    return delete_policies(rules, subject, policy_type, resource)


def _get_acl(rules: UserRules, request: Command) -> Command:
    subject = _subject(GetAcl.from_command(request).subject)
    if subject is None:
        raise InvalidArgument("The subject is null.")
    if subject.removeprefix(USER_PREFIX) not in rules.users:
        raise InvalidArgument("The subject is not exist.")
    policies = rules.policies.get(subject)
    return success() if policies is None else success(body=dumps(acl_members(subject, policies)))


def _list_acls(rules: UserRules, request: Command) -> Command:
    wanted = ListAcls.from_command(request)
    listed = []
    for subject, policies in sorted(rules.policies.items()):
        shown = _about(policies, wanted.resource_filter.strip())
        if wanted.subject_filter.strip() in subject and shown:
            listed.append(acl_members(subject, shown))
    return success(body=dumps(listed)) if listed else success()


def _about(policies: Policies, text: str) -> Policies:
    shown = (
        Policy(policy.policy_type, tuple(entry for entry in policy.entries if text in entry.resource.key))
        for policy in policies
    )
    return tuple(policy for policy in shown if policy.entries)


def _subject(text: object) -> str | None:
    kind, _, name = text.partition(":") if isinstance(text, str) else ("", "", "")
    return USER_PREFIX + name if kind.lower() == "user" else None


def _text(members: Mapping[str, Any], name: str) -> str:
    value = members.get(name)
    return value if isinstance(value, str) else ""


CHANGES: Final[Mapping[int, Callable[[UserRules, Command], UserRules]]] = {
    RequestCode.AUTH_CREATE_USER: _create_user,
    RequestCode.AUTH_UPDATE_USER: _update_user,
    RequestCode.AUTH_DELETE_USER: _delete_user,
    RequestCode.AUTH_CREATE_ACL: _put_acl,
    RequestCode.AUTH_UPDATE_ACL: _put_acl,
    RequestCode.AUTH_DELETE_ACL: _delete_acl,
}
SHOWN: Final[Mapping[int, Callable[[UserRules, Command], Command]]] = {
    RequestCode.AUTH_GET_USER: _get_user,
    RequestCode.AUTH_LIST_USER: _list_users,
    RequestCode.AUTH_GET_ACL: _get_acl,
    RequestCode.AUTH_LIST_ACL: _list_acls,
}
