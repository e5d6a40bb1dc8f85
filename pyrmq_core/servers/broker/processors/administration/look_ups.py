"""Look-ups in the store: messages by key (12) and by log offset (33), and the entries of a queue (321).

The index has hashes of keys, so an answer may have records with another key, which clients drop. A look-up by unique
key returns up to defaultQueryMaxNum messages, any other up to maxMsgsNumBatch. Sources:
broker/processor/QueryMessageProcessor.java, AdminBrokerProcessor.java queryConsumeQueue, store/DefaultMessageStore.java
queryMessage (5.4.0).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.requests.broker.group_admin import QueryConsumeQueue
from pyrmq_core.protocol.requests.broker.query_message import MessagesFound, QueryMessage
from pyrmq_core.servers.broker.clients.client_table import ClientTable
from pyrmq_core.servers.broker.in_turns import BoundedWork
from pyrmq_core.servers.broker.processors.handlers import Answer, Handlers
from pyrmq_core.servers.broker.processors.long_answers import answer_in_turns, separated
from pyrmq_core.servers.broker.processors.name_rules import checked, group_fault, if_any, topic_fault
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.store.batch_queue import BatchEntry
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store_services.key_indexing import Found, KeyIndexing
from pyrmq_core.servers.broker.tables.consumer_filters import ConsumerFilters

OFFSET: Final = re.compile(r"-?[0-9]{1,19}")
NOT_FOUND: Final = "can not find message, maybe time range not correct"
BUSY: Final = "too many look-ups by key wait for their turn; try again later"
NOTHING: Final = Found([], (0, 0))
# The most bytes of records in an answer, since a frame has at most 16 MiB.
MAX_ANSWER_BYTES: Final = 15 << 20


@dataclass(frozen=True, slots=True)
class LookUpRequests:
    settings: LiveSettings
    store: MessageStore
    index: KeyIndexing
    clients: ClientTable
    filters: ConsumerFilters
    long_work: BoundedWork

    def handlers(self) -> Handlers:
        return {
            RequestCode.QUERY_MESSAGE: checked(self.query_message, topic=topic_fault),
            RequestCode.VIEW_MESSAGE_BY_ID: self.view_message,
            RequestCode.QUERY_CONSUME_QUEUE: checked(
                self.queue_entries, topic=topic_fault, consumerGroup=if_any(group_fault)
            ),
        }

    async def query_message(self, request: Command, _: Peer) -> Command:
        """Returns the newest records with a key that were stored between two times, in the order of the log."""
        header = QueryMessage.from_command(request)
        most = self.settings.config.default_query_max_num if header.by_unique_key else header.max_num
        if not self.settings.config.index_file_read_enable:
            return _answer(NOTHING)
        key = (header.topic, header.key, None if header.by_unique_key else header.index_type)
        times_ms = (header.begin_ms, header.end_ms)
        records = await self.index.look_up(
            key, min(most, self.settings.config.max_msgs_num_batch), times_ms, MAX_ANSWER_BYTES
        )
        return refusal(ResponseCode.SYSTEM_BUSY, BUSY) if records is None else _answer(records)

    def view_message(self, request: Command, _: Peer) -> Command:
        text = request.ext.get("offset", "")
        if not OFFSET.fullmatch(text):
            return refusal(
                ResponseCode.INVALID_PARAMETER, f"field offset is {text[:80]!r}; a place in the log is a number"
            )
        record = self.store.reader.record(int(text))
        if record is None:
            return refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {text}")
        return success(body=record)

    def queue_entries(self, request: Command, _: Peer) -> Answer:
        """Returns the requested entries of a queue, the queue's bounds, and a group's subscription and filter."""
        header = QueryConsumeQueue.from_command(request)
        key = (header.topic, header.queue_id)
        if self.store.queues.get(key) is None:
            remark = f"{header.queue_id}@{header.topic} is not exist!"
            return refusal(ResponseCode.SYSTEM_ERROR, remark)
        start, end = self.store.reader.bounds(key)
        if not start <= header.index < end:
            remark = f"Index {header.index} of {header.queue_id}@{header.topic} is not exist!"
            return Command(success().code, remark=remark)
        return answer_in_turns(self.long_work, self._pieces(header, start, end))

    def _pieces(self, header: QueryConsumeQueue, start: int, end: int) -> Iterator[bytes]:
        yield (
            b"{" + self._filter_members(header) + b'"maxQueueIndex":%d,"minQueueIndex":%d,"queueData":[' % (end, start)
        )
        yield from separated(self._rows(header, min(end, header.index + max(0, header.count))))
        yield b"]}"

    def _rows(self, header: QueryConsumeQueue, end: int) -> Iterator[bytes]:
        offset = header.index
        while offset < end:
            entry = self.store.reader.entry((header.topic, header.queue_id), offset)
            yield dumps(
                {
                    "eval": False,
                    "physicOffset": entry.physical_offset,
                    "physicSize": entry.size,
                    "tagsCode": entry.tags_code,
                }
            )
            offset = entry.end if isinstance(entry, BatchEntry) else offset + 1

    def _filter_members(self, header: QueryConsumeQueue) -> bytes:
        if header.consumer_group is None:
            return b""
        subscription = self.clients.subscription(header.consumer_group, header.topic)
        if subscription is None:
            absent = f"{header.consumer_group}@{header.topic} is not online!"
            return dumps({"filterData": absent})[1:-1] + b","
        text = json.dumps(self.filters.members_of(header.consumer_group, header.topic), indent="\t", sort_keys=True)
        return dumps({"filterData": text, "subscriptionData": subscription.to_members()})[1:-1] + b","


def _answer(result: Found) -> Command:
    answer = MessagesFound(*result.last_update, b"".join(result.records)).to_command()
    return answer if result.records else refusal(ResponseCode.QUERY_NOT_FOUND, NOT_FOUND, answer.ext)
