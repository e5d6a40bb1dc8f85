"""Settings on the command line: `--set NAME=VALUE`, and the names of settings to show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click

from pyrmq_core.network.log_lines import visible_text
from pyrmq_core.tools.cli.tables import show

if TYPE_CHECKING:
    from pyrmq_core.client.admin.settings_tables import SettingRow, SettingsTable

changed_option = click.option(
    "--changed", "differing", is_flag=True, help="Show what differs between servers, or from RocketMQ's default."
)


def settings_of(texts: Iterable[str], option: str = "--set") -> dict[str, str]:
    """Parses `NAME=VALUE` options, whose values may be empty. Raises `BadParameter` for another form."""
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
        settings[name.strip()] = value
    return settings


def chosen_settings(settings: Mapping[str, str], names: Iterable[str], where: str) -> dict[str, str]:
    """Returns the settings with these names, or all if no name is given.

    Raises `ClickException` for an unknown name. `where` names the server in the error.
    """
    wanted = list(names)
    if missing := [name for name in wanted if name not in settings]:
        raise click.ClickException(f"{where} lists no setting {', '.join(missing)}")
    return {name: settings[name] for name in wanted or sorted(settings)}


def show_table(table: SettingsTable, rows: Iterable[SettingRow], *, as_json: bool) -> None:
    """Prints settings with a column for each server. Servers that did not answer are named on standard error."""
    if as_json:
        members = [
            {"setting": row.name, "default": row.default, "values": dict(row.values), "differs": row.differs}
            for row in rows
        ]
        show(members, (), as_json=True)
    else:
        cells = [{"setting": row.name, "default": row.default, **row.values} for row in rows]
        show(cells, ("setting", "default", *table.servers), as_json=False)
    for name, error in sorted(table.failures.items()):
        click.echo(visible_text(f"{name} gave no answer: {error}"), err=True)
