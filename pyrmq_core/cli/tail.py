"""`pyrmq tail`: all queues of a topic, each read by a task of its own; messages are printed as they come.

With `--follow` a reader outlives its broker: it reports the loss once, and goes on at its offset when the broker is
back.
"""

from __future__ import annotations

import contextlib
import json
from datetime import datetime
from typing import Final

import click
import trio

from pyrmq_core import MessageExt, MessageQueue, PullConsumer, PullResult, PullStatus, RocketMQError
from pyrmq_core.client.consumer.pull.range_reader import passes
from pyrmq_core.errors import NetworkError, ResponseError, RoutingError

WAIT_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 1.0
READ_AHEAD_MESSAGES: Final = 256


async def tail_topic(
    consumer: PullConsumer,
    topic: str,
    start: str | datetime,
    *,
    tags: str,
    limit: int | None,
    follow: bool,
    as_json: bool,
) -> None:
    """Prints the messages that were there at the start, `limit` at most; with `follow` also those that come later."""
    queues = await consumer.message_queues(topic)
    bounds = await consumer.offset_bounds(queues)
    send, receive = trio.open_memory_channel[MessageExt](READ_AHEAD_MESSAGES)
    reader = _Reader(consumer, tags)
    printed = 0
    async with trio.open_nursery() as nursery:
        async with send:
            for queue in queues:
                first = await _position(consumer, queue, start, bounds[queue].start, bounds[queue].end)
                end = None if follow else bounds[queue].end
                nursery.start_soon(reader.read, queue, first, end, send.clone())
        async for message in receive:
            click.echo(message_line(message, as_json))
            printed += 1
            if printed == limit:
                nursery.cancel_scope.cancel()
                break
    if not printed:
        click.echo(_nothing(topic, start, tags, sum(bound.end - bound.start for bound in bounds.values())), err=True)


async def _position(consumer: PullConsumer, queue: MessageQueue, start: str | datetime, low: int, high: int) -> int:
    if isinstance(start, datetime):
        return await consumer.offset_at(queue, start)
    return low if start == "earliest" else high


class _Reader:
    """The reader of all queues, whose tasks share the brokers that are away, so that each is reported once."""

    def __init__(self, consumer: PullConsumer, tags: str) -> None:
        self._consumer = consumer
        self._tags = tags
        self._away: set[str] = set()

    async def read(
        self, queue: MessageQueue, offset: int, end: int | None, channel: trio.MemorySendChannel[MessageExt]
    ) -> None:
        """Sends one queue's messages up to `end` to the channel; for ever if it is None."""
        async with channel:
            while end is None or offset < end:
                if end is None:
                    pulled = await self._pull_until_answered(queue, offset)
                else:
                    pulled = await self._consumer.pull(queue, offset, tags=self._tags)
                for message in pulled.messages:
                    if end is None or message.queue_offset < end:
                        await channel.send(message)
                offset = pulled.next_offset
                if end is not None and pulled.status is PullStatus.NO_NEW_MSG:
                    return

    async def _pull_until_answered(self, queue: MessageQueue, offset: int) -> PullResult:
        """Pulls, again and again while the broker is away; raises errors that do not pass by themselves."""
        while True:
            try:
                pulled = await self._consumer.pull(queue, offset, tags=self._tags, wait=self._wait(queue))
            except (NetworkError, RoutingError, ResponseError) as error:
                if not passes(error):
                    raise
                if queue.broker_name not in self._away:
                    self._away.add(queue.broker_name)
                    click.echo(f"{queue.broker_name} is away, trying again until it is back: {error}", err=True)
                await trio.sleep(RETRY_SECONDS)
                with contextlib.suppress(RocketMQError):  # it may come back at another address
                    await self._consumer.current_queues([queue.topic])
            else:
                if queue.broker_name in self._away:
                    self._away.remove(queue.broker_name)
                    click.echo(f"{queue.broker_name} is back", err=True)
                return pulled

    def _wait(self, queue: MessageQueue) -> float:
        """Returns how long a pull may wait; 0 for a broker that was away, so that its return shows at once."""
        return 0.0 if queue.broker_name in self._away else WAIT_SECONDS


def _nothing(topic: str, start: str | datetime, tags: str, held: int) -> str:
    """Returns the reason why nothing was printed."""
    if not held:
        return f"topic {topic} holds no messages; -f waits for some"
    if start == "latest":
        return (
            f"topic {topic} holds {held} messages and none is after its latest: --from earliest prints them, -f waits"
        )
    where = "" if start == "earliest" else f" from {start} on"
    tagged = "" if tags == "*" else f" with the tags {tags}"
    return f"topic {topic} holds {held} messages, none of them{where}{tagged}"


def message_line(message: MessageExt, as_json: bool) -> str:
    """Returns the line of a message: its place, tags, keys and body, or one JSON object."""
    body = message.body.decode(errors="replace")
    if not as_json:
        marks = " ".join(mark for mark in (message.tags, message.keys) if mark)
        return f"{message.broker_name}/{message.queue_id}@{message.queue_offset} {marks + ' ' if marks else ''}{body}"
    return json.dumps(
        {
            "topic": message.topic,
            "brokerName": message.broker_name,
            "queueId": message.queue_id,
            "queueOffset": message.queue_offset,
            "msgId": message.msg_id,
            "tags": message.tags,
            "keys": message.keys,
            "storeTimestamp": message.store_timestamp.isoformat(),
            "properties": dict(message.properties),
            "body": body,
        },
        ensure_ascii=False,
    )
