"""`pyrmq consume`: joins a consumer group, prints each message, and acknowledges it after printing."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from pyrmq_core import ConsumeFromWhere
from pyrmq_core.protocol.messages.names import TOOLS_GROUP
from pyrmq_core.tools.cli.connections import Connection, connection_options
from pyrmq_core.tools.cli.formats import MessageLine, form_options
from pyrmq_core.tools.cli.name_completion import group_names, topic_names
from pyrmq_core.tools.cli.servers import SectionedCommand, run
from pyrmq_core.tools.cli.tail import Start, start_of

if TYPE_CHECKING:
    from pyrmq_core import PushConsumer

# The interval at which the consumer is checked for a lasting error, such as a wrong key.
LOOK_SECONDS: Final = 0.5


@click.command(cls=SectionedCommand)
@click.argument("topic", shell_complete=topic_names)
@connection_options
@click.option(
    "-g",
    "--group",
    required=True,
    help="The consumer group, whose members share the messages.",
    shell_complete=group_names,
)
@click.option(
    "--from", "start", callback=start_of, default="latest", show_default=True,
    help="The start without a stored offset: earliest, latest, or a time.",
)  # fmt: skip
@click.option("--tags", help='As "TagA || TagB".')
@click.option("--sql", help="An SQL92 expression over properties, instead of --tags.")
@click.option("--orderly", is_flag=True, help="Lock each queue, and consume its messages in order.")
@click.option("--max", "limit", type=click.IntRange(1), help="Stop after this many messages.")
@form_options
def consume(
    topic: str,
    connection: Connection,
    form: MessageLine,
    group: str,
    start: Start,
    tags: str | None,
    sql: str | None,
    orderly: bool,
    limit: int | None,
) -> None:
    """Print a group's messages and acknowledge them, until Ctrl-C."""
    if tags and sql:
        raise click.UsageError("--tags and --sql exclude each other; SQL can say TAGS = '...' itself")

    async def consume_all() -> None:
        await consume_topic(
            topic, group, connection, form, start=start, tags=tags or "*", sql=sql, orderly=orderly, limit=limit
        )

    run(consume_all)


async def consume_topic(
    topic: str,
    group: str,
    connection: Connection,
    form: MessageLine,
    *,
    start: Start,
    tags: str,
    sql: str | None,
    orderly: bool,
    limit: int | None,
) -> None:
    """Prints messages as a member of the group, up to `limit`. Raises `NoRoute` if the topic does not exist."""
    from pyrmq_core import PullConsumer, PushConsumer
    from pyrmq_core.network import open_owned_nursery

    shared: dict[str, Any] = {"namespace": connection.namespace, "timeout": connection.timeout}
    async with connection.client() as client:
        shared["client"] = client
        async with PullConsumer(TOOLS_GROUP, **shared) as lookups:
            await lookups.message_queues(topic)  # raises if the topic is missing: a push consumer would wait for it
        # One message at a time, so that other members get the messages that are not printed.
        async with PushConsumer(group, consume_threads=1, **shared, **_start(start)) as consumer:
            await consumer.subscribe(topic, tags=tags, sql=sql)
            printed = 0
            async with open_owned_nursery() as nursery:
                nursery.start_soon(_end_at_a_refusal, consumer)
                async for delivery in consumer.deliveries(orderly=orderly):
                    async with delivery as message:
                        click.echo(form(message))
                    printed += 1
                    if printed == limit:
                        await consumer.stop()
                nursery.cancel_scope.cancel()


async def _end_at_a_refusal(consumer: PushConsumer) -> None:
    """Waits until the consumer reports a lasting error, such as a wrong key or a missing group, and raises it."""
    import trio

    while True:
        await trio.sleep(LOOK_SECONDS)
        for problem in consumer.problems:
            if problem.is_lasting:
                raise problem.error


def _start(start: Start) -> dict[str, Any]:
    if isinstance(start, datetime):
        return {"consume_from_where": ConsumeFromWhere.TIMESTAMP, "consume_timestamp": start}
    earliest = start == "earliest"
    return {"consume_from_where": ConsumeFromWhere.FIRST_OFFSET if earliest else ConsumeFromWhere.LAST_OFFSET}
