"""A group of members of ours, of Java's and of Go's that join and leave, with the records of all of them."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

import trio

from pyrmq_core import (
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueStrategy,
    MessageQueue,
)
from pyrmq_core.client.consumer.rebalance.strategies import sort_client_ids, sort_queues
from tests.support.groups.java_members import JavaMembers
from tests.support.groups.our_member import OurMember
from tests.support.groups.records import (
    Place,
    Record,
    Window,
    by_queue,
    by_two_members,
    longest_silence,
    outside,
    repeats,
    simultaneous,
    skipped,
    turned_back,
)
from tests.support.waiting import until

SETTLE_SECONDS = 60.0  # 3 x 20 s: each member rebalances every 20 s, and Java's may fail once on a busy machine
# A Java member that leaves gives no lock back of a queue that it has just lost (RebalanceImpl.unlockAll passes over
# dropped ones), so that the lock ends at the broker after 60 s. Go's give none back that they lose.
LOCK_SECONDS = 60.0
# After the tables agree, a call that began before may still run, and Java's tables are seen some time later.
CALL_SECONDS = 1.0
STEADY_SECONDS = 2.0
STORE_SECONDS = 8.0  # offsets are stored every 5 s
SECONDS = 90.0


class Member(Protocol):
    """A consumer of the group, as the checks see it."""

    @property
    def client_id(self) -> str: ...
    @property
    def owned(self) -> frozenset[MessageQueue]: ...

    async def stop(self) -> None: ...


@dataclass(eq=False)
class MixedGroup:
    """One group over one topic: its present members, the windows of its changes, and all records."""

    nameserver: str
    group: str
    topic: str
    queues: Sequence[MessageQueue]
    java: JavaMembers
    nursery: trio.Nursery
    orderly: bool
    go: JavaMembers | None = None
    by_circle: bool = False
    members: dict[str, Member] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    owners: list[tuple[float, Mapping[MessageQueue, str]]] = field(default_factory=list)
    deaths: dict[str, float] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=count)
    _java_has_left: bool = False
    _changed_at: float | None = None
    _settled_at: float | None = None

    @property
    def kind(self) -> str:
        return "orderly" if self.orderly else "circle" if self.by_circle else "concurrent"

    @property
    def _strategy(self) -> AllocateMessageQueueStrategy:
        return AllocateMessageQueueAveragelyByCircle() if self.by_circle else AllocateMessageQueueAveragely()

    @property
    def patience(self) -> float:
        """The longest time, in seconds, that a queue may wait for its next owner."""
        return SETTLE_SECONDS + (LOCK_SECONDS if self.orderly and (self._java_has_left or self.go) else 0.0)

    async def join(self, *, ours: bool, in_go: bool = False) -> None:
        """Adds a member, in Go or Java if it is not ours, and returns when it was started."""
        name = f"{'ours' if ours else 'go' if in_go else 'java'}-{self.group}-{next(self._numbers)}"
        self._note_change()
        others = self.go if in_go else self.java
        if ours:
            member = OurMember(name, self.topic, self.records.append)
            await self.nursery.start(self._run_ours, member)
            self.members[name] = member
        else:
            assert others is not None
            self.members[name] = await others.join(name, self.group, self.topic, self.records.append, kind=self.kind)

    async def leave(self, name: str) -> None:
        """Stops a member, and returns when it has left."""
        self._note_change()
        self._java_has_left |= name in self.names(ours=False)
        await self.members.pop(name).stop()

    async def die(self, program: JavaMembers) -> None:
        """Kills a program in Go with its members."""
        self._note_change()
        await program.die()
        for name in program.members:
            self.members.pop(name, None)
            self.deaths[name] = time.time()

    def names(self, *, ours: bool) -> list[str]:
        return [name for name in self.members if name.startswith("ours") is ours]

    async def settle(self) -> None:
        """Returns when every member owns the queues that it should, and has for a while; fails after `patience`.

        A member that joins or leaves reports to one broker after another, and each member asks any of them for the list
        of members: for a moment it may go back to an older answer.
        """
        try:
            await until(self._is_steady, self.patience)
        except trio.TooSlowError:
            owned = {name: sorted(map(str, member.owned)) for name, member in self.members.items()}
            raise AssertionError(f"not settled within {self.patience:g} s: {owned}, not {self._shares()}") from None
        assert self._changed_at is not None
        now = time.time()
        self.windows.append(Window(self._changed_at, now))
        self.owners.append((now, {queue: name for name, own in self._shares().items() for queue in own}))
        self._changed_at = self._settled_at = None

    async def consume(self, messages: int) -> None:
        """Returns when so many more messages of each queue are consumed."""
        before = {queue: len(own) for queue, own in by_queue(self.records).items()}

        def done() -> bool:
            after = {queue: len(own) for queue, own in by_queue(self.records).items()}
            return all(after.get(queue, 0) >= before.get(queue, 0) + messages for queue in self.queues)

        await until(done, SECONDS)

    async def stop(self) -> None:
        """Stops all members: a last window, in which those that stay take the queues of those that have left."""
        for name in list(self.members):
            await self.leave(name)
        assert self._changed_at is not None
        self.windows.append(Window(self._changed_at, time.time()))

    async def _run_ours(self, member: OurMember, *, task_status: trio.TaskStatus[None]) -> None:
        await member.run(
            self.nameserver, self.group, orderly=self.orderly, strategy=self._strategy, task_status=task_status
        )

    def _note_change(self) -> None:
        if self._changed_at is None:
            self._changed_at = time.time()

    def _shares(self) -> dict[str, frozenset[MessageQueue]]:
        ids = {member.client_id: name for name, member in self.members.items()}
        queues, clients = sort_queues(self.queues), sort_client_ids(ids)
        divide = self._strategy.allocate
        return {name: frozenset(divide(self.group, client_id, queues, clients)) for client_id, name in ids.items()}

    def _is_steady(self) -> bool:
        now = time.time()
        if not self._is_settled():
            self._settled_at = None
        elif self._settled_at is None:
            self._settled_at = now
        return self._settled_at is not None and now - self._settled_at >= STEADY_SECONDS

    def _is_settled(self) -> bool:
        if not all(member.client_id for member in self.members.values()):
            return False
        shares = self._shares()
        return all(member.owned == shares[name] for name, member in self.members.items())

    def check(self, sent: Mapping[Place, str], began: float, ended: float) -> str:
        """Checks every promise of the group; returns a line with the counts."""
        assert not sent.keys() - {record.place for record in self.records}, "lost"
        strange = [record for record in self.records if sent.get(record.place, record.msg_id) != record.msg_id]
        assert not strange, (strange[:5], [sent[record.place] for record in strange[:5]])
        self._check_owners()
        together = by_two_members(self.records)
        if self.orderly:
            assert simultaneous(self.records) == []
            assert skipped(self.records) == []
            self._check_turns()
        again = repeats(self.records)
        self._check_repeats(again)
        silence = longest_silence(self.records, began, ended)
        assert silence < self.patience, self.windows
        longest = max(window.ended - window.began for window in self.windows)
        return (
            f"{self.kind}: {len(self.records)} calls, {len(self.windows)} windows, "
            f"the longest {longest:.1f} s, silence {silence:.1f} s, {len(again)} repeats, "
            f"{len(together)} pairs of calls by two members at once"
        )

    def _check_owners(self) -> None:
        """Checks that between windows each message is consumed by the owner of its queue, and by no other member."""
        for index, (settled_at, owners) in enumerate(self.owners):
            until_time = self.windows[index + 1].began if index + 1 < len(self.windows) else float("inf")
            quiet = [
                record
                for record in outside(self.records, self.windows, CALL_SECONDS)
                if settled_at < record.began < until_time
            ]
            wrong = [record for record in quiet if record.member != owners[record.queue]]
            lines = (
                f"\n{record.began - settled_at:.1f} s after, owner {owners[record.queue]}: {record}"
                for record in wrong[:5]
            )
            assert not wrong, "".join(lines)

    def _check_turns(self) -> None:
        """Checks that a queue goes back to earlier messages only when it changes hands."""
        for record, successor in turned_back(self.records):
            near = [window for window in self.windows if window.touches(record.began - CALL_SECONDS, successor.ended)]
            assert near, f"{record}\n{successor}"

    def _check_repeats(self, again: Sequence[tuple[Record, Record]]) -> None:
        """Checks that a message comes again only in a window, and was consumed after the last offset was stored.

        What a killed member had consumed may come again later, when its locks have ended.
        """
        for first, later in again:
            if first.member in self.deaths:
                assert first.ended >= self.deaths[first.member] - STORE_SECONDS - CALL_SECONDS, (first, later)
                continue
            at = [window for window in self.windows if window.began <= later.began <= window.ended + CALL_SECONDS]
            assert at, (first, later)
            assert first.ended >= at[0].began - STORE_SECONDS - CALL_SECONDS, (first, later, at)


async def change_at_random(group: MixedGroup, draw: random.Random, *, most: int) -> None:
    """Adds or stops a member of either kind; one of each stays."""
    ours = draw.random() < 0.5
    own = group.names(ours=ours)
    if len(own) > 1 and (len(group.members) >= most or draw.random() < 0.5):
        await group.leave(draw.choice(own))
    else:
        await group.join(ours=ours)
