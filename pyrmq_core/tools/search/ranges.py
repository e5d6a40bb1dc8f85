"""Finds the queues and offsets of a search by names and store times, and has brokers check SQL expressions."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

import trio

from pyrmq_core.client.arguments import first_millisecond
from pyrmq_core.client.consumer.pull_consumer import PullConsumer
from pyrmq_core.errors import CallTimeout, InvalidArgument, ResponseError, RocketMQError
from pyrmq_core.model import MessageQueue, OffsetRange

Ranges = Sequence[tuple[MessageQueue, OffsetRange]]


async def ranges_of(
    consumer: PullConsumer, queues: Iterable[MessageQueue], since: datetime | None, until: datetime | None
) -> list[tuple[MessageQueue, OffsetRange]]:
    """Returns the offsets of messages stored at or after `since` and before `until`, for each queue that has some."""
    bounds = await consumer.offset_bounds(queues)
    held = [queue for queue, bound in bounds.items() if bound.start < bound.end]
    begins = {queue: bounds[queue].start for queue in held}
    ends = {queue: bounds[queue].end for queue in held}
    for when, offsets in ((since, begins), (until, ends)):
        if when is not None:
            at = await consumer.offsets_at(dict.fromkeys(held, first_millisecond(when)))
            offsets.update({queue: min(max(at[queue], bounds[queue].start), bounds[queue].end) for queue in held})
    return [(queue, OffsetRange(begins[queue], ends[queue])) for queue in held if begins[queue] < ends[queue]]


async def offsets_that_answer(
    consumer: PullConsumer, queues: Iterable[MessageQueue], when_ms: int
) -> tuple[dict[MessageQueue, int], dict[str, RocketMQError]]:
    """Returns each queue's first offset at or after a time, and the errors of brokers that do not answer."""
    offsets: dict[MessageQueue, int] = {}
    failures: dict[str, RocketMQError] = {}

    async def ask(broker: str, of_broker: list[MessageQueue]) -> None:
        try:
            offsets.update(await consumer.offsets_at(dict.fromkeys(of_broker, when_ms)))
        except RocketMQError as error:
            failures[broker] = error

    async with trio.open_nursery() as nursery:
        for broker, of_broker in _by_broker(queues).items():
            nursery.start_soon(ask, broker, of_broker)
    return offsets, failures


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    by_broker: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        by_broker.setdefault(queue.broker_name, []).append(queue)
    return by_broker


def queues_named(queues: Iterable[MessageQueue], names: Sequence[str]) -> list[MessageQueue]:
    """Returns the queues that `names` select, each by `BROKER/3`, `BROKER` or `3`, or all queues without names.

    Raises `InvalidArgument` for a name that selects no queue.
    """
    every, wanted = list(queues), frozenset(names)
    names_there = set[str]().union(*map(_names_of, every))
    for name in names:
        if name not in names_there:
            there = ", ".join(f"{queue.broker_name}/{queue.queue_id}" for queue in every[:50])
            raise InvalidArgument(f"queue {name}: the topic has no such queue to read; it has {there or 'none'}")
    return [queue for queue in every if is_named(queue, wanted)]


def is_named(queue: MessageQueue, names: Collection[str]) -> bool:
    return not names or any(name in names for name in _names_of(queue))


def _names_of(queue: MessageQueue) -> tuple[str, str, str]:
    return f"{queue.broker_name}/{queue.queue_id}", queue.broker_name, str(queue.queue_id)


async def check_sql(consumer: PullConsumer, queues: Iterable[MessageQueue], sql: str | None) -> None:
    """Has the queues' brokers check the SQL expression. Does nothing if it is None.

    Raises `ResponseError` if it is invalid. Without this check, a pull with it would return every message.
    """
    if sql is not None:
        for queue in {queue.broker_name: queue for queue in queues}.values():
            await consumer.check_sql(queue, sql)


async def ranges_that_answer(
    consumer: PullConsumer,
    queues: Iterable[MessageQueue],
    since: datetime | None,
    until: datetime | None,
    *,
    sql: str | None = None,
    within_seconds: float = math.inf,
) -> tuple[Ranges, dict[str, RocketMQError]]:
    """Returns the offset ranges of the brokers that answer in time, and the errors of the others by broker name.

    Raises `ResponseError` if a broker refuses `sql`, and the error of a broker if none answers.
    """
    ranges: list[tuple[MessageQueue, OffsetRange]] = []
    failures: dict[str, RocketMQError] = {}
    refusals: list[ResponseError] = []

    async def ask(broker: str, of_broker: list[MessageQueue]) -> None:
        try:
            with trio.move_on_after(within_seconds) as scope:
                try:
                    await check_sql(consumer, of_broker, sql)
                except ResponseError as error:
                    refusals.append(error)
                    return
                ranges.extend(await ranges_of(consumer, of_broker, since, until))
            if scope.cancelled_caught:
                text = f"{broker} did not answer within {within_seconds:g} s; look whether it stands still"
                failures[broker] = CallTimeout(text, address=broker, request_left=True)
        except RocketMQError as error:
            failures[broker] = error

    by_broker = _by_broker(queues)
    async with trio.open_nursery() as nursery:
        for broker, of_broker in by_broker.items():
            nursery.start_soon(ask, broker, of_broker)
    if refusals or (failures and len(failures) == len(by_broker)):
        raise next(iter([*refusals, *failures.values()]))
    return sorted(ranges), failures
