"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): checks, filters, slices of the log, and pulls that wait.

Source: broker/processor/PullMessageProcessor.java (5.4.0), in the same order and with the same codes. SQL92 is
evaluated with enablePropertyFilter, for an expression in the request itself; one in a heartbeat is refused, as by a
broker with enablePropertyFilter off. An expression that cannot be parsed is refused; Java's broker would then return
every message.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from pyrmq_core.broker.broker import HELP, Answer, Broker
from pyrmq_core.broker.clients.client_table import BROADCASTING
from pyrmq_core.broker.clients.held_pulls import held_bytes
from pyrmq_core.broker.store.reading import MAX_SCANNED_ENTRIES, GetLimits, GetResult, GetStatus
from pyrmq_core.broker.tables.topics import READ
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.filtering.sql92 import parse
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.protocol.java.string_hash import string_hash_code
from pyrmq_core.protocol.messages.properties import decode_properties
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage, PullSysFlag

TagsCodes: TypeAlias = "frozenset[int] | None"

COMMIT_OFFSET: Final = int(PullSysFlag.COMMIT_OFFSET)
SUSPEND: Final = int(PullSysFlag.SUSPEND)
SUBSCRIPTION: Final = int(PullSysFlag.SUBSCRIPTION)
TAG_TYPES: Final = ("", "TAG")
SQL92: Final = "SQL92"
SQL_OFF: Final = "The broker does not support consumer to filter message by "

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


def pull(broker: Broker, request: Command, peer: Peer) -> Answer:
    """Answers at once, or later if no message is there and the request may wait."""
    wanted = PullMessage.from_command(request)
    refused = _refuse(broker, wanted, request, peer)
    if refused is not None:
        return refused
    tags_codes = _tags_codes(broker, wanted)
    if isinstance(tags_codes, Command):
        return tags_codes
    if wanted.sys_flag & COMMIT_OFFSET:
        broker.offsets.commit(wanted.consumer_group, wanted.topic, wanted.queue_id, wanted.commit_offset)
    answer = _look(broker, wanted, tags_codes)
    if answer.code == ResponseCode.PULL_NOT_FOUND and wanted.sys_flag & SUSPEND:
        size_bytes = held_bytes(request, tags_codes)
        if broker.held.has_room(peer, size_bytes):
            return _wait(broker, wanted, tags_codes, peer, size_bytes)
    return answer


async def _wait(broker: Broker, wanted: PullMessage, tags_codes: TagsCodes, peer: Peer, size_bytes: int) -> Command:
    """Waits once, then answers with what the store has; it is read when the connection can write the answer."""
    config = broker.config
    timeout_ms = wanted.suspend_timeout_ms if config.long_polling_enable else config.short_polling_time_mills
    await broker.held.wait((wanted.topic, wanted.queue_id), tags_codes, timeout_ms, peer, size_bytes)
    await peer.connection.wait_answer_turn()
    return _look(broker, wanted, tags_codes)


def _look(broker: Broker, wanted: PullMessage, tags_codes: TagsCodes) -> Command:
    limits = broker.config.pull_limits
    most = GetLimits(min(wanted.max_msg_nums, limits.max_messages), limits.max_bytes, wanted.max_msg_nums)
    found = _get(broker, wanted, most, tags_codes)
    broker.offsets.note_pull(wanted.consumer_group, wanted.topic, wanted.queue_id, found.next_offset)
    return PullAnswer(
        code=_code(found, wanted.queue_offset),
        remark=found.status.name,
        next_begin_offset=found.next_offset,
        min_offset=found.min_offset,
        max_offset=found.max_offset,
        records=found.records,
    ).to_command()


def _get(broker: Broker, wanted: PullMessage, most: GetLimits, tags_codes: TagsCodes) -> GetResult:
    key, offset = (wanted.topic, wanted.queue_id), wanted.queue_offset
    if wanted.expression_type != SQL92 or not wanted.sys_flag & SUBSCRIPTION:
        return broker.store.get(key, offset, most, tags_codes)
    passes = sql_of(wanted.subscription or "")
    while True:  # as with tags, one answer examines a limited number of entries, then returns the next offset
        found = broker.store.get(key, offset, most)
        if found.status is not GetStatus.FOUND:
            return found if offset == wanted.queue_offset else replace(found, status=GetStatus.NO_MATCHED_MESSAGE)
        records = _passing(found.records, passes)
        if records:
            return replace(found, records=b"".join(records), count=len(records))
        if found.next_offset >= found.max_offset or found.next_offset - wanted.queue_offset >= MAX_SCANNED_ENTRIES:
            return replace(found, status=GetStatus.NO_MATCHED_MESSAGE, records=b"", count=0)
        offset = found.next_offset


def _passing(records: bytes, passes: Callable[[Mapping[str, str]], bool]) -> list[bytes]:
    chosen, position = [], 0
    for record in iterate_records(records):
        following = position + record.store_size
        if passes(decode_properties(record.properties)):
            chosen.append(records[position:following])
        position = following
    return chosen


@functools.lru_cache(maxsize=256)
def sql_of(expression: str) -> Callable[[Mapping[str, str]], bool]:
    """Returns the predicate of an expression over properties, compiled once."""
    return parse(expression)


def _code(found: GetResult, offset: int) -> ResponseCode:
    """Returns the answer's code; for a queue without messages, PULL_NOT_FOUND at 0 and PULL_OFFSET_MOVED elsewhere."""
    if found.status in EMPTY and offset == 0:
        return ResponseCode.PULL_NOT_FOUND
    return CODES[found.status]


def _refuse(broker: Broker, wanted: PullMessage, request: Command, peer: Peer) -> Command | None:
    config = broker.config
    if not config.broker_permission & READ:
        return _forbidden(f"the broker[{config.advertised_ip}] pulling message is forbidden", 1)
    if request.code == RequestCode.LITE_PULL_MESSAGE and not config.lite_pull_message_enable:
        return _forbidden(f"the broker[{config.advertised_ip}] for lite pull consumer is forbidden", 1)
    group = broker.groups.find(wanted.consumer_group, broker.now_ms())
    if group is None:
        return refusal(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group [{wanted.consumer_group}] does not exist, {HELP}",
        )
    if not group["consumeEnable"]:
        return _forbidden(f"subscription group no permission, {wanted.consumer_group}", 2)
    topic = broker.topics.get(wanted.topic)
    if topic is None:
        return refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{wanted.topic}] not exist, apply first please! \n{HELP}")
    if not topic.perm & READ:
        return _forbidden(f"the topic[{wanted.topic}] pulling message is forbidden", 3)
    if not 0 <= wanted.queue_id < topic.read_queue_nums:
        return refusal(
            ResponseCode.INVALID_PARAMETER,
            f"queueId[{wanted.queue_id}] is illegal, topic:[{wanted.topic}] "
            f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{peer.address}]",
        )
    return None


def _tags_codes(broker: Broker, wanted: PullMessage) -> TagsCodes | Command:
    """Returns the tags codes that pass (None: all) by the request's own expression or the group's heartbeat.

    Returns a refusal if the group, its subscription or the expression does not allow the pull.
    """
    if wanted.sys_flag & SUBSCRIPTION:
        return codes_of_expression(broker, wanted.subscription, wanted.expression_type)
    group = broker.clients.consumers.get(wanted.consumer_group)
    if group is None:
        return refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist\n{HELP}")
    settings = broker.groups.find(wanted.consumer_group, broker.now_ms()) or {}
    if group.message_model == BROADCASTING and not settings.get("consumeBroadcastEnable", True):
        return _forbidden(f"the consumer group[{wanted.consumer_group}] can not consume by broadcast way", 4)
    subscription = group.subscriptions.get(wanted.topic)
    if subscription is None:
        return refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist\n{HELP}")
    if subscription.sub_version < wanted.sub_version:
        return refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
    if subscription.expression_type not in TAG_TYPES:
        own = "; in a heartbeat's subscription it never evaluates SQL92: pull with the expression in the request"
        return refusal(ResponseCode.SYSTEM_ERROR, SQL_OFF + subscription.expression_type + own)
    return frozenset(subscription.code_set) or None


def codes_of_expression(broker: Broker, expression: str | None, expression_type: str | None) -> TagsCodes | Command:
    """Returns the tags codes that pass by a request's own expression (None for all, and for SQL92), or a refusal."""
    if (expression_type or "") not in TAG_TYPES:
        if not expression:
            return refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
        if not broker.config.enable_property_filter or expression_type != SQL92:
            return refusal(ResponseCode.SYSTEM_ERROR, f"{SQL_OFF}{expression_type}{_help_with(expression_type)}")
        try:
            sql_of(expression)
        except InvalidArgument as error:
            return refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
        return None
    try:
        tags = TagFilter.parse(expression).tags
    except InvalidArgument:
        return refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
    return frozenset([string_hash_code(tag) for tag in tags]) or None


def _help_with(expression_type: str | None) -> str:
    return "; set enablePropertyFilter=true at the broker" if expression_type == SQL92 else "; TAG and SQL92 exist"


def _forbidden(remark: str, forbidden_type: int) -> Command:
    return refusal(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": str(forbidden_type)})
