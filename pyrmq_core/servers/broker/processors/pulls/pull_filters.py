"""The filter of a pull: hashes of tags or an SQL92 expression, from the request itself or from the group's heartbeat.

An SQL92 expression in the request that cannot be parsed is refused. Java's broker would then return every message.
Source: broker/processor/PullMessageProcessor.java, broker/filter/ExpressionMessageFilter.java (5.4.0).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Final

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.filtering.sql92 import parse
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.protocol.java.string_hash import string_hash_code
from pyrmq_core.protocol.messages.properties import decode_properties
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.requests.broker.heartbeat import SubscriptionData
from pyrmq_core.protocol.requests.broker.pull_message import PullMessage, PullSysFlag
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.clients.client_table import BROADCASTING, ClientTable
from pyrmq_core.servers.broker.processors.handlers import HELP
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.store.reading import MAX_SCANNED_ENTRIES, GetLimits, GetResult, GetStatus, QueueKey
from pyrmq_core.servers.broker.store.store_reader import StoreReader
from pyrmq_core.servers.broker.tables.consumer_filters import SQL92, ConsumerFilters, Passes
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable

SUBSCRIPTION: Final = int(PullSysFlag.SUBSCRIPTION)
TAG_TYPES: Final = ("", "TAG")
SQL_OFF: Final = "The broker does not support consumer to filter message by "
NO_FILTER: Final = "The broker's consumer filter data is not exist!Your expression may be wrong!"


@dataclass(frozen=True, slots=True)
class PullFilter:
    """The filter of a pull: `tags_codes` are hashes of tags, `passes` tests properties. None selects all messages."""

    tags_codes: frozenset[int] | None = None
    passes: Passes | None = None


@dataclass(frozen=True, slots=True)
class PullFilters:
    """The choice of a pull's filter: by the expression in the request, or by the subscription of the group."""

    settings: LiveSettings
    groups: GroupTable
    clients: ClientTable
    filters: ConsumerFilters

    def filter_of(self, header: PullMessage) -> PullFilter | Command:
        """Returns the pull's filter, or a refusal if the group may not pull or has no valid subscription."""
        if header.sys_flag & SUBSCRIPTION:
            return filter_of_expression(self.settings.config, header.subscription, header.expression_type)
        group = self.clients.consumers.get(header.consumer_group)
        if group is None:
            return refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist\n{HELP}")
        settings = self.groups.find(header.consumer_group, clock.now_ms()) or {}
        if group.message_model == BROADCASTING and not settings.get("consumeBroadcastEnable", True):
            return forbidden(f"the consumer group[{header.consumer_group}] can not consume by broadcast way", 4)
        if not self.groups.is_readable(header.consumer_group, header.topic):
            return forbidden(f"the consumer group[{header.consumer_group}] is forbidden for topic[{header.topic}]", 5)
        subscription = group.subscriptions.get(header.topic)
        if subscription is None:
            return refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist\n{HELP}")
        if subscription.sub_version < header.sub_version:
            return refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        if subscription.expression_type in TAG_TYPES:
            return PullFilter(frozenset(subscription.code_set) or None)
        return self._registered(header, subscription)

    def _registered(self, header: PullMessage, subscription: SubscriptionData) -> PullFilter | Command:
        consumer_filter = self.filters.find(header.consumer_group, header.topic)
        passes = None if consumer_filter is None else consumer_filter.passes()
        if consumer_filter is None or passes is None:
            return refusal(ResponseCode.FILTER_DATA_NOT_EXIST, NO_FILTER)
        if consumer_filter.client_version < header.sub_version:
            return refusal(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
        if not self.settings.config.enable_property_filter:
            return _sql_off(subscription.expression_type)
        return PullFilter(passes=passes)


def filter_of_expression(
    config: BrokerConfig, expression: str | None, expression_type: str | None
) -> PullFilter | Command:
    if (expression_type or "") not in TAG_TYPES:
        if not expression:
            return refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
        if not config.enable_property_filter or expression_type != SQL92:
            return _sql_off(expression_type)
        try:
            return PullFilter(passes=sql_of(expression))
        except InvalidArgument as error:
            return refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
    try:
        tags = TagFilter.parse(expression).tags
    except InvalidArgument:
        return refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
    return PullFilter(frozenset([string_hash_code(tag) for tag in tags]) or None)


def get_filtered(reader: StoreReader, key: QueueKey, offset: int, limits: GetLimits, chosen: PullFilter) -> GetResult:
    """Returns messages of the queue `key` from `offset` on that pass the filter `chosen`.

    Each call examines a limited number of entries.
    """
    if chosen.passes is None:
        return reader.get(key, offset, limits, chosen.tags_codes)
    first = offset
    while True:
        result = reader.get(key, offset, limits)
        if result.status is not GetStatus.FOUND:
            return result if offset == first else replace(result, status=GetStatus.NO_MATCHED_MESSAGE)
        records = _passing(result.records, chosen.passes)
        if records:
            return replace(result, records=b"".join(records), count=len(records))
        if result.next_offset >= result.max_offset or result.next_offset - first >= MAX_SCANNED_ENTRIES:
            return replace(result, status=GetStatus.NO_MATCHED_MESSAGE, records=b"", count=0)
        offset = result.next_offset


def forbidden(remark: str, forbidden_type: int) -> Command:
    return refusal(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": str(forbidden_type)})


@functools.lru_cache(maxsize=256)
def sql_of(expression: str) -> Passes:
    return parse(expression)


def _sql_off(expression_type: str | None) -> Command:
    remedy = "set enablePropertyFilter=true at the broker" if expression_type == SQL92 else "TAG and SQL92 exist"
    return refusal(ResponseCode.SYSTEM_ERROR, f"{SQL_OFF}{expression_type}; {remedy}")


def _passing(records: bytes, passes: Passes) -> list[bytes]:
    chosen, position = [], 0
    for record in iterate_records(records):
        following = position + record.store_size
        if passes(decode_properties(record.properties)):
            chosen.append(records[position:following])
        position = following
    return chosen
