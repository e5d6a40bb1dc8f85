"""The rules about what comes twice: a message that is stored again, and one that handlers receive again.

A message is stored again only by another try of its send, which is recorded, behind one whose answer was lost. It is
received again only from a queue that its member took anew, which is recorded too, at an offset whose message was not
consumed, or whose consumption was not stored. How long a member has for that is counted in turns of its loop, four a
second: on a busy machine they take longer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from pyrmq_core.protocol.messages.names import RETRY_PREFIX
from tests.chaos.history import Fault, Got, Outcome, Queue, Send, Start, Stored, Tried
from tests.chaos.judged import KILLS, History

# After these a send may be stored twice: its answer was lost, and the client repeats it.
LOSE_ANSWERS: Final = ("cut", *KILLS)
# A producer that notices the end of a connection, on a machine that is busy.
NOTICED_SECONDS: Final = 0.5
# A member stores offsets every second, and when it gives a queue up; one of a broadcasting group every 5 s.
STORED_TURNS: Final = 24
# A broker writes offsets to its disk every 5 s, and a slave fetches them every 10 s.
FORGOTTEN_TURNS: Final = 60
# A member that does not hear of a change rebalances every 20 s.
SHARED_TURNS: Final = 100
# A member that dies stores nothing any more.
ENDS_OF_MEMBERS: Final = ("lose", "leave")
# While these last, or around a cut, a broker stores no offset of a member.
KEEP_OFFSETS_OUT: Final = ("cut", "stall", "pause", "fill_disk", "deny", "change_secret", *KILLS)
# While these last, or around a cut, a member may not hear of others: a topic that is gone is not rebalanced.
KEEP_NEWS_OUT: Final = (*KEEP_OFFSETS_OUT, "remake")
SHOWN: Final = 5


def no_copy_is_made_without_a_lost_answer(history: History) -> Iterator[str]:
    """Yields messages that are stored more often than by one try, and one for each lost answer that another followed.

    Apache's broker stores a message again for each commit of one transaction (5.4.0, `EndTransactionProcessor`), and a
    check of the broker, which it repeats while it is busy, may cross with the commit that it already has. One that is
    killed delivers again what was delayed: it writes down what it delivered every 10 s (`ScheduleMessageService`) or
    every `timerFlushIntervalMs` (`TimerMessageStore`).
    """
    first_got: dict[str, float] = {}
    for got in history.got:
        first_got.setdefault(got.id, got.at)
    copies = {}
    for send in history.sends.values():
        places = history.places.get(send.id, ())
        if len(places) > 1 + _lost_answers(history, send) and not (
            _is_repeated_by_apaches(history, send, places)
            or _is_committed_again(history, send, places, first_got.get(send.id, float("inf")))
        ):
            copies[send.id] = [place.queue for place in places]
    if copies:
        first = list(copies.items())[:SHOWN]
        yield f"{len(copies)} messages are stored twice, and no answer was lost before another try: {first}"


def _lost_answers(history: History, send: Send) -> int:
    """Returns how many tries of a send perhaps stored it before the last: at a broker that lost the answers then."""
    tries = [tried for tried in history.tries.get(send.id, ()) if tried.is_unsure]
    followed = tries if send.outcome == Outcome.STORED or send.is_in_transaction else tries[:-1]
    return sum(_lost_its_answer(history, tried) for tried in followed)


def _lost_its_answer(history: History, tried: Tried) -> bool:
    return any(
        fault.kind in LOSE_ANSWERS
        and fault.target == tried.broker
        and fault.began - NOTICED_SECONDS < tried.ended
        and tried.began < fault.ended + NOTICED_SECONDS
        for fault in history.faults
    )


def _is_repeated_by_apaches(history: History, send: Send, places: Sequence[Stored]) -> bool:
    brokers = {place.broker for place in places}
    if not brokers <= history.apaches:
        return False
    return send.is_in_transaction or (
        send.delay_seconds > 0 and all(history.killed_after(broker, send.began) < float("inf") for broker in brokers)
    )


def _is_committed_again(history: History, send: Send, places: Sequence[Stored], first_got: float) -> bool:
    """Checks whether a broker that was killed as it committed a transaction, perhaps after a check, did so twice."""
    brokers = {place.broker for place in places}
    return send.is_in_transaction and any(
        fault.kind in KILLS and brokers == {fault.target} and send.began < fault.ended and fault.began < first_got
        for fault in history.faults
    )


def nothing_is_repeated_without_a_cause(history: History) -> Iterator[str]:
    """Yields messages that handlers received twice from one place without a cause."""
    last: dict[tuple[str, Queue, int, int, str], Got] = {}
    causes = Causes(history)
    unexplained = []
    for got in history.got:
        delivery = got.group, got.queue, got.offset, got.tries, got.id  # a retry lies in the group's own topic
        if (before := last.get(delivery)) is not None and not causes.explain(before, got):
            unexplained.append(
                f"{got.id} at {got.offset} of {got.queue} by {causes.show(before)} and {causes.show(got)}"
            )
        last[delivery] = got
    if unexplained:
        yield f"{len(unexplained)} messages were consumed twice without a cause: {unexplained[:SHOWN]}"


class Causes:
    """The causes by which a message comes again: the queues that members took, and what the group had consumed."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._starts: defaultdict[tuple[str, str, Queue], list[Start]] = defaultdict(list)
        for start in history.starts:
            self._starts[start.group, start.member, start.queue].append(start)
        self._got: defaultdict[tuple[str, Queue, int], list[Got]] = defaultdict(list)
        for got in history.got:
            self._got[got.group, _source_of(got), got.offset].append(got)

    def explain(self, first: Got, second: Got) -> bool:
        """Checks whether a message may come again so: what was given back, and what a member finds in a queue anew."""
        if not first.kept:
            return True
        start = self._start_of(second)
        if start is None or start.offset > second.offset:
            return False
        if start.at > first.at:
            return self._is_not_stored(start)
        other = self._start_of(first)
        return first.member != second.member and other is not None and self._may_share(start, other, first.at)

    def show(self, got: Got) -> str:
        start = self._start_of(got)
        return f"{got.member} ({got.at:.2f}, in the queue since {start.at if start else 0:.2f})"

    def _start_of(self, got: Got) -> Start | None:
        """Returns the last time before that a member took the queue of its message."""
        starts = self._starts[got.group, got.member, _source_of(got)]
        return max((start for start in starts if start.at <= got.at), key=lambda start: start.at, default=None)

    def _may_share(self, start: Start, other: Start, at: float) -> bool:
        """Checks whether the earlier of two members may not know at a time that the other has its queue."""
        earlier, later = sorted((start, other), key=lambda start: start.at)
        faults = (fault for fault in self._history.faults if fault.kind in KEEP_NEWS_OUT and fault.began <= at)
        since = max((fault.ended for fault in faults), default=later.at)
        return self._history.turns(earlier.member, max(since, later.at), at) <= SHARED_TURNS

    def _is_not_stored(self, start: Start) -> bool:
        """Checks whether the group may have been at the offset that a member found.

        It was if that message was not consumed then, or if its consumption could not be stored, or was forgotten.
        """
        before = [got for got in self._got[start.group, start.queue, start.offset] if got.at < start.at]
        if not before or self._history.turns(before[-1].member, before[-1].at, start.at) <= STORED_TURNS:
            return True
        got = before[-1]
        return self._is_reset(start, got) or any(
            self._keeps_out(fault, got) or self._forgets(fault, got, start) for fault in self._history.faults
        )

    def _is_reset(self, start: Start, got: Got) -> bool:
        """Checks whether a reset owed the message again; one that failed has perhaps moved some queues."""
        resets = (
            (reset.began, reset.ended)
            for reset in self._history.resets
            if reset.queue == start.queue and reset.group == start.group and reset.after <= start.offset
        )
        failed = (
            (fault.began, fault.ended)
            for fault in self._history.faults
            if fault.kind == "failed replay" and fault.target.startswith(start.topic)
        )
        return any(began <= start.at and got.at <= ended for began, ended in (*resets, *failed))

    def _keeps_out(self, fault: Fault, got: Got) -> bool:
        """Checks whether a fault may have kept a member from storing the offset behind a message."""
        if got.at > fault.ended + NOTICED_SECONDS:
            return False
        if self._history.turns(got.member, got.at, fault.began) > STORED_TURNS:
            return False
        if fault.kind in ENDS_OF_MEMBERS:
            return fault.target == got.member
        return fault.kind in KEEP_OFFSETS_OUT and fault.target in (got.broker, got.topic)

    def _forgets(self, fault: Fault, got: Got, start: Start) -> bool:
        """Checks whether a broker that was killed may have forgotten the offset behind a message."""
        if fault.kind not in KILLS or fault.target != got.broker or not got.at <= fault.began < start.at:
            return False
        turns = (self._history.turns(member, got.at, fault.began) for member in self._history.beats)
        return max(turns, default=0) <= FORGOTTEN_TURNS


def _source_of(got: Got) -> Queue:
    """Returns the queue that a message was pulled from: of one that was given back, its group's own."""
    return (f"{RETRY_PREFIX}{got.group}", got.broker, got.queue_id) if got.tries else got.queue
