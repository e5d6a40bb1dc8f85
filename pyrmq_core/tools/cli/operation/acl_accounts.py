"""`pyrmq acl account`: accounts in the `plain_acl.yml` of RocketMQ 4.9. No secret is printed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import click

from pyrmq_core.tools.cli.admin import with_admin
from pyrmq_core.tools.cli.confirmation import confirm, yes_option
from pyrmq_core.tools.cli.connections import Connection, connection_options
from pyrmq_core.tools.cli.name_completion import cluster_option
from pyrmq_core.tools.cli.operation.access_changes import broker_option, change, show_gathered
from pyrmq_core.tools.cli.servers import CommandGroup
from pyrmq_core.tools.cli.tables import json_option
from pyrmq_core.tools.cli.times import iso_time

if TYPE_CHECKING:
    from pyrmq_core import Admin

PERMISSIONS: Final = click.Choice(("DENY", "PUB", "SUB", "PUB|SUB"))


@click.group(cls=CommandGroup)
def account() -> None:
    """Accounts of plain_acl.yml, of RocketMQ before 5.3.3."""


@account.command("list")
@connection_options
@broker_option
@cluster_option
@json_option
def list_accounts(connection: Connection, broker: str | None, cluster: str | None, as_json: bool) -> None:
    """List the accounts of each broker. The addresses that need no signature are rows with the key *."""

    async def work(admin: Admin) -> None:
        gathered = await admin.accounts.list(broker=broker, cluster=cluster)
        rows: list[dict[str, object]] = []
        for name, listed in gathered.answers.items():
            rows += [
                {
                    "brokerName": name,
                    "accessKey": acl_account.access_key,
                    "admin": acl_account.admin,
                    "topics": ", ".join(filter(None, (acl_account.default_topic_perm, *acl_account.topic_perms))),
                    "groups": ", ".join(filter(None, (acl_account.default_group_perm, *acl_account.group_perms))),
                    "whiteAddress": acl_account.white_remote_address,
                }
                for acl_account in listed.accounts
            ]
            empty = {"brokerName": name, "accessKey": "*", "admin": None, "topics": None, "groups": None}
            rows += [{**empty, "whiteAddress": address} for address in listed.white_addresses]
        show_gathered(
            gathered, rows, ("brokerName", "accessKey", "admin", "topics", "groups", "whiteAddress"), as_json=as_json
        )

    with_admin(connection, work)


@account.command("versions")
@connection_options
@broker_option
@cluster_option
@json_option
def account_versions(connection: Connection, broker: str | None, cluster: str | None, as_json: bool) -> None:
    """Show the versions of each broker's account files, which differ while a change is incomplete."""

    async def work(admin: Admin) -> None:
        gathered = await admin.accounts.versions(broker=broker, cluster=cluster)
        rows = [
            {"brokerName": name, "file": version.file, "changes": version.counter, "changed": iso_time(version.changed)}
            for name, files in gathered.answers.items()
            for version in files
        ]
        show_gathered(gathered, rows, ("brokerName", "file", "changes", "changed"), as_json=as_json)

    with_admin(connection, work)


@account.command("put")
@click.argument("key", metavar="KEY")
@connection_options
@broker_option
@cluster_option
@click.option(
    "--secret", envvar="PYRMQ_NEW_SECRET", required=True, help="Better in the environment variable.  [PYRMQ_NEW_SECRET]"
)
@click.option("--admin", "is_admin", is_flag=True, help="The account may administer.")
@click.option("--white-address", help="No signature is needed from this address.")
@click.option("--topics", "default_topic_perm", type=PERMISSIONS, help="The permission for all other topics.")
@click.option("--groups", "default_group_perm", type=PERMISSIONS, help="The permission for all other groups.")
@click.option("--topic", "topic_perms", multiple=True, metavar="NAME=PERMISSION", help="May be given several times.")
@click.option("--group", "group_perms", multiple=True, metavar="NAME=PERMISSION", help="May be given several times.")
@json_option
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
    as_json: bool,
) -> None:
    """Create or change an account. Permissions that are not given stay."""
    change(
        connection,
        {"accessKey": key},
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
        as_json=as_json,
    )


@account.command("delete")
@click.argument("key", metavar="KEY")
@connection_options
@broker_option
@cluster_option
@yes_option
@json_option
def delete_account(
    key: str, connection: Connection, broker: str | None, cluster: str | None, yes: bool, as_json: bool
) -> None:
    """Remove an account."""
    if not yes:
        confirm(f"Remove account {key} with its secret and its rights? Its clients are refused from then on.")
    change(
        connection,
        {"accessKey": key},
        f"account {key} is removed",
        lambda admin: admin.accounts.delete(key, broker=broker, cluster=cluster),
        as_json=as_json,
    )


@account.command("white-addresses")
@click.argument("addresses", metavar="[ADDRESS]...", nargs=-1, required=True)
@connection_options
@broker_option
@cluster_option
@json_option
def white_addresses(
    addresses: tuple[str, ...], connection: Connection, broker: str | None, cluster: str | None, as_json: bool
) -> None:
    """Set the addresses that need no signature."""
    change(
        connection,
        {"whiteAddresses": list(addresses)},
        f"white addresses are {', '.join(addresses)}",
        lambda admin: admin.accounts.set_white_addresses(addresses, broker=broker, cluster=cluster),
        as_json=as_json,
    )


def _permissions(texts: Iterable[str], option: str) -> dict[str, str] | None:
    perms = {}
    for text in texts:
        name, _, perm = text.partition("=")
        if not name or perm not in PERMISSIONS.choices:
            raise click.BadParameter(f"{text!r} is not NAME=DENY, PUB, SUB or PUB|SUB", param_hint=option)
        perms[name] = perm
    return perms or None
