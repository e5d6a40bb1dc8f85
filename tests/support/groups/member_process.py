"""Members of a group as processes of their own, which can be killed; their records survive them.

python -m tests.support.groups.member_process NAMESERVER GROUP TOPIC [blocking-]concurrent|orderly NAME FILE SECONDS
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import trio

from pyrmq_core import ConsumeFromWhere, MessageExt, MessageQueue, PushConsumer, blocking
from tests.support.groups.our_member import HANDLER_SECONDS
from tests.support.groups.records import MICRO, Record, line_of, record_of
from tests.support.jvm import JavaProcess

ROOT = Path(__file__).parent.parent.parent.parent
STORE_SECONDS = 0.5


class MemberProcess:
    """A `PushConsumer` in a process of its own, started as often as it is killed; offsets are stored twice a second."""

    def __init__(
        self, directory: Path, name: str, nameserver: str, group: str, topic: str, *, orderly: bool, face: str = ""
    ) -> None:
        self.name = name
        self._topic = topic
        self._file = directory / f"{name}.records"
        self._file.touch()
        kind = face + ("orderly" if orderly else "concurrent")
        arguments = [nameserver, group, topic, kind, name, str(self._file), str(STORE_SECONDS)]
        command = [sys.executable, "-m", "tests.support.groups.member_process", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = JavaProcess(name, command, directory / f"{name}.log", environment)

    def start(self) -> None:
        self.process.start()

    async def kill(self) -> float:
        """Sends SIGKILL and returns the time; nothing is consumed after it."""
        await trio.to_thread.run_sync(self.process.kill)
        return time.time()

    async def stop(self) -> float:
        """Sends SIGTERM, waits for the end, and returns the time of the signal."""
        at = time.time()
        await trio.to_thread.run_sync(self.process.terminate)
        return at

    def records(self) -> list[Record]:
        return [record_of(self._topic, words) for kind, *words in self._lines() if kind == "record"]

    def taken(self) -> list[tuple[float, MessageQueue]]:
        """Returns the queues that it took, in all its lives, each with the time."""
        gains, owned = [], set[str]()
        for kind, at, *places in self._lines():
            if kind == "starts":
                owned = set()
            elif kind == "owns":
                gains += [(int(at) * MICRO, place) for place in set(places) - owned]
                owned = set(places)
        return [(at, MessageQueue(self._topic, *broker_and_id(place))) for at, place in gains]

    def owned(self) -> set[MessageQueue]:
        """Returns the queues that it reads, as it reported last."""
        places = next((words[1:] for kind, *words in reversed(self._lines()) if kind in ("owns", "starts")), [])
        return {MessageQueue(self._topic, *broker_and_id(place)) for place in places}

    def _lines(self) -> list[list[str]]:
        # A process may be writing its last line.
        return [line.split() for line in self._file.read_text().splitlines(keepends=True) if line.endswith("\n")]


def broker_and_id(place: str) -> tuple[str, int]:
    broker, _, number = place.rpartition(":")
    return broker, int(number)


def now() -> int:
    return int(time.time() / MICRO)


async def main(nameserver: str, group: str, topic: str, kind: str, name: str, file: str, seconds: float) -> None:
    """Consumes until it is killed, or stopped by SIGTERM; it writes each message before it acknowledges it."""
    output = os.open(file, os.O_WRONLY | os.O_APPEND)
    os.write(output, f"starts {now()}\n".encode())

    def changed(of: str, _: Sequence[MessageQueue], own: Sequence[MessageQueue]) -> None:
        if of == topic:
            places = " ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in own)
            os.write(output, f"owns {now()} {places}\n".encode())

    async def handler(messages: Sequence[MessageExt]) -> None:
        for message in messages:
            began = time.time()
            await trio.sleep(HANDLER_SECONDS)
            record = Record(name, message.queue, message.queue_offset, message.msg_id, began, time.time())
            os.write(output, b"record " + line_of(record).encode())

    async with PushConsumer(
        group,
        nameserver=nameserver,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
        persist_consumer_offset_interval=seconds,
        message_queue_listener=changed,
    ) as consumer:
        await consumer.subscribe(topic)
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(consumer.run, handler, orderly=kind == "orderly"))
                async for _ in signals:
                    await consumer.stop()
                    break


def run_blocking(nameserver: str, group: str, topic: str, name: str, file: str, *, orderly: bool) -> None:
    """Consumes by the blocking face until SIGTERM ends it; its handlers run in threads."""
    output = os.open(file, os.O_WRONLY | os.O_APPEND)
    os.write(output, f"starts {now()}\n".encode())

    def changed(of: str, _: Sequence[MessageQueue], own: Sequence[MessageQueue]) -> None:
        if of == topic:
            places = " ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in own)
            os.write(output, f"owns {now()} {places}\n".encode())

    def handler(messages: Sequence[MessageExt]) -> None:
        for message in messages:
            began = time.time()
            time.sleep(HANDLER_SECONDS)
            record = Record(name, message.queue, message.queue_offset, message.msg_id, began, time.time())
            os.write(output, b"record " + line_of(record).encode())

    first = ConsumeFromWhere.FIRST_OFFSET
    with blocking.PushConsumer(
        group, nameserver=nameserver, consume_from_where=first, message_queue_listener=changed
    ) as consumer:
        consumer.subscribe(topic)
        consumer.run(handler, orderly=orderly)


if __name__ == "__main__":
    nameserver, group, topic, kind, name, file, seconds = sys.argv[1:]
    if kind.startswith("blocking"):
        run_blocking(nameserver, group, topic, name, file, orderly=kind == "blocking-orderly")
    else:
        trio.run(main, nameserver, group, topic, kind, name, file, float(seconds))
