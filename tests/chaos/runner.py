"""A run: a cluster, its clients, and a plan that happens to them; everything is recorded."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Literal, Protocol

import trio

from pyrmq_core import Admin, PullConsumer, RocketMQError
from tests.chaos.checker import already_wrong, faults_of, missing
from tests.chaos.clusters import Server
from tests.chaos.history import (
    ALL_CONSUMED,
    OUT_OF_TIME,
    STOOD_STILL,
    Event,
    Fault,
    Got,
    Hung,
    Reset,
    Settled,
    Stored,
    Subscribed,
)
from tests.chaos.judged import History
from tests.chaos.plan import OF_ACCESS, OF_OURS, OF_PAIRS, OF_RELEASES, OF_TOPICS, PACKED, TOPICS, Kind, Plan, Step
from tests.chaos.traffic import Traffic

GROUP = "workers"
QUEUES = 4
FEWEST_MEMBERS, MOST_MEMBERS = 1, 4
CALL_SECONDS = 30.0
COLLECT_SECONDS = 0.1
LOOK_SECONDS = 1.0
# Nothing was consumed while every member's loop beat so often: what is missing does not come any more.
STILL_BEATS = 300
LASTING = (
    *(Kind.STALL, Kind.PAUSE, Kind.KILL, Kind.LEAVE),
    *(*OF_PAIRS, *OF_OURS, *OF_TOPICS, *OF_ACCESS, *OF_RELEASES),
)


class Way(Protocol):
    """The way to a broker."""

    def cut(self) -> None:
        """Ends the connections."""

    def stall(self, *ways: str) -> None:
        """Holds what goes to the broker (`up`) and what comes from it (`down`); nothing of a way that is not named."""


class GroupMember(Protocol):
    """A member of the group; `beats` counts the turns of its loop, four a second."""

    name: str

    @property
    def beats(self) -> int: ...

    @property
    def hung(self) -> Hung | None: ...

    def new_events(self) -> list[Event]: ...

    async def stop(self) -> None: ...

    def kill(self) -> None: ...


class Run:
    """One run of a plan; `events` is its history. Steps that are only for processes are in `ProcessRun`."""

    queues_at_first = QUEUES
    audited_topics: Sequence[str] = TOPICS
    look_seconds = LOOK_SECONDS

    def __init__(
        self,
        plan: Plan,
        nameserver: str,
        servers: Mapping[str, Server],
        ways: Mapping[str, Way],
        traffic: Traffic,
        new_member: Callable[[str], GroupMember],
    ) -> None:
        self.plan = plan
        self.events: list[Event] = traffic.events
        self.events.append(Subscribed(GROUP))
        self.done_steps = 0
        self._nameserver = nameserver
        self._servers = servers
        self._ways = ways
        self._traffic = traffic
        self._new_member = new_member
        self._members: list[GroupMember] = []
        self._all_members: list[GroupMember] = []
        self._beside: list[GroupMember] = []
        self._locks = {name: trio.Lock() for name in servers}
        self._queues = dict.fromkeys(TOPICS, self.queues_at_first)
        self._is_unsure = False  # of an offset that an administrator's call perhaps changed
        self._until: Collection[str] = ()
        self._draw = random.Random(plan.seed)
        self._do: dict[Kind, Callable[[Step], Awaitable[None]]] = {
            Kind.CUT: self._cut,
            Kind.STALL: self._stall,
            Kind.PAUSE: self._pause,
            Kind.KILL: self._kill,
            Kind.JOIN: self._join,
            Kind.LEAVE: self._leave,
            Kind.LOSE: self._lose,
            Kind.BURST: self._burst,
            Kind.SKIP: self._reset,
            Kind.REPLAY: self._reset,
            Kind.GROW: self._grow,
            Kind.KILL_NAMESERVER: self._kill,
            Kind.PAUSE_NAMESERVER: self._pause,
            Kind.KILL_SLAVE: self._kill,
        }

    async def execute(
        self,
        step_seconds: float,
        settle_seconds: float,
        still_beats: int = STILL_BEATS,
        until: Collection[str] = (),
    ) -> None:
        """Does the steps, as many as the time allows; then has all go on, and waits until all is consumed.

        With `until` it sends on until faults with all these words show, and ends then, or when the time is over.
        """
        self._until = until
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._collect)
                for _ in range(2):
                    self._start_member()
                async with trio.open_nursery() as sending:
                    sending.start_soon(self._traffic.run)
                    await self._do_steps(step_seconds)
                    if until:
                        await self._wait_shown(settle_seconds)
                    self._traffic.stop()
                self.events += await self._stored()
                how = await self._settle(settle_seconds, still_beats)
                audited = set(self.events)
                self.events += [event for event in await self._stored() if event not in audited]  # delayed ones, too
                self.events.append(Settled(time.monotonic(), how))
                async with trio.open_nursery() as leaving:
                    for member in (*self._members, *self._beside):
                        leaving.start_soon(member.stop)
                nursery.cancel_scope.cancel()
            self._collect_once()
            self.events += [member.hung for member in self._all_members if member.hung is not None]
        finally:
            for member in self._all_members:
                member.kill()

    # --- Steps

    async def _do_steps(self, seconds: float) -> None:
        """Does them one behind another, those that last in the background; returns when all have ended."""
        end = trio.current_time() + seconds
        async with trio.open_nursery() as lasting:
            for step in self.plan.steps:
                if trio.current_time() > end or self._is_wrong():
                    return
                self.done_steps += 1
                if step.kind in LASTING:
                    lasting.start_soon(self._do[step.kind], step)
                else:
                    await self._do[step.kind](step)
                await trio.sleep(step.gap_seconds)

    @asynccontextmanager
    async def _fault(self, step: Step) -> AsyncIterator[None]:
        began = time.monotonic()
        yield
        self.events.append(Fault(began, time.monotonic(), step.kind, step.target))

    async def _cut(self, step: Step) -> None:
        async with self._fault(step):
            self._ways[step.target].cut()

    async def _stall(self, step: Step) -> None:
        ways = ("up", "down") if step.way == "both" else (step.way,)
        async with self._locks[step.target], self._fault(step):
            self._ways[step.target].stall(*ways)
            await trio.sleep(step.seconds)
            self._ways[step.target].stall()

    async def _pause(self, step: Step) -> None:
        async with self._locks[step.target], self._fault(step):
            server = self._servers[step.target]
            await trio.to_thread.run_sync(server.pause)
            await trio.sleep(step.seconds)
            server.resume()

    async def _kill(self, step: Step) -> None:
        async with self._locks[step.target]:
            server = self._servers.get(step.target)
            if server is None:  # a slave that is a master now
                return
            async with self._fault(step):
                await trio.to_thread.run_sync(server.kill)
                await trio.sleep(step.seconds)
                await trio.to_thread.run_sync(server.start)

    async def _join(self, step: Step) -> None:
        async with self._fault(step):
            if len(self._members) < MOST_MEMBERS:
                self._start_member()

    async def _leave(self, step: Step) -> None:
        if len(self._members) > FEWEST_MEMBERS:
            member = self._members.pop(0)
            async with self._fault(replace(step, target=member.name)):
                await member.stop()

    async def _lose(self, step: Step) -> None:
        member = self._members.pop(self._draw.randrange(len(self._members)))
        async with self._fault(replace(step, target=member.name)):
            await trio.to_thread.run_sync(member.kill)
            if len(self._members) < FEWEST_MEMBERS:
                self._start_member()

    async def _burst(self, step: Step) -> None:
        async with self._fault(step):
            await self._traffic.burst(step.target)

    async def _reset(self, step: Step) -> None:
        """Resets the group in a topic, while no server is held up.

        Apache's 5.4.0 fails for an empty queue of a batch topic: `BatchConsumeQueue.getMinMsgOffset` has no file then.
        """
        to: datetime | Literal["earliest", "latest"] = self._traffic.burst_began.get(step.target, "earliest")
        if step.kind is Kind.SKIP:
            to = "latest"
        async with self._all_up():
            began = time.monotonic()
            try:
                async with self._admin() as admin:
                    changes = await admin.groups.reset(GROUP, step.target, to)
            except RocketMQError as error:
                self._is_unsure = True
                self.events.append(Fault(began, time.monotonic(), f"failed {step.kind}", f"{step.target}: {error}"))
                return
        ended = time.monotonic()
        for change in changes:
            place = (step.target, change.queue.broker_name, change.queue.queue_id)
            self.events.append(Reset(began, ended, GROUP, *place, change.before or 0, change.after))

    @asynccontextmanager
    async def _all_up(self) -> AsyncIterator[None]:
        """Holds every server up."""
        async with AsyncExitStack() as held:
            for lock in self._locks.values():
                await held.enter_async_context(lock)
            yield

    async def _grow(self, step: Step) -> None:
        async with self._fault(step), self._admin() as admin:
            with suppress(RocketMQError):  # a broker is away: it has its queues as before
                self._queues[step.target] += 1
                await admin.create_topic(step.target, queues=self._queues[step.target], batch=step.target == PACKED)

    def add_beside(self, group: str, member: GroupMember) -> None:
        """Adds the only member of another group, which stays."""
        self.events.append(Subscribed(group))
        self._beside.append(member)
        self._all_members.append(member)

    def _start_member(self) -> None:
        member = self._new_member(f"member-{len(self._all_members) + 1}")
        self._members.append(member)
        self._all_members.append(member)

    # --- What is recorded, and the end

    def _is_wrong(self) -> bool:
        if any(member.hung for member in self._all_members):
            return True
        return not self._until and bool(already_wrong(self.events))

    async def _wait_shown(self, seconds: float) -> None:
        """Returns when faults with the words of `until` show, or the time is over."""
        with trio.move_on_after(seconds):
            while not self._is_wrong():
                events = list(self.events)  # what is sent meanwhile need not be stored yet
                shown = faults_of([*events, *await self._stored(), Settled(time.monotonic(), OUT_OF_TIME)])
                if all(any(words in fault for fault in shown) for words in self._until):
                    return
                await trio.sleep(self.look_seconds)

    async def _collect(self) -> None:
        while True:
            self._collect_once()
            await trio.sleep(COLLECT_SECONDS)

    def _collect_once(self) -> None:
        for member in self._all_members:
            self.events += member.new_events()

    async def _stored(self) -> list[Event]:
        """Returns every message of the topics."""
        stored: list[Event] = []
        async with self._audit() as consumer:
            for topic in self.audited_topics:
                for queue, bounds in (await consumer.offset_bounds(await consumer.message_queues(topic))).items():
                    offset = bounds.start
                    while offset < bounds.end:
                        pulled = await consumer.pull(queue, offset)
                        place = (topic, queue.broker_name, queue.queue_id)
                        stored += [
                            Stored(*place, message.queue_offset, message.body.decode()) for message in pulled.messages
                        ]
                        offset = pulled.next_offset
        return stored

    def _admin(self) -> AbstractAsyncContextManager[Admin]:
        return Admin(nameserver=self._nameserver, timeout=CALL_SECONDS)

    def _audit(self) -> AbstractAsyncContextManager[PullConsumer]:
        return PullConsumer("audit", nameserver=self._nameserver, timeout=CALL_SECONDS)

    async def _look_again(self) -> None:
        """Does nothing; a run whose brokers may store more by themselves reads that when consumption stands still."""

    async def _settle(self, seconds: float, still_beats: int) -> str:
        """Waits until every message is consumed, or it is sure that some never are, or the time is over."""
        if self._until:
            return OUT_OF_TIME
        consumed, beats, has_looked = -1, 0, False
        with trio.move_on_after(seconds):
            while not self._is_wrong():
                if not any(missing(History(self.events)).values()):
                    return OUT_OF_TIME if self._is_unsure else ALL_CONSUMED
                count = sum(isinstance(event, Got) for event in self.events)
                alive = sum(member.beats for member in self._members) // len(self._members)
                if count != consumed:
                    consumed, beats, has_looked = count, alive, False
                elif not has_looked:
                    has_looked = True
                    await self._look_again()
                elif alive - beats > still_beats:
                    return OUT_OF_TIME if self._is_unsure else STOOD_STILL
                await trio.sleep(self.look_seconds)
        return OUT_OF_TIME
