"""`pyrmq nameserver` runs a NameServer. `pyrmq nameserver config` shows and changes settings of running ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pyrmq_core.network.log_lines import visible_text
from pyrmq_core.tools.cli.admin import with_admin
from pyrmq_core.tools.cli.connections import Connection, connection_options
from pyrmq_core.tools.cli.operation.server_groups import ServerGroup
from pyrmq_core.tools.cli.settings import changed_option, chosen_settings, settings_of, show_table
from pyrmq_core.tools.cli.tables import json_option, report, show

if TYPE_CHECKING:
    from pyrmq_core import Admin


def _run_nameserver(arguments: list[str]) -> int:
    from pyrmq_core.servers.nameserver.process import main

    return main(arguments, prog="pyrmq nameserver")


nameserver = ServerGroup(
    "nameserver",
    _run_nameserver,
    "Run a NameServer, as `python -m pyrmq_core.servers.nameserver`; or administer NameServers.",
)


@nameserver.command()
@click.argument("settings", metavar="[SETTING]...", nargs=-1)
@connection_options
@click.option(
    "--set", "changes", multiple=True, metavar="NAME=VALUE", help="Change a setting; may be given several times."
)
@changed_option
@json_option
def config(
    settings: tuple[str, ...], connection: Connection, changes: tuple[str, ...], differing: bool, as_json: bool
) -> None:
    """Show the settings of every NameServer, all or those named, or change some at each."""
    changed = settings_of(changes)
    if changed and settings:
        raise click.UsageError("--set shows nothing: leave out the names of settings")
    if differing and (changed or settings):
        raise click.UsageError("--changed shows what differs, and changes nothing: leave out names and --set")

    async def work(admin: Admin) -> None:
        if differing:
            table = await admin.nameservers.settings()
            show_table(table, table.unusual, as_json=as_json)
            return
        if changed:
            await admin.nameservers.update_config(changed)
            what = [{"setting": name, "value": changed[name]} for name in changed]
            report(f"changed at {';'.join(await connection.nameservers())}", what, as_json=as_json)
            return
        gathered = await admin.nameservers.config()
        rows: list[dict[str, object]] = []
        for address, all_settings in gathered.answers.items():
            chosen = chosen_settings(all_settings, settings, f"NameServer {address}")
            rows += [{"nameserver": address, "setting": setting, "value": chosen[setting]} for setting in chosen]
        show(rows, ["nameserver", "setting", "value"], as_json=as_json)
        for error in gathered.failures.values():
            click.echo(visible_text(f"Error: {error}"), err=True)
        if gathered.failures:
            raise SystemExit(1)

    with_admin(connection, work)
