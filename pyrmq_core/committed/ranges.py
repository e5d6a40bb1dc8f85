"""The ranges of messages that form committed batches, and the check that their messages are still the same."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyrmq_core.committed.deciding import Commit
from pyrmq_core.errors import DataLost
from pyrmq_core.model import MessageQueue, OffsetRange
from pyrmq_core.protocol.messages.payload import RawPull, decode

MANIFEST_SUFFIX: Final = "-committed"
# The KV namespace of NameServers that maps each manifest to its topic.
MANIFEST_NAMESPACE: Final = "PYRMQ_MANIFEST"


@dataclass(frozen=True, slots=True, order=True)
class CommittedRange:
    """Committed messages of a queue from `start` to before `end`.

    They are one or more ranges as writers stored them. `ids` has the offsets and message ids of the first and the last
    message of each such range.
    """

    queue: MessageQueue
    start: int
    end: int
    ids: tuple[tuple[int, str], ...]


def manifest_of(topic: str) -> str:
    """Returns the default name of a topic's manifest, the topic that records its committed batches."""
    return topic + MANIFEST_SUFFIX


def manifests_in(kinds: Iterable[str], orders: Mapping[str, str]) -> frozenset[str]:
    """Returns the topics that are manifests: all of `kinds`, and those that earlier releases marked in another way.

    `kinds` are the topics in the KV namespace of manifests. Earlier releases gave a manifest an order configuration
    with one queue. So topics of `orders`, the order configurations by topic, are included if they have one queue and
    the default name of a manifest.
    """
    single = (name for name, order in orders.items() if ";" not in order.strip(";") and order.strip(";").endswith(":1"))
    return frozenset(kinds).union(name for name in single if name.endswith(MANIFEST_SUFFIX))


def ranges_to_read(commits: Iterable[Commit], topic: str) -> list[CommittedRange]:
    """Returns the ranges of messages of one topic that the batches committed.

    They are sorted by queue and offset. Adjacent and overlapping ranges are joined.
    """
    stored = sorted(
        (part for commit in commits for part in commit.ranges if part.queue.topic == topic and part.count),
        key=lambda part: (part.queue, part.start),
    )
    ranges: list[CommittedRange] = []
    ids: list[tuple[int, str]] = []
    for number, part in enumerate(stored):
        if not ids:
            start, end = part.start, part.end
        ids += [(part.start, part.first_id), (part.end - 1, part.last_id)]
        end = max(end, part.end)
        following = stored[number + 1] if number + 1 < len(stored) else None
        if following is None or following.queue != part.queue or following.start > end:
            ranges.append(CommittedRange(part.queue, start, end, tuple(sorted(ids))))
            ids = []
    return ranges


def ids_by_queue(ranges: Iterable[CommittedRange]) -> dict[MessageQueue, list[tuple[int, str]]]:
    ids: dict[MessageQueue, list[tuple[int, str]]] = {}
    for part in ranges:
        ids.setdefault(part.queue, []).extend(part.ids)
    return {queue: sorted(of_queue) for queue, of_queue in ids.items()}


def check_ids(pull: RawPull, ids: Sequence[tuple[int, str]]) -> None:
    """Raises `DataLost` if messages of an unfiltered pull do not have their committed ids.

    `ids` has pairs of offset and id in offset order. Offsets outside the pull are not checked.
    """
    for offset, unique_id in ids[bisect_left(ids, (pull.start,)) : bisect_left(ids, (pull.next_offset,))]:
        within = OffsetRange(offset, offset + 1)
        for message in decode(pull, within, verify_crc=False, keep_undecodable=True, allow_gaps=True):
            check_id(pull.queue, offset, unique_id, message.msg_id)


def check_id(queue: MessageQueue, offset: int, committed_id: str, id_there: str | None) -> None:
    """Raises `DataLost` if the id of the message at an offset, `id_there`, is not the committed id."""
    if id_there != committed_id:
        raise DataLost(
            f"the message at offset {offset} of {queue} is not the committed one: it has the id {id_there}, and "
            f"{committed_id} was committed; the broker lost its newest messages, and stored others in their place",
            queue=queue,
            start=offset,
            end=offset + 1,
            min_offset=0,
            max_offset=offset + 1,
        )
