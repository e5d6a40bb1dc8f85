"""A member of the group as a process: it writes each message to a file before it acknowledges it, and its beats.

python -m tests.chaos.member NAMESERVER GROUP NAME FILE SEED [USER SECRET]
"""

from __future__ import annotations

import faulthandler
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import trio

from pyrmq_core import Client, ConsumeFromWhere, ConsumeLater, LitePullConsumer, MessageExt, MessageModel, PushConsumer
from pyrmq_core.client.consumer.consume import assigned_queues
from pyrmq_core.model import MessageQueue
from tests.chaos.clusters import Keys
from tests.chaos.history import Beat, Event, Got, Start, line_of
from tests.chaos.plan import FLEETING, LISTENERS, POLLERS, SORTERS, TOPICS
from tests.chaos.planted import plant_by_environment

BEAT_SECONDS = 0.25
HANDLER_SECONDS = 0.006
# What a consumer logs of a queue that it reads from now on.
START_LOGGER, START_LINE = assigned_queues.__name__, "%s is consumed from offset %d"
GIVEN_BACK = 0.02
TRIES = 3
BATCH = 4
# A broker that was away is found again by the next poll.
POLL_SECONDS = 5.0
# So small that a member never holds as many messages of a queue as the checker allows after a reset.
HOLDS, SPAN = 50, 100


class Records:
    """The file of a member's events; each is written whole, so that a kill takes none back."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, events: Sequence[Event]) -> None:
        os.write(self._file, b"".join(map(line_of, events)))


class Starts(logging.Handler):
    """The records of the queues that a member takes, by the line that its consumer logs."""

    def __init__(self, group: str, member: str, records: Records) -> None:
        super().__init__(logging.DEBUG)
        self._group = group
        self._member = member
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg == START_LINE and isinstance(record.args, tuple):
            queue, offset = record.args
            assert isinstance(queue, MessageQueue)
            assert isinstance(offset, int)
            key = (queue.topic, queue.broker_name, queue.queue_id)
            self._records.write([Start(time.monotonic(), self._group, self._member, *key, offset)])

    def attach(self) -> None:
        logger = logging.getLogger(START_LOGGER)
        logger.addHandler(self)
        logger.setLevel(logging.DEBUG)


class Worker:
    """The handler of a member, which writes what it got and gives some messages back."""

    def __init__(
        self,
        group: str,
        name: str,
        draw: random.Random,
        write: Callable[[Sequence[Event]], object],
        given_back: float = GIVEN_BACK,
        seconds: float = HANDLER_SECONDS,
    ) -> None:
        self._group = group
        self._name = name
        self._draw = draw
        self._write = write
        self._given_back = given_back
        self._seconds = seconds

    async def handle(self, messages: Sequence[MessageExt]) -> None:
        await trio.sleep(self._seconds * len(messages))
        gives_back = messages[0].reconsume_times < TRIES and self._draw.random() < self._given_back
        kept = self._draw.randrange(len(messages)) if gives_back else len(messages)
        self._write([_got(self._group, self._name, message, place < kept) for place, message in enumerate(messages)])
        if gives_back:
            raise ConsumeLater(1, ack_index=kept - 1)


async def main(nameserver: str, group: str, name: str, file: str, seed: str, user: Keys) -> None:
    """Consumes until it is killed, or stopped by SIGTERM."""
    records = Records(file)
    Starts(group, name, records).attach()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_beat, records, name)
        async with Client(
            nameserver=nameserver,
            poll_nameserver_interval=POLL_SECONDS,
            access_key=user.access_key,
            secret_key=user.secret_key,
        ) as client:
            if group in BESIDE:
                worker = Worker(group, name, random.Random(), records.write, given_back=0.0, seconds=0.0)
                await BESIDE[group](client, group, worker, Path(f"{file}.offsets"))
            else:
                await _push(client, group, Worker(group, name, random.Random(f"{seed} {name}"), records.write))
        nursery.cancel_scope.cancel()


async def _push(client: Client, group: str, worker: Worker) -> None:
    async with (
        PushConsumer(
            group,
            client=client,
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
            consume_threads=3,
            consume_message_batch_max_size=BATCH,
            persist_consumer_offset_interval=1.0,
            pull_threshold_for_queue=HOLDS,
            consume_concurrently_max_span=SPAN,
        ) as consumer,
    ):
        for topic in (*TOPICS, FLEETING):
            await consumer.subscribe(topic)
        await _run_until_stopped(consumer, worker)


async def _listen(client: Client, group: str, worker: Worker, offsets: Path) -> None:
    async with PushConsumer(
        group,
        client=client,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
        message_model=MessageModel.BROADCASTING,
        local_offset_store_dir=offsets,
    ) as consumer:
        for topic in TOPICS:
            await consumer.subscribe(topic)
        await _run_until_stopped(consumer, worker)


async def _sort(client: Client, group: str, worker: Worker, _offsets: Path) -> None:
    async with PushConsumer(
        group, client=client, consume_from_where=ConsumeFromWhere.FIRST_OFFSET, persist_consumer_offset_interval=1.0
    ) as consumer:
        for topic in TOPICS:
            await consumer.subscribe(topic)
        await _run_until_stopped(consumer, worker, orderly=True)


async def _poll(client: Client, group: str, worker: Worker, _offsets: Path) -> None:
    async with LitePullConsumer(
        group, client=client, consume_from_where=ConsumeFromWhere.FIRST_OFFSET, auto_commit_interval=1.0
    ) as consumer:
        for topic in TOPICS:
            await consumer.subscribe(topic)
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_handle_polled, consumer, worker)
                async for _ in signals:
                    nursery.cancel_scope.cancel()


async def _handle_polled(consumer: LitePullConsumer, worker: Worker) -> None:
    while True:
        if messages := await consumer.poll(POLL_SECONDS):
            await worker.handle(messages)


BESIDE: Final[Mapping[str, Callable[[Client, str, Worker, Path], Awaitable[None]]]] = {
    LISTENERS: _listen,
    SORTERS: _sort,
    POLLERS: _poll,
}


async def _run_until_stopped(consumer: PushConsumer, worker: Worker, *, orderly: bool = False) -> None:
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(consumer.run, worker.handle, orderly=orderly))
            async for _ in signals:
                await consumer.stop()
                nursery.cancel_scope.cancel()


def _got(group: str, name: str, message: MessageExt, kept: bool) -> Got:
    queue = message.queue
    place = (queue.topic, queue.broker_name, queue.queue_id, message.queue_offset)
    return Got(time.monotonic(), group, name, *place, message.body.decode(), message.reconsume_times, kept)


async def _beat(records: Records, name: str) -> None:
    while True:
        records.write([Beat(time.monotonic(), name, time.process_time())])
        await trio.sleep(BEAT_SECONDS)


if __name__ == "__main__":
    shown = logging.StreamHandler()
    shown.setLevel(logging.WARNING)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", handlers=[shown])
    faulthandler.register(signal.SIGUSR1)
    plant_by_environment()
    nameserver, group, name, events, seed, *keys = sys.argv[1:]
    trio.run(main, nameserver, group, name, events, seed, Keys(*keys))
