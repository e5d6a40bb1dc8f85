"""A broker's answers from plain lists: it stores sends and returns them to pulls, as far as clients can see.

Used behind a `ScriptedServer`, whose steps then cause the failure that a test wants.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio

from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.messages.batch import iterate_batch_body
from pyrmq_core.protocol.messages.message_id import offset_msg_id
from pyrmq_core.protocol.messages.properties import UNIQ_KEY, decode_properties
from pyrmq_core.protocol.messages.record import encode_record
from pyrmq_core.protocol.requests.broker.consumer_offsets import QueryConsumerOffset, UpdateConsumerOffset
from pyrmq_core.protocol.requests.broker.offsets import GetMaxOffset, GetMinOffset, OffsetFound, SearchOffset
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage, PullSysFlag
from pyrmq_core.protocol.requests.broker.send_message import MessageStored, SendMessage

HOST = "127.0.0.1:10911"
FIRST_STORE_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Stored:
    """One message as it was sent, and its store time by the broker's clock: a millisecond each."""

    body: bytes
    properties: str
    sys_flag: int
    flag: int
    store_ms: int

    @property
    def unique_id(self) -> str:
        return decode_properties(self.properties).get(UNIQ_KEY, "")

    @property
    def tags(self) -> str | None:
        return decode_properties(self.properties).get("TAGS")


class MemoryBroker:
    """Queues as lists. A queue's list begins at `first_offset`; a pull gets at most `pull_cap` messages."""

    def __init__(self, name: str, *, pull_cap: int = 32) -> None:
        self.name = name
        self.pull_cap = pull_cap
        self.queues: defaultdict[tuple[str, int], list[Stored]] = defaultdict(list)
        self.first_offset: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.committed: dict[tuple[str, str, int], int] = {}
        self.groups: set[str] | None = None  # with a set, 15 refuses groups that are not in it, as 5.x does
        self.on_topic: Callable[[str, int], None] | None = None  # called for each send: topic, queues to create
        self._arrived = trio.Event()

    def __call__(self, request: Command, peer: Peer) -> Command | Awaitable[Command | None] | None:
        match request.code:
            case RequestCode.SEND_MESSAGE_V2 | RequestCode.SEND_BATCH_MESSAGE:
                return self.store(SendMessage.from_command(request))
            case RequestCode.PULL_MESSAGE:
                return self.pull(PullMessage.from_command(request))
            case RequestCode.GET_MAX_OFFSET:
                most = GetMaxOffset.from_command(request)
                return OffsetFound(self.max_offset((most.topic, most.queue_id))).to_command()
            case RequestCode.GET_MIN_OFFSET:
                least = GetMinOffset.from_command(request)
                return OffsetFound(self.first_offset[least.topic, least.queue_id]).to_command()
            case RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
                return self.search(SearchOffset.from_command(request))
            case RequestCode.QUERY_CONSUMER_OFFSET | RequestCode.UPDATE_CONSUMER_OFFSET:
                return self.offsets_of_group(request)
            case RequestCode.HEART_BEAT | RequestCode.UNREGISTER_CLIENT:
                return success()
            case RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG:
                if self.groups is not None:
                    self.groups.add(request.ext["group"])
                return success()
            case _:
                return refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported")

    def put(self, topic: str, queue_id: int, body: bytes, properties: str = "", sys_flag: int = 0) -> int:
        """Stores one message and returns its offset."""
        key = (topic, queue_id)
        self.queues[key].append(Stored(body, properties, sys_flag, 0, FIRST_STORE_MS + len(self.queues[key])))
        arrived, self._arrived = self._arrived, trio.Event()
        arrived.set()
        return self.max_offset(key) - 1

    def max_offset(self, key: tuple[str, int]) -> int:
        return self.first_offset[key] + len(self.queues[key])

    def store(self, sent: SendMessage) -> Command:
        if self.on_topic is not None:
            self.on_topic(sent.topic, sent.default_topic_queue_nums)
        queue_id = max(0, sent.queue_id)
        if sent.batch:
            items = [(bytes(item.body), item.properties.decode()) for item in iterate_batch_body(sent.body)]
        else:
            items = [(bytes(sent.body), sent.properties or "")]
        offsets = [self.put(sent.topic, queue_id, body, properties, sent.sys_flag) for body, properties in items]
        return MessageStored(
            msg_ids=",".join(offset_msg_id(b"\x7f\0\0\1", 10911, offset) for offset in offsets),
            queue_id=queue_id,
            queue_offset=offsets[0],
        ).to_command()

    def pull(self, requested: PullMessage) -> Command | Awaitable[Command | None]:
        answer = self.answer_pull(requested)
        hold = requested.sys_flag & PullSysFlag.SUSPEND and answer.code == ResponseCode.PULL_NOT_FOUND
        return self._hold(requested) if hold else answer

    def answer_pull(self, requested: PullMessage) -> Command:
        key = (requested.topic, requested.queue_id)
        first, end, offset = self.first_offset[key], self.max_offset(key), requested.queue_offset
        if offset < first or offset > end:
            return _pulled(ResponseCode.PULL_OFFSET_MOVED, first if offset < first else end, first, end)
        if offset == end:
            return _pulled(ResponseCode.PULL_NOT_FOUND, offset, first, end)
        tags = TagFilter.parse(requested.subscription)
        records: list[bytes] = []
        while offset < end and len(records) < min(max(1, requested.max_msg_nums), self.pull_cap):
            message = self.queues[key][offset - first]
            if tags.matches(message.tags):
                records.append(self._record(key, offset, message))
            offset += 1
        code = ResponseCode.SUCCESS if records else ResponseCode.PULL_RETRY_IMMEDIATELY
        return _pulled(code, offset, first, end, b"".join(records))

    def search(self, requested: SearchOffset) -> Command:
        """Returns the offset of LOWER in 5.x: the first at or after the time, else the end."""
        key = (requested.topic, requested.queue_id)
        older = sum(message.store_ms < requested.timestamp_ms for message in self.queues[key])
        return OffsetFound(self.first_offset[key] + older).to_command()

    def offsets_of_group(self, request: Command) -> Command:
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            update = UpdateConsumerOffset.from_command(request)
            if self.groups is not None and update.consumer_group not in self.groups:
                return refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no such group")
            self.committed[update.consumer_group, update.topic, update.queue_id] = update.commit_offset
            return success()
        query = QueryConsumerOffset.from_command(request)
        offset = self.committed.get((query.consumer_group, query.topic, query.queue_id))
        if offset is None:
            return refusal(ResponseCode.QUERY_NOT_FOUND, "Not found, maybe this group boot first")
        return OffsetFound(offset).to_command()

    async def _hold(self, requested: PullMessage) -> Command:
        with trio.move_on_after(requested.suspend_timeout_ms / 1000):
            while self.max_offset((requested.topic, requested.queue_id)) <= requested.queue_offset:
                await self._arrived.wait()
        return self.answer_pull(requested)

    def _record(self, key: tuple[str, int], offset: int, message: Stored) -> bytes:
        return encode_record(
            topic=key[0],
            queue_id=key[1],
            queue_offset=offset,
            commit_log_offset=offset * 1000,
            body=message.body,
            properties=message.properties,
            born_timestamp_ms=message.store_ms,
            born_host=HOST,
            store_timestamp_ms=message.store_ms,
            store_host=HOST,
            flag=message.flag,
            sys_flag=message.sys_flag,
        )


def _pulled(code: int, next_offset: int, first: int, end: int, records: bytes = b"") -> Command:
    return PullAnswer(
        code=code, next_begin_offset=next_offset, min_offset=first, max_offset=end, records=records
    ).to_command()
