"""Sends the rows of Arrow record batches as messages, encoded by columns.

Arrow's types are annotated as `Any`, so that `pyarrow` is imported only when rows are sent.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeAlias

import trio

from pyrmq_core.client.arrow_library import columnar
from pyrmq_core.client.producer.bulk.send_window import SendWindow, WriteSummary, open_send_window
from pyrmq_core.client.producer.message_encoder import MessageEncoder
from pyrmq_core.client.producer.send.send_options import ANY_QUEUE, KeyedQueue, Target, ThisQueue
from pyrmq_core.client.producer.send.sender import Sender
from pyrmq_core.client.routing.publish_info import TopicPublishInfo
from pyrmq_core.client.unique_ids import unique_id_runs
from pyrmq_core.errors import BatchFailed, InvalidMessage, Outcome, RocketMQError, SendFailed
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.messages.names import check_topic

REQUESTS_UNDER_WAY: Final = 4
BYTES_UNDER_WAY: Final = 16 * 1024 * 1024
COMPRESSING_THREADS: Final = 4

# By topic: the queues that one `send_rows` uses, and for each queue the one target of all sharding keys that belong to
# it. A window sends the payloads of one target one after another.
Lanes: TypeAlias = dict[str, tuple[TopicPublishInfo, dict[MessageQueue, KeyedQueue]]]


async def send_rows(
    sender: Sender,
    rows: Any,
    topic: str | None,
    *,
    queue: MessageQueue | None,
    encoding: MessageEncoder,
    timeout: float,
) -> WriteSummary:
    """Sends each row as a message, encoded by columns, with several requests at once.

    A request has up to 1 MiB and 4,000 messages, or any number of messages for a batch topic. If `topic` is None, the
    column `topic` names the topic of each row. Raises `InvalidMessage` for an invalid row before anything is sent, and
    `BatchFailed` if a request fails after others were stored.
    """
    arrow = columnar()
    arrow.check_columns(rows)
    if topic is not None and "topic" in rows.schema.names:
        rows = rows.drop_columns(["topic"])
    first = 0
    for batch in arrow.batches_of(rows):
        fault = arrow.first_fault(batch, encoding.max_message_bytes)
        if fault is not None:
            raise InvalidMessage(f"row {first + fault.row}, column {fault.column}: {fault.reason}")
        first += batch.num_rows
    limit = arrow.BatchLimit(
        compression=encoding.compression,
        compress_over_bytes=encoding.compress_over_bytes,
        max_message_bytes=encoding.max_message_bytes,
    )
    lanes: Lanes = {}
    async with open_send_window(
        sender, max_requests=REQUESTS_UNDER_WAY, max_bytes=BYTES_UNDER_WAY, timeout=timeout
    ) as window:
        try:
            for batch in arrow.batches_of(rows):  # the joined batches above are not kept, to save memory
                for name, topic_rows in arrow.by_topic(batch, topic):
                    await _send_topic(
                        sender, window, lanes, name, topic_rows, queue=queue, limit=limit, timeout=timeout
                    )
            return await window.drain()
        except RocketMQError as error:
            raise await _failed(error, window, first) from error


async def _send_topic(
    sender: Sender,
    window: SendWindow,
    lanes: Lanes,
    topic: str,
    rows: Any,
    *,
    queue: MessageQueue | None,
    limit: Any,
    timeout: float,
) -> None:
    arrow = columnar()
    check_topic(topic)
    if not rows.num_rows:
        return
    is_batch_topic = await sender.is_batch_topic(topic, timeout=timeout)
    if queue is not None or "shardingKey" not in rows.schema.names:
        to = ANY_QUEUE if queue is None else ThisQueue(queue)
        await _send_in_order(window, topic, rows, to, limit, is_batch_topic=is_batch_topic)
        return
    if topic not in lanes:
        lanes[topic] = await sender.publish_info(topic, timeout=timeout), {}
    info, targets = lanes[topic]
    for key, key_rows in arrow.by_queue(rows, max(1, len(info.keyed_queues))):
        keyed: Target = ANY_QUEUE
        if key is not None:
            queue_of_key = info.queue_of_key(key)
            keyed = targets.setdefault(queue_of_key, KeyedQueue(key, (queue_of_key,)))
        await _send_in_order(window, topic, key_rows, keyed, limit, is_batch_topic=is_batch_topic)


async def _send_in_order(
    window: SendWindow, topic: str, rows: Any, to: Target, limit: Any, *, is_batch_topic: bool
) -> None:
    arrow = columnar()
    if is_batch_topic:  # a request for a batch topic has one tag and no compression
        for tag_rows in arrow.by_tag(rows):
            for part in arrow.outgoing_parts(tag_rows):
                for payload in arrow.encode_rows(part, topic, unique_id_runs, limit.of_batch_topic(), single_tag=True):
                    await window.put(payload, to)
        return
    if not arrow.compresses(rows, limit):
        for part in arrow.outgoing_parts(rows):
            for payload in arrow.encode_rows(part, topic, unique_id_runs, limit):
                await window.put(payload, to)
        return
    with ThreadPoolExecutor(COMPRESSING_THREADS, "pyrmq-compress") as threads:
        for part in arrow.outgoing_parts(rows):
            payloads = arrow.encode_rows(part, topic, unique_id_runs, limit, compress_all=threads.map)
            while (payload := await trio.to_thread.run_sync(next, payloads, None)) is not None:
                await window.put(payload, to)


async def _failed(error: RocketMQError, window: SendWindow, rows: int) -> RocketMQError:
    with suppress(RocketMQError):
        await window.drain()
    stored = window.summary.messages
    if not isinstance(error, SendFailed) or not stored:
        return error
    return BatchFailed(
        f"{stored} of {rows} rows are stored, then a request failed (error.parts[0] says where they are). {error}",
        outcome=Outcome.PERHAPS_STORED,
        attempts=error.attempts,
        parts=[window.summary, error],
    )
