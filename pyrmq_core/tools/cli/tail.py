"""`pyrmq tail`: prints the messages of a topic as they arrive, with a task for each queue.

With `--follow`, an unreachable broker is reported once, and reading continues at the same offset when it is back. The
route is queried repeatedly, which finds new queues and new brokers.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import click

from pyrmq_core import MessageExt, MessageQueue, OffsetRange, PullStatus, RocketMQError
from pyrmq_core.errors import NetworkError, ResponseError, RoutingError
from pyrmq_core.network.log_lines import visible_text
from pyrmq_core.protocol.messages.names import TOOLS_GROUP
from pyrmq_core.tools.cli.connections import Connection, connection_options
from pyrmq_core.tools.cli.formats import MessageLine, form_options
from pyrmq_core.tools.cli.name_completion import group_names, topic_names
from pyrmq_core.tools.cli.search import say_unreadable, tools_consumer, undecodable_option
from pyrmq_core.tools.cli.servers import SectionedCommand, run
from pyrmq_core.tools.cli.times import instant

if TYPE_CHECKING:  # imported when the command runs, so that its help is fast
    import trio

    from pyrmq_core import PullConsumer
    from pyrmq_core.protocol.messages.payload import RawPull
    from pyrmq_core.protocol.messages.readable import Readable

WAIT_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 5.0

# The result of a pull, and the offsets in it whose messages are printed.
Part: TypeAlias = "tuple[RawPull, OffsetRange]"
Start: TypeAlias = datetime | Literal["earliest", "latest"]
STARTS: Final[Mapping[str, Start]] = {"earliest": "earliest", "latest": "latest"}


def start_of(ctx: click.Context, param: click.Parameter, value: str | None) -> Start | None:
    if value is None:
        return None
    if value in STARTS:
        return STARTS[value]
    return instant(value, "--from", or_else="earliest, latest or ")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The messages to print: the start, the queues, the filter, the number, and whether to wait for more.

    A negative `offset` counts from the queue's end. With a `group` each queue begins at the group's committed offset,
    or at `start` if there is none.
    """

    start: Start
    offset: int | None = None
    group: str | None = None
    queues: Sequence[str] = ()
    lite_topic: str | None = None
    tags: str = "*"
    sql: str | None = None
    limit: int | None = None
    follow: bool = False
    on_undecodable: str = "skip"


@click.command(cls=SectionedCommand)
@click.argument("topic", shell_complete=topic_names)
@connection_options
@click.option(
    "--from", "start", callback=start_of, help="earliest, latest, or a time.  [default: earliest; -f: latest]"
)
@click.option("--offset", type=int, help="Begin each queue at this offset; -10: its last ten messages.")
@click.option(
    "-g",
    "--group",
    help="Begin at this group's committed offsets; nothing is acknowledged.",
    shell_complete=group_names,
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="QUEUE",
    help="Only these queues: BROKER/3, BROKER, or 3 (of every broker).",
)
@click.option("--lite-topic", help="Only the queue of this lite topic (5.5), without other messages of TOPIC.")
@click.option("--tags", default="*", show_default=True, help='As "TagA || TagB".')
@click.option("--sql", help="An SQL92 expression over properties, instead of --tags.")
@click.option("--max", "limit", type=click.IntRange(1), help="Stop after this many messages.")
@click.option("--committed", is_flag=True, help="Only rows of committed writes, each once.")
@click.option("-f", "--follow", is_flag=True, help="Wait for more messages, until Ctrl-C.")
@undecodable_option("skip", "fail", default="skip")
@form_options
def tail(
    topic: str,
    connection: Connection,
    form: MessageLine,
    start: Start | None,
    offset: int | None,
    group: str | None,
    committed: bool,
    **options: Any,
) -> None:
    """Print the messages of a topic, with -f also new ones."""
    if committed and (
        offset is not None
        or group
        or options["queues"]
        or options["lite_topic"]
        or options["sql"]
        or options["tags"] != "*"
    ):
        raise click.UsageError(
            "--committed excludes --offset, -g, --queue, --lite-topic and filters: it reads by the manifest"
        )
    if offset is not None and (start or group):
        raise click.UsageError("--offset excludes --from and -g: each says where to begin")
    if options["sql"] and options["tags"] != "*":
        raise click.UsageError("--tags and --sql exclude each other; SQL can say TAGS = '...' itself")
    begin: Start = start or ("latest" if options["follow"] else "earliest")
    run(_tail_committed if committed else _tail, connection, topic, Wanted(begin, offset, group, **options), form)


async def _tail(connection: Connection, topic: str, wanted: Wanted, form: MessageLine) -> None:
    async with tools_consumer(connection, wanted.group or TOOLS_GROUP) as consumer:
        await tail_topic(consumer, topic, wanted, form)


async def _tail_committed(connection: Connection, topic: str, wanted: Wanted, form: MessageLine) -> None:
    import trio

    from pyrmq_core import manifest_of

    async with tools_consumer(connection) as consumer:
        queue = (await consumer.manifest_end(manifest_of(topic))).queue
        bounds = await consumer.offset_bounds([queue])
        begin = (await _begins(consumer, bounds, wanted, {}))[queue]
        rows = _CommittedRows(consumer, topic, form, wanted.limit)
        end = bounds[queue].end
        while True:
            try:
                await rows.echo(begin, end)
            except (NetworkError, RoutingError) as error:
                if not wanted.follow:
                    raise
                click.echo(visible_text(f"trying again: {error}"), err=True)
                await trio.sleep(RETRY_SECONDS)
                continue
            if not wanted.follow or rows.printed == wanted.limit:
                break
            begin = end
            while end == begin:
                await trio.sleep(RETRY_SECONDS)
                with contextlib.suppress(NetworkError, RoutingError):
                    end = (await consumer.offset_bounds([queue]))[queue].end
        if not rows.printed:
            click.echo(f"topic {topic} has no committed rows there; -f waits for some", err=True)


class _CommittedRows:
    """The printer of committed rows. When it reads batches again after a failure, it skips rows already printed."""

    def __init__(self, consumer: PullConsumer, topic: str, form: MessageLine, limit: int | None) -> None:
        self._consumer = consumer
        self._topic = topic
        self._form = form
        self._limit = limit
        self._printed_of_these = 0
        self.printed = 0

    async def echo(self, begin: int, end: int) -> None:
        """Prints the rows of the batches that the manifest records at the offsets from `begin` to before `end`.

        The manifest is the topic in which committed writes record their batches. Rows printed before a failure are
        skipped.
        """
        from pyrmq_core.client.unpacking import in_steps
        from pyrmq_core.protocol.messages.bodies import BodyRules
        from pyrmq_core.protocol.messages.payload import iterate_messages

        number = 0
        async with self._consumer.read_committed(self._topic, begin, end) as pulls:
            async for pull in pulls:
                messages = iterate_messages(pull, OffsetRange(pull.start, pull.next_offset), BodyRules())
                steps: AsyncGenerator[list[MessageExt], None] = in_steps(messages, lambda message: message)
                async with aclosing(steps) as lists:
                    async for part in lists:
                        for message in part:
                            if self.printed == self._limit:
                                return
                            number += 1
                            if number > self._printed_of_these:
                                click.echo(self._form(message))
                                self._printed_of_these += 1
                                self.printed += 1
        self._printed_of_these = 0


async def tail_topic(consumer: PullConsumer, topic: str, wanted: Wanted, form: MessageLine) -> None:
    """Prints the messages that are already stored, and with `follow` also later ones."""
    import trio

    from pyrmq_core.tools.search.ranges import check_sql, queues_named

    began = datetime.now(UTC)
    queues = queues_named(await consumer.message_queues(topic, wanted.lite_topic), wanted.queues)
    await check_sql(consumer, queues, wanted.sql)
    bounds = await consumer.offset_bounds(queues)
    stored = await _stored(consumer, bounds, wanted)
    if wanted.group is not None and all(offset is None for offset in stored.values()):
        click.echo(f"group {wanted.group} has no offsets of topic {topic}: reading begins as without -g", err=True)
    begins = await _begins(consumer, bounds, wanted, stored)
    send, receive = trio.open_memory_channel[Part](0)
    reader = _Reader(consumer, wanted)
    messages = _Messages(wanted)
    printed = 0
    async with trio.open_nursery() as nursery:
        async with send:
            for queue in queues:
                end = None if wanted.follow else bounds[queue].end
                nursery.start_soon(reader.read, queue, begins[queue], end, send.clone())
            if wanted.follow and wanted.lite_topic is None:
                nursery.start_soon(reader.read_later_queues, topic, queues, began, nursery, send.clone())
        async for pull, within in receive:
            async with aclosing(messages.of(pull, within)) as readable:
                async for message in readable:
                    click.echo(form(message))
                    printed += 1
                    if printed == wanted.limit:
                        nursery.cancel_scope.cancel()
                        break
            if printed == wanted.limit:
                break
    say_unreadable(messages.unreadable, ())
    if not printed and not messages.unreadable:
        click.echo(_nothing(topic, wanted, sum(bound.end - bound.start for bound in bounds.values())), err=True)


async def _stored(
    consumer: PullConsumer, queues: Iterable[MessageQueue], wanted: Wanted
) -> Mapping[MessageQueue, int | None]:
    return await consumer.committed_offsets(queues) if wanted.group is not None else {}


async def _begins(
    consumer: PullConsumer,
    bounds: Mapping[MessageQueue, OffsetRange],
    wanted: Wanted,
    stored: Mapping[MessageQueue, int | None],
) -> dict[MessageQueue, int]:
    begins: dict[MessageQueue, int] = {}
    for queue, bound in bounds.items():
        offset = stored.get(queue)
        if wanted.offset is not None:
            offset = wanted.offset if wanted.offset >= 0 else bound.end + wanted.offset
        if offset is not None:
            begins[queue] = min(max(offset, bound.start), bound.end)
            if offset != begins[queue] and wanted.offset != offset - bound.end:
                click.echo(
                    f"{queue.broker_name}/{queue.queue_id} has the offsets {bound.start} to {bound.end - 1}, not "
                    f"{offset}: reading begins at {begins[queue]}",
                    err=True,
                )
        elif isinstance(wanted.start, datetime):
            begins[queue] = await consumer.offset_at(queue, wanted.start)
        else:
            begins[queue] = bound.start if wanted.start == "earliest" else bound.end
    return begins


class _Messages:
    """A decoder of pulled messages, one at a time. It prints and counts records that cannot be decoded."""

    def __init__(self, wanted: Wanted) -> None:
        from pyrmq_core.client.consumer.group.subscriptions import filter_of
        from pyrmq_core.filtering.tags import TagFilter

        self._filter = tags if isinstance(tags := filter_of(wanted.tags, wanted.sql), TagFilter) else TagFilter()
        self._fails = wanted.on_undecodable == "fail"
        self.unreadable = 0

    async def of(self, pull: RawPull, within: OffsetRange) -> AsyncGenerator[MessageExt, None]:
        """Yields the messages of a pull in an offset range.

        With `--on-undecodable fail` raises the error of a record that cannot be decoded.
        """
        from pyrmq_core.client.unpacking import in_steps
        from pyrmq_core.protocol.messages.readable import UnreadableRecord, iterate_readable

        steps: AsyncGenerator[list[Readable], None] = in_steps(iterate_readable(pull, within), self._keep)
        async with aclosing(steps) as lists:
            async for items in lists:
                for item in items:
                    if not isinstance(item, UnreadableRecord):
                        yield item
                        continue
                    if self._fails:
                        raise item.error
                    self.unreadable += 1
                    click.echo(visible_text(f"a record cannot be read and is passed over: {item.error}"), err=True)

    def _keep(self, item: Readable) -> Readable | None:
        return item if not isinstance(item, MessageExt) or self._filter.matches(item.tags) else None


class _Reader:
    """The reader of all queues, with a task for each. It reports an unreachable broker once for all its queues."""

    def __init__(self, consumer: PullConsumer, wanted: Wanted) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._away: set[str] = set()

    async def read(
        self, queue: MessageQueue, offset: int, end: int | None, channel: trio.MemorySendChannel[Part]
    ) -> None:
        async with channel:
            while end is None or offset < end:
                pulled = await (self._pull(queue, offset) if end is not None else self._pull_patiently(queue, offset))
                following = max(offset, pulled.next_offset)
                await channel.send((pulled, OffsetRange(offset, following if end is None else min(end, following))))
                offset = pulled.next_offset
                if end is not None and pulled.status is PullStatus.NO_NEW_MSG:
                    return

    async def read_later_queues(
        self,
        topic: str,
        first_queues: Iterable[MessageQueue],
        began: datetime,
        nursery: trio.Nursery,
        channel: trio.MemorySendChannel[Part],
    ) -> None:
        """Starts a reader for each queue that the topic gets after the start of the command.

        If the command reads from the ends of queues, such a reader begins with the messages stored since `began`, so
        that none is missed.
        """
        import trio

        from pyrmq_core.client.consumer.pull.range_reader import passes
        from pyrmq_core.tools.search.ranges import check_sql, is_named

        seen, wanted = set(first_queues), self._wanted
        from_end = wanted.offset is not None and wanted.offset < 0
        if wanted.start == "latest" or from_end:
            wanted = replace(wanted, start=began, offset=None if from_end else wanted.offset)
        async with channel:
            while True:
                await trio.sleep(LOOK_SECONDS)
                try:
                    there = (await self._consumer.current_queues([topic]))[topic] or ()
                    added = [queue for queue in there if queue not in seen and is_named(queue, wanted.queues)]
                    await check_sql(self._consumer, added, wanted.sql)
                    bounds = await self._consumer.offset_bounds(added)
                    stored = await _stored(self._consumer, bounds, wanted)
                    begins = await _begins(self._consumer, bounds, wanted, stored)
                except (NetworkError, RoutingError, ResponseError) as error:
                    if not passes(error):
                        raise
                    continue  # looks again after the next pause
                for queue in added:
                    seen.add(queue)
                    nursery.start_soon(self.read, queue, begins[queue], None, channel.clone())

    async def _pull(self, queue: MessageQueue, offset: int, wait: float = 0.0) -> RawPull:
        wanted = self._wanted
        from pyrmq_core.client.consumer.pull_consumer import raw_pull

        return await raw_pull(self._consumer, queue, offset, tags=wanted.tags, sql=wanted.sql, wait=wait)

    async def _pull_patiently(self, queue: MessageQueue, offset: int) -> RawPull:
        import trio

        from pyrmq_core.client.consumer.pull.range_reader import passes

        while True:
            try:
                wait = 0.0 if queue.broker_name in self._away else WAIT_SECONDS
                pulled = await self._pull(queue, offset, wait)
            except (NetworkError, RoutingError, ResponseError) as error:
                if not passes(error):
                    raise
                if queue.broker_name not in self._away:
                    self._away.add(queue.broker_name)
                    away = f"{queue.broker_name} is away, trying again until it is back: {error}"
                    click.echo(visible_text(away), err=True)
                await trio.sleep(RETRY_SECONDS)
                with contextlib.suppress(RocketMQError):  # the broker may come back at another address
                    await self._consumer.current_queues([queue.topic])
            else:
                if queue.broker_name in self._away:
                    self._away.remove(queue.broker_name)
                    click.echo(f"{queue.broker_name} is back", err=True)
                return pulled


def _nothing(topic: str, wanted: Wanted, held: int) -> str:
    what = f"topic {topic}" if not wanted.queues else f"--queue {' --queue '.join(wanted.queues)} of topic {topic}"
    if not held:
        return f"{what} holds no messages; -f waits for some"
    if wanted.group is not None:
        return (
            f"{what} holds {held} messages, none of them after the offsets of group {wanted.group}{_filtered(wanted)}"
        )
    if wanted.offset is not None:
        return f"{what} holds {held} messages, none of them from offset {wanted.offset} on{_filtered(wanted)}"
    if wanted.start == "latest":
        return f"{what} holds {held} messages and none is after its latest: --from earliest prints them, -f waits"
    where = "" if wanted.start == "earliest" else f" from {wanted.start} on"
    return f"{what} holds {held} messages, none of them{where}{_filtered(wanted)}"


def _filtered(wanted: Wanted) -> str:
    if wanted.sql is not None:
        return f" where {wanted.sql}"
    return "" if wanted.tags == "*" else f" with the tags {wanted.tags}"
