"""The rules about order: messages of a key are stored in it, and those of a queue are consumed in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.chaos.history import Got, Outcome, Queue
from tests.chaos.judged import History
from tests.chaos.plan import SORTERS


def out_of_order(consumed: Iterable[Got]) -> Iterator[str]:
    """Yields messages that were consumed, for the first time, behind later ones of their queue."""
    highest: defaultdict[Queue, int] = defaultdict(lambda: -1)
    seen: set[tuple[Queue, int]] = set()
    for got in consumed:
        queue, place = got.queue, (got.queue, got.offset)
        if place in seen:
            continue
        seen.add(place)
        if got.offset < highest[queue]:
            yield f"{got.id} at {got.offset} of {queue} was consumed behind {highest[queue]}"
        highest[queue] = max(highest[queue], got.offset)


def queues_are_consumed_in_order(history: History) -> Iterator[str]:
    """Yields what the group that consumes in order did not; its one member has every queue."""
    yield from out_of_order(got for got in history.got if got.group == SORTERS and got.kept)


def keys_keep_their_order(history: History) -> Iterator[str]:
    """Yields acknowledged messages of a key that lie, in a queue, before one that was sent earlier.

    A key has another queue while its broker is away. Of several copies the first counts.
    """
    last: dict[tuple[str, Queue], tuple[int, str]] = {}
    for send in sorted(history.sends.values(), key=lambda send: send.began):
        if not send.key or send.outcome != Outcome.STORED or not (places := history.places.get(send.id)):
            continue
        queue = min(places, key=lambda place: place.offset).queue
        offset = min(place.offset for place in places if place.queue == queue)
        before, earlier = last.get((send.key, queue), (-1, ""))
        if offset < before:
            yield f"{send.id} is stored at {offset} of {queue}, before {earlier} at {before}, which was sent earlier"
        last[send.key, queue] = offset, send.id
