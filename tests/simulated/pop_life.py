"""A life of a work queue: a broker, a sender and workers that pop, judged by what each worker had and when.

The broker is killed and goes on with its files, workers are killed, and connections end in place of what they carry.
In a third of the lives the workers pop in order.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import trio

from pyrmq_core import Admin, Message, PopConsumer, PopDelivery, Producer, RocketMQError
from pyrmq_core.model import MessageQueue
from pyrmq_core.servers.broker import BrokerConfig, clock, run_broker
from pyrmq_core.servers.nameserver import NameServerConfig, run_nameserver
from tests.servers.broker.memory_files import MemoryFiles
from tests.simulated.life import NAMESERVER, SETTINGS
from tests.simulated.world import PROCESS, Spins, World, simulate

ADDRESS: Final = "127.0.0.1:10911"
TOPIC, GROUP, BROKER = "jobs", "workers", "broker-a"
QUEUES, MESSAGES, WORKERS = 2, 60, 4
SENDING_SECONDS, CALM_SECONDS, SETTLE_SECONDS = 15.0, 15.0, 600
CONFIG: Final = BrokerConfig().with_settings(
    {
        **SETTINGS,
        "timerWheelEnable": "true",
        "flushIntervalCommitLog": "500",  # offsets are not written before the log
        "brokerName": BROKER,
        "listenPort": ADDRESS.partition(":")[2],
    }
)


@dataclass(frozen=True, slots=True)
class Draw:
    """The choices of a seed, besides the moments."""

    seed: int
    is_ordered: bool
    batch: int  # messages of a pop
    invisible: float
    kills: bool  # of the broker
    loss: float

    @classmethod
    def of(cls, seed: int) -> Draw:
        draw = random.Random(f"pop {seed}")
        return cls(
            seed,
            is_ordered=draw.random() < 0.33,
            batch=draw.choice((1, 3)),
            invisible=draw.choice((2.0, 6.0)),
            kills=draw.random() < 0.5,
            loss=draw.choice((0.0, 0.0, 0.01)),
        )


@dataclass(eq=False, slots=True)
class Held:
    """A message that a worker had from `began_ms` on, until it becomes visible again."""

    name: str
    worker: str
    began_ms: int
    ends_ms: int
    is_acking: bool = False
    acked_ms: int | None = None  # when its acknowledgement was answered
    is_sure: bool = True  # no answer about it was lost, and it was not given back


@dataclass(slots=True)
class History:
    sent: set[str] = field(default_factory=set)
    held: list[Held] = field(default_factory=list)
    was_killed: bool = False

    @property
    def done(self) -> set[str]:
        return {held.name for held in self.held if held.is_acking}


def nothing_is_lost(history: History) -> Iterator[str]:
    yield from (f"{name} was never acknowledged" for name in sorted(history.sent - history.done))


def what_is_acknowledged_is_over(history: History) -> Iterator[str]:
    """Yields messages that a worker got after an acknowledgement that was answered in time."""
    done: dict[str, int] = {}
    for held in history.held:
        if held.acked_ms is not None and held.is_sure and held.acked_ms < held.ends_ms:
            done.setdefault(held.name, held.acked_ms)
    for held in history.held:
        if held.began_ms > done.get(held.name, held.began_ms):
            yield f"{held.worker} got {held.name} after its acknowledgement"


def one_worker_a_message(history: History) -> Iterator[str]:
    """Yields messages that a worker got while another one had them."""
    last: dict[str, Held] = {}
    for held in history.held:
        before = last.get(held.name)
        if before is not None and before.is_sure and held.began_ms < before.ends_ms:
            yield f"{before.worker} and {held.worker} both had {held.name}"
        last[held.name] = held


def order_is_kept(history: History) -> Iterator[str]:
    """Yields messages that a worker got before the earlier ones of their queue had been with any."""
    reached: defaultdict[str, set[int]] = defaultdict(set)
    for held in sorted(history.held, key=lambda held: held.began_ms):
        queue, number = held.name.split("-")
        numbers = reached[queue]
        numbers.add(int(number))
        missing = set(range(int(number))) - numbers
        if missing:
            yield f"{held.worker} got {held.name} before {queue}-{min(missing)}"


def faults_of(draw: Draw, history: History) -> list[str]:
    rules = [nothing_is_lost]
    if draw.is_ordered:
        rules.append(order_is_kept)
    # An ordered message comes again with one before it, and after a kill, which forgets the locks of the last seconds.
    if not draw.is_ordered or (draw.batch == 1 and not history.was_killed):
        rules += [one_worker_a_message, what_is_acknowledged_is_over]
    return [fault for rule in rules for fault in rule(history)]


def faults_in(seed: int) -> list[str]:
    """Returns everything that broke a promise in the life of a seed."""
    draw = Draw.of(seed)
    try:
        return faults_of(draw, simulate(seed, partial(_live, draw)))
    except Spins as spins:
        return [str(spins)]


async def _live(draw: Draw, world: World) -> History:
    history, calm, files = History(), trio.Event(), MemoryFiles()
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(run_nameserver, NameServerConfig(bind_address="127.0.0.1", listen_port=9876)))
        await nursery.start(_serve, draw, world, history, calm, files)
        PROCESS.set("the client")
        async with Admin(nameserver=NAMESERVER) as admin:
            await admin.create_topic(TOPIC, queues=QUEUES)
            await admin.groups.create(GROUP)
        for number in range(WORKERS):
            nursery.start_soon(_keep_working, draw, world, history, calm, f"worker {number}")
        world.loss = draw.loss
        await _send(draw, history)
        await trio.sleep(CALM_SECONDS)
        world.loss = 0
        calm.set()
        for _ in range(SETTLE_SECONDS):
            await trio.sleep(1)
            if history.sent <= history.done:
                break
        await trio.sleep(2 * draw.invisible + 2)  # what is done does not come again
        nursery.cancel_scope.cancel()
    return history


async def _serve(
    draw: Draw,
    world: World,
    history: History,
    calm: trio.Event,
    files: MemoryFiles,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves, and in some lives is killed and starts again until the calm."""
    PROCESS.set(BROKER)
    own, is_first = random.Random(f"kills {draw.seed}"), True
    while True:
        async with trio.open_nursery() as nursery:
            running = await nursery.start(partial(run_broker, CONFIG, files=files))
            if is_first:
                task_status.started()
            is_first = False
            with trio.move_on_after(own.uniform(3, 15) if draw.kills else math.inf):
                await calm.wait()
            if calm.is_set() or not draw.kills:
                await trio.sleep_forever()
            history.was_killed = True
            running.kill()
            for wire in world.wires:
                if wire.way[0] == ADDRESS:
                    wire.cut()
        await trio.sleep(own.uniform(0, 2))


async def _send(draw: Draw, history: History) -> None:
    """Sends the messages of each queue in their order. One whose answer is lost ends its queue."""
    async with Producer("senders", nameserver=NAMESERVER, retry_times_when_send_failed=0, send_timeout=5.0) as producer:
        numbers, broken = dict.fromkeys(range(QUEUES), 0), set[int]()
        own = random.Random(f"sends {draw.seed}")
        for _ in range(MESSAGES):
            await trio.sleep(own.uniform(0, 2 * SENDING_SECONDS / MESSAGES))
            queue_id = own.randrange(QUEUES)
            name = f"{queue_id}-{numbers[queue_id]}"
            if queue_id not in broken:
                try:
                    await producer.send(Message(TOPIC, name.encode()), queue=MessageQueue(TOPIC, BROKER, queue_id))
                except RocketMQError:
                    broken.add(queue_id)
                else:
                    history.sent.add(name)
                    numbers[queue_id] += 1


async def _keep_working(draw: Draw, world: World, history: History, calm: trio.Event, name: str) -> None:
    """Works as one process after another, each of which is killed until the calm."""
    own = random.Random(f"{name} {draw.seed}")
    for life in range(1000):
        process = f"{name}.{life}"
        PROCESS.set(process)
        with trio.move_on_after(own.uniform(5, 40)):
            await _work(draw, history, calm, process, own)
        if calm.is_set():
            await _work(draw, history, calm, process, own)
        world.end_process(process)


async def _work(draw: Draw, history: History, calm: trio.Event, process: str, own: random.Random) -> None:
    async with PopConsumer(GROUP, nameserver=NAMESERVER, max_reconsume_times=1000) as consumer:
        while True:
            try:
                popped = await consumer.receive(
                    TOPIC, draw.batch, invisible=draw.invisible, wait=own.choice((1, 5)), order=draw.is_ordered
                )
            except RocketMQError:
                await trio.sleep(1)
                continue
            held = [_held(delivery, process) for delivery in popped]
            history.held += held
            for delivery, each in zip(popped, held, strict=True):
                await _handle(delivery, each, calm, own)


def _held(delivery: PopDelivery, process: str) -> Held:
    receipt = delivery._receipt
    began_ms = receipt.pop_time_ms
    return Held(delivery.message.body.decode(), process, began_ms, began_ms + receipt.invisible_ms)


async def _handle(delivery: PopDelivery, held: Held, calm: trio.Event, own: random.Random) -> None:
    """Acknowledges a message, mostly, after a time that may be too long."""
    await trio.sleep(own.choice((0, 0, 0.1, 1)))
    choice = own.random() if not calm.is_set() else 1.0
    try:
        if choice < 0.1:
            return  # it is forgotten
        if choice < 0.2:
            held.is_sure = False
            await delivery.give_back(own.choice((0, 1)))
            return
        if choice < 0.3:
            held.is_sure = False  # until it is answered
            await delivery.extend(own.choice((1.0, 10.0)))
            held.ends_ms, held.is_sure = _held(delivery, "").ends_ms, True
            await trio.sleep(own.choice((0, 3)))
        held.is_acking = True
        await delivery.ack()
        held.acked_ms = clock.now_ms()
    except RocketMQError:
        held.is_sure = False
