"""`pyrmq search`: prints messages whose body, properties or times meet a condition.

Brokers filter by tags or SQL; messages that pass are read, many pulls at once, and compared here. The counts of the
search are printed at its end, also after Ctrl-C, a failure or a limit.
"""

from __future__ import annotations

import functools
import math
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from pyrmq_core import InvalidArgument, RocketMQError
from pyrmq_core.network.log_lines import visible_text
from pyrmq_core.protocol.messages.names import TOOLS_GROUP
from pyrmq_core.tools.cli.connections import Connection, connection_options
from pyrmq_core.tools.cli.formats import MessageLine, form_options
from pyrmq_core.tools.cli.name_completion import topic_names
from pyrmq_core.tools.cli.servers import SectionedCommand, run
from pyrmq_core.tools.cli.times import ago_or_instant

if TYPE_CHECKING:  # loaded by the command that runs, not by its help
    from pyrmq_core import PullConsumer
    from pyrmq_core.tools.cli.progress import ProgressLine
    from pyrmq_core.tools.search.conditions import Condition
    from pyrmq_core.tools.search.search import Ranges, Search

SIZE: Final = re.compile(r"([0-9]{1,15})(B|KiB|MiB|GiB)?")
SIZES: Final = {None: 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
MAX_BYTES: Final = "16GiB"
# An unreachable broker is waited for as long as this many requests may take.
PATIENCE_TIMEOUTS: Final = 4


@dataclass(frozen=True, slots=True)
class Part:
    """The options that choose a part of a topic."""

    since: datetime | None
    until: datetime | None
    tags: str
    sql: str | None
    queues: tuple[str, ...]


def part_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that choose a part of a topic to a command, and passes it their values as `part`."""

    @functools.wraps(command)
    def with_part(**arguments: Any) -> None:
        names = ("since", "until", "tags", "sql", "queues")
        part = Part(**{name: arguments.pop(name) for name in names})
        if part.sql and part.tags != "*":
            raise click.UsageError("--tags and --sql exclude each other; SQL can say TAGS = '...' itself")
        if part.since is not None and part.until is not None and part.since >= part.until:
            raise click.UsageError("--until is not after --since: there is no time between them")
        command(part=part, **arguments)

    for add in (
        click.option(
            "--queue",
            "queues",
            multiple=True,
            metavar="QUEUE",
            help="Only these queues: BROKER/3, BROKER, or 3 (of every broker).",
        ),
        click.option("--sql", help="An SQL92 expression over properties, instead of --tags."),
        click.option("--tags", default="*", show_default=True, help='As "TagA || TagB"; the broker filters.'),
        click.option(
            "--until", metavar="TIME", callback=_end, help="Only messages stored before this time.  [default: now]"
        ),
        click.option(
            "--since",
            required=True,
            metavar="TIME",
            callback=_begin,
            help="Only messages stored since: 15m, 1h, 2d (ago), an ISO-8601 time, or earliest.",
        ),
    ):
        with_part = add(with_part)
    return with_part


def _begin(ctx: click.Context, param: click.Parameter, value: str) -> datetime | None:
    if value == "earliest":
        return None
    since = ago_or_instant(value, "--since", or_else="earliest, ")
    if since > datetime.now(UTC):
        raise click.BadParameter(f"{value} is in the future: no message is stored then yet", param_hint="--since")
    return since


def _end(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    return None if value is None else ago_or_instant(value, "--until")


def _bytes(ctx: click.Context, param: click.Parameter, value: str) -> int:
    if (match := SIZE.fullmatch(value)) is None or not int(match[1]):
        raise click.BadParameter(f"{value!r} is no size such as 500MiB or 16GiB")
    return int(match[1]) * SIZES[match[2]]


@click.command(cls=SectionedCommand)
@click.argument("topic", shell_complete=topic_names)
@connection_options
@part_options
@click.option("--contains", metavar="TEXT", help="Bodies that contain this text.")
@click.option("--where", metavar="CONDITION", help="As \"json.user.id == 42 and properties.region == 'eu'\".")
@click.option("--regex", metavar="PATTERN", help="Bodies with a match in their first 64 KiB.")
@click.option("--max", "limit", type=click.IntRange(1), help="Stop after this many messages.")
@click.option(
    "--max-bytes", default=MAX_BYTES, show_default=True, callback=_bytes, help="Stop after reading this many bytes."
)
@form_options
def search(
    topic: str,
    connection: Connection,
    part: Part,
    form: MessageLine,
    contains: str | None,
    where: str | None,
    regex: str | None,
    limit: int | None,
    max_bytes: int,
) -> None:
    """Find messages by their content."""
    from pyrmq_core.tools.search.conditions import condition_of

    if [contains, where, regex].count(None) != 2:
        raise click.UsageError("give one of --contains, --where and --regex")
    try:
        condition = condition_of(contains, where, regex)
    except InvalidArgument as error:
        option = "--contains" if contains is not None else "--where" if where is not None else "--regex"
        raise click.BadParameter(str(error), param_hint=option) from None
    run(_search, connection, topic, part, form, condition, limit, max_bytes)


async def _search(
    connection: Connection,
    topic: str,
    part: Part,
    form: MessageLine,
    condition: Condition,
    limit: int | None,
    max_bytes: int,
) -> None:
    from pyrmq_core.tools.cli.progress import progress_line
    from pyrmq_core.tools.search.search import Search

    async with ranges_to_read(connection, topic, part) as (consumer, ranges):
        patience = PATIENCE_TIMEOUTS * connection.timeout
        searching = Search(
            consumer, ranges, condition, tags=part.tags, sql=part.sql, max_bytes=max_bytes, patience=patience
        )
        with progress_line("messages searched", searching.account.total) as line:
            await _print_matches(searching, form, limit, line)
    _say_end(searching, topic, limit)


@asynccontextmanager
async def ranges_to_read(connection: Connection, topic: str, part: Part) -> AsyncIterator[tuple[PullConsumer, Ranges]]:
    """Opens a consumer, and yields it with the offsets of that part of the topic; brokers check the SQL expression."""
    from pyrmq_core import PullConsumer
    from pyrmq_core.tools.search.search import check_sql, queues_named, ranges_of

    async with (
        connection.client() as client,
        PullConsumer(
            TOOLS_GROUP, client=client, namespace=connection.namespace, timeout=connection.timeout
        ) as consumer,
    ):
        queues = queues_named(await consumer.message_queues(topic), part.queues)
        await check_sql(consumer, queues, part.sql)
        yield consumer, await ranges_of(consumer, queues, part.since, part.until)


async def _print_matches(searching: Search, form: MessageLine, limit: int | None, line: ProgressLine) -> None:
    import trio

    account, printed = searching.account, 0
    try:
        async with searching.matches() as lists:
            async for messages in lists:
                for message in messages[: None if limit is None else limit - printed]:
                    line.pause()
                    click.echo(form(message))
                    printed += 1
                if printed == limit:
                    return
                line.update(account.searched, more=f", {account.matches:,} found")
    except RocketMQError as error:
        error.add_note(f"{account.matches:,} messages found; {searching.rest_text()}")
        raise
    finally:
        line.close()
        if trio.current_effective_deadline() == -math.inf:
            click.echo(f"interrupted: {account.matches:,} messages found; {searching.rest_text()}", err=True)


def _say_end(searching: Search, topic: str, limit: int | None) -> None:
    account = searching.account
    text = f"{account.matches:,} messages found; {searching.rest_text()}"
    if account.is_bounded:
        click.echo(f"stopped at the bound of --max-bytes: {text}", err=True)
    elif not account.matches:
        click.echo(visible_text(f"topic {topic}: no message found; {searching.rest_text()}"), err=True)
    elif sys.stderr.isatty() and limit is None:
        click.echo(text, err=True)
    if account.no_json:
        click.echo(f"{account.no_json:,} bodies are no JSON and do not match", err=True)
