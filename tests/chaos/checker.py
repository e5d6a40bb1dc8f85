"""The judgement over a run's history: what broke a promise, one line each; no line for what the promises allow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from tests.chaos.history import OUT_OF_TIME, Event, Outcome, Queue
from tests.chaos.judged import History
from tests.chaos.repeats import LOSE_ANSWERS, no_copy_is_made_without_a_lost_answer, nothing_is_repeated_without_a_cause
from tests.chaos.sequence import keys_keep_their_order, queues_are_consumed_in_order

# A member may hold so many messages of a queue, or have them on the way, when a reset reaches it.
HELD: Final = 250
# A broker's times are of whole milliseconds.
CLOCK_SECONDS: Final = 0.01
# These hold answers up, or have a broker be unsure itself.
HOLD_UP: Final = ("pause", "stall", "fill_disk", *LOSE_ANSWERS)
SECONDS_AROUND: Final = 5.0
SHOWN: Final = 5


def missing(history: History) -> dict[str, list[str]]:
    """Returns the acknowledged messages that each group has not consumed and was to, those of a replay included."""
    kept = {(got.group, got.id): got.at for got in history.got if got.kept}  # in the order of time: the last stays
    unpaid: dict[str, list[str]] = {}
    for group in history.groups:
        owed = _owed_since(history, group) | dict.fromkeys(_lost_with_masters(history, group))
        sends = (send for send in history.acknowledged() if not history.may_be_passed_over(group, send))
        since = ((send.id, owed.get(send.id, 0.0)) for send in sends)
        unpaid[group] = [id_ for id_, at in since if at is not None and kept.get((group, id_), -1.0) < at]
    return unpaid


def _lost_with_masters(history: History, group: str) -> set[str]:
    """Returns the messages that the group may lack since slaves were promoted that did not have all of their masters'.

    A member may read what the slave does not have, and no producer takes for safe. It goes on behind that, also where
    the slave is the master and has other messages there. A member that gives a message back hears of success although
    the slave, which stands still, lacks it: the answer has no word for that.
    """
    promotions = {fault.target: fault for fault in history.faults if fault.kind == "promote"}
    lost: set[str] = set()
    last: defaultdict[Queue, int] = defaultdict(lambda: -1)
    for got in history.got:
        promotion = promotions.get(got.broker)
        if promotion is None or got.group != group:
            continue
        if not got.kept and promotion.began - CLOCK_SECONDS < got.at < promotion.ended:
            lost.add(got.id)
        kept = ((place.queue, place.offset) for place in history.places.get(got.id, ()))
        if not got.tries and (got.queue, got.offset) not in kept:
            last[got.queue] = max(last[got.queue], got.offset)
    passed = (place for queue, offset in last.items() for place in history.queues[queue] if place.offset <= offset)
    return lost | {place.id for place in passed}


def _owed_since(history: History, group: str) -> dict[str, float | None]:
    """Returns, for messages that a reset moved, since when the group owes them; None for those that it passed over."""
    owed: dict[str, float | None] = {}
    for reset in sorted(history.resets, key=lambda reset: reset.began):
        if reset.group != group:
            continue
        is_lost = history.may_be_lost(reset)
        for place in history.queues[reset.queue]:
            if place.offset < reset.after:
                owed[place.id] = None
            elif place.offset < reset.before:
                if not is_lost:
                    owed[place.id] = reset.began
            elif owed.get(place.id, 0.0) is None:
                owed[place.id] = 0.0
    return owed


def nothing_is_lost(history: History) -> Iterator[str]:
    """Yields acknowledged messages that are not stored, or that a group never consumed though there was time."""
    if history.end is None:
        return
    is_over = history.end.how != OUT_OF_TIME
    absent = (send for send in history.acknowledged() if send.id not in history.places)
    if lost := [send.id for send in absent if is_over or not send.is_late]:
        yield f"{len(lost)} acknowledged messages are not stored: {lost[:SHOWN]}"
    if is_over:
        for group, ids in missing(history).items():
            if ids:
                yield f"{group} never consumed {len(ids)} acknowledged messages ({history.end.how}): {ids[:SHOWN]}"


def nothing_is_invented(history: History) -> Iterator[str]:
    """Yields messages that were consumed and never sent, or whose send reported that they are not stored, and are."""
    strange = {got.id for got in history.got if got.id not in history.sends}
    there = {got.id for got in history.got} | history.places.keys()
    refused = {id_ for id_ in there if _outcome(history, id_) == Outcome.NOT_STORED}
    if strange and history.end is not None:
        yield f"{len(strange)} messages were consumed that were never sent: {sorted(strange)[:SHOWN]}"
    if refused:
        yield f"{len(refused)} messages are there whose sends said not stored: {sorted(refused)[:SHOWN]}"


def refusals_are_reported(history: History) -> Iterator[str]:
    """Yields sends while every broker refused them that did not report so; one that lost an answer may be unsure."""
    wrong = {}
    for denied in history.denials:
        for send in history.sends.values():
            is_within = denied.began < send.began and send.ended < denied.ended
            if send.topic != denied.topic or not is_within or send.outcome in (Outcome.NOT_STORED, Outcome.ROLLED_BACK):
                continue
            if send.outcome == Outcome.STORED or not any(
                fault.kind in HOLD_UP and fault.began < send.ended and send.began - SECONDS_AROUND < fault.ended
                for fault in history.faults
            ):
                wrong[send.id] = str(send.outcome)
    if wrong:
        yield f"{len(wrong)} sends that were refused did not say so: {list(wrong.items())[:SHOWN]}"


def _outcome(history: History, id_: str) -> str | None:
    return history.sends[id_].outcome if id_ in history.sends else None


def nothing_deleted_comes_back(history: History) -> Iterator[str]:
    """Yields messages of a deleted topic that the topic has that was made again."""
    back = sorted(id_ for id_ in history.places if id_ in history.sends and history.is_deleted(history.sends[id_]))
    if back:
        yield f"{len(back)} messages are stored that were deleted with their topic: {back[:SHOWN]}"


def nothing_rolled_back_is_consumed(history: History) -> Iterator[str]:
    """Yields messages that were consumed although their transactions are rolled back."""
    wrong = sorted({got.id for got in history.got if _outcome(history, got.id) == Outcome.ROLLED_BACK})
    if wrong:
        yield f"{len(wrong)} messages were consumed that are rolled back: {wrong[:SHOWN]}"


def nothing_comes_early(history: History) -> Iterator[str]:
    """Yields delayed messages that were consumed before they are due.

    A broker's clock is set forward by no more seconds than it stays so, and by as many back to where it was.
    """
    steps = [fault for fault in history.faults if fault.kind == "step_clock"]
    early = {}
    for got in history.got:
        send = history.sends.get(got.id)
        if send is None or not send.delay_seconds:
            continue
        ahead = sum(step.ended - step.began for step in steps if step.began < got.at and send.began < step.ended)
        if got.at < (due := send.began + send.delay_seconds - CLOCK_SECONDS - ahead):
            early[got.id] = round(due - got.at, 3)
    if early:
        yield f"{len(early)} delayed messages were consumed too early, by seconds: {list(early.items())[:SHOWN]}"


def only_what_was_given_back_is_retried(history: History) -> Iterator[str]:
    """Yields messages that came as a later try and that no handler gave back."""
    given_back = {(got.group, got.id) for got in history.got if not got.kept}
    strange = sorted({got.id for got in history.got if got.tries and (got.group, got.id) not in given_back})
    if strange:
        yield f"{len(strange)} messages were retried that no handler gave back: {strange[:SHOWN]}"


def resets_are_followed(history: History, held: int = HELD) -> Iterator[str]:
    """Yields resets to a later offset before which more is consumed afterwards than a member may hold."""
    for reset in history.resets:
        if reset.broker in history.apaches and history.may_be_lost(reset):
            continue
        later = (
            other.began
            for other in history.resets
            if other.queue == reset.queue and other.group == reset.group and other.began > reset.began
        )
        until = min((*later, history.killed_after(reset.broker, reset.began)), default=float("inf"))
        after = [
            got
            for got in history.first_tries(reset.group, reset.queue)
            if reset.ended < got.at < until and got.offset < reset.after
        ]
        if len(after) > held:
            yield f"{reset.group} consumed {len(after)} messages of {reset.queue} behind its reset to {reset.after}"


def slaves_are_copies(history: History) -> Iterator[str]:
    """Yields the slaves that do not have their masters' bytes."""
    for copy in history.copies:
        if copy.wrong:
            yield f"{copy.slave} is no copy of its master: {copy.wrong}"


def each_row_counts_once(history: History) -> Iterator[str]:
    """Yields the readers of a committed stream that lack a row, or have one twice."""
    for counted in history.counts:
        if counted.wrong:
            yield f"{counted.reader} of {counted.rows} committed rows: {counted.wrong}"


def every_member_goes_on(history: History) -> Iterator[str]:
    """Yields the members that hang, or ended by themselves."""
    for hung in history.hung:
        yield f"{hung.member} {hung.what}"


EARLY: Final[Sequence[Callable[[History], Iterator[str]]]] = (
    nothing_is_invented,
    refusals_are_reported,
    nothing_rolled_back_is_consumed,
    only_what_was_given_back_is_retried,
    resets_are_followed,
    every_member_goes_on,
)
LATE: Final = (
    nothing_is_lost,
    nothing_comes_early,  # a step of the clock is recorded at its end
    nothing_deleted_comes_back,
    no_copy_is_made_without_a_lost_answer,
    nothing_is_repeated_without_a_cause,
    queues_are_consumed_in_order,
    keys_keep_their_order,
    slaves_are_copies,
    each_row_counts_once,
)


def already_wrong(events: Iterable[Event]) -> list[str]:
    """Returns what can never become right again, of a run that goes on."""
    history = History(events)
    return [fault for rule in EARLY for fault in rule(history)]


def faults_of(events: Iterable[Event]) -> list[str]:
    """Returns everything that broke a promise in a run that is over."""
    history = History(events)
    return [fault for rule in (*EARLY, *LATE) for fault in rule(history)]
