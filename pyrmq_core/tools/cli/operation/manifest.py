"""`pyrmq topic manifest`: shows the queues of a manifest, the topic in which committed writes record their batches.

A manifest should have one queue, at one broker. A second one exists if it was created by hand, or if the NameServers
lost the name of its broker while that was unreachable. The queue with the oldest record is valid. With `--heal`, the
batches that the other queues record are committed in the valid queue, and the other queues are removed.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from pyrmq_core.model import MessageQueue, OffsetRange
from pyrmq_core.protocol.messages.names import TOOLS_GROUP
from pyrmq_core.tools.cli.connections import Connection, connection_options
from pyrmq_core.tools.cli.operation.topics import topic
from pyrmq_core.tools.cli.servers import run
from pyrmq_core.tools.cli.tables import json_option, show
from pyrmq_core.tools.cli.times import iso_time

if TYPE_CHECKING:
    from pyrmq_core import Admin, Commit, Producer, PullConsumer

COLUMNS: Final = ("brokerName", "queueId", "records", "oldest", "counts")
PAUSE_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Parts:
    """The name of a manifest topic, and the clients with which it is read and changed."""

    manifest: str
    admin: Admin
    consumer: PullConsumer
    producer: Producer


@topic.command()
@click.argument("name", metavar="MANIFEST")
@connection_options
@click.option(
    "--heal", is_flag=True, help="Leave the one that counts, with the others' batches, and restore its entries."
)
@json_option
def manifest(name: str, connection: Connection, heal: bool, as_json: bool) -> None:
    """Show the queues of a manifest, a topic that records committed writes, and which one counts."""

    async def work() -> None:
        from pyrmq_core import with_namespace

        async with _parts(connection, with_namespace(name, connection.namespace)) as parts:
            rows = await _rows(parts)
            counting = next((queue for queue, row in rows.items() if row["counts"]), None)
            if counting is None:
                raise click.ClickException(f"{name} has no queue; the next committed write makes it, once it may")
            if not heal:
                show(rows.values(), COLUMNS, as_json=as_json)
                return
            committed, repeats = await _heal(parts, counting, [queue for queue in rows if queue != counting])
            show((await _rows(parts)).values(), COLUMNS, as_json=as_json)
            if not as_json:
                click.echo(f"{committed} batches were taken over, {repeats} were repeats and are left out")

    run(work)


@asynccontextmanager
async def _parts(connection: Connection, manifest: str) -> AsyncIterator[Parts]:
    from pyrmq_core import Admin, Producer, PullConsumer

    async with (
        connection.client() as client,
        Admin(client=client, timeout=connection.timeout) as admin,
        PullConsumer(TOOLS_GROUP, client=client, timeout=connection.timeout) as consumer,
        Producer(TOOLS_GROUP, client=client, send_timeout=connection.timeout) as producer,
    ):
        yield Parts(manifest, admin, consumer, producer)


async def _rows(parts: Parts) -> dict[MessageQueue, dict[str, object]]:
    """Returns a table row for each queue of the manifest. `counts` is True for the valid queue."""
    queues = await parts.consumer.message_queues(parts.manifest)
    kept = await parts.consumer.offset_bounds(queues)
    order = await parts.admin.topics.order(parts.manifest) or {}
    oldest = {queue: await _oldest_ms(parts.consumer, queue, kept[queue]) for queue in queues}
    ranks = {queue: (oldest[queue], queue.broker_name not in order, queue) for queue in queues}
    counting = min(queues, key=ranks.__getitem__, default=None)
    return {
        queue: {
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "records": len(kept[queue]),
            "oldest": iso_time(datetime.fromtimestamp(oldest[queue] / 1000, UTC)) if len(kept[queue]) else None,
            "counts": queue == counting,
        }
        for queue in queues
    }


async def _oldest_ms(consumer: PullConsumer, queue: MessageQueue, kept: OffsetRange) -> float:
    if not len(kept):
        return float("inf")
    pulled = await consumer.pull(queue, kept.start, max_messages=1, verify_crc=False)
    return min((message.store_timestamp_ms for message in pulled.messages), default=float("inf"))


async def _heal(parts: Parts, counting: MessageQueue, others: list[MessageQueue]) -> tuple[int, int]:
    """Commits in the valid queue `counting` the batches that the queues `others` record, and removes `others`.

    Returns how many batches it committed, and how many were committed already.
    """
    from pyrmq_core.committed.ranges import MANIFEST_NAMESPACE, MANIFEST_SUFFIX

    if counting.queue_id:
        raise click.ClickException(f"the records are in queue {counting.queue_id}, and only queue 0 can be left alone")
    commits = [
        commit
        for queue in others
        for commit in (await parts.consumer.read_manifest(parts.manifest, queue=queue)).commits
    ]
    committed = [await _take_over(parts, counting, commit) for commit in commits]
    for broker_name in sorted({queue.broker_name for queue in others} | {counting.broker_name}):
        queues = 1 if broker_name == counting.broker_name else 0
        await parts.admin.create_topic(parts.manifest, queues=queues, broker=broker_name)
    await parts.admin.topics.set_order(parts.manifest, {counting.broker_name: 1})
    topic_name = await parts.admin.kv_value(MANIFEST_NAMESPACE, parts.manifest)
    of_topic = topic_name or parts.manifest.removesuffix(MANIFEST_SUFFIX)
    await parts.admin.topics.keep_manifest(parts.manifest, of_topic, counting.broker_name)
    return sum(committed), len(committed) - sum(committed)


async def _take_over(parts: Parts, counting: MessageQueue, commit: Commit) -> bool:
    import trio

    from pyrmq_core import commit_messages, next_record

    end = await parts.consumer.manifest_end(parts.manifest, queue=counting)
    record = next_record(
        commit.writer,
        commit.number,
        commit.ranges,
        commit=uuid.uuid4().hex,
        seen=end.end,
        decided=end.decided,
        without_decided=end.without_decided,
    )
    if record is None:
        return False
    for message in commit_messages(record, parts.manifest):
        result = await parts.producer.send(message, queue=counting)
    while True:
        if await parts.consumer.max_offset(counting) > result.queue_offset:
            return True
        await trio.sleep(PAUSE_SECONDS)
