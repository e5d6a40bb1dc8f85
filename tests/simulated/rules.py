"""The rules by which a life is judged: those of `tests/chaos`, and some that need to see into the brokers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from tests.chaos import checker
from tests.chaos.history import Event, Queue
from tests.chaos.judged import History
from tests.chaos.plan import RESETS
from tests.chaos.repeats import no_copy_is_made_without_a_lost_answer
from tests.chaos.sequence import out_of_order

# Messages of a queue that are on the way to a member, or in its handlers, besides those that it may hold: the answers
# to the pulls of a read ahead, 32 messages each.
ON_THE_WAY: Final = 160
FAILED_RESETS: Final = frozenset(f"failed {kind}" for kind in RESETS)


@dataclass(frozen=True, slots=True)
class Handled:
    """A call of a member's handler, with messages of one queue."""

    began: float
    ended: float
    member: str
    queue: Queue


@dataclass(frozen=True, slots=True)
class Committed:
    """The offset of the group in one queue, as its broker had it at a time."""

    at: float
    queue: Queue
    offset: int


Seen: TypeAlias = Handled | Committed
Happening: TypeAlias = Event | Seen


def offsets_are_of_consumed(history: History, commits: Iterable[Committed]) -> Iterator[str]:
    """Yields commits beyond an offset that no handler had yet, and that no reset passed over.

    A reset that failed has perhaps moved some queues of its topic, so these are not judged from then on.
    """
    unsure: dict[str, float] = {}
    for fault in history.faults:
        if fault.kind in FAILED_RESETS:
            unsure.setdefault(fault.target.partition(":")[0], fault.began)
    had: defaultdict[Queue, dict[int, float]] = defaultdict(dict)
    for got in history.got:
        if not got.tries:
            had[got.queue].setdefault(got.offset, got.at)
    reached: defaultdict[Queue, int] = defaultdict(int)
    for commit in sorted(commits, key=lambda commit: commit.at):
        queue = commit.queue
        if unsure.get(queue[0], commit.at) < commit.at:
            continue
        passed = (reset.after for reset in history.resets if reset.queue == queue and reset.began <= commit.at)
        offset = max(reached[queue], *passed, 0)
        while offset < commit.offset and had[queue].get(offset, commit.at + 1) <= commit.at:
            offset += 1
        reached[queue] = offset
        if offset < commit.offset:
            yield f"offset {commit.offset} of {queue} is committed, and {offset} is not consumed"
            return


def one_member_a_queue(history: History, calls: Iterable[Handled]) -> Iterator[str]:
    """Yields two members whose ordered calls for one queue overlap; a broker that is killed forgets its locks."""
    killed = {fault.target for fault in history.faults if fault.kind == "kill"}
    last: dict[Queue, Handled] = {}
    for call in sorted(calls, key=lambda call: call.began):
        before = last.get(call.queue)
        if before is not None and call.began < before.ended and call.queue[1] not in killed:
            yield f"{before.member} and {call.member} both had messages of {call.queue} in order"
        if before is None or call.ended > before.ended:
            last[call.queue] = call


def order_is_kept(history: History) -> Iterator[str]:
    """Yields queues whose messages were not consumed in their order, but for those of a killed broker, or reset."""
    excused = {fault.target for fault in history.faults if fault.kind == "kill"}
    moved = {reset.queue for reset in history.resets}
    yield from out_of_order(
        got for got in history.got if got.kept and got.queue not in moved and got.broker not in excused
    )


RULES: Final = (
    checker.nothing_is_lost,
    checker.nothing_is_invented,
    no_copy_is_made_without_a_lost_answer,
    checker.only_what_was_given_back_is_retried,
    checker.every_member_goes_on,
)


def faults_of(events: Iterable[Happening], *, holds: int, is_orderly: bool) -> list[str]:
    """Returns everything that broke a promise in a life."""
    calls, commits, others = [], [], []
    for event in events:
        match event:
            case Handled():
                calls.append(event)
            case Committed():
                commits.append(event)
            case _:
                others.append(event)
    history = History(others)
    faults = [fault for rule in RULES for fault in rule(history)]
    faults += checker.resets_are_followed(history, holds + ON_THE_WAY)
    faults += offsets_are_of_consumed(history, commits)
    if is_orderly:
        faults += [*one_member_a_queue(history, calls), *order_is_kept(history)]
    return faults
