"""`pyrmq search`: prints messages whose body, properties or times meet a condition.

Brokers filter by tags or SQL. The other messages are read and compared here, the newest first. How many were searched
and found is printed at the end, also after Ctrl-C, a failure or a limit.
"""

from __future__ import annotations

import functools
import math
import re
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from pyrmq_core import InvalidArgument, MessageExt, RocketMQError
from pyrmq_core.network.log_lines import visible_text
from pyrmq_core.protocol.messages.names import TOOLS_GROUP
from pyrmq_core.tools.cli.connections import Connection, connection_options
from pyrmq_core.tools.cli.formats import MessageLine, form_options
from pyrmq_core.tools.cli.name_completion import topic_names
from pyrmq_core.tools.cli.servers import SectionedCommand, run
from pyrmq_core.tools.cli.times import ago_or_instant

if TYPE_CHECKING:  # imported when the command runs, so that its help is fast
    from pyrmq_core import PullConsumer
    from pyrmq_core.tools.cli.progress import ProgressLine
    from pyrmq_core.tools.search.conditions import Condition
    from pyrmq_core.tools.search.ranges import Ranges
    from pyrmq_core.tools.search.search import OnUndecodable, Search

SIZE: Final = re.compile(r"([0-9]{1,15})(B|KiB|MiB|GiB)?")
SIZES: Final = {None: 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
MAX_BYTES: Final = "16GiB"
# The search waits for an unreachable broker for this many request timeouts.
PATIENCE_TIMEOUTS: Final = 4


@dataclass(frozen=True, slots=True)
class Part:
    """The options that select a part of a topic: a range of store times, a filter by tags or SQL92, and queues."""

    since: datetime | None
    until: datetime | None
    tags: str
    sql: str | None
    queues: tuple[str, ...]


def part_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that select a part of a topic to a command, and passes it their values as `part`."""

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


def undecodable_option(*choices: str, default: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    end = "copy the others, end with status 1" if "keep" in choices else "end there"
    texts = {"skip": "name and count them", "fail": end, "keep": "take bodies as they are stored"}
    return click.option(
        "--on-undecodable",
        type=click.Choice(choices),
        default=default,
        show_default=True,
        help=f"Of records that cannot be read: {', '.join(f'{name}: {texts[name]}' for name in choices)}.",
    )


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
@click.option("--oldest-first", is_flag=True, help="Begin with the oldest messages, as for a file in their order.")
@undecodable_option("skip", "fail", default="skip")
@form_options
def search(
    topic: str,
    connection: Connection,
    part: Part,
    form: MessageLine,
    contains: str | None,
    where: str | None,
    regex: str | None,
    **limits: Any,
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
    run(_search, connection, topic, part, form, condition, Limits(**limits))


@dataclass(frozen=True, slots=True)
class Limits:
    """The options for the end and the order of a search, and for records that cannot be decoded."""

    limit: int | None
    max_bytes: int
    oldest_first: bool
    on_undecodable: OnUndecodable


async def _search(
    connection: Connection, topic: str, part: Part, form: MessageLine, condition: Condition, limits: Limits
) -> None:
    from pyrmq_core.tools.cli.progress import progress_line
    from pyrmq_core.tools.search.ranges import queues_named, ranges_that_answer
    from pyrmq_core.tools.search.search import Search, SearchForm

    search_form = SearchForm(
        part.tags,
        part.sql,
        limits.max_bytes,
        PATIENCE_TIMEOUTS * connection.timeout,
        limits.oldest_first,
        limits.on_undecodable,
        most=limits.limit,
    )
    async with tools_consumer(connection) as consumer:
        queues = queues_named(await consumer.message_queues(topic), part.queues)
        ranges, failures = await ranges_that_answer(consumer, queues, part.since, part.until, sql=part.sql)
        begin = part.since if limits.oldest_first else part.until
        searching = Search(consumer, ranges, condition, search_form, begin=begin)
        searching.account.failures.update(failures)
        with progress_line("messages searched", searching.account.total) as line:
            await _print_matches(searching, form, limits.limit, line)
    _say_end(searching, topic, limits.limit)


@asynccontextmanager
async def tools_consumer(connection: Connection, group: str = TOOLS_GROUP) -> AsyncIterator[PullConsumer]:
    from pyrmq_core import PullConsumer

    async with (
        connection.client() as client,
        PullConsumer(group, client=client, namespace=connection.namespace, timeout=connection.timeout) as consumer,
    ):
        yield consumer


@asynccontextmanager
async def ranges_to_read(connection: Connection, topic: str, part: Part) -> AsyncIterator[tuple[PullConsumer, Ranges]]:
    """Opens a consumer, and yields it with the offset ranges of a part of the topic. Brokers check the part's SQL."""
    from pyrmq_core.tools.search.ranges import check_sql, queues_named, ranges_of

    async with tools_consumer(connection) as consumer:
        queues = queues_named(await consumer.message_queues(topic), part.queues)
        await check_sql(consumer, queues, part.sql)
        yield consumer, await ranges_of(consumer, queues, part.since, part.until)


async def _print_matches(searching: Search, form: MessageLine, limit: int | None, line: ProgressLine) -> None:
    import trio

    account, printed = searching.account, 0

    def show(messages: list[MessageExt]) -> None:
        nonlocal printed
        for message in messages[: None if limit is None else limit - printed]:
            line.pause()
            click.echo(form(message))
            printed += 1

    try:
        async with searching.matches() as lists:
            async for messages in lists:
                show(messages)
                del messages
                if printed == limit:
                    return
                line.update(account.searched, more=f", {account.matches:,} found")
    except RocketMQError as error:
        error.add_note(f"{account.matches:,} messages found; {searching.rest_text()}")
        raise
    finally:
        line.close()
        if trio.current_effective_deadline() == -math.inf:
            show(searching.held())
            click.echo(f"interrupted: {account.matches:,} messages found; {searching.rest_text()}", err=True)


def _say_end(searching: Search, topic: str, limit: int | None) -> None:
    """Prints what was searched and what was not. If brokers failed, raises the error of the first."""
    account = searching.account
    text = f"{account.matches:,} messages found; {searching.rest_text()}"
    say_unreadable(account.unreadable, account.unreadable_texts)
    if account.failures:
        names = [f"{name}: {error}" for name, error in account.failures.items()]
        for name in names[1:]:
            click.echo(visible_text(f"not searched: {name}"), err=True)
        error = next(iter(account.failures.values()))
        error.add_note(text)
        raise error
    if account.is_bounded and account.bound is not None:
        option = "--since" if searching.oldest_first else "--until"
        goes_on = f"{option} {account.bound.isoformat(timespec='milliseconds')} goes on there"
        click.echo(f"stopped at the bound of --max-bytes: {text}; {goes_on}", err=True)
    elif not account.matches:
        click.echo(visible_text(f"topic {topic}: no message found; {searching.rest_text()}"), err=True)
    elif sys.stderr.isatty() and limit is None:
        click.echo(text, err=True)
    if account.no_json:
        click.echo(f"{account.no_json:,} bodies are no JSON and do not match", err=True)
    if account.long_json:
        click.echo(f"{account.long_json:,} bodies are longer than 4 MiB and are not parsed: use --contains", err=True)


def say_unreadable(count: int, texts: Sequence[str], what: str = "passed over") -> None:
    """Prints the number of records that cannot be decoded, their first errors, and `what` happens to such records."""
    for text in texts:
        click.echo(visible_text(f"a record cannot be read and is {what}: {text}"), err=True)
    if count:
        click.echo(f"records that cannot be read and are {what}: {count:,}", err=True)
