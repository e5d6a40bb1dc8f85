"""Selects the queues and offsets of a read, by queries to brokers.

All queues are queried together. `offsets` and `range_planner` decide from the answers.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyrmq_core import (
    BrokerNotFound,
    MessageQueue,
    NoRoute,
    OffsetRange,
    ResponseError,
    RoutingError,
    TopicQueues,
    is_dead_letter_topic,
    is_retry_topic,
    is_system_topic,
    line_logger,
    ranges_to_read,
)
from pyrmq_spark.namespaces import name_of_tenant
from pyrmq_spark.offsets import (
    BrokerAnswers,
    ResolvedOffsets,
    check_order,
    committed_of,
    points_of,
    ranges_between,
    resolve_end,
    resolve_start,
    times_of,
)
from pyrmq_spark.options import SourceOptions
from pyrmq_spark.patience import of_a_batch, retry_until_timeout
from pyrmq_spark.positions import Point, Word
from pyrmq_spark.read.range_planner import QueueRange, cut_all, plan
from pyrmq_spark.spark_errors import InvalidOption, NotReadable

if TYPE_CHECKING:
    from pyrmq_core.blocking import PullConsumer

log = line_logger(__name__)

# The response codes SYSTEM_ERROR (enablePropertyFilter is off) and SUBSCRIPTION_PARSE_FAILED.
CANNOT_FILTER: Final = (1, 23)


def plan_batch(consumer: PullConsumer, options: SourceOptions) -> list[QueueRange]:
    """Returns the ranges of a batch read. Waits for a missing broker if the topic is known to be on it."""
    return retry_until_timeout(lambda _: _planned(consumer, options), options.pull_timeout, of_a_batch)


def _planned(consumer: PullConsumer, options: SourceOptions) -> list[QueueRange]:
    limits = {"min_partitions": options.min_partitions, "max_records": options.max_records_per_partition}
    if not options.is_committed:
        return plan(_batch_ranges(consumer, options), **limits)
    with naming_manifest(consumer, options):
        records = _batch_ranges(consumer, options.of_manifest())
    return cut_all(committed_ranges(consumer, options, records), **limits)


def committed_ranges(
    consumer: PullConsumer, options: SourceOptions, records: Mapping[MessageQueue, OffsetRange]
) -> list[QueueRange]:
    """Returns the ranges of rows that a committed read has to read, which records of the manifest list.

    The manifest is the topic in which committed writes record their batches. `records` are the offsets of the records.
    """
    commits = [
        commit
        for queue, offsets in records.items()
        for commit in consumer.read_manifest(queue.topic, offsets.start, offsets.end).commits
    ]
    (topic,) = options.topics or ("",)
    ranges = ranges_to_read(commits, topic)
    check_sql(consumer, {committed.queue for committed in ranges}, options)
    return [QueueRange(stored.queue, stored.start, stored.end, stored.ids) for stored in ranges]


@contextmanager
def naming_manifest(consumer: PullConsumer, options: SourceOptions) -> Iterator[None]:
    """Replaces `NoRoute` in a committed read by an error that says whether the manifest or only its broker is missing.

    The manifest is the topic in which committed writes record their batches.
    """
    try:
        yield
    except NoRoute as error:
        if not options.is_committed:
            raise
        if home := consumer.expected_brokers([options.manifest])[options.manifest]:
            raise manifest_is_away(options.manifest, sorted(home)) from error
        raise NoRoute(
            f"topic {(options.topics or ('',))[0]} has no manifest {options.manifest}: no write with "
            f"delivery=committed was made to it, or manifestTopic names another one ({error})",
            topic=options.manifest,
        ) from error


def manifest_is_away(manifest: str, home: Iterable[str]) -> BrokerNotFound:
    broker_name = ", ".join(home)
    return BrokerNotFound(
        f"the manifest {manifest} is at {broker_name} by its order configuration, and {broker_name} is not registered: "
        "start it; a manifest has one place",
        broker_name=broker_name,
    )


def _batch_ranges(consumer: PullConsumer, options: SourceOptions) -> dict[MessageQueue, OffsetRange]:
    queues, masterless = chosen_queues(consumer, options)
    (start, start_name), (end, end_name) = options.start(Word.EARLIEST), options.end()
    starts, ends = points_of(start, queues, start_name), points_of(end, queues, end_name)
    check_order(starts, ends)
    check_sql(consumer, queues, options)
    bounds = consumer.offset_bounds(queues)
    first = _resolved_start(consumer, options, starts, bounds, masterless)
    last = resolve_end(
        ends,
        BrokerAnswers(bounds, consumer.offsets_at(times_of(ends)), masterless=masterless),
        fail_on_data_loss=options.fail_on_data_loss,
    )
    for name in sorted(masterless):
        topics = sorted({queue.topic for queue in queues if queue.broker_name == name})
        log.warning("%s has no master: what its slave has of %s is read", name, ", ".join(topics))
    _tell_skipped(first, last)
    return dict(ranges_between(first, last, by_time=times_of(starts).keys() | times_of(ends).keys()))


def stream_start(consumer: PullConsumer, options: SourceOptions) -> dict[MessageQueue, int]:
    queues, masterless = chosen_queues(consumer, options)
    start, name = options.start(Word.LATEST)
    starts = points_of(start, queues, name)
    first = _resolved_start(consumer, options, starts, consumer.offset_bounds(queues), masterless)
    _tell_skipped(first)
    return dict(first.offsets)


def check_sql(consumer: PullConsumer, queues: Iterable[MessageQueue], options: SourceOptions) -> None:
    """Raises `InvalidOption` if a broker cannot evaluate the option `sql`: it would return every row.

    Each broker is queried once, with one of its queues.
    """
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
    masterless: frozenset[str],
) -> ResolvedOffsets:
    committed = consumer.committed_offsets(committed_of(starts))
    return resolve_start(
        starts,
        BrokerAnswers(bounds, consumer.offsets_at(times_of(starts)), committed, masterless),
        none_as_young=options.none_as_young,
        fail_on_data_loss=options.fail_on_data_loss,
    )


def _tell_skipped(*resolved: ResolvedOffsets) -> None:
    for ends in resolved:
        for line in ends.skipped:
            log.warning("%s", line)


def chosen_queues(consumer: PullConsumer, options: SourceOptions) -> tuple[list[MessageQueue], frozenset[str]]:
    """Returns the queues that the options choose, in order, and the names of their brokers without a master.

    A pattern may match no topic. Raises `NotReadable` for a queue without READ permission. Raises `BrokerNotFound`
    while a known broker of a topic is not registered, because rows would be missing without notice.
    """
    topics = candidate_topics(consumer, options)
    routes = consumer.topic_queues(topics)  # None for a topic that was deleted since it was listed
    routed = {topic: queues for topic, queues in routes.items() if queues is not None}
    if options.topic_pattern is None and len(routed) < len(routes):
        raise missing_topic(consumer, next(topic for topic in routes if topic not in routed))
    there = {queue for queues in routed.values() for queue in queues.all}
    if routed and not there and options.topic_pattern is None:
        raise BrokerNotFound(
            f"no broker that is registered has a queue of {', '.join(routed)}: the broker that has them is away; "
            "start it",
            broker_name="",
        )
    chosen = set(options.assign or there)
    if chosen - there:
        raise InvalidOption(
            f"option assign names {', '.join(map(str, sorted(chosen - there)))}, which no broker has; there are "
            f"{', '.join(map(str, sorted(there)))}"
        )
    _check_registered(consumer, routed)
    if unreadable := sorted(queue for queues in routed.values() for queue in queues.unreadable if queue in chosen):
        raise not_readable(unreadable)
    masterless = frozenset(name for queues in routed.values() for name in queues.masterless)
    return sorted(chosen), masterless & {queue.broker_name for queue in chosen}


def not_readable(queues: Sequence[MessageQueue]) -> NotReadable:
    return NotReadable(
        f"{', '.join(map(str, queues))} cannot be read: the topic lacks the READ permission there; give it back "
        "(mqadmin updateTopicPerm -p 6), nothing was skipped"
    )


def _check_registered(consumer: PullConsumer, routed: Mapping[str, TopicQueues]) -> None:
    expected = consumer.expected_brokers(routed)
    missing = {
        name: topic
        for topic, queues in routed.items()
        for name in expected[topic] - {queue.broker_name for queue in queues.all}
    }
    table = consumer.cluster_info().broker_addr_table if missing else {}
    for name, topic in sorted(missing.items()):
        if name not in table:
            raise BrokerNotFound(
                f"{name} is not registered at the NameServer, and has queues of {topic} by its order configuration or "
                "another NameServer",
                broker_name=name,
            )


def missing_topic(consumer: PullConsumer, topic: str) -> RoutingError:
    """Returns the error for a topic without a route: its brokers are away, or no NameServer knows it.

    The brokers of an existing topic are found in an order configuration, or in the route of another NameServer. For any
    other topic, the text suggests the existing topic with the nearest name.
    """
    if away := sorted(consumer.expected_brokers([topic])[topic] - consumer.cluster_info().broker_addr_table.keys()):
        return broker_is_away(topic, away)
    if consumer.topic_queues([topic])[topic] is not None:  # its broker came back between the two queries
        return BrokerNotFound(f"topic {topic} has a route again: its broker came back; read again", broker_name="")
    near = difflib.get_close_matches(topic, consumer.topics(), n=1, cutoff=0.7)
    hint = f"did you mean {near[0]}? Or create it" if near else "create it"
    return NoRoute(f"No route info of this topic: {topic}. The NameServer does not know it; {hint}", topic=topic)


def broker_is_away(topic: str, away: Sequence[str]) -> BrokerNotFound:
    names = ", ".join(away)
    return BrokerNotFound(
        f"topic {topic} is on {names}, by its order configuration or another NameServer, and {names} is not "
        "registered: start it; the topic is not missing",
        broker_name=names,
    )


def candidate_topics(consumer: PullConsumer, options: SourceOptions) -> Sequence[str]:
    """Returns the topics that the options name, or else the cluster's topics that match `topicPattern`.

    A pattern matches no topic of RocketMQ itself, and no manifest, in which committed writes record their batches.
    """
    if options.assign is not None:
        return sorted({queue.topic for queue in options.assign})
    if options.topic_pattern is None:
        return options.topics or ()
    clusters = consumer.cluster_info().cluster_addr_table
    own = {name for cluster, brokers in clusters.items() for name in (cluster, f"{cluster}_REPLY_TOPIC", *brokers)}
    own |= consumer.manifests()
    topics = (topic for topic in consumer.topics() if topic not in own)
    return matching(options.topic_pattern, topics, options.namespace)


def matching(pattern: str, topics: Iterable[str], namespace: str | None = None) -> list[str]:
    """Returns the topics whose name matches the pattern as a whole. The namespace is no part of the matched name.

    The result keeps the namespace. Topics outside it, RocketMQ's own, retry and dead-letter topics are left out.
    """
    names_matching = re.compile(pattern)
    return sorted(
        topic
        for topic in topics
        if (name := name_of_tenant(topic, namespace)) is not None
        and names_matching.fullmatch(name)
        and not (is_system_topic(topic) or is_retry_topic(topic) or is_dead_letter_topic(topic))
    )
