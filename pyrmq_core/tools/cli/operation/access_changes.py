"""Functions that the commands of access control share: one changes something at brokers, one prints answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from pyrmq_core.network.log_lines import visible_text
from pyrmq_core.tools.cli.admin import with_admin
from pyrmq_core.tools.cli.connections import Connection
from pyrmq_core.tools.cli.name_completion import broker_names
from pyrmq_core.tools.cli.tables import report, show

if TYPE_CHECKING:
    from pyrmq_core import Admin
    from pyrmq_core.client.admin.servers import Gathered

broker_option = click.option(
    "-b", "--broker", help="One broker, by name or address; else all.", shell_complete=broker_names
)


def change(
    connection: Connection,
    about: Mapping[str, object],
    done: str,
    call: Callable[[Admin], Awaitable[tuple[str, ...]]],
    *,
    as_json: bool,
) -> None:
    async def work(admin: Admin) -> None:
        brokers = await call(admin)
        report(
            f"{done} at {', '.join(brokers)}",
            [{"brokerName": broker_name, **about} for broker_name in brokers],
            as_json=as_json,
        )

    with_admin(connection, work)


def show_gathered(
    gathered: Gathered[Any], rows: Iterable[Mapping[str, object]], columns: Iterable[str], *, as_json: bool
) -> None:
    """Prints the rows. Names brokers that did not answer on standard error, and then ends with status 1."""
    show(rows, columns, as_json=as_json)
    for error in gathered.failures.values():
        click.echo(visible_text(f"Error: {error}"), err=True)
    if gathered.failures:
        raise SystemExit(1)
