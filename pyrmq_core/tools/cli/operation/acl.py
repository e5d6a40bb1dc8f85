"""`pyrmq acl`: users and policies of RocketMQ 5.x, and its accounts. No secret is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pyrmq_core.tools.cli.admin import with_admin
from pyrmq_core.tools.cli.confirmation import confirm, yes_option
from pyrmq_core.tools.cli.connections import Connection, connection_options
from pyrmq_core.tools.cli.name_completion import cluster_option
from pyrmq_core.tools.cli.operation.access_changes import broker_option, change, show_gathered
from pyrmq_core.tools.cli.operation.acl_accounts import account
from pyrmq_core.tools.cli.servers import CommandGroup
from pyrmq_core.tools.cli.tables import json_option

if TYPE_CHECKING:
    from pyrmq_core import Admin

action_options = (
    click.option("--resource", "resources", multiple=True, required=True, help="Topic:orders*, Group:*, ...; repeat."),
    click.option("--action", "actions", multiple=True, required=True, help="Pub, Sub, Get, All, ...; repeat."),
    click.option("--deny", is_flag=True, help="Deny these actions; else they are allowed."),
    click.option("--source-ip", "source_ips", multiple=True, help="Only from this address or network; repeat."),
)


@click.group(cls=CommandGroup, commands=[account])
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
    """List the users on each broker. NAME is a part of the users' names."""

    async def work(admin: Admin) -> None:
        gathered = await admin.users.list(text, broker=broker, cluster=cluster)
        rows = [
            {
                "brokerName": name,
                "username": listed.username,
                "userType": listed.user_type,
                "userStatus": listed.user_status,
            }
            for name, users in gathered.answers.items()
            for listed in users
        ]
        show_gathered(gathered, rows, ("brokerName", "username", "userType", "userStatus"), as_json=as_json)

    with_admin(connection, work)


@user.command("create")
@click.argument("name", metavar="NAME")
@connection_options
@broker_option
@cluster_option
@click.option(
    "--password",
    envvar="PYRMQ_NEW_PASSWORD",
    required=True,
    help="Better in the environment variable.  [PYRMQ_NEW_PASSWORD]",
)
@click.option("--super", "is_super", is_flag=True, help="A super user, who may do anything.")
@json_option
def create_user(
    name: str,
    connection: Connection,
    broker: str | None,
    cluster: str | None,
    password: str,
    is_super: bool,
    as_json: bool,
) -> None:
    """Create a user."""
    kind = "Super" if is_super else "Normal"
    change(
        connection,
        {"username": name},
        f"user {name} is made",
        lambda admin: admin.users.create(name, password, user_type=kind, broker=broker, cluster=cluster),
        as_json=as_json,
    )


@user.command("update")
@click.argument("name", metavar="NAME")
@connection_options
@broker_option
@cluster_option
@click.option(
    "--password", envvar="PYRMQ_NEW_PASSWORD", help="Better in the environment variable.  [PYRMQ_NEW_PASSWORD]"
)
@click.option("--type", "user_type", type=click.Choice(("Normal", "Super")), help="Super users may do anything.")
@click.option(
    "--status", "user_status", type=click.Choice(("enable", "disable")), help="Whether the user may do anything at all."
)
@json_option
def update_user(
    name: str,
    connection: Connection,
    broker: str | None,
    cluster: str | None,
    password: str | None,
    user_type: str | None,
    user_status: str | None,
    as_json: bool,
) -> None:
    """Change a user. Settings that are not given stay."""
    if password is None and user_type is None and user_status is None:
        raise click.UsageError("give --password, --type or --status")
    given: dict[str, Any] = {"password": password, "user_type": user_type, "user_status": user_status}
    change(
        connection,
        {"username": name},
        f"user {name} is changed",
        lambda admin: admin.users.update(name, **given, broker=broker, cluster=cluster),
        as_json=as_json,
    )


@user.command("delete")
@click.argument("name", metavar="NAME")
@connection_options
@broker_option
@cluster_option
@yes_option
@json_option
def delete_user(
    name: str, connection: Connection, broker: str | None, cluster: str | None, yes: bool, as_json: bool
) -> None:
    """Remove a user and its policies."""
    if not yes:
        confirm(f"Remove user {name} with its password and its policies? Its clients are refused from then on.")
    change(
        connection,
        {"username": name},
        f"user {name} is removed",
        lambda admin: admin.users.delete(name, broker=broker, cluster=cluster),
        as_json=as_json,
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
        gathered = await admin.policies.list(text, resource, broker=broker, cluster=cluster)
        rows = [
            {
                "brokerName": name,
                "subject": listed.subject,
                "resource": listed.resource,
                "actions": ", ".join(listed.actions),
                "decision": listed.decision,
                "sourceIps": ", ".join(listed.source_ips),
            }
            for name, policies in gathered.answers.items()
            for listed in policies
        ]
        columns = ("brokerName", "subject", "resource", "actions", "decision", "sourceIps")
        show_gathered(gathered, rows, columns, as_json=as_json)

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
        as_json: bool,
    ) -> None:
        decision = "Deny" if deny else "Allow"
        change(
            connection,
            {"subject": _subject(name)},
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
            as_json=as_json,
        )

    decorated: Any = put
    for add in (json_option, *reversed(action_options), cluster_option, broker_option, connection_options):
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
@json_option
def delete_policy(
    name: str, connection: Connection, broker: str | None, cluster: str | None, resource: str | None, as_json: bool
) -> None:
    """Remove a user's policies, or one entry."""
    change(
        connection,
        {"subject": _subject(name)},
        f"policies of {name} are removed",
        lambda admin: admin.policies.delete(_subject(name), resource=resource, broker=broker, cluster=cluster),
        as_json=as_json,
    )


def _subject(name: str) -> str:
    return name if ":" in name else f"User:{name}"
