"""Groups, members, offsets and producers as table rows with few columns, and as JSON objects with all values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

import click

from pyrmq_core.errors import RecordError, RocketMQError
from pyrmq_core.network.log_lines import visible_text
from pyrmq_core.tools.cli.tables import rendered
from pyrmq_core.tools.cli.times import age, iso_time, shown_time

if TYPE_CHECKING:
    from pyrmq_core import Admin
    from pyrmq_core.client.admin.producers import ConnectedProducer
    from pyrmq_core.client.admin.values import (
        GroupDescription,
        GroupMember,
        GroupSummary,
        OffsetChange,
        QueueProgress,
    )

# Short names of the consume types that members send in heartbeats.
TYPES = {"CONSUME_PASSIVELY": "push", "CONSUME_ACTIVELY": "pull", "CONSUME_POP": "pop"}


def failed_text(failures: Mapping[str, RocketMQError], *, as_json: bool) -> str:
    """Returns a line for each broker with an error.

    With `as_json`, prints these lines on standard error instead, and returns an empty text.
    """
    lines = [f"{name} {_failed(failures[name])}: {failures[name]}" for name in sorted(failures)]
    if not as_json:
        return rendered(*lines)
    for line in lines:
        click.echo(visible_text(line), err=True)
    return ""


def _failed(error: RocketMQError) -> str:
    return "has messages that cannot be read" if isinstance(error, RecordError) else "gave no answer"


async def check_group_known(admin: Admin, group: str) -> None:
    """Raises `InvalidArgument` if no broker knows the group, whose name may be mistyped."""
    await admin.groups.describe(group, running_info=False)


def beyond_text(queues: Iterable[QueueProgress]) -> str:
    return rendered(
        *(
            f"{row.queue}: the offset {row.consumer_offset} is beyond the end {row.broker_offset}: the queue became "
            "shorter, as when its topic is made again; messages before the offset are passed over (pyrmq group reset)"
            for row in queues
            if row.lag < 0
        )
    )


def group_row(row: GroupSummary) -> dict[str, object]:
    return {
        "group": row.group,
        "members": row.members,
        "type": None if row.consume_type is None else TYPES.get(row.consume_type, row.consume_type),
        "model": None if row.message_model is None else row.message_model.lower(),
        "lag": row.lag,
        "topics": len([topic for topic in row.topics if not topic.startswith("%")]),
    }


def group_members(row: GroupSummary) -> dict[str, object]:
    return {
        "group": row.group,
        "members": row.members,
        "consumeType": row.consume_type,
        "messageModel": row.message_model,
        "lag": row.lag,
        "queuesBeyondEnd": row.queues_beyond_end,
        "topics": list(row.topics),
        "brokers": list(row.brokers),
    }


def description_members(description: GroupDescription) -> dict[str, object]:
    return {
        "group": description.group,
        "consumeType": description.consume_type,
        "messageModel": description.message_model,
        "consumeFromWhere": description.consume_from_where,
        "settings": {name: config.to_members() for name, config in sorted(description.configs.items())},
        "subscriptions": [
            {
                "topic": subscription.topic,
                "expression": subscription.sub_string,
                "expressionType": subscription.expression_type,
            }
            for subscription in description.subscriptions
        ],
        "members": [client_members(member) for member in description.members],
    }


def client_members(member: GroupMember) -> dict[str, object]:
    rates = member.rates
    return {
        "clientId": member.client_id,
        "address": member.address,
        "language": member.language,
        "version": member.version,
        "queues": [
            {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id}
            for queue in member.queues
        ],
        "properties": None if member.running_info is None else dict(member.running_info.properties),
        "consumeMs": None if rates is None else rates.consume_rt,
        "okTps": None if rates is None else rates.consume_ok_tps,
        "failedTps": None if rates is None else rates.consume_failed_tps,
        "error": None if member.error is None else str(member.error),
    }


def client_row(member: GroupMember) -> dict[str, object]:
    rates = member.rates
    queues = sum(not queue.topic.startswith("%") for queue in member.queues)
    return {
        "client": member.client_id,
        "address": member.address,
        "language": member.language,
        "version": member.version,
        "queues": None if member.running_info is None else queues,
        "ms": None if rates is None else round(rates.consume_rt, 1),
        "ok/s": None if rates is None else round(rates.consume_ok_tps, 1),
        "failed/s": None if rates is None else round(rates.consume_failed_tps, 1),
    }


def progress_row(row: QueueProgress, now: datetime) -> dict[str, object]:
    return {
        "topic": row.queue.topic,
        "broker": row.queue.broker_name,
        "queue": row.queue.queue_id,
        "offset": row.consumer_offset,
        "end": row.broker_offset,
        "lag": row.lag,
        "waits": age(row.waiting_since, now),
        "client": row.client_id,
    }


def progress_members(row: QueueProgress) -> dict[str, object]:
    return {
        "topic": row.queue.topic,
        "brokerName": row.queue.broker_name,
        "queueId": row.queue.queue_id,
        "consumerOffset": row.consumer_offset,
        "brokerOffset": row.broker_offset,
        "pullOffset": row.pull_offset,
        "lag": row.lag,
        "inflight": row.inflight,
        "lastConsumed": iso_time(row.last_consumed),
        "waitingSince": iso_time(row.waiting_since),
        "clientId": row.client_id,
    }


def change_row(change: OffsetChange) -> dict[str, object]:
    return {
        "topic": change.queue.topic,
        "brokerName": change.queue.broker_name,
        "queueId": change.queue.queue_id,
        "before": change.before,
        "after": change.after,
    }


def producer_row(producer: ConnectedProducer, *, as_json: bool) -> dict[str, object]:
    return {
        "kind": "producer",
        "group": producer.group,
        "client": producer.client_id,
        "address": producer.address,
        "language": producer.language,
        "version": producer.version,
        "seen": iso_time(producer.seen) if as_json else shown_time(producer.seen),
    }


def consumer_row(group: str, member: GroupMember) -> dict[str, object]:
    return {
        "kind": "consumer",
        "group": group,
        "client": member.client_id,
        "address": member.address,
        "language": member.language,
        "version": member.version,
        "seen": None,
    }
