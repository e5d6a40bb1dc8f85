"""`History`: a run's events by kind, and what follows from them for the rules of the checker."""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from tests.chaos.history import (
    OURS,
    Beat,
    Booted,
    Copied,
    Counted,
    Deleted,
    Denied,
    Event,
    Fault,
    Got,
    Hung,
    Outcome,
    Queue,
    Reset,
    Send,
    Settled,
    Start,
    Stored,
    Subscribed,
    Tried,
)
from tests.chaos.plan import LISTENERS, OF_TOPICS, POLLERS, SORTERS

# A broker forgets by these what it did not write, or its slave does not have.
KILLS: Final = ("kill", "cut_power", "promote", "upgrade")
# A broker of Apache's holds a pull for 15 s, and looks at those that it holds every 5 s.
HELD_PULL_SECONDS: Final = 20.0
# A member that has a queue has a message of it in so much time, where messages come.
MESSAGE_SECONDS: Final = 3.0


class History:
    """A run's events by kind."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.sends: dict[str, Send] = {}
        self.got: list[Got] = []
        self.hung: list[Hung] = []
        self.faults: list[Fault] = []
        self.resets: list[Reset] = []
        self.tries: defaultdict[str, list[Tried]] = defaultdict(list)
        self.starts: list[Start] = []
        self.deletions: dict[str, Deleted] = {}  # the last of each topic
        self.denials: list[Denied] = []
        self.places: defaultdict[str, list[Stored]] = defaultdict(list)
        self.queues: defaultdict[Queue, list[Stored]] = defaultdict(list)
        self.copies: list[Copied] = []
        self.groups: set[str] = set()
        self.apaches: set[str] = set()  # the brokers of Apache's
        self.counts: list[Counted] = []
        self.beats: defaultdict[str, list[float]] = defaultdict(list)  # by members, in the order of time
        self.end: Settled | None = None
        for event in events:
            if isinstance(event, Counted):
                self.counts.append(event)
            elif isinstance(event, Beat):
                self.beats[event.member].append(event.at)
            self._add(event)
        self.got.sort(key=lambda got: got.at)
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
            case Tried():
                self.tries[event.id].append(event)
            case Start():
                self.starts.append(event)
            case Got():
                self.got.append(event)
            case Hung():
                self.hung.append(event)
            case Fault():
                self.faults.append(event)
            case Deleted():
                self.deletions[event.topic] = event
            case Denied():
                self.denials.append(event)
            case Reset():
                self.resets.append(event)
            case Stored():
                self.places[event.id].append(event)
                self.queues[event.queue].append(event)
            case Copied():
                self.copies.append(event)
            case Settled():
                self.end = event

    def turns(self, member: str, began: float, ended: float) -> int:
        """Returns how many turns a member's loop made between two times."""
        beats = self.beats.get(member, ())
        return bisect(beats, ended) - bisect(beats, began)

    def acknowledged(self) -> Iterator[Send]:
        return (send for send in self.sends.values() if send.outcome == Outcome.STORED and not self.is_deleted(send))

    def is_deleted(self, send: Send) -> bool:
        """Checks whether the message was sent before its topic's last deletion."""
        deletion = self.deletions.get(send.topic)
        return deletion is not None and send.began < deletion.began

    def may_be_passed_over(self, group: str, send: Send) -> bool:
        """Checks whether the group may not consume the message, as its topic was deleted and made again.

        Pollers, listeners and sorters do not read that topic. A broker of ours moves the members that are connected at
        the deletion to the first message. It forgets that with a restart.
        """
        is_disturbed = bool(self.apaches) or any(fault.kind not in OF_TOPICS for fault in self.faults)
        return send.topic in self.deletions and (is_disturbed or group in (POLLERS, LISTENERS, SORTERS))

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
        members have the queue, or a pull is held of one that had it, or of a connection that was cut, it may be given
        to the wrong one.
        """
        if self.killed_after(reset.broker, reset.began) < float("inf"):
            return True
        if reset.broker not in self.apaches:
            return False
        cuts = (fault.began for fault in self.faults if fault.kind == "cut" and fault.target == reset.broker)
        if any(reset.began - HELD_PULL_SECONDS < cut < reset.ended for cut in cuts):
            return True
        tries = list(self.first_tries(reset.group, reset.queue))
        held_since = max((got.at for got in tries if got.at < reset.began), default=reset.began)
        first = max(held_since, reset.began - HELD_PULL_SECONDS) - MESSAGE_SECONDS
        members = {got.member for got in tries if first < got.at < reset.ended + MESSAGE_SECONDS}
        return len(members) > 1
