"""Records of consumed messages, by all members of a group, and the checks of what a group promises. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyrmq_core import MessageQueue

MICRO = 1e-6
Place = tuple[MessageQueue, int]


@dataclass(frozen=True, slots=True)
class Record:
    """One message in one call of a handler that ended well; times are seconds since 1970."""

    member: str
    queue: MessageQueue
    offset: int
    msg_id: str
    began: float
    ended: float

    @property
    def place(self) -> Place:
        return self.queue, self.offset


@dataclass(frozen=True, slots=True)
class Window:
    """The time from a change of the members until all of them own the queues that they should."""

    began: float
    ended: float

    def touches(self, began: float, ended: float) -> bool:
        return began <= self.ended and ended >= self.began


def record_of(topic: str, words: Sequence[str]) -> Record:
    """Returns the record of the words MEMBER BROKER QUEUEID OFFSET MSGID BEGAN ENDED, times in microseconds."""
    member, broker, queue_id, offset, msg_id, began, ended = words
    queue = MessageQueue(topic, broker, int(queue_id))
    return Record(member, queue, int(offset), msg_id, int(began) * MICRO, int(ended) * MICRO)


def line_of(record: Record) -> str:
    """Returns the line of a record whose words, without the topic, `record_of` reads."""
    queue = record.queue
    times = f"{int(record.began / MICRO)} {int(record.ended / MICRO)}"
    return f"{record.member} {queue.broker_name} {queue.queue_id} {record.offset} {record.msg_id} {times}\n"


def by_queue(records: Iterable[Record]) -> dict[MessageQueue, list[Record]]:
    """Returns each queue's records in the order of their beginnings."""
    queue_records: defaultdict[MessageQueue, list[Record]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.began):
        queue_records[record.queue].append(record)
    return dict(queue_records)


def repeats(records: Iterable[Record]) -> list[tuple[Record, Record]]:
    """Returns an earlier and the next record of each message that was consumed more than once."""
    pairs = []
    last: dict[Place, Record] = {}
    for record in sorted(records, key=lambda record: record.began):
        if record.place in last:
            pairs.append((last[record.place], record))
        last[record.place] = record
    return pairs


def simultaneous(records: Iterable[Record]) -> list[tuple[Record, Record]]:
    """Returns pairs of records of one queue whose calls overlap in time, however many members made them."""
    pairs = []
    for own in by_queue(records).values():
        running: list[Record] = []
        for record in own:
            running = [other for other in running if other.ended > record.began]
            pairs += [(other, record) for other in running]
            running.append(record)
    return pairs


def by_two_members(records: Iterable[Record]) -> list[tuple[Record, Record]]:
    """Returns the pairs of `simultaneous` that two members made."""
    return [(record, other) for record, other in simultaneous(records) if record.member != other.member]


def skipped(records: Iterable[Record]) -> list[Record]:
    """Returns the records of messages that were consumed before the message in front of them."""
    skips = []
    for own in by_queue(records).values():
        following = 0
        for record in own:
            if record.offset > following:
                skips.append(record)
            following = max(following, record.offset + 1)
    return skips


def turned_back(records: Iterable[Record]) -> Iterator[tuple[Record, Record]]:
    """Yields neighbours in a queue's order of consumption of which the second is not the next message."""
    for own in by_queue(records).values():
        yield from ((record, successor) for record, successor in pairwise(own) if successor.offset != record.offset + 1)


def longest_silence(records: Iterable[Record], began: float, ended: float) -> float:
    """Returns the longest time without a call for a queue; messages have to arrive in all of them at all times."""
    longest = 0.0
    for own in by_queue(records).values():
        times = [began, *(record.began for record in own if began < record.began < ended), ended]
        longest = max(longest, *(end - start for start, end in pairwise(times)))
    return longest


def outside(records: Iterable[Record], windows: Sequence[Window], slack: float) -> list[Record]:
    """Returns the records that lie outside all windows, each lengthened by `slack` seconds for calls under way."""
    late = [Window(window.began, window.ended + slack) for window in windows]
    return [record for record in records if not any(window.touches(record.began, record.ended) for window in late)]
