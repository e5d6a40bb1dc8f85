"""A controller of 5.4.0 elects a master: sends, a group and a stream go on, and nothing acknowledged is lost."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyrmq_core import (
    Admin,
    Client,
    ConsumeFromWhere,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    SendFailed,
    blocking,
)
from tests.support.controllers import ControlledPair, boot_controlled_pair
from tests.support.maven import ApacheUnavailable
from tests.support.soaking import held, stored_rows
from tests.support.spark import NOT_CONNECTED, spark
from tests.support.spark_streams import stream, wait_until
from tests.support.waiting import until

__all__ = ["spark"]

log = logging.getLogger(__name__)
pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

SECONDS = 240.0
SENDS = 300
# Each group has stored its offsets by then.
IDLE_SECONDS = 7.0
# A held pull may be silent for its hold of 15 s and the broker's sweep of 5 s, and its answer come 5 s late.
HELD_SECONDS = 25.0
LATE_SECONDS = 10.0  # on a busy machine


class Bodies:
    """Bodies with the times at which they were acknowledged, or received."""

    def __init__(self) -> None:
        self.at: list[tuple[float, bytes]] = []

    def add(self, body: bytes) -> None:
        self.at.append((trio.current_time(), body))

    def first_after(self, time: float) -> float:
        return next(at for at, _ in self.at if at > time)

    def longest_pause(self) -> float:
        return max(after - before for (before, _), (after, _) in pairwise(self.at))


class Shop:
    """Keyed and plain sends, one after another of each kind, and a push group that receives them."""

    def __init__(self, producer: Producer) -> None:
        self.sent = {"keyed": Bodies(), "plain": Bodies()}
        self.received = Bodies()
        self._producer = producer

    @asynccontextmanager
    async def sending(self, timeout: float = 120.0) -> AsyncIterator[None]:
        """Sends until its block ends; a send that has no answer in its time is followed by another one."""
        enough = trio.Event()

        async def send_all(kind: str, sent: Bodies) -> None:
            while not enough.is_set():
                number = len(sent.at)
                body = f"{kind} {number}".encode()
                key = f"order-{number % 8}" if kind == "keyed" else None
                with suppress(SendFailed):
                    await self._producer.send(Message("orders", body, sharding_key=key), timeout=timeout)
                    sent.add(body)

        async with trio.open_nursery() as nursery:
            for kind, sent in self.sent.items():
                nursery.start_soon(send_all, kind, sent)
            yield
            enough.set()

    async def receive(self, messages: Sequence[MessageExt]) -> None:
        for message in messages:
            self.received.add(message.body)

    async def sends(self, count: int) -> None:
        """Returns when so many more of each kind are acknowledged."""
        wanted = {kind: len(sent.at) + count for kind, sent in self.sent.items()}
        await until(lambda: all(len(self.sent[kind].at) >= count for kind, count in wanted.items()), SECONDS)

    async def all_received(self) -> None:
        """Returns when the group has every acknowledged message."""
        acknowledged = {body for sent in self.sent.values() for _, body in sent.at}
        await until(lambda: acknowledged <= {body for _, body in self.received.at}, SECONDS)


@pytest.fixture
def pair() -> Iterator[ControlledPair]:
    with ExitStack() as stack:
        try:
            pair = stack.enter_context(boot_controlled_pair())
        except ApacheUnavailable as reason:
            pytest.skip(str(reason))
        yield pair


@asynccontextmanager
async def opened(pair: ControlledPair) -> AsyncIterator[Shop]:
    """Yields a shop at work: producer and group have clients of their own, so that neither learns from the other."""
    async with (
        Client(nameserver=pair.nameserver) as client,
        Admin(client=client, timeout=20) as admin,
        Producer("shop", client=client) as producer,
        PushConsumer(
            "billing", nameserver=pair.nameserver, consume_from_where=ConsumeFromWhere.FIRST_OFFSET
        ) as consumer,
        trio.open_nursery() as nursery,
    ):
        await admin.create_topic("orders", queues=4)
        await consumer.subscribe("orders")
        shop = Shop(producer)
        nursery.start_soon(consumer.run, shop.receive)
        yield shop
        await consumer.stop()


async def test_nothing_is_lost_when_the_master_is_killed(pair: ControlledPair) -> None:
    master = await trio.to_thread.run_sync(pair.wait_for_master)
    async with opened(pair) as shop:
        async with shop.sending():
            await shop.sends(SENDS)
            await trio.to_thread.run_sync(master.kill)
            await shop.sends(SENDS)
        await shop.all_received()
        for kind, bodies in (*shop.sent.items(), ("received", shop.received)):
            log.info("%s: %d, the longest pause %.1f s", kind, len(bodies.at), bodies.longest_pause())


async def test_an_idle_group_leaves_a_master_that_stands_still(pair: ControlledPair) -> None:
    """Its held pulls alone can notice it soon: its offsets are stored, and it polls routes every 30 s."""
    master = await trio.to_thread.run_sync(pair.wait_for_master)
    async with opened(pair) as shop:
        async with shop.sending():
            await shop.sends(SENDS)
        await shop.all_received()
        await trio.sleep(IDLE_SECONDS)
        await trio.to_thread.run_sync(master.pause)
        silent_at = trio.current_time()
        async with shop.sending(timeout=3.0):
            await shop.sends(SENDS)
        await shop.all_received()
        acknowledged = min(sent.first_after(silent_at) for sent in shop.sent.values()) - silent_at
        received = shop.received.first_after(silent_at) - silent_at
        log.info("after %.1f s a send was acknowledged, after %.1f s a message received", acknowledged, received)
        assert received < max(HELD_SECONDS, acknowledged) + LATE_SECONDS


def test_a_stream_between_topics_goes_on(spark: SparkSession, pair: ControlledPair, tmp_path: Path) -> None:
    """The master is killed while the query reads and writes; then it is started again from its checkpoint."""
    master = pair.wait_for_master()
    acknowledged: set[str] = set()
    with (
        blocking.Admin(nameserver=pair.nameserver, timeout=20) as admin,
        blocking.Producer("shop", nameserver=pair.nameserver) as producer,
        blocking.PullConsumer("looking", nameserver=pair.nameserver, timeout=20) as looking,
    ):
        for topic in ("orders", "copies"):
            admin.create_topic(topic, queues=2)

        def send(count: int) -> None:
            for _ in range(count):
                body = f"order {len(acknowledged)}"
                producer.send(Message("orders", body.encode()), timeout=120)
                acknowledged.add(body)

        def start() -> StreamingQuery:
            frame = stream(spark, pair.nameserver, topic="orders", startingOffsets="earliest").select("body")
            sink = frame.writeStream.format("rocketmq").options(nameServer=pair.nameserver, topic="copies")
            sink = sink.options(sendTimeoutMs=120_000, checkpointLocation=str(tmp_path))
            return sink.trigger(processingTime="500 milliseconds").start()

        query = start()

        def has_copied(count: int) -> bool:
            """Returns whether so many are copied; starts the query again where Spark had no time for its process."""
            nonlocal query
            if (error := query.exception()) is not None:
                assert NOT_CONNECTED.search(str(error)), error
                query = start()
            return (held(looking, "copies") or 0) >= count

        def copies() -> list[str]:
            return [body for rows in stored_rows(looking, "copies").values() for body, _ in rows]

        try:
            send(SENDS)
            wait_until(lambda: has_copied(SENDS), SECONDS)
            with ThreadPoolExecutor(1) as pool:
                sending = pool.submit(send, 2 * SENDS)
                wait_until(lambda: has_copied(SENDS + 1), SECONDS)
                master.kill()
                sending.result(SECONDS)
            wait_until(lambda: has_copied(len(acknowledged)), SECONDS)
            query.stop()
            query = start()
            send(SENDS)
            wait_until(lambda: has_copied(len(acknowledged)) and acknowledged <= set(copies()), SECONDS)
        finally:
            query.stop()
        log.info("%d orders, %d copies", len(acknowledged), len(copies()))
