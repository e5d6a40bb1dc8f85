"""`pyrmq acl`: users and policies of RocketMQ 5.x, accounts of 4.9's `plain_acl.yml`. No secret is printed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import click

from pyrmq_core import Admin
from pyrmq_core.cli.admin import with_admin
from pyrmq_core.cli.connections import Connection, connection_options
from pyrmq_core.cli.servers import CommandGroup
from pyrmq_core.cli.tables import json_option, show
from pyrmq_core.client.admin.servers import Gathered

PERMISSIONS: Final = click.Choice(("DENY", "PUB", "SUB", "PUB|SUB"))

broker_option = click.option("-b", "--broker", help="One broker, by name or address; else all.")
cluster_option = click.option("-c", "--cluster", "--clusterName", "cluster", help="Only brokers of this cluster.")
action_options = (
    click.option("--resource", "resources", multiple=True, required=True, help="Topic:orders*, Group:*, ...; repeat."),
    click.option("--action", "actions", multiple=True, required=True, help="Pub, Sub, Get, All, ...; repeat."),
    click.option("--deny", is_flag=True, help="Deny these actions; else they are allowed."),
    click.option("--source-ip", "source_ips", multiple=True, help="Only from this address or network; repeat."),
)


@click.group(cls=CommandGroup)
def acl() -> None:
    """Administer access control: users and policies (5.x), accounts (4.9)."""


@acl.group()
def user() -> None:
    """Users, of RocketMQ 5.3 and later."""


@user.command("list")
@click.argument("text", metavar="[NAME]", required=False, default="")
@connection_options
@broker_option
@cluster_option
@json_option
def list_users(text: str, connection: Connection, broker: str | None, cluster: str | None, as_json: bool) -> None:
    """List the users of each broker whose name contains NAME."""

    async def work(admin: Admin) -> None:
        found = await admin.users.list(text, broker=broker, cluster=cluster)
        rows = [
            {"brokerName": name, "username": one.username, "userType": one.user_type, "userStatus": one.user_status}
            for name, users in found.answers.items()
            for one in users
        ]
        _show(found, rows, ("brokerName", "username", "userType", "userStatus"), as_json=as_json)

    with_admin(connection, work)


@user.command("create")
@click.argument("name", metavar="NAME")
@connection_options
@broker_option
@cluster_option
@click.option(
    "--password", envvar="PYRMQ_NEW_PASSWORD", required=True, help="Better in the variable.  [PYRMQ_NEW_PASSWORD]"
)
@click.option("--super", "is_super", is_flag=True, help="May do anything.")
def create_user(
    name: str, connection: Connection, broker: str | None, cluster: str | None, password: str, is_super: bool
) -> None:
    """Make a user."""
    kind = "Super" if is_super else "Normal"
    _change(
        connection,
        f"user {name} is made",
        lambda admin: admin.users.create(name, password, user_type=kind, broker=broker, cluster=cluster),
    )


@user.command("update")
@click.argument("name", metavar="NAME")
@connection_options
@broker_option
@cluster_option
@click.option("--password", envvar="PYRMQ_NEW_PASSWORD", help="Better in the variable.  [PYRMQ_NEW_PASSWORD]")
@click.option("--type", "user_type", type=click.Choice(("Normal", "Super")))
@click.option("--status", "user_status", type=click.Choice(("enable", "disable")))
def update_user(
    name: str,
    connection: Connection,
    broker: str | None,
    cluster: str | None,
    password: str | None,
    user_type: str | None,
    user_status: str | None,
) -> None:
    """Change a user; what is not given stays."""
    if password is None and user_type is None and user_status is None:
        raise click.UsageError("give --password, --type or --status")
    given: dict[str, Any] = {"password": password, "user_type": user_type, "user_status": user_status}
    _change(
        connection,
        f"user {name} is changed",
        lambda admin: admin.users.update(name, **given, broker=broker, cluster=cluster),
    )


@user.command("delete")
@click.argument("name", metavar="NAME")
@connection_options
@broker_option
@cluster_option
def delete_user(name: str, connection: Connection, broker: str | None, cluster: str | None) -> None:
    """Remove a user and its policies."""
    _change(
        connection, f"user {name} is removed", lambda admin: admin.users.delete(name, broker=broker, cluster=cluster)
    )


@acl.group()
def policy() -> None:
    """Policies about users, of RocketMQ 5.3 and later."""


@policy.command("list")
@click.argument("text", metavar="[USER]", required=False, default="")
@connection_options
@broker_option
@cluster_option
@click.option("--resource", default="", help="Only about resources that contain this text.")
@json_option
def list_policies(
    text: str, connection: Connection, broker: str | None, cluster: str | None, resource: str, as_json: bool
) -> None:
    """List what each broker allows and denies users whose name contains USER."""

    async def work(admin: Admin) -> None:
        found = await admin.policies.list(text, resource, broker=broker, cluster=cluster)
        rows = [
            {
                "brokerName": name,
                "subject": one.subject,
                "resource": one.resource,
                "actions": ", ".join(one.actions),
                "decision": one.decision,
                "sourceIps": ", ".join(one.source_ips),
            }
            for name, policies in found.answers.items()
            for one in policies
        ]
        columns = ("brokerName", "subject", "resource", "actions", "decision", "sourceIps")
        _show(found, rows, columns, as_json=as_json)

    with_admin(connection, work)


def _put_policy(verb: str, done: str) -> click.Command:
    def put(
        name: str,
        connection: Connection,
        broker: str | None,
        cluster: str | None,
        resources: tuple[str, ...],
        actions: tuple[str, ...],
        deny: bool,
        source_ips: tuple[str, ...],
    ) -> None:
        decision = "Deny" if deny else "Allow"
        _change(
            connection,
            f"policies of {name} are {done}",
            lambda admin: getattr(admin.policies, verb)(
                _subject(name),
                resources,
                actions,
                decision=decision,
                source_ips=source_ips,
                broker=broker,
                cluster=cluster,
            ),
        )

    decorated: Any = put
    for add in (*reversed(action_options), cluster_option, broker_option, connection_options):
        decorated = add(decorated)
    about = f"{verb.capitalize()} what a user may do, or may not, with resources."
    command: click.Command = policy.command(verb, help=about)(click.argument("name", metavar="USER")(decorated))
    return command


create_policy = _put_policy("create", "made")
update_policy = _put_policy("update", "changed")


@policy.command("delete")
@click.argument("name", metavar="USER")
@connection_options
@broker_option
@cluster_option
@click.option("--resource", help="Only the entry about this resource; else all.")
def delete_policy(
    name: str, connection: Connection, broker: str | None, cluster: str | None, resource: str | None
) -> None:
    """Remove a user's policies, or one entry."""
    _change(
        connection,
        f"policies of {name} are removed",
        lambda admin: admin.policies.delete(_subject(name), resource=resource, broker=broker, cluster=cluster),
    )


@acl.group()
def account() -> None:
    """Accounts of plain_acl.yml, of RocketMQ before 5.3.3."""


@account.command("list")
@connection_options
@broker_option
@cluster_option
@json_option
def list_accounts(connection: Connection, broker: str | None, cluster: str | None, as_json: bool) -> None:
    """List the accounts of each broker; the addresses that need no signature are rows with the key *."""

    async def work(admin: Admin) -> None:
        found = await admin.accounts.list(broker=broker, cluster=cluster)
        rows: list[dict[str, object]] = []
        for name, listed in found.answers.items():
            rows += [
                {
                    "brokerName": name,
                    "accessKey": one.access_key,
                    "admin": one.admin,
                    "topics": ", ".join(filter(None, (one.default_topic_perm, *one.topic_perms))),
                    "groups": ", ".join(filter(None, (one.default_group_perm, *one.group_perms))),
                    "whiteAddress": one.white_remote_address,
                }
                for one in listed.accounts
            ]
            empty = {"brokerName": name, "accessKey": "*", "admin": None, "topics": None, "groups": None}
            rows += [{**empty, "whiteAddress": address} for address in listed.white_addresses]
        _show(found, rows, ("brokerName", "accessKey", "admin", "topics", "groups", "whiteAddress"), as_json=as_json)

    with_admin(connection, work)


@account.command("put")
@click.argument("key", metavar="KEY")
@connection_options
@broker_option
@cluster_option
@click.option("--secret", envvar="PYRMQ_NEW_SECRET", required=True, help="Better in the variable.  [PYRMQ_NEW_SECRET]")
@click.option("--admin", "is_admin", is_flag=True, help="May administer.")
@click.option("--white-address", help="Needs no signature from there.")
@click.option("--topics", "default_topic_perm", type=PERMISSIONS, help="For topics that are not named.")
@click.option("--groups", "default_group_perm", type=PERMISSIONS, help="For groups that are not named.")
@click.option("--topic", "topic_perms", multiple=True, metavar="NAME=PERMISSION", help="May be given several times.")
@click.option("--group", "group_perms", multiple=True, metavar="NAME=PERMISSION", help="May be given several times.")
def put_account(
    key: str,
    connection: Connection,
    broker: str | None,
    cluster: str | None,
    secret: str,
    is_admin: bool,
    white_address: str | None,
    default_topic_perm: str | None,
    default_group_perm: str | None,
    topic_perms: tuple[str, ...],
    group_perms: tuple[str, ...],
) -> None:
    """Make or change an account; permissions that are not given stay."""
    _change(
        connection,
        f"account {key} is kept",
        lambda admin: admin.accounts.put(
            key,
            secret,
            admin=is_admin,
            white_remote_address=white_address,
            default_topic_perm=default_topic_perm,
            default_group_perm=default_group_perm,
            topic_perms=_permissions(topic_perms, "--topic"),
            group_perms=_permissions(group_perms, "--group"),
            broker=broker,
            cluster=cluster,
        ),
    )


@account.command("delete")
@click.argument("key", metavar="KEY")
@connection_options
@broker_option
@cluster_option
def delete_account(key: str, connection: Connection, broker: str | None, cluster: str | None) -> None:
    """Remove an account."""
    _change(
        connection,
        f"account {key} is removed",
        lambda admin: admin.accounts.delete(key, broker=broker, cluster=cluster),
    )


@account.command("white-addresses")
@click.argument("addresses", metavar="[ADDRESS]...", nargs=-1, required=True)
@connection_options
@broker_option
@cluster_option
def white_addresses(
    addresses: tuple[str, ...], connection: Connection, broker: str | None, cluster: str | None
) -> None:
    """Set the addresses that need no signature."""
    _change(
        connection,
        f"white addresses are {', '.join(addresses)}",
        lambda admin: admin.accounts.set_white_addresses(addresses, broker=broker, cluster=cluster),
    )


def _change(connection: Connection, what: str, change: Callable[[Admin], Awaitable[tuple[str, ...]]]) -> None:
    """Makes a change at the brokers, and prints their names."""

    async def work(admin: Admin) -> None:
        click.echo(f"{what} at {', '.join(await change(admin))}")

    with_admin(connection, work)


def _show(found: Gathered[Any], rows: Iterable[Mapping[str, object]], columns: Iterable[str], *, as_json: bool) -> None:
    """Prints the rows, and the brokers that gave no answer on standard error; these end the command with 1."""
    show(rows, columns, as_json=as_json)
    for error in found.failures.values():
        click.echo(f"Error: {error}", err=True)
    if found.failures:
        raise SystemExit(1)


def _subject(name: str) -> str:
    return name if ":" in name else f"User:{name}"


def _permissions(texts: Iterable[str], option: str) -> dict[str, str] | None:
    """Returns `NAME=PERMISSION` by name, or None for none; raises `BadParameter` for another text."""
    perms = {}
    for text in texts:
        name, _, perm = text.partition("=")
        if not name or perm not in PERMISSIONS.choices:
            raise click.BadParameter(f"{text!r} is not NAME=DENY, PUB, SUB or PUB|SUB", param_hint=option)
        perms[name] = perm
    return perms or None
