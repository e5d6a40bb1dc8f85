"""One life: a cluster of ours, a producer and the members of a group in a world, and a plan that happens to them.

The run, its plan, its traffic and most rules are those of `tests/chaos`. What a process does there, tasks do here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final, TypeAlias

import trio

from pyrmq_core import (
    Admin,
    ConsumeFromWhere,
    LitePullConsumer,
    MessageExt,
    Producer,
    PullConsumer,
    PushConsumer,
    RocketMQError,
)
from pyrmq_core.servers.broker import BrokerConfig, RunningBroker, run_broker
from pyrmq_core.servers.nameserver import NameServerConfig, run_nameserver
from tests.chaos.history import Event, Fault, Hung
from tests.chaos.member import Worker
from tests.chaos.plan import BROKERS, EVERY_KIND, PACKED, PLAIN, TOPICS, Kind, Plan, drawn
from tests.chaos.runner import GROUP, Run
from tests.chaos.traffic import SEND_SECONDS, Load, Traffic
from tests.chaos.tries import tries_noted
from tests.servers.broker.memory_files import MemoryFiles
from tests.simulated.rules import Committed, Handled, Happening, Seen, faults_of
from tests.simulated.world import BEAT_SECONDS, PROCESS, Spins, Way, World, simulate

NAMESERVER: Final = "127.0.0.1:9876"
PORTS: Final = {"broker-a": 10911, "broker-b": 10921}
NAMES: Final = {f"127.0.0.1:{port}": name for name, port in PORTS.items()}
SETTINGS: Final = {
    "namesrvAddr": NAMESERVER,
    "brokerIP1": "127.0.0.1",
    "bindAddress": "127.0.0.1",
    "autoCreateTopicEnable": "false",
    "timerWheelEnable": "false",
    "messageIndexEnable": "false",
    "flushIntervalCommitLog": "60000",
    "flushIntervalConsumeQueue": "60000",
    "mappedFileSizeCommitLog": str(1 << 19),
    "mappedFileSizeConsumeQueue": "60000",
    "mapperFileSizeBatchConsumeQueue": "46000",
}
CONFIGS: Final = {
    name: BrokerConfig().with_settings({**SETTINGS, "brokerName": name, "listenPort": str(port)})
    for name, port in PORTS.items()
}
SETTLE_SECONDS: Final = 600
LEAVING_SECONDS: Final = 2
POLL_SECONDS: Final = 1
LITE_SHARE: Final = 0.2  # of the lives
POLLED_BEATS: Final = 10  # for a message of a poll, so that offsets are committed amid the work
BEATS_A_SECOND: Final = 4
NewMember: TypeAlias = "Callable[[str], Member]"


@dataclass(frozen=True, slots=True)
class Draw:
    """The choices of a seed, besides the moments. The steps of one life are of few kinds, so that these meet."""

    plan: Plan
    load: Load
    is_orderly: bool
    is_lite: bool  # members poll, and give no message back
    keeps_away: bool  # the producer from slow brokers
    batch: int  # messages of a call
    holds: int  # messages of a queue in a member
    given_back: float
    loss: float  # of what is under way

    @classmethod
    def of(cls, seed: int) -> Draw:
        draw = random.Random(f"life {seed}")
        is_lite = random.Random(f"lite {seed}").random() < LITE_SHARE
        plan = drawn(seed, draw.randint(2, 6), draw.sample((*EVERY_KIND, Kind.GROW), draw.randint(2, 4)))
        haste = draw.choice((1.0, 0.3))
        steps = tuple(replace(step, gap_seconds=step.gap_seconds * haste) for step in plan.steps)
        load = Load(
            single_senders=1,
            single_gap_seconds=0.5,
            batch_gap_seconds=draw.choice((0.1, 0.5)),
            batch_messages=6,
            burst_batches=8,
            burst_batch_messages=40,
        )
        return cls(
            replace(plan, steps=steps),
            load,
            is_orderly=draw.random() < 0.2 and not is_lite,
            is_lite=is_lite,
            keeps_away=draw.random() < 0.5,
            batch=draw.choice((1, 4)),
            holds=draw.choice((16, 200)),
            given_back=draw.choice((0.0, 0.05)) * (not is_lite),
            loss=draw.choice((0.0, 0.0, 0.003)),
        )


class Broker:
    """A broker of ours on files in memory, which stay when it is killed."""

    def __init__(self, name: str, world: World, nursery: trio.Nursery, contents: dict[str, bytes]) -> None:
        self.name = name
        self.running: RunningBroker | None = None
        self.way = Way(world, f"127.0.0.1:{PORTS[name]}")
        self._nursery = nursery
        self._files = MemoryFiles({path: bytearray(content) for path, content in contents.items()})
        self.is_up = trio.Event()
        self._turn = trio.Lock()

    async def serve(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serves until it is killed, on what the one before it left behind."""
        PROCESS.set(self.name)
        async with self._turn, trio.open_nursery() as own:
            self.running = await own.start(partial(run_broker, CONFIGS[self.name], files=self._files))
            self.is_up.set()
            task_status.started()

    def start(self) -> None:
        self._nursery.start_soon(self.serve)

    def kill(self) -> None:
        if self.running is not None:
            self.running.kill()
            self.running = None
            self.is_up = trio.Event()
        self.way.cut()

    def pause(self) -> None:
        self.way.stall("up", "down")

    def resume(self) -> None:
        self.way.stall()


class Member:
    """A member of the group, in tasks of its own."""

    def __init__(
        self, name: str, world: World, nursery: trio.Nursery, draw: Draw, events: list[Event], seen: list[Seen]
    ) -> None:
        self.name = name
        self.hung: Hung | None = None
        self._world = world
        self._seen = seen
        self._draw = draw
        own = random.Random(f"{draw.plan.seed} {name}")
        seconds = POLLED_BEATS * BEAT_SECONDS if draw.is_lite else BEAT_SECONDS
        self._worker = Worker(GROUP, name, own, events.extend, draw.given_back, seconds)
        self._began = trio.current_time()
        self._consumer: PushConsumer | None = None
        self._goes_on = True
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        nursery.start_soon(self._live)

    @property
    def beats(self) -> int:
        return int((trio.current_time() - self._began) * BEATS_A_SECOND)

    def new_events(self) -> list[Event]:
        return []  # they are in the history already

    async def stop(self) -> None:
        self._goes_on = False
        if self._consumer is not None:
            await self._consumer.stop()
        if not self._draw.is_lite:
            self._scope.cancel()
        await self._ended.wait()

    def kill(self) -> None:
        self._world.end_process(self.name)
        self._scope.cancel()

    async def _live(self) -> None:
        PROCESS.set(self.name)
        try:
            with self._scope:
                await (self._poll() if self._draw.is_lite else self._consume())
        finally:
            self._ended.set()

    async def _consume(self) -> None:
        async with PushConsumer(
            GROUP,
            nameserver=NAMESERVER,
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
            consume_threads=3,
            consume_message_batch_max_size=self._draw.batch,
            persist_consumer_offset_interval=1.0,
            pull_threshold_for_queue=self._draw.holds,
            consume_concurrently_max_span=2 * self._draw.holds,
        ) as consumer:
            for topic in TOPICS:
                await consumer.subscribe(topic)
            self._consumer = consumer
            await consumer.run(self._handle, orderly=self._draw.is_orderly)

    async def _poll(self) -> None:
        async with LitePullConsumer(
            GROUP,
            nameserver=NAMESERVER,
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
            auto_commit_interval=1.0,
            pull_threshold_for_queue=self._draw.holds,
            consume_max_span=2 * self._draw.holds,
        ) as consumer:
            for topic in TOPICS:
                await consumer.subscribe(topic)
            while self._goes_on:
                if messages := await consumer.poll(POLL_SECONDS):
                    await self._handle(messages)

    async def _handle(self, messages: Sequence[MessageExt]) -> None:
        began = time.monotonic()
        try:
            await self._worker.handle(messages)
        finally:
            queue = messages[0].queue
            queue_key = (queue.topic, queue.broker_name, queue.queue_id)
            self._seen.append(Handled(began, time.monotonic(), self.name, queue_key))


class Life(Run):
    """A run in a world: it is judged at its end alone."""

    queues_at_first = 2
    look_seconds = 5.0

    def __init__(
        self, draw: Draw, world: World, brokers: Mapping[str, Broker], traffic: Traffic, new: NewMember
    ) -> None:
        super().__init__(
            draw.plan, NAMESERVER, brokers, {name: each.way for name, each in brokers.items()}, traffic, new
        )
        self._world = world
        self._serving = brokers
        world.loss = draw.loss

    def _is_wrong(self) -> bool:
        return False

    async def _collect(self) -> None:
        await trio.sleep_forever()

    async def _stored(self) -> list[Event]:
        """Returns what is stored when nothing is lost any more, and every broker is back."""
        self._world.loss = 0
        for broker in self._serving.values():
            await broker.is_up.wait()
        for topic in TOPICS:
            await self._wait_for_route(topic)
        return await super()._stored()

    async def _wait_for_route(self, topic: str) -> None:
        """Returns when every broker is in the topic's route: one whose registration broke off comes with its next."""
        while True:
            async with PullConsumer("audit", nameserver=NAMESERVER) as consumer:
                with suppress(RocketMQError):
                    if {queue.broker_name for queue in await consumer.message_queues(topic)} == set(BROKERS):
                        return
            await trio.sleep(1)


def live(seed: int) -> list[Happening]:
    """Returns the history of a seed's life; raises `Spins` if its world stood."""
    return simulate(seed, partial(_live, Draw.of(seed), new_stores()))


def faults_in(seed: int) -> list[str]:
    """Returns everything that broke a promise in the life of a seed."""
    draw = Draw.of(seed)
    try:
        return faults_of(live(seed), holds=draw.holds, is_orderly=draw.is_orderly)
    except Spins as spins:
        return [str(spins)]


async def _live(draw: Draw, stores: dict[str, dict[str, bytes]], world: World) -> list[Happening]:
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(run_nameserver, NameServerConfig(bind_address="127.0.0.1", listen_port=9876)))
        brokers = {name: Broker(name, world, nursery, stores[name]) for name in BROKERS}
        for broker in brokers.values():
            await nursery.start(broker.serve)
        PROCESS.set("the client")
        async with Producer(
            "senders", nameserver=NAMESERVER, send_timeout=SEND_SECONDS, send_latency_fault_enable=draw.keeps_away
        ) as producer:
            traffic = Traffic(producer, random.Random(draw.plan.seed), draw.load)
            seen: list[Seen] = []

            def new_member(name: str) -> Member:
                return Member(name, world, nursery, draw, traffic.events, seen)

            run = Life(draw, world, brokers, traffic, new_member)
            nursery.start_soon(_note_commits, brokers, seen)
            with tries_noted(traffic.events):
                await run.execute(SETTLE_SECONDS, SETTLE_SECONDS)
        await trio.sleep(LEAVING_SECONDS)
        run.events += [Fault(at, at, "cut", NAMES[address]) for at, address in world.lost if address in NAMES]
        left = {wire.process for wire in world.wires} - set(BROKERS)
        run.events += [Hung(time.monotonic(), name, "left a connection open") for name in sorted(left)]
        nursery.cancel_scope.cancel()
    return [*run.events, *seen]


async def _note_commits(brokers: dict[str, Broker], seen: list[Seen]) -> None:
    """Notes the committed offsets of the group each second."""
    while True:
        await trio.sleep(1)
        for name, broker in brokers.items():
            if broker.running is not None:
                offsets = broker.running.broker.tables.offsets
                for topic in TOPICS:
                    for queue_id, offset in offsets.of_group(GROUP, topic).items():
                        seen.append(Committed(time.monotonic(), (topic, name, queue_id), offset))


@cache
def new_stores() -> dict[str, dict[str, bytes]]:
    """Returns the files of brokers with both topics and the group, which no life changes."""
    return simulate(0, _make_stores)


async def _make_stores(world: World) -> dict[str, dict[str, bytes]]:
    files = {}
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(run_nameserver, NameServerConfig(bind_address="127.0.0.1", listen_port=9876)))
        async with trio.open_nursery() as serving:
            for name in BROKERS:
                files[name] = MemoryFiles()
                await serving.start(partial(run_broker, CONFIGS[name], files=files[name]))
            async with Admin(nameserver=NAMESERVER) as admin:
                await admin.create_topic(PLAIN, queues=Life.queues_at_first)
                await admin.create_topic(PACKED, queues=Life.queues_at_first, batch=True)
                await admin.groups.create(GROUP)
            serving.cancel_scope.cancel()
        nursery.cancel_scope.cancel()
    return {name: {path: bytes(content) for path, content in kept.contents.items()} for name, kept in files.items()}
