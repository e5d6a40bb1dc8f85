"""A divided batch: its parts sent one after another into one queue, and what it means when one of them fails."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import overload

from pyrmq_core.client.encoding import Encoding
from pyrmq_core.client.sending import Sender
from pyrmq_core.client.targets import AnyQueue, Target, ThisQueue
from pyrmq_core.errors import BatchFailed, Outcome, RocketMQError, SendFailed
from pyrmq_core.model import Message, SendResult
from pyrmq_core.protocol.payload import Payload


class ChainedResults(Sequence[SendResult]):
    """The results of several requests, one after another; each is made when it is asked for."""

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
        place = range(count)[index]
        part = bisect_right(self._ends, place)
        return self._parts[part][place - self._ends[part]]  # from the part's end


async def send_parts(
    sender: Sender, payloads: Sequence[Payload], to: Target, *, timeout: float
) -> Sequence[SendResult]:
    """One result a message, in order; `timeout` is each part's own. After a part that failed the rest is not sent."""
    done: list[Sequence[SendResult] | RocketMQError] = []
    for payload in payloads:
        try:
            receipt = await sender.send(payload, to, timeout=timeout)
            done.append(receipt.results())
        except RocketMQError as error:
            if len(payloads) == 1:
                raise
            raise _batch_failed(error, done, len(payloads)) from error
        to = to if isinstance(to, ThisQueue) else AnyQueue(receipt.queue)
    results = [part for part in done if not isinstance(part, RocketMQError)]
    return results[0] if len(results) == 1 else ChainedResults(results)


def have_one_tag(messages: Sequence[Message]) -> bool:
    """Whether there is nothing to keep apart."""
    return len({message.tags for message in messages}) <= 1


async def send_by_tag(
    sender: Sender, encoding: Encoding, messages: Sequence[Message], to: Target, *, timeout: float
) -> list[SendResult]:
    """As `send_parts`, one tag after another, each in its order; the results in the order of `messages`."""
    places: dict[str | None, list[int]] = {}
    for place, message in enumerate(messages):
        places.setdefault(message.tags, []).append(place)
    order = [place for of_tag in places.values() for place in of_tag]
    payloads = list(encoding.batch([messages[place] for place in order], apart_by_tag=True))
    results = dict(zip(order, await send_parts(sender, payloads, to, timeout=timeout), strict=True))
    return [results[place] for place in range(len(messages))]


def _batch_failed(error: RocketMQError, done: list[Sequence[SendResult] | RocketMQError], parts: int) -> BatchFailed:
    stored = len(done)
    rest = parts - stored - 1
    outcome = Outcome.PERHAPS_STORED if stored else error.outcome
    unsent: list[RocketMQError] = [
        SendFailed("not sent, because an earlier part of the batch failed", outcome=Outcome.NOT_STORED, attempts=())
        for _ in range(rest)
    ]
    return BatchFailed(
        f"part {stored + 1} of {parts} of the batch failed: {stored} parts stored, this one {error.outcome.value}, "
        f"{rest} not sent (error.parts has each). {error}",
        outcome=outcome,
        attempts=error.attempts,
        parts=[*done, error, *unsent],
    )
