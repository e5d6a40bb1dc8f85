"""The judgement over a run's history: what broke a promise, one line each; no line for what the promises allow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from tests.chaos.history import (
    OURS,
    OUT_OF_TIME,
    Booted,
    Copied,
    Deleted,
    Event,
    Fault,
    Got,
    Hung,
    Outcome,
    Queue,
    Reset,
    Send,
    Settled,
    Stored,
    Subscribed,
)

# A member may hold so many messages of a queue, or have them on the way, when a reset reaches it.
HELD: Final = 250
# A broker's times are of whole milliseconds.
CLOCK_SECONDS: Final = 0.01
# A broker forgets by these what it did not write, or its slave does not have.
KILLS: Final = ("kill", "cut_power", "promote", "upgrade")
# After these a send may be stored twice: its answer was lost, and the client repeats it.
LOSE_ANSWERS: Final = ("cut", *KILLS)
SECONDS_AROUND: Final = 5.0
# A broker of Apache's holds a pull for 15 s, and looks at those that it holds every 5 s.
HELD_PULL_SECONDS: Final = 20.0
# A member that has a queue has a message of it in so much time, where messages come.
MESSAGE_SECONDS: Final = 3.0
# Steps by which queues get other members: those of the group change, or what they know of members, queues and brokers.
MOVES_QUEUES: Final = frozenset(
    {
        *(
            "join",
            "leave",
            "lose",
            "cut",
            "stall",
            "pause",
            "kill",
            "cut_power",
            "promote",
            "grow",
            "write_only",
            "resize",
        ),
        *("kill_nameserver", "pause_nameserver", "kill_slave"),
    }
)
# A member sends heartbeats every 30 s, rebalances every 20 s, and polls NameServers every 5 s.
REBALANCE_SECONDS: Final = 60.0
# The first members have shared the queues so long after the first message.
FIRST_REBALANCE_SECONDS: Final = 10.0
# A member stores offsets every second, a broker writes them to its disk every 5 s, and a slave fetches them every 10 s.
UNSTORED_SECONDS: Final = 20.0
SHOWN: Final = 5


class History:
    """A run's events by kind."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.sends: dict[str, Send] = {}
        self.got: list[Got] = []
        self.hung: list[Hung] = []
        self.faults: list[Fault] = []
        self.resets: list[Reset] = []
        self.deletions: dict[str, Deleted] = {}  # the last of each topic
        self.places: defaultdict[str, list[Stored]] = defaultdict(list)
        self.queues: defaultdict[Queue, list[Stored]] = defaultdict(list)
        self.copies: list[Copied] = []
        self.groups: set[str] = set()
        self.apaches: set[str] = set()  # the brokers of Apache's
        self.end: Settled | None = None
        for event in events:
            self._add(event)
        self.got.sort(key=lambda got: got.at)
        self.moves = list(self._moves())
        self._by_queue: defaultdict[Queue, list[Got]] = defaultdict(list)
        for got in self.got:
            if not got.tries:
                self._by_queue[got.queue].append(got)
        self.groups |= {got.group for got in self.got} | {reset.group for reset in self.resets}

    def _add(self, event: Event) -> None:
        match event:
            case Booted() if event.maker != OURS:
                self.apaches.add(event.broker)
            case Subscribed():
                self.groups.add(event.group)
            case Send():
                self.sends[event.id] = event
            case Got():
                self.got.append(event)
            case Hung():
                self.hung.append(event)
            case Fault():
                self.faults.append(event)
            case Deleted():
                self.deletions[event.topic] = event
            case Reset():
                self.resets.append(event)
            case Stored():
                self.places[event.id].append(event)
                self.queues[event.queue].append(event)
            case Copied():
                self.copies.append(event)
            case Settled():
                self.end = event

    def _moves(self) -> Iterator[tuple[float, float]]:
        """Yields times in which queues change hands; the first members join at the begin, and all leave in the end."""
        for fault in self.faults:
            if fault.kind in MOVES_QUEUES:
                yield fault.began, fault.ended
        if self.got:
            yield 0.0, self.got[0].at + FIRST_REBALANCE_SECONDS - REBALANCE_SECONDS
        if self.end is not None:
            yield self.end.at, self.end.at

    def acknowledged(self) -> Iterator[Send]:
        return (send for send in self.sends.values() if send.outcome == Outcome.STORED and not self.is_deleted(send))

    def is_deleted(self, send: Send) -> bool:
        """Checks whether the message was sent before its topic's last deletion."""
        deletion = self.deletions.get(send.topic)
        return deletion is not None and send.began < deletion.began

    def killed_after(self, broker: str, at: float) -> float:
        """Returns when the broker was first killed after a time; infinity if it was not."""
        kills = (fault for fault in self.faults if fault.kind in KILLS and fault.target == broker)
        return min((fault.began for fault in kills if fault.began > at), default=float("inf"))

    def first_tries(self, group: str, queue: Queue) -> Iterator[Got]:
        """Yields what the group's handlers were called with from the queue itself, in the order of time."""
        return (got for got in self._by_queue[queue] if got.group == group)

    def may_be_lost(self, reset: Reset) -> bool:
        """Checks whether the reset's broker may not have the group follow it.

        One that is killed forgets it. Apache's give a reset to the next pull of the group (5.4.0,
        `ConsumerOffsetManager.queryThenEraseResetOffset`), and take the commits of every other member: while two
        members have the queue, or a pull is held of one that had it, it may be given to the wrong one.
        """
        if self.killed_after(reset.broker, reset.began) < float("inf"):
            return True
        if reset.broker not in self.apaches:
            return False
        tries = list(self.first_tries(reset.group, reset.queue))
        held_since = max((got.at for got in tries if got.at < reset.began), default=reset.began)
        first = max(held_since, reset.began - HELD_PULL_SECONDS) - MESSAGE_SECONDS
        members = {got.member for got in tries if first < got.at < reset.ended + MESSAGE_SECONDS}
        return len(members) > 1


def missing(history: History) -> dict[str, list[str]]:
    """Returns the acknowledged messages that each group has not consumed and was to, those of a replay included.

    A member goes on where it was in a topic that is deleted and made again: it passes over what is sent first.
    """
    kept = {(got.group, got.id): got.at for got in history.got if got.kept}  # in the order of time: the last stays
    unpaid: dict[str, list[str]] = {}
    for group in history.groups:
        owed = _owed_since(history, group) | dict.fromkeys(_lost_with_masters(history, group))
        sends = (send for send in history.acknowledged() if send.topic not in history.deletions)
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
    """Yields messages that were consumed and never sent, or whose send reported that they are not stored."""
    strange = {got.id for got in history.got if got.id not in history.sends}
    refused = {got.id for got in history.got if _outcome(history, got.id) == Outcome.NOT_STORED}
    if strange and history.end is not None:
        yield f"{len(strange)} messages were consumed that were never sent: {sorted(strange)[:SHOWN]}"
    if refused:
        yield f"{len(refused)} messages were consumed whose sends said not stored: {sorted(refused)[:SHOWN]}"


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


def no_copy_is_made_by_waiting(history: History) -> Iterator[str]:
    """Yields messages that are stored twice although no answer to their sends was lost: waiting makes no copy.

    Apache's broker stores a message again for each commit of one transaction (5.4.0, `EndTransactionProcessor`), and a
    check of the broker, which it repeats while it is busy, may cross with the commit that it already has. One that is
    killed delivers again what was delayed: it writes down what it delivered every 10 s (`ScheduleMessageService`) or
    every `timerFlushIntervalMs` (`TimerMessageStore`).
    """
    losses = [fault for fault in history.faults if fault.kind in LOSE_ANSWERS]
    copies = {}
    first_got: dict[str, float] = {}
    for got in history.got:
        first_got.setdefault(got.id, got.at)
    for send in history.acknowledged():
        # A broker that is killed as it commits a transaction, which may be long after the call, commits it again.
        ended = first_got.get(send.id, float("inf")) if send.is_in_transaction else send.ended
        is_excused = any(
            fault.began - SECONDS_AROUND < ended and send.began < fault.ended + SECONDS_AROUND for fault in losses
        )
        places = history.places.get(send.id, ())
        if len(places) > 1 and not is_excused and not _is_repeated_by_apaches(history, send, places):
            copies[send.id] = [place.queue for place in places]
    if copies:
        first = list(copies.items())[:SHOWN]
        yield f"{len(copies)} messages, each acknowledged once and with no answer lost, are stored twice: {first}"


def _is_repeated_by_apaches(history: History, send: Send, places: Sequence[Stored]) -> bool:
    brokers = {place.broker for place in places}
    if not brokers <= history.apaches:
        return False
    return send.is_in_transaction or (
        send.delay_seconds > 0 and all(history.killed_after(broker, send.began) < float("inf") for broker in brokers)
    )


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


def nothing_is_repeated_without_a_cause(history: History) -> Iterator[str]:
    """Yields messages that handlers received twice from one place, and no reset, kill or rebalance explains it."""
    last: dict[tuple[str, Queue, int, int], Got] = {}
    unexplained = []
    for got in history.got:
        delivery = got.group, got.queue, got.offset, got.tries  # a retry lies in the group's own topic
        if (before := last.get(delivery)) is not None and not _is_explained(history, before, got):
            unexplained.append(f"{got.id} at {got.offset} of {got.queue} by {before.member} and {got.member}")
        last[delivery] = got
    if unexplained:
        yield f"{len(unexplained)} messages were consumed twice without a cause: {unexplained[:SHOWN]}"


def _is_explained(history: History, first: Got, second: Got) -> bool:
    """Checks whether something between two deliveries of a message has it delivered again."""
    resets = (
        (reset.began, reset.ended)
        for reset in history.resets
        if reset.queue == first.queue and reset.group == first.group and reset.after <= first.offset
    )
    failed = (
        (fault.began, fault.ended)
        for fault in history.faults
        if fault.kind == "failed replay" and fault.target.startswith(first.queue[0])
    )
    if any(began <= second.at and first.at <= ended + MESSAGE_SECONDS for began, ended in (*resets, *failed)):
        return True
    return any(
        began <= second.at and began - UNSTORED_SECONDS <= first.at <= ended + REBALANCE_SECONDS
        for began, ended in history.moves
    )


def slaves_are_copies(history: History) -> Iterator[str]:
    """Yields the slaves that do not have their masters' bytes."""
    for copy in history.copies:
        if copy.wrong:
            yield f"{copy.slave} is no copy of its master: {copy.wrong}"


def every_member_goes_on(history: History) -> Iterator[str]:
    """Yields the members that hang, or ended by themselves."""
    for hung in history.hung:
        yield f"{hung.member} {hung.what}"


EARLY: Final[Sequence[Callable[[History], Iterator[str]]]] = (
    nothing_is_invented,
    nothing_rolled_back_is_consumed,
    only_what_was_given_back_is_retried,
    resets_are_followed,
    every_member_goes_on,
)
LATE: Final = (
    nothing_is_lost,
    nothing_comes_early,  # a step of the clock is recorded at its end
    nothing_deleted_comes_back,
    no_copy_is_made_by_waiting,
    nothing_is_repeated_without_a_cause,
    slaves_are_copies,
)


def already_wrong(events: Iterable[Event]) -> list[str]:
    """Returns what can never become right again, of a run that goes on."""
    history = History(events)
    return [fault for rule in EARLY for fault in rule(history)]


def faults_of(events: Iterable[Event]) -> list[str]:
    """Returns everything that broke a promise in a run that is over."""
    history = History(events)
    return [fault for rule in (*EARLY, *LATE) for fault in rule(history)]
