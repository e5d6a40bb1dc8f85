"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): checks a pull, reads its messages, or lets it wait for one.

Source: broker/processor/PullMessageProcessor.java (5.4.0), with its checks in its order, and its response codes.
Two things differ. After a reset of offsets, every pull of a group member is redirected to the new offset until the
member pulls there. RocketMQ redirects only a single pull of the group. Besides, a slave holds a pull at an offset that
only its master may have, for up to shortPollingTimeMills, since Java's clients would repeat it at once.

A pull selects the queue of a lite topic by the field `liteTopic`, or by using the queue's name as the topic. As in
5.5.0, its records have the queue and offset of the parent topic. In 5.5.0 a pull creates a queue of any name. Here no
pull creates one, and the parent topic must exist.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import trio

from pyrmq_core.network import LateAnswer, Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.protocol.messages.names import is_lite_queue, is_tools_group, owner_topic
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage, PullSysFlag
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.clients.client_table import ClientTable
from pyrmq_core.servers.broker.clients.held_pulls import MILLISECONDS, MOST_MS, HeldPull, HeldPulls, held_bytes
from pyrmq_core.servers.broker.processors.handlers import HELP, Answer, Handlers
from pyrmq_core.servers.broker.processors.name_rules import NO_LITE_QUEUES, lite_refusal
from pyrmq_core.servers.broker.processors.offsets import commit, may_commit_in, queue_topic
from pyrmq_core.servers.broker.processors.pulls.pull_advice import MOVES, is_unmoved, suggested_broker, unmoved
from pyrmq_core.servers.broker.processors.pulls.pull_filters import PullFilter, PullFilters, forbidden, get_filtered
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.statistics.figures import BrokerFigures
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store.reading import GetLimits, GetResult, GetStatus, QueueKey
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable
from pyrmq_core.servers.broker.tables.topics import READ, TopicTable

COMMIT_OFFSET: Final = int(PullSysFlag.COMMIT_OFFSET)
SUSPEND: Final = int(PullSysFlag.SUSPEND)
OFFSET_RESET: Final = "OFFSET_RESET"

CODES: Final[Mapping[GetStatus, ResponseCode]] = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
}
EMPTY: Final = (GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.NO_MATCHED_LOGIC_QUEUE)


@dataclass(frozen=True, slots=True)
class PullRequests:
    settings: LiveSettings
    filters: PullFilters
    topics: TopicTable
    groups: GroupTable
    offsets: GroupOffsets
    clients: ClientTable
    held: HeldPulls
    store: MessageStore
    figures: BrokerFigures

    def handlers(self) -> Handlers:
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.pull}

    def pull(self, request: Command, peer: Peer) -> Answer:
        header = PullMessage.from_command(request)
        refused = None if self.settings.config.keeps_lite_queues else lite_refusal(request, NO_LITE_QUEUES)
        chosen = refused or self._allowed(header, request.code, peer)
        if isinstance(chosen, Command):
            return chosen
        if (read := queue_topic(request, header.topic)) is not header.topic:
            header = replace(header, topic=read)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        offset = header.commit_offset
        if header.sys_flag & COMMIT_OFFSET and may_commit_in(self.store.reader, topic, queue_id, offset):
            commit(self.offsets, (group, topic, queue_id), offset, self.clients.members(group).get(peer))
        answer = self._moved(header, peer, header.queue_offset) or self._look(header, chosen)
        if header.sys_flag & SUSPEND and answer.code != ResponseCode.SUCCESS:
            size_bytes = held_bytes(request, chosen.tags_codes)
            if self.held.has_room(peer, size_bytes):
                if answer.code == ResponseCode.PULL_NOT_FOUND:
                    return _HeldPull(self, header, request.code, chosen, peer, size_bytes)
                if is_unmoved(self.settings.config, answer, header.queue_offset):
                    return self._wait_for_copy(header, request.code, peer, size_bytes)
        return answer

    def _allowed(self, header: PullMessage, code: int, peer: Peer) -> PullFilter | Command:
        """Returns the filter of a pull, or a refusal. A held pull is checked again when it is woken, as in RocketMQ."""
        refused = self._refuse(header, code, peer)
        if refused is not None:
            return refused
        is_lite = is_lite_queue(header.topic)
        return self.filters.filter_of(replace(header, topic=owner_topic(header.topic)) if is_lite else header)

    async def _wait_for_copy(self, header: PullMessage, code: int, peer: Peer, size_bytes: int) -> Command:
        """Waits a short time for this slave to copy the message at the pull's offset. Returns the pull's answer."""
        key, held_ms = (header.topic, header.queue_id), self.settings.config.short_polling_time_mills
        end = trio.current_time() + min(max(header.suspend_timeout_ms, 0), held_ms) / MILLISECONDS
        while (left := end - trio.current_time()) > 0:
            left_ms = math.ceil(left * MILLISECONDS)
            await self.held.wait(key, None, left_ms, peer, size_bytes, header.consumer_group)
            low, high = self.store.reader.bounds(key)
            if low <= header.queue_offset < high:
                break
        await peer.connection.wait_answer_turn()
        chosen = self._allowed(header, code, peer)
        if isinstance(chosen, Command):
            return chosen
        return self._moved(header, peer, None) or self._look(header, chosen)

    def _look(self, header: PullMessage, chosen: PullFilter) -> Command:
        config = self.settings.config
        limits = config.pull_limits
        most = GetLimits(min(header.max_msg_nums, limits.max_messages), limits.max_bytes, header.max_msg_nums)
        began = time.perf_counter_ns()
        key = header.topic, header.queue_id
        result = get_filtered(self.store.reader, key, header.queue_offset, most, chosen)
        result = unmoved(config, result, header.queue_offset)
        took_ms = (time.perf_counter_ns() - began) // 1_000_000
        self.figures.store.note_get(result.count, took_ms, is_tool=is_tools_group(header.consumer_group))
        if result.count:
            topic = owner_topic(header.topic)
            self.figures.note_get(
                topic, header.consumer_group, header.queue_id, result.count, len(result.records), took_ms
            )
        if may_commit_in(self.store.reader, *key):
            self.offsets.note_pull(header.consumer_group, header.topic, header.queue_id, result.next_offset)
        return PullAnswer(
            code=self._code(result, header.queue_offset),
            remark=result.status.name,
            next_begin_offset=result.next_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
            suggest_which_broker_id=suggested_broker(
                self.settings.config, self.groups, self.store.end, header.consumer_group, result
            ),
            records=result.records,
        ).to_command()

    def _moved(self, header: PullMessage, peer: Peer, offset: int | None) -> Command | None:
        """Returns the answer that redirects a consumer to its group's reset offset, or None if that is not needed.

        `offset` is the pull's offset, or None if the pull was held. If the group has members, only they are redirected.
        """
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if not self.offsets.may_move(group, topic, queue_id):
            return None
        members = self.clients.members(group)
        member = members.get(peer)
        if members and member is None:
            return None
        client_id = "" if member is None else member.client_id
        reset = self.offsets.moved_to(group, topic, queue_id, offset, trio.current_time(), client_id)
        if reset is None:
            return None
        if not members:
            self.offsets.end_reset(group, topic, queue_id)
        start, end = self.store.reader.bounds((topic, queue_id))
        self.offsets.note_pull(group, topic, queue_id, reset)
        return PullAnswer(
            code=ResponseCode.PULL_OFFSET_MOVED,
            remark=OFFSET_RESET,
            next_begin_offset=reset,
            min_offset=start,
            max_offset=end,
        ).to_command()

    def _code(self, result: GetResult, offset: int) -> ResponseCode:
        if result.status in EMPTY and offset == 0:
            return ResponseCode.PULL_NOT_FOUND
        if result.status in MOVES and self.settings.config.is_slave:
            return ResponseCode.PULL_RETRY_IMMEDIATELY
        return CODES[result.status]

    def _refuse(self, header: PullMessage, code: int, peer: Peer) -> Command | None:
        config = self.settings.config
        if not config.broker_permission & READ:
            return forbidden(f"the broker[{config.advertised_ip}] pulling message is forbidden", 1)
        if code == RequestCode.LITE_PULL_MESSAGE and not config.lite_pull_message_enable:
            return forbidden(f"the broker[{config.advertised_ip}] for lite pull consumer is forbidden", 1)
        group = self.groups.find(header.consumer_group, clock.now_ms())
        if group is None:
            return refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist, {HELP}",
            )
        if not group["consumeEnable"]:
            return forbidden(f"subscription group no permission, {header.consumer_group}", 2)
        is_lite = config.keeps_lite_queues and is_lite_queue(header.topic)
        topic = self.topics.get(owner_topic(header.topic) if is_lite else header.topic)
        if topic is None:
            return refusal(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please! \n{HELP}"
            )
        if not topic.perm & READ:
            return forbidden(f"the topic[{header.topic}] pulling message is forbidden", 3)
        queues = 1 if is_lite else topic.read_queue_nums
        if not 0 <= header.queue_id < queues:
            return refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{queues}] consumer:[/{peer.address}]",
            )
        return None


class _HeldPull(LateAnswer):
    """The answer to a waiting pull, which reads the store when the connection can send it."""

    __slots__ = ("_chosen", "_code", "_ends", "_header", "_held", "_peer", "_pulls", "_size_bytes")

    def __init__(
        self, pulls: PullRequests, header: PullMessage, code: int, chosen: PullFilter, peer: Peer, size_bytes: int
    ) -> None:
        config = pulls.settings.config
        timeout_ms = header.suspend_timeout_ms if config.long_polling_enable else config.short_polling_time_mills
        self._ends = trio.current_time() + min(max(timeout_ms, 0), MOST_MS) / MILLISECONDS
        self._pulls, self._header, self._code, self._chosen = pulls, header, code, chosen
        self._peer, self._size_bytes = peer, size_bytes
        self._held: HeldPull | None = None

    @property
    def _key(self) -> QueueKey:
        return self._header.topic, self._header.queue_id

    @property
    def _left_ms(self) -> int:
        return round((self._ends - trio.current_time()) * MILLISECONDS)

    def wait(self, ready: Callable[[LateAnswer], None]) -> None:
        codes, group, wake = self._chosen.tags_codes, self._header.consumer_group, partial(ready, self)
        held = self._pulls.held
        self._held = held.add(self._key, codes, self._left_ms, self._peer, self._size_bytes, group, wake)

    def drop(self) -> None:
        if self._held is not None:
            self._pulls.held.drop(self._held)

    async def make(self) -> Command:
        pulls, peer, nothing = self._pulls, self._peer, None
        while True:
            header = self._header
            await peer.connection.wait_answer_turn()
            chosen = pulls._allowed(header, self._code, peer)
            if isinstance(chosen, Command):
                return chosen
            answer = pulls._moved(header, peer, None) or pulls._look(header, chosen)
            if answer.code == ResponseCode.PULL_NOT_FOUND and nothing is not None:
                return nothing
            is_filtered = chosen.passes is not None and answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            if not is_filtered or trio.current_time() >= self._ends:
                return answer
            following = PullAnswer.from_command(answer).next_begin_offset
            if following <= header.queue_offset:  # as on a slave that lags: another attempt would be the same
                return answer
            nothing, self._header = answer, replace(header, queue_offset=following)
            await trio.lowlevel.checkpoint()
            if following >= pulls.store.reader.bounds(self._key)[1]:
                await pulls.held.wait(
                    self._key, chosen.tags_codes, self._left_ms, peer, self._size_bytes, header.consumer_group
                )
