"""`pyrmq health`: checks for scripts whether a cluster works. If not, it prints the faults and ends with status 1.

`Admin.health` describes the rules.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from pyrmq_core.network.log_lines import visible_text
from pyrmq_core.tools.cli.connections import Connection, connection_options
from pyrmq_core.tools.cli.doctor import FAIL, Check
from pyrmq_core.tools.cli.name_completion import group_names
from pyrmq_core.tools.cli.servers import SectionedCommand, run
from pyrmq_core.tools.cli.tables import json_option
from pyrmq_core.tools.search.json_output import json_text

if TYPE_CHECKING:
    from pyrmq_core.client.admin.health_rules import HealthCheck


@click.command(cls=SectionedCommand)
@connection_options
@click.option("--max-lag", type=click.IntRange(0), help="The most messages that a group may lag.")
@click.option(
    "-g",
    "--group",
    "groups",
    multiple=True,
    help="With --max-lag: only this group; may be given several times.",
    shell_complete=group_names,
)
@click.option(
    "--max-disk",
    default=90,
    show_default=True,
    type=click.IntRange(1, 100),
    help="The most used percent of a commit log's disk.",
)
@click.option(
    "--over",
    type=click.FloatRange(0.1, 3600),
    metavar="SECONDS",
    help="Look twice, SECONDS apart, for disks that fill and lags that grow; also at members and dead letters.",
)
@json_option
def health(
    connection: Connection,
    max_lag: int | None,
    groups: tuple[str, ...],
    max_disk: int,
    over: float | None,
    as_json: bool,
) -> None:
    """Check masters, queues, disks and lag. Ends with 1 if something is wrong."""
    if groups and max_lag is None:
        raise click.UsageError("--group needs --max-lag, the bound for its lag")
    checks: list[HealthCheck] = []

    async def work() -> None:
        import trio

        async with connection.admin() as admin:
            before = None
            if over is not None:
                before = await admin.health(groups=True)
                await trio.sleep(over)
            health = await admin.health(
                max_disk=max_disk, max_lag=max_lag, lag_of=groups, groups=over is not None, before=before
            )
            checks.extend(health.checks)

    run(work)
    if as_json:
        click.echo(json_text([asdict(check) for check in checks]))
    else:
        for check in checks:
            click.echo(visible_text(Check(check.check, check.status, check.found, check.advice).line()))
    raise SystemExit(1 if any(check.status == FAIL for check in checks) else 0)
