"""Look-ups in the store: messages by key (12) and by their offset in the log (33), entries of a queue (321).

The index holds hashes, so an answer may have records of another key or topic, which clients leave out. A look-up by
unique key returns up to defaultQueryMaxNum messages, any other look-up up to maxMsgsNumBatch. Sources:
broker/processor/QueryMessageProcessor.java, AdminBrokerProcessor.java queryConsumeQueue, store/DefaultMessageStore.java
queryMessage (5.4.0).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.requests.broker.group_admin import QueryConsumeQueue
from pyrmq_core.protocol.requests.broker.query_message import MessagesFound, QueryMessage
from pyrmq_core.servers.broker.broker import Answer
from pyrmq_core.servers.broker.clients.client_table import ClientTable
from pyrmq_core.servers.broker.in_turns import BoundedWork
from pyrmq_core.servers.broker.processors.long_answers import answer_in_turns, separated
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.store.batch_queue import BatchEntry
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store.store_reader import StoreReader
from pyrmq_core.servers.broker.store_services.key_indexing import Found, KeyIndexing
from pyrmq_core.servers.broker.tables.consumer_filters import ConsumerFilters

OFFSET: Final = re.compile(r"-?[0-9]{1,19}")
NOT_FOUND: Final = "can not find message, maybe time range not correct"
BUSY: Final = "too many look-ups by key wait for their turn; try again later"
NOTHING: Final = Found([], (0, 0))
# The most bytes of records in an answer: a frame has at most 16 MiB.
MAX_ANSWER_BYTES: Final = 15 << 20


async def query_message(config: BrokerConfig, index: KeyIndexing, request: Command) -> Command:
    """Returns the newest records with a key, stored between two times, in the order of the log."""
    header = QueryMessage.from_command(request)
    most = config.default_query_max_num if header.by_unique_key else header.max_num
    if not config.index_file_read_enable:
        return _answer(NOTHING)
    key = (header.topic, header.key, None if header.by_unique_key else header.index_type)
    times_ms = (header.begin_ms, header.end_ms)
    records = await index.look_up(key, min(most, config.max_msgs_num_batch), times_ms, MAX_ANSWER_BYTES)
    return refusal(ResponseCode.SYSTEM_BUSY, BUSY) if records is None else _answer(records)


def _answer(result: Found) -> Command:
    answer = MessagesFound(*result.last_update, b"".join(result.records)).to_command()
    return answer if result.records else refusal(ResponseCode.QUERY_NOT_FOUND, NOT_FOUND, answer.ext)


def view_message(reader: StoreReader, request: Command) -> Command:
    """Returns the record that begins at an offset of the log."""
    text = request.ext.get("offset", "")
    if not OFFSET.fullmatch(text):
        return refusal(ResponseCode.INVALID_PARAMETER, f"field offset is {text[:80]!r}; a place in the log is a number")
    record = reader.record(int(text))
    if record is None:
        return refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {text}")
    return success(body=record)


def queue_entries(
    long_work: BoundedWork, store: MessageStore, clients: ClientTable, filters: ConsumerFilters, request: Command
) -> Answer:
    """Answers with the requested entries of a queue, its bounds, and the subscription and filter of a group."""
    header = QueryConsumeQueue.from_command(request)
    key = (header.topic, header.queue_id)
    if store.queues.get(key) is None:
        remark = f"{header.queue_id}@{header.topic} is not exist!"
        return refusal(ResponseCode.SYSTEM_ERROR, remark)
    start, end = store.reader.bounds(key)
    if not start <= header.index < end:
        remark = f"Index {header.index} of {header.queue_id}@{header.topic} is not exist!"
        return Command(success().code, remark=remark)
    return answer_in_turns(long_work, _pieces(store.reader, clients, filters, header, start, end))


def _pieces(
    reader: StoreReader,
    clients: ClientTable,
    filters: ConsumerFilters,
    header: QueryConsumeQueue,
    start: int,
    end: int,
) -> Iterator[bytes]:
    yield (
        b"{"
        + _filter_members(clients, filters, header)
        + b'"maxQueueIndex":%d,"minQueueIndex":%d,"queueData":[' % (end, start)
    )
    yield from separated(_rows(reader, header, min(end, header.index + max(0, header.count))))
    yield b"]}"


def _rows(reader: StoreReader, header: QueryConsumeQueue, end: int) -> Iterator[bytes]:
    offset = header.index
    while offset < end:
        entry = reader.entry((header.topic, header.queue_id), offset)
        yield dumps(
            {
                "eval": False,
                "physicOffset": entry.physical_offset,
                "physicSize": entry.size,
                "tagsCode": entry.tags_code,
            }
        )
        offset = entry.end if isinstance(entry, BatchEntry) else offset + 1


def _filter_members(clients: ClientTable, filters: ConsumerFilters, header: QueryConsumeQueue) -> bytes:
    if header.consumer_group is None:
        return b""
    subscription = clients.subscription(header.consumer_group, header.topic)
    if subscription is None:
        absent = f"{header.consumer_group}@{header.topic} is not online!"
        return dumps({"filterData": absent})[1:-1] + b","
    text = json.dumps(filters.members_of(header.consumer_group, header.topic), indent="\t", sort_keys=True)
    return dumps({"filterData": text, "subscriptionData": subscription.to_members()})[1:-1] + b","
