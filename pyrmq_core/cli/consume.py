"""`pyrmq consume`: takes part in a consumer group, and prints each message; what is printed is acknowledged."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from pyrmq_core import ConsumeFromWhere, PullConsumer, PushConsumer
from pyrmq_core.cli.connections import Connection
from pyrmq_core.cli.servers import GROUP
from pyrmq_core.cli.tail import message_line


async def consume_topic(
    topic: str,
    group: str,
    connection: Connection,
    *,
    start: str | datetime,
    tags: str,
    sql: str | None,
    orderly: bool,
    limit: int | None,
    as_json: bool,
) -> None:
    """Prints the messages that the group gives to this consumer, `limit` at most; raises `NoRoute` without a topic."""
    shared: dict[str, Any] = {"namespace": connection.namespace, "timeout": connection.timeout}
    async with connection.client() as client:
        shared["client"] = client
        async with PullConsumer(GROUP, **shared) as lookups:
            await lookups.message_queues(topic)  # a push consumer waits until a topic has a route
        # One at a time: what is not printed is left to the other members.
        async with PushConsumer(group, consume_threads=1, **shared, **_start(start)) as consumer:
            await consumer.subscribe(topic, tags=tags, sql=sql)
            printed = 0
            async for delivery in consumer.deliveries(orderly=orderly):
                async with delivery as message:
                    click.echo(message_line(message, as_json))
                printed += 1
                if printed == limit:
                    await consumer.stop()


def _start(start: str | datetime) -> dict[str, Any]:
    """Returns the settings of a start that counts where the group has stored no offset."""
    if isinstance(start, datetime):
        return {"consume_from_where": ConsumeFromWhere.TIMESTAMP, "consume_timestamp": start}
    earliest = start == "earliest"
    return {"consume_from_where": ConsumeFromWhere.FIRST_OFFSET if earliest else ConsumeFromWhere.LAST_OFFSET}
