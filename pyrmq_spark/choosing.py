"""What a read covers: which queues its options choose, and from which offset to which; brokers are asked here.

All queues are asked together; what their answers come to is decided in `offsets` and `planning`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from pyrmq_core import MessageQueue, OffsetRange, ResponseError, is_dead_letter_topic, is_retry_topic, is_system_topic
from pyrmq_spark.conditions import InvalidOption
from pyrmq_spark.namespaces import name_of_tenant
from pyrmq_spark.offsets import (
    Asked,
    Resolved,
    check_order,
    committed_of,
    points_of,
    ranges_between,
    resolve_end,
    resolve_start,
    times_of,
)
from pyrmq_spark.options import SourceOptions
from pyrmq_spark.planning import QueueRange, plan
from pyrmq_spark.positions import Point, Word

if TYPE_CHECKING:
    from pyrmq_core.blocking import Admin, PullConsumer

log = logging.getLogger(__name__)

# SYSTEM_ERROR (enablePropertyFilter is off) and SUBSCRIPTION_PARSE_FAILED.
CANNOT_FILTER: Final = (1, 23)

# Made when it is asked something, which few reads need.
AdminOf: TypeAlias = "Callable[[], Admin]"


def plan_batch(consumer: PullConsumer, admin: AdminOf, options: SourceOptions) -> list[QueueRange]:
    """The tasks of a batch read; asks all queues together."""
    queues = chosen_queues(consumer, admin, options)
    (start, start_name), (end, end_name) = options.start(Word.EARLIEST), options.end()
    starts, ends = points_of(start, queues, start_name), points_of(end, queues, end_name)
    check_order(starts, ends)
    check_sql(consumer, queues, options)
    bounds = consumer.offset_bounds(queues)
    first = _resolved_start(consumer, options, starts, bounds)
    last = resolve_end(
        ends, Asked(bounds, consumer.offsets_at(times_of(ends))), fail_on_data_loss=options.fail_on_data_loss
    )
    _tell_skipped(first, last)
    return plan(
        ranges_between(first, last),
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )


def stream_start(consumer: PullConsumer, admin: AdminOf, options: SourceOptions) -> dict[MessageQueue, int]:
    """Where a new stream begins in each queue; asks all queues together."""
    queues = chosen_queues(consumer, admin, options)
    start, name = options.start(Word.LATEST)
    starts = points_of(start, queues, name)
    first = _resolved_start(consumer, options, starts, consumer.offset_bounds(queues))
    _tell_skipped(first)
    return dict(first.offsets)


def check_sql(consumer: PullConsumer, queues: Iterable[MessageQueue], options: SourceOptions) -> None:
    """Every broker is asked whether it can evaluate the expression: one that cannot would give every row."""
    if options.sql is None:
        return
    one_each = {queue.broker_name: queue for queue in queues}
    for queue in one_each.values():
        try:
            consumer.check_sql(queue, options.sql)
        except ResponseError as error:
            if error.code not in CANNOT_FILTER:
                raise
            raise InvalidOption(f"option sql is {options.sql!r}, which {error}") from error


def _resolved_start(
    consumer: PullConsumer,
    options: SourceOptions,
    starts: Mapping[MessageQueue, Point],
    bounds: Mapping[MessageQueue, OffsetRange],
) -> Resolved:
    return resolve_start(
        starts,
        Asked(bounds, consumer.offsets_at(times_of(starts)), consumer.committed_offsets(committed_of(starts))),
        none_as_young=options.starting_strategy,
        fail_on_data_loss=options.fail_on_data_loss,
    )


def _tell_skipped(*resolved: Resolved) -> None:
    for ends in resolved:
        for line in ends.skipped:
            log.warning("%s", line)


def chosen_queues(consumer: PullConsumer, admin: AdminOf, options: SourceOptions) -> list[MessageQueue]:
    """The readable queues that the options choose, in order; a pattern may match no topic."""
    if options.assign is not None:
        return _assigned(consumer, options.assign)
    topics = candidate_topics(consumer, admin, options)
    if options.topic_pattern is None:
        return sorted(queue for topic in topics for queue in consumer.message_queues(topic))
    routes = consumer.current_queues(topics)  # a topic that was deleted since it was listed has none
    return sorted(queue for queues in routes.values() for queue in queues or ())


def candidate_topics(consumer: PullConsumer, admin: AdminOf, options: SourceOptions) -> Sequence[str]:
    """The topics that are named, or those there are now that match."""
    if options.topic_pattern is None:
        return options.topics or ()
    clusters = admin().cluster_info().cluster_addr_table
    own = {name for cluster, brokers in clusters.items() for name in (cluster, f"{cluster}_REPLY_TOPIC", *brokers)}
    topics = (topic for topic in consumer.topics() if topic not in own)
    return matching(options.topic_pattern, topics, options.namespace)


def matching(pattern: str, topics: Iterable[str], namespace: str | None = None) -> list[str]:
    """The topics that the whole pattern matches, by their names in the namespace; RocketMQ's own, retry and dead-letter
    topics never do."""
    wanted = re.compile(pattern)
    return sorted(
        topic
        for topic in topics
        if (name := name_of_tenant(topic, namespace)) is not None
        and wanted.fullmatch(name)
        and not (is_system_topic(topic) or is_retry_topic(topic) or is_dead_letter_topic(topic))
    )


def _assigned(consumer: PullConsumer, assign: tuple[MessageQueue, ...]) -> list[MessageQueue]:
    topics = sorted({queue.topic for queue in assign})
    known = {queue for topic in topics for queue in consumer.message_queues(topic)}
    unknown = sorted(set(assign) - known)
    if unknown:
        raise InvalidOption(
            f"option assign names {', '.join(map(str, unknown))}, which no broker has; there are "
            f"{', '.join(map(str, sorted(known)))}"
        )
    return list(assign)
