"""`Admin.users`, `Admin.policies` (RocketMQ 5.x) and `Admin.accounts` (4.9's `plain_acl.yml`): access control.

Each broker has its own users, policies and accounts. A change is made at all brokers of a cluster, slaves too, as with
mqadmin. An address `host:port` may also be a NameServer's, which has its own users and policies. No `repr` contains a
secret. Sources: tools/command/auth/*.java (5.4.0), tools/command/acl/*.java (4.9.7).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from pyrmq_core.client.admin.chosen_brokers import chosen_brokers
from pyrmq_core.client.admin.servers import AdminFamily, Gathered, Server, change_each
from pyrmq_core.errors import BodyError, ResponseError
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.java.json_text import load_object, loads
from pyrmq_core.protocol.requests.broker.plain_acl import (
    AclVersion,
    DeleteAclConfig,
    GetAclConfig,
    GetAclVersion,
    UpdateAclConfig,
    UpdateWhiteAddresses,
)
from pyrmq_core.protocol.requests.broker.users import (
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteUser,
    ListAcls,
    ListUsers,
    UpdateAcl,
    UpdateUser,
)

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
USERS: Final = "{} (users: RocketMQ 5.3 and later)"
ACCOUNTS: Final = "{} (accounts of plain_acl.yml: RocketMQ before 5.3.3)"


@dataclass(frozen=True, slots=True)
class UserInfo:
    """A user of access control, as the server returns it: a missing value is None, and the password may be hidden."""

    username: str
    user_type: str | None
    user_status: str | None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """One policy entry: the actions that a subject is allowed or denied on a resource, and from which client addresses.

    `decision` is `Allow` or `Deny`. Without `source_ips` it applies to all addresses.
    """

    subject: str
    policy_type: str | None
    resource: str
    actions: tuple[str, ...]
    decision: str | None
    source_ips: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AccountInfo:
    """One account of `plain_acl.yml`. The default permissions apply to topics and groups that have no entry.

    `topic_perms` and `group_perms` have texts such as `orders=PUB|SUB`. Requests of the account from
    `white_remote_address` need no signature. A value that is not set is None.
    """

    access_key: str
    admin: bool
    white_remote_address: str | None
    default_topic_perm: str | None
    default_group_perm: str | None
    topic_perms: tuple[str, ...]
    group_perms: tuple[str, ...]
    secret_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class AccountList:
    """The accounts of one broker, and the client addresses that need no signature."""

    white_addresses: tuple[str, ...]
    accounts: tuple[AccountInfo, ...]


@dataclass(frozen=True, slots=True)
class AccountsVersion:
    """The version of one accounts file of a broker: its number of changes, and the time of the last one, if known."""

    file: str
    counter: int
    changed: datetime | None


class _AccessFamily(AdminFamily):
    async def _change(self, command: Command, about: str, broker: str | None, cluster: str | None) -> tuple[str, ...]:
        servers = await chosen_brokers(self._servers, broker, cluster, slaves=True)
        return await change_each(servers, lambda server: self._servers.ask(server, command, about))

    async def _change_where_needed(
        self,
        command: Command,
        about: str,
        broker: str | None,
        cluster: str | None,
        is_done: Callable[[Server], Awaitable[bool]],
    ) -> tuple[tuple[str, ...], list[Server]]:
        """Makes a change at all chosen brokers. A broker that refuses because it already has the change is no failure.

        `is_done(server)` returns whether a broker has the change although it refused, perhaps from an earlier call.
        Returns the names of all brokers, and the servers that already had the change. If all of them had it, raises the
        first refusal. `about` names the change in errors.
        """
        servers, refusals = await chosen_brokers(self._servers, broker, cluster, slaves=True), dict[Server, Exception]()

        async def change(server: Server) -> None:
            try:
                await self._servers.ask(server, command, about)
            except ResponseError as error:
                try:
                    is_refused_as_done = await is_done(server)
                except ResponseError:
                    raise error from None  # the refusal says more than the error of `is_done`
                if not is_refused_as_done:
                    raise
                refusals[server] = error

        names = await change_each(servers, change)
        if len(refusals) == len(names):
            raise next(iter(refusals.values()))
        return names, list(refusals)

    async def _answers(
        self, request: HeaderRequest, about: str, broker: str | None, cluster: str | None
    ) -> Gathered[Command]:
        servers = await chosen_brokers(self._servers, broker, cluster)
        command = request.to_command()

        async def ask(server: Server) -> Command:
            return await self._servers.ask(server, command, about)

        return await self._servers.gather(servers, ask)


class Users(_AccessFamily):
    """Administration of users, for RocketMQ 5.3 or later.

    A change is made at the master `broker`, or at all brokers of `cluster` or of all clusters, slaves included.
    """

    async def create(
        self,
        username: str,
        password: str,
        *,
        user_type: str = "Normal",
        broker: str | None = None,
        cluster: str | None = None,
    ) -> tuple[str, ...]:
        """Creates a user of the type `Normal` or `Super` at the brokers, and returns the brokers' names.

        If some brokers have the user already, for example after a call that failed halfway, the user's password and
        type are changed there. If all brokers have the user, raises `ResponseError`.
        """
        members = {"username": username, "password": password, "userType": user_type}
        command, about = CreateUser(username, members).to_command(), USERS.format(f"user {username}")
        is_done = partial(self._has_user, username)
        names, having = await self._change_where_needed(command, about, broker, cluster, is_done)
        update = UpdateUser(username, members).to_command()
        await change_each(having, lambda server: self._servers.ask(server, update, about))
        return names

    async def _has_user(self, username: str, server: Server) -> bool:
        answer = await self._servers.ask(server, ListUsers(username).to_command())
        return any(_user(row).username == username for row in _rows(answer, "users"))

    async def update(
        self,
        username: str,
        *,
        password: str | None = None,
        user_type: str | None = None,
        user_status: str | None = None,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> tuple[str, ...]:
        """Changes a user, and returns the names of the changed brokers. An argument of None changes nothing.

        `user_type` is `Normal` or `Super`, `user_status` is `enable` or `disable`. Raises `ResponseError` if a broker
        refuses a value or does not have the user.
        """
        given = {"username": username, "password": password, "userType": user_type, "userStatus": user_status}
        members = {name: value for name, value in given.items() if value is not None}
        command = UpdateUser(username, members).to_command()
        return await self._change(command, USERS.format(f"user {username}"), broker, cluster)

    async def delete(self, username: str, *, broker: str | None = None, cluster: str | None = None) -> tuple[str, ...]:
        """Removes a user and its policies. Returns the names of the changed brokers."""
        command = DeleteUser(username).to_command()
        return await self._change(command, USERS.format(f"user {username}"), broker, cluster)

    async def list(
        self, filter: str = "", *, broker: str | None = None, cluster: str | None = None
    ) -> Gathered[tuple[UserInfo, ...]]:
        """Returns users whose name contains `filter`, by broker, and the errors of brokers that did not answer."""
        gathered = await self._answers(ListUsers(filter), USERS.format("users"), broker, cluster)
        answers = {name: tuple(map(_user, _rows(answer, "users"))) for name, answer in gathered.answers.items()}
        return Gathered(answers, gathered.failures)


class Policies(_AccessFamily):
    """Administration of policies, for RocketMQ 5.3 or later. A subject is `User:NAME`.

    A change is made at the master `broker`, or at all brokers of `cluster` or of all clusters, slaves included.
    """

    async def create(
        self,
        subject: str,
        resources: Iterable[str],
        actions: Iterable[str],
        *,
        decision: str = "Allow",
        source_ips: Iterable[str] = (),
        broker: str | None = None,
        cluster: str | None = None,
    ) -> tuple[str, ...]:
        """Allows or denies a subject some actions (`Pub`, `Sub`, `Get`, ...) on resources (`Topic:orders*`, `Group:*`).

        `decision` is `Allow` or `Deny`. It applies to requests from `source_ips`, by default from all addresses. The
        subject's older entries about the same resources are replaced. Returns the names of the changed brokers.
        """
        return await self._put(CreateAcl, subject, resources, actions, decision, source_ips, broker, cluster)

    async def update(
        self,
        subject: str,
        resources: Iterable[str],
        actions: Iterable[str],
        *,
        decision: str = "Allow",
        source_ips: Iterable[str] = (),
        broker: str | None = None,
        cluster: str | None = None,
    ) -> tuple[str, ...]:
        """Changes the subject's entries about these resources. The arguments and the result are those of `create`."""
        return await self._put(UpdateAcl, subject, resources, actions, decision, source_ips, broker, cluster)

    async def delete(
        self, subject: str, *, resource: str | None = None, broker: str | None = None, cluster: str | None = None
    ) -> tuple[str, ...]:
        """Removes all policies of a subject, or its entry about one resource. Returns the names of the brokers.

        A broker without the policy is no failure, so a call that failed halfway can be repeated. If no broker has it,
        raises the first broker's refusal.
        """
        command = DeleteAcl(subject, resource=resource).to_command()

        async def is_done(server: Server) -> bool:
            answer = await self._servers.ask(server, ListAcls(subject, resource or "").to_command())
            policies = _policies(_rows(answer, "policies"))
            return not any(policy.subject == subject and resource in (None, policy.resource) for policy in policies)

        about = USERS.format(f"policies of {subject}")
        return (await self._change_where_needed(command, about, broker, cluster, is_done))[0]

    async def list(
        self, subject: str = "", resource: str = "", *, broker: str | None = None, cluster: str | None = None
    ) -> Gathered[tuple[PolicyInfo, ...]]:
        """Returns the policy entries whose subject contains `subject` and resource contains `resource`, by broker.

        `failures` has the errors of brokers that did not answer.
        """
        gathered = await self._answers(ListAcls(subject, resource), USERS.format("policies"), broker, cluster)
        answers = {name: tuple(_policies(_rows(answer, "policies"))) for name, answer in gathered.answers.items()}
        return Gathered(answers, gathered.failures)

    async def _put(
        self,
        request: type[CreateAcl],
        subject: str,
        resources: Iterable[str],
        actions: Iterable[str],
        decision: str,
        source_ips: Iterable[str],
        broker: str | None,
        cluster: str | None,
    ) -> tuple[str, ...]:
        shared = {"actions": list(actions), "decision": decision, "sourceIps": list(source_ips)}
        entries = [{"resource": resource, **shared} for resource in resources]
        members = {"subject": subject, "policies": [{"policyType": "Custom", "entries": entries}]}
        command = request(subject, members).to_command()
        return await self._change(command, USERS.format(f"policies of {subject}"), broker, cluster)


class Accounts(_AccessFamily):
    """Administration of accounts in `plain_acl.yml`, for RocketMQ before 5.3.3.

    A change is made at the master `broker`, or at all brokers of `cluster` or of all clusters, slaves included.
    """

    async def put(
        self,
        access_key: str,
        secret_key: str,
        *,
        admin: bool = False,
        white_remote_address: str | None = None,
        default_topic_perm: str | None = None,
        default_group_perm: str | None = None,
        topic_perms: Mapping[str, str] | None = None,
        group_perms: Mapping[str, str] | None = None,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> tuple[str, ...]:
        """Creates or changes an account, and returns the names of the changed brokers.

        Permissions are `DENY`, `PUB`, `SUB` or `PUB|SUB`. An argument of None keeps the account's old value. With
        `admin=False` the account loses an administrator's rights.
        """
        request = UpdateAclConfig(
            access_key,
            secret_key,
            white_remote_address,
            admin,
            default_topic_perm,
            default_group_perm,
            _entries(topic_perms),
            _entries(group_perms),
        )
        return await self._change(request.to_command(), ACCOUNTS.format(f"account {access_key}"), broker, cluster)

    async def delete(
        self, access_key: str, *, broker: str | None = None, cluster: str | None = None
    ) -> tuple[str, ...]:
        """Removes an account. Returns the names of the changed brokers."""
        command = DeleteAclConfig(access_key).to_command()
        return await self._change(command, ACCOUNTS.format(f"account {access_key}"), broker, cluster)

    async def set_white_addresses(
        self, addresses: Iterable[str], *, broker: str | None = None, cluster: str | None = None
    ) -> tuple[str, ...]:
        """Sets the client addresses from which requests need no signature. Returns the changed brokers' names."""
        command = UpdateWhiteAddresses(",".join(addresses)).to_command()
        return await self._change(command, ACCOUNTS.format("white addresses"), broker, cluster)

    async def list(self, *, broker: str | None = None, cluster: str | None = None) -> Gathered[AccountList]:
        """Returns each broker's accounts, and the addresses that need no signature. `failures` has brokers' errors."""
        gathered = await self._answers(GetAclConfig(), ACCOUNTS.format("accounts"), broker, cluster)
        return Gathered({name: _accounts(answer) for name, answer in gathered.answers.items()}, gathered.failures)

    async def versions(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> Gathered[tuple[AccountsVersion, ...]]:
        """Returns the version of each accounts file, by broker. They differ until a change has reached all brokers."""
        gathered = await self._answers(GetAclVersion(), ACCOUNTS.format("versions of accounts"), broker, cluster)
        return Gathered({name: _versions(answer) for name, answer in gathered.answers.items()}, gathered.failures)


def _entries(perms: Mapping[str, str] | None) -> str | None:
    return None if perms is None else ",".join(f"{name}={perm}" for name, perm in perms.items())


def _rows(answer: Command, what: str) -> list[Mapping[str, Any]]:
    rows = loads(answer.body, what) if answer.body else []
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BodyError(f"{what}: the body is no list of objects")
    return rows


def _user(row: Mapping[str, Any]) -> UserInfo:
    return UserInfo(
        str(row.get("username", "")), _text(row, "userType"), _text(row, "userStatus"), _text(row, "password")
    )


def _policies(rows: Iterable[Mapping[str, Any]]) -> Iterable[PolicyInfo]:
    try:
        for row in rows:
            for policy in row.get("policies") or ():
                for entry in policy.get("entries") or ():
                    actions, addresses = entry.get("actions") or (), entry.get("sourceIps") or ()
                    yield PolicyInfo(
                        str(row.get("subject", "")),
                        _text(policy, "policyType"),
                        str(entry.get("resource", "")),
                        tuple(actions.split(",") if isinstance(actions, str) else map(str, actions)),
                        _text(entry, "decision"),
                        tuple(map(str, addresses)),
                    )
    except (AttributeError, TypeError) as error:
        raise BodyError(f"policies: a member is of the wrong type: {error}") from error


def _accounts(answer: Command) -> AccountList:
    members = load_object(answer.body, "accounts")
    try:
        return AccountList(
            tuple(map(str, members.get("globalWhiteAddrs") or ())),
            tuple(
                AccountInfo(
                    str(row.get("accessKey", "")),
                    row.get("admin") is True,
                    _text(row, "whiteRemoteAddress"),
                    _text(row, "defaultTopicPerm"),
                    _text(row, "defaultGroupPerm"),
                    tuple(map(str, row.get("topicPerms") or ())),
                    tuple(map(str, row.get("groupPerms") or ())),
                    _text(row, "secretKey"),
                )
                for row in members.get("plainAccessConfigs") or ()
            ),
        )
    except (AttributeError, TypeError) as error:
        raise BodyError(f"accounts: a member is of the wrong type: {error}") from error


def _versions(answer: Command) -> tuple[AccountsVersion, ...]:
    header = AclVersion.from_command(answer)
    files = load_object(header.all_versions.encode(), "versions of accounts")
    try:
        return tuple(
            AccountsVersion(file, int(row["counter"]), _instant(int(row["timestamp"])))
            for file, row in sorted(files.items())
        )
    except (LookupError, TypeError, ValueError) as error:
        raise BodyError(f"versions of accounts: a member is missing or of the wrong type: {error!r}") from error


def _instant(milliseconds: int) -> datetime | None:
    try:
        return EPOCH + timedelta(milliseconds=milliseconds) if milliseconds > 0 else None
    except OverflowError:  # a broker sent an impossible time
        return None


def _text(row: Mapping[str, Any], name: str) -> str | None:
    value = row.get(name)
    return None if value is None else str(value)
