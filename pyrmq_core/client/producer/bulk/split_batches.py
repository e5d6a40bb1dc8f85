"""Sends a list of messages as one or more requests, one after another, and builds the error if one fails."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from typing import TypeAlias, overload

from pyrmq_core.client.producer.message_encoder import MessageEncoder
from pyrmq_core.client.producer.send.send_options import (
    ANY_QUEUE,
    AnyQueue,
    CommunicationMode,
    KeyedQueue,
    Target,
    ThisQueue,
    target_of,
)
from pyrmq_core.client.producer.send.sender import Sender
from pyrmq_core.errors import BatchFailed, Outcome, RocketMQError, SendFailed
from pyrmq_core.model import Message, MessageQueue, SendResult
from pyrmq_core.protocol.messages.batch_payloads import CheckedBatch
from pyrmq_core.protocol.messages.payload import Payload


class ChainedResults(Sequence[SendResult]):
    """The results of several requests as one sequence. Each result is created when it is read."""

    __slots__ = ("_ends", "_parts")

    def __init__(self, parts: Sequence[Sequence[SendResult]]) -> None:
        self._parts = parts
        self._ends = list(accumulate(len(part) for part in parts))

    def __repr__(self) -> str:
        return repr(list(self))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[SendResult]:
        return chain.from_iterable(self._parts)

    @overload
    def __getitem__(self, index: int) -> SendResult: ...

    @overload
    def __getitem__(self, index: slice) -> list[SendResult]: ...

    def __getitem__(self, index: int | slice) -> SendResult | list[SendResult]:
        count = len(self)
        if isinstance(index, slice):
            return [self[number] for number in range(count)[index]]
        number = range(count)[index]
        part = bisect_right(self._ends, number)
        return self._parts[part][number - self._ends[part]]  # a negative index, from the end of the part


# A target, and the indices of its messages in the list.
Group: TypeAlias = tuple[Target, list[int]]


async def send_list(
    sender: Sender,
    encoding: MessageEncoder,
    batch: CheckedBatch,
    queue: MessageQueue | None,
    *,
    timeout: float,
    mode: CommunicationMode = CommunicationMode.SYNC,
) -> Sequence[SendResult]:
    """Sends a list of messages of one topic in one or more requests, and returns a result for each message, in order.

    With `queue`, all messages go to it. Otherwise messages go to the queues of their sharding keys, and all messages
    without a key to one queue. For a batch topic, each request has messages of one tag. `timeout` is for each request.
    After a failed request the other messages are not sent.
    """
    messages = batch.messages
    groups = await _groups(sender, messages, queue, timeout)
    single_tag = len({message.tags for message in messages}) <= 1
    by_tag = not single_tag and await sender.is_batch_topic(messages[0].topic, timeout=timeout)
    if len(groups) == 1 and not by_tag:
        requests = [(groups[0][0], payload) for payload in encoding.batch(batch)]
        return await _send_parts(sender, requests, timeout=timeout, mode=mode)
    order: list[int] = []
    parts: list[tuple[Target, Payload]] = []
    for to, indices in groups:
        together = _by_tag(messages, indices) if by_tag else indices
        order += together
        payloads = encoding.batch(batch.part(together), split_by_tag=by_tag)
        parts += [(to, payload) for payload in payloads]
    results = dict(zip(order, await _send_parts(sender, parts, timeout=timeout, mode=mode), strict=True))
    return [results[index] for index in range(len(messages))]


async def _groups(
    sender: Sender, messages: Sequence[Message], queue: MessageQueue | None, timeout: float
) -> list[Group]:
    keys = {message.sharding_key for message in messages}
    if queue is not None or len(keys) <= 1:
        return [(target_of(messages[0], queue), list(range(len(messages))))]
    info = await sender.publish_info(messages[0].topic, timeout=timeout)
    targets: dict[MessageQueue, KeyedQueue] = {}
    target_of_key: dict[str | None, Target] = {None: ANY_QUEUE}
    for key in sorted(key for key in keys if key is not None):
        queue_of_key = info.queue_of_key(key)
        target_of_key[key] = targets.setdefault(queue_of_key, KeyedQueue(key, (queue_of_key,)))
    groups: dict[Target, list[int]] = {}
    for index, message in enumerate(messages):
        groups.setdefault(target_of_key[message.sharding_key], []).append(index)
    return list(groups.items())


def _by_tag(messages: Sequence[Message], indices: Sequence[int]) -> list[int]:
    of_tag: dict[str | None, list[int]] = {}
    for index in indices:
        of_tag.setdefault(messages[index].tags, []).append(index)
    return list(chain.from_iterable(of_tag.values()))


async def _send_parts(
    sender: Sender, parts: Sequence[tuple[Target, Payload]], *, timeout: float, mode: CommunicationMode
) -> Sequence[SendResult]:
    """Sends the parts in order. A part without a fixed queue or sharding key goes to the queue of the part before it.

    `timeout` is for each part. After a failed part the rest is not sent, and the error contains the results of the
    parts before it.
    """
    done: list[Sequence[SendResult] | RocketMQError] = []
    moved_to: dict[Target, Target] = {}
    for to, payload in parts:
        try:
            receipt = await sender.send(payload, moved_to.get(to, to), timeout=timeout, mode=mode)
            done.append(receipt.results())
        except RocketMQError as error:
            if len(parts) == 1:
                raise
            raise _batch_failed(error, done, len(parts)) from error
        moved_to[to] = to if isinstance(to, ThisQueue) else _going_on(to, receipt.requested)
    results = [part for part in done if not isinstance(part, RocketMQError)]
    return results[0] if len(results) == 1 else ChainedResults(results)


def _going_on(to: AnyQueue | KeyedQueue, queue: MessageQueue) -> Target:
    return replace(to, first=queue) if isinstance(to, AnyQueue) else KeyedQueue(to.sharding_key, (queue,))


def _batch_failed(error: RocketMQError, done: list[Sequence[SendResult] | RocketMQError], parts: int) -> BatchFailed:
    stored = len(done)
    unsent_parts = parts - stored - 1
    outcome = Outcome.PERHAPS_STORED if stored else error.outcome
    unsent: list[RocketMQError] = [
        SendFailed("not sent, because an earlier part of the batch failed", outcome=Outcome.NOT_STORED, attempts=())
        for _ in range(unsent_parts)
    ]
    return BatchFailed(
        f"part {stored + 1} of {parts} of the batch failed: {stored} parts stored, this one {error.outcome.value}, "
        f"{unsent_parts} not sent (error.parts has each). {error}",
        outcome=outcome,
        attempts=error.attempts,
        parts=[*done, error, *unsent],
    )
