"""The entries of a queue as they are on disk: QUERY_CONSUME_QUEUE (321).

Source: broker/processor/AdminBrokerProcessor.java queryConsumeQueue (5.4.0).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from pyrmq_core.broker.broker import Answer, Broker
from pyrmq_core.broker.processors.long_answers import answer_in_turns, separated
from pyrmq_core.broker.store.batch_queue import BatchEntry
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.requests.broker.group_admin import QueryConsumeQueue


def queue_entries(broker: Broker, request: Command, _: Peer) -> Answer:
    """Returns `count` entries from `index` on, the queue's bounds, and the subscription and filter of a group."""
    header = QueryConsumeQueue.from_command(request)
    key = (header.topic, header.queue_id)
    if broker.store.queues.get(key) is None:
        remark = f"{header.queue_id}@{header.topic} is not exist!"
        return refusal(ResponseCode.SYSTEM_ERROR, remark)
    start, end = broker.store.bounds(key)
    if not start <= header.index < end:
        remark = f"Index {header.index} of {header.queue_id}@{header.topic} is not exist!"
        return Command(success().code, remark=remark)
    return answer_in_turns(broker.long_work, _pieces(broker, header, start, end))


def _pieces(broker: Broker, header: QueryConsumeQueue, start: int, end: int) -> Iterator[bytes]:
    yield b"{" + _filter_members(broker, header) + b'"maxQueueIndex":%d,"minQueueIndex":%d,"queueData":[' % (end, start)
    yield from separated(_rows(broker, header, min(end, header.index + max(0, header.count))))
    yield b"]}"


def _rows(broker: Broker, header: QueryConsumeQueue, end: int) -> Iterator[bytes]:
    offset = header.index
    while offset < end:
        entry = broker.store.entry((header.topic, header.queue_id), offset)
        yield dumps(
            {
                "eval": False,
                "physicOffset": entry.physical_offset,
                "physicSize": entry.size,
                "tagsCode": entry.tags_code,
            }
        )
        offset = entry.end if isinstance(entry, BatchEntry) else offset + 1


def _filter_members(broker: Broker, header: QueryConsumeQueue) -> bytes:
    if header.consumer_group is None:
        return b""
    subscription = broker.clients.subscription(header.consumer_group, header.topic)
    if subscription is None:
        absent = f"{header.consumer_group}@{header.topic} is not online!"
        return dumps({"filterData": absent})[1:-1] + b","
    text = json.dumps(broker.filters.members_of(header.consumer_group, header.topic), indent="\t", sort_keys=True)
    return dumps({"filterData": text, "subscriptionData": subscription.to_members()})[1:-1] + b","
