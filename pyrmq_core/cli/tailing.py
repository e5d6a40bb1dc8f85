"""`pyrmq tail`: all queues of a topic, each read by a task of its own, printed as they come."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Final

import click
import trio

from pyrmq_core import MessageExt, MessageQueue, PullConsumer, PullStatus

WAIT_SECONDS: Final = 5.0
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
    """Until what was there at the start is printed, or `limit` messages are, or for ever with `follow`."""
    queues = await consumer.message_queues(topic)
    bounds = await consumer.offset_bounds(queues)
    send, receive = trio.open_memory_channel[MessageExt](READ_AHEAD_MESSAGES)
    async with trio.open_nursery() as nursery:
        async with send:
            for queue in queues:
                first = await _position(consumer, queue, start, bounds[queue].start, bounds[queue].end)
                end = None if follow else bounds[queue].end
                nursery.start_soon(_read, consumer, queue, first, end, tags, send.clone())
        printed = 0
        async for message in receive:
            click.echo(_line(message, as_json))
            printed += 1
            if printed == limit:
                nursery.cancel_scope.cancel()
                break


async def _position(consumer: PullConsumer, queue: MessageQueue, start: str | datetime, low: int, high: int) -> int:
    if isinstance(start, datetime):
        return await consumer.offset_at(queue, start)
    return low if start == "earliest" else high


async def _read(
    consumer: PullConsumer,
    queue: MessageQueue,
    offset: int,
    end: int | None,
    tags: str,
    channel: trio.MemorySendChannel[MessageExt],
) -> None:
    async with channel:
        while end is None or offset < end:
            pulled = await consumer.pull(queue, offset, tags=tags, wait=WAIT_SECONDS if end is None else 0.0)
            for message in pulled.messages:
                await channel.send(message)
            offset = pulled.next_offset
            if end is not None and pulled.status is PullStatus.NO_NEW_MSG:
                return


def _line(message: MessageExt, as_json: bool) -> str:
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
