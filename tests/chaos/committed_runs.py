"""Runs with a committed stream: numbers are sent, Spark copies them, and both committed readers count the copies.

The stream is that of `tests.spark.committed_job`, in a process of its own, which a step kills. There are no members.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Final, Never

import pyarrow.parquet as pq
import trio

from pyrmq_core import Admin, Message, Producer, RocketMQError, blocking
from tests.chaos.clusters import NO_KEYS, Cluster, ClusterKind, boot
from tests.chaos.history import Booted, Counted, Event
from tests.chaos.plan import BROKERS, Kind, Plan, Step
from tests.chaos.process_runs import ProcessRun, client_of
from tests.chaos.proxy import proxies
from tests.chaos.runner import CALL_SECONDS, Way
from tests.chaos.traffic import SEND_SECONDS, Traffic
from tests.support.committed_kills import LOCAL, MANIFEST, check_rows, written_files
from tests.support.soaking import Driver, committed_rows, held, stored_rows

KINDS: Final = (Kind.KILL_DRIVER, Kind.CUT, Kind.STALL, Kind.PAUSE, Kind.KILL)
NUMBERS, COPIES = "numbers", "copies"
QUEUES: Final = 2
# So many that a driver is often killed, and a broker away, amid a batch.
NUMBERS_AT_ONCE: Final = 300
GAP_SECONDS: Final = 0.25
LOOK_SECONDS: Final = 0.5
BEAT_SECONDS: Final = 0.01
# A batch of some thousand numbers takes as long.
BATCH_SECONDS: Final = 1.0
# From the start of a JVM to its first batch, or to its last on a cluster that is whole, on a busy machine.
STREAM_SECONDS: Final = 240.0


class Stream:
    """The process of the stream and of its reader, which is started again whenever it ends."""

    def __init__(self, nameserver: str, directory: Path) -> None:
        self._nameserver = nameserver
        self._directory = directory
        self._driver = Driver(nameserver, directory, "tests.spark.committed_job", LOCAL, "rocketmq")
        self._turn = trio.Lock()
        self._killed_behind = -1

    async def keep(self) -> None:
        while True:
            async with self._turn:
                await trio.to_thread.run_sync(self._driver.ensure)
            await trio.sleep(LOOK_SECONDS)

    async def kill(self, delay_seconds: float) -> None:
        """Kills it so long after a batch began, behind one that it ended since its start."""
        with trio.fail_after(STREAM_SECONDS):
            while True:
                ended = self._newest("commits")
                if self._killed_behind < ended < self._newest("offsets"):
                    break
                await trio.sleep(BEAT_SECONDS)
        self._killed_behind = ended
        await trio.sleep(delay_seconds)
        async with self._turn:
            await trio.to_thread.run_sync(self._driver.kill)

    async def wait_begun(self) -> None:
        """Returns when a batch is committed."""
        with trio.fail_after(STREAM_SECONDS):
            while True:
                if self._newest("commits") >= 0:
                    return
                await trio.sleep(LOOK_SECONDS)

    def _newest(self, log: str) -> int:
        """Returns the newest batch in one of Spark's logs; -1 if there is none."""
        files = (self._directory / NUMBERS / log).glob("[0-9]*")
        return max((int(file.name) for file in files if file.name.isdecimal()), default=-1)

    async def finish(self, numbers: int) -> list[Event]:
        """Returns the counts of both readers, when the stream has copied everything; so many numbers were sent."""
        (self._directory / "complete").touch()
        with trio.move_on_after(STREAM_SECONDS) as waiting:
            while not self._driver.has_ended_well:
                await trio.to_thread.run_sync(self._driver.ensure)
                await trio.sleep(LOOK_SECONDS)
        if waiting.cancelled_caught:
            return [Counted("a stream", 0, f"it did not end: {self._driver.log.read_text()[-1000:]}")]
        return await trio.to_thread.run_sync(self._counts, numbers)

    def end(self) -> None:
        self._driver.end()

    def _counts(self, numbers: int) -> list[Event]:
        with blocking.PullConsumer("audit", nameserver=self._nameserver, timeout=CALL_SECONDS) as consumer:
            sent = Counter(body for rows in stored_rows(consumer, NUMBERS).values() for body, _ in rows)
            copied = Counter(committed_rows(consumer, COPIES))
            stored = held(consumer, COPIES) or 0
        if lost := set(map(str, range(1, numbers + 1))) - sent.keys():
            return [Counted("the topic", sent.total(), f"{len(lost)} numbers that were stored are lost")]
        files = written_files(self._directory / "rows")
        streamed = Counter(str(body) for file in files for body in pq.read_table(file).column("body").to_pylist())
        counts = [
            _counted(reader, rows, sent) for reader, rows in (("a stream", streamed), ("a pull consumer", copied))
        ]
        return [*counts, Counted("a read of all", stored, "")]


def _counted(reader: str, rows: Counter[str], sent: Counter[str]) -> Counted:
    try:
        check_rows(reader, rows, sent)
    except AssertionError as error:
        return Counted(reader, rows.total(), str(error))
    return Counted(reader, rows.total(), "")


class Numbers(Traffic):
    """The producer of the numbers, each of which is sent until it is stored, perhaps twice."""

    def __init__(self, producer: Producer, draw: random.Random, stream: Stream) -> None:
        super().__init__(producer, draw, sendings=())
        self.stored = 0
        self._stream = stream

    async def run(self) -> None:
        """Sends until `stop`, and keeps the stream running."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stream.keep)
            while not self._is_over:
                numbers = islice(self._numbers, NUMBERS_AT_ONCE)
                messages = [Message(NUMBERS, str(number).encode()) for number in numbers]
                while not await self._is_sent(messages):
                    pass
                self.stored += len(messages)
                await trio.sleep(GAP_SECONDS)
            nursery.cancel_scope.cancel()

    async def _is_sent(self, messages: list[Message]) -> bool:
        try:
            await self._producer.send_batch(messages)
        except RocketMQError:
            return False
        return True


class CommittedRun(ProcessRun):
    """A run of faults on brokers and on the driver of a stream."""

    audited_topics = ()

    def __init__(self, plan: Plan, cluster: Cluster, ways: Mapping[str, Way], numbers: Numbers, stream: Stream) -> None:
        super().__init__(plan, cluster, ways, numbers, _no_member)
        self._stream = stream
        self._do |= {Kind.KILL_DRIVER: self._kill_driver}

    def _start_member(self) -> None:
        """Does nothing: the stream alone reads."""

    async def _do_steps(self, seconds: float) -> None:
        await self._stream.wait_begun()
        await super()._do_steps(seconds)

    async def _kill_driver(self, step: Step) -> None:
        async with self._fault(step):
            await self._stream.kill(self._draw.uniform(0.0, BATCH_SECONDS))


def _no_member(name: str) -> Never:
    raise AssertionError(name)


@asynccontextmanager
async def running(plan: Plan, home: Path, kind: ClusterKind) -> AsyncIterator[CommittedRun]:
    """Yields a run of the plan that has not begun, and on leaving counts what the stream copied."""
    with boot(kind) as cluster, ExitStack() as stack:
        nameserver = cluster.nameserver
        async with (
            proxies(cluster.ports) as ways,
            client_of(nameserver, NO_KEYS) as client,
            Admin(client=client, timeout=CALL_SECONDS) as admin,
            Producer("senders", client=client, send_timeout=SEND_SECONDS) as producer,
        ):
            for topic in (NUMBERS, COPIES):
                await admin.create_topic(topic, queues=QUEUES)
            await admin.create_topic(MANIFEST, queues=1, broker=BROKERS[0])
            stream = Stream(nameserver, home)
            stack.callback(stream.end)
            numbers = Numbers(producer, random.Random(plan.seed), stream)
            numbers.events += [Booted(name, maker) for name, maker in cluster.makers.items()]
            run = CommittedRun(plan, cluster, ways, numbers, stream)
            yield run
            run.events += await stream.finish(numbers.stored)
