"""A long life: a producer, our broker that removes its old segments, a push consumer and a stream of Spark's.

    python -m benchmarks.long_life [--quick] [--messages N] [--minutes N] [--samples N] [--output FILE]

Messages of 100 B in 8 queues: batches of 500 by `send_batch`, and after each tenth batch 100 single ones by
`send_soon`. The broker keeps 512 MiB. The producer waits when the group or the stream is a million messages behind.
Each process is sampled as the messages pass: resident memory, handles, threads, tasks of trio, the disk of the broker
and of the stream's checkpoint, and what the heap of Spark's JVM holds after a collection. At the end a line says of
each figure how it grew after the warm-up. If one grew by more than `benchmarks.support.growth` allows, or the group or
the stream lacks a message, the program exits with 1. For a run of an hour: `--messages 200000000`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Final

import trio

from benchmarks.support.growth import MILLION, Growth, Sample, disk_mib, growths
from benchmarks.support.processes import descendants, figures_of
from pyrmq_core import Admin, Client, ConsumeFromWhere, Message, MessageExt, Producer, PushConsumer, blocking
from tests.support.our_cluster import OurServer, boot_our_cluster

TOPIC: Final = "long-life"
GROUP: Final = "long-life-readers"
STREAM_GROUP: Final = "long-life-stream"
QUEUES: Final = 8
BATCH: Final = 500
SINGLE: Final = 100
BATCHES_A_TURN: Final = 10
TURN: Final = BATCHES_A_TURN * BATCH + SINGLE
TURNS_A_LOOK: Final = 20
STALLED_SECONDS: Final = 180.0
MOST_BEHIND: Final = MILLION
LOOK_AGAIN_SECONDS: Final = 0.2
SAMPLER_SECONDS: Final = 0.05
BODY: Final = b"x" * 100
SETTINGS: Final = {
    "mappedFileSizeCommitLog": str(32 << 20),
    "mappedFileSizeConsumeQueue": "600000",
    "maxStoreBytes": str(512 << 20),
    "maxHashSlotNum": "250000",
    "maxIndexNum": "1000000",
    "cleanResourceInterval": "1000",
}


# The processes


async def send(nameserver: str, messages: int, minutes: float) -> None:
    """Sends so many messages, or for so long, and prints after each turn how many were sent, and its loop's tasks."""
    async with (
        Client(nameserver=nameserver) as client,
        Admin(client=client) as admin,
        Producer("long-life-senders", client=client) as producer,
    ):
        ends_at = trio.current_time() + 60 * minutes
        for turn in range(1, -(-messages // TURN) + 1):
            if trio.current_time() >= ends_at:
                return
            for _ in range(BATCHES_A_TURN):
                await producer.send_batch([Message(TOPIC, BODY) for _ in range(BATCH)])
            pending = [await producer.send_soon(Message(TOPIC, BODY)) for _ in range(SINGLE)]
            for single in pending:
                await single.wait()
            report(messages=turn * TURN)
            if turn % TURNS_A_LOOK == 0:
                await wait_for_readers(admin)


async def wait_for_readers(admin: Admin) -> None:
    """Returns when the group and the stream are less than a million messages behind."""
    for group in (GROUP, STREAM_GROUP):
        while True:
            progress = await admin.groups.progress(group)
            if progress.lag is not None and progress.lag <= MOST_BEHIND:
                break
            await trio.sleep(LOOK_AGAIN_SECONDS)


async def receive(nameserver: str) -> None:
    """Consumes until it is killed. Prints how many messages came, the ends of their queues together, and the tasks."""
    received, ends = 0, Counter[int]()
    async with PushConsumer(
        GROUP,
        nameserver=nameserver,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
        consume_message_batch_max_size=1024,
        pull_batch_size=1024,
        pull_threshold_for_queue=10_000,
    ) as consumer:
        await consumer.subscribe(TOPIC)

        async def handle(batch: Sequence[MessageExt]) -> None:
            nonlocal received
            received += len(batch)
            for message in batch:
                ends[message.queue_id] = max(ends[message.queue_id], message.queue_offset + 1)
            report(messages=received, end=ends.total())

        await consumer.run(handle)


def report(**figures: int) -> None:
    print(json.dumps({**figures, "tasks": trio.lowlevel.current_statistics().tasks_living}), flush=True)


@contextmanager
def role(*arguments: str) -> Iterator[Role]:
    """Runs a role in a process of its own, and kills it when its block is left."""
    command = [sys.executable, "-m", "benchmarks.long_life", "--role", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Role(process)
        finally:
            for descendant in reversed(descendants(process.pid)):
                with suppress(ProcessLookupError):
                    os.kill(descendant, signal.SIGKILL)


class Role:
    """A process and the figures that it printed last, read by a thread."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.values: dict[str, float] = {"messages": 0, "end": 0, "tasks": 0}
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def figures(self) -> dict[str, float]:
        return {**figures_of(self.process.pid), "tasks": self.values["tasks"]}

    def java_and_python(self) -> tuple[dict[str, float], dict[str, float]]:
        """Returns the figures of Spark's JVM, and of the driver and all Python workers together."""
        java, python = dict[str, float](), Counter[str]()
        for pid in descendants(self.process.pid):
            with suppress(OSError, KeyError):  # a worker that ends at this moment has no figures
                if Path(f"/proc/{pid}/comm").read_text() == "java\n":
                    java = {**figures_of(pid), "heap MiB": self.values["heap MiB"]}
                else:
                    python.update(figures_of(pid))
        return java, dict(python)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.values = json.loads(line)


# The run


def live(messages: int, minutes: float, samples: int, output: Path | None) -> tuple[list[Sample], dict[str, int]]:
    """Returns the samples, and how many messages each reader lacks. The file has the samples so far meanwhile."""
    kept: list[Sample] = []
    with ExitStack() as stack:
        checkpoint = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyrmq-", ignore_cleanup_errors=True)))
        cluster = stack.enter_context(boot_our_cluster(["broker-a"], broker_settings=SETTINGS))
        nameserver, broker = cluster.nameserver.address, cluster.brokers["broker-a"]
        with blocking.Admin(nameserver=nameserver) as admin:
            admin.create_topic(TOPIC, queues=QUEUES)
        receiver = stack.enter_context(role("receive", nameserver))
        streamer = stack.enter_context(role("stream", nameserver, str(checkpoint)))
        while streamer.runs and "heap MiB" not in streamer.values:  # its query has begun
            time.sleep(SAMPLER_SECONDS)
        sender = stack.enter_context(role("send", nameserver, str(messages), str(minutes)))
        readers = {"group": receiver, "stream": streamer}
        began = moved = time.monotonic()
        before, sampled = 0.0, -1
        while sender.runs or any(reader.values["end"] < sender.values["messages"] for reader in readers.values()):
            time.sleep(SAMPLER_SECONDS)
            consumed = int(receiver.values["messages"])
            total = sum(reader.values["messages"] for reader in readers.values())
            moved, before = (time.monotonic() if total > before else moved), total
            if not all(reader.runs for reader in readers.values()) or time.monotonic() - moved > STALLED_SECONDS:
                stand = ", ".join(f"the {name} at {reader.values['end']:,}" for name, reader in readers.items())
                raise SystemExit(f"{stand} of {sender.values['messages']:,} messages: one ended, or both stand still")
            if sender.runs and consumed * samples // messages > sampled:
                sampled = consumed * samples // messages
                print(f"{consumed:,} messages, {consumed / (time.monotonic() - began):,.0f} a second", flush=True)
                with suppress(OSError, KeyError):  # a process that ends at this moment has no figures
                    java, python = streamer.java_and_python()
                    kept += [
                        Sample("producer", consumed, sender.figures()),
                        Sample("consumer", consumed, receiver.figures()),
                        Sample("broker", consumed, {**held_by(broker), "disk MiB": disk_mib(broker.store)}),
                        Sample("NameServer", consumed, held_by(cluster.nameserver)),
                        Sample("Spark's JVM", consumed, {**java, "disk MiB": disk_mib(checkpoint)}),
                        Sample("Spark's Python", consumed, python),
                    ]
                if output is not None:
                    output.write_text(json.dumps([asdict(sample) for sample in kept]))
        if sender.process.returncode:
            raise SystemExit(f"the producer ended with {sender.process.returncode}")
        print(f"{receiver.values['messages']:,} messages in {time.monotonic() - began:,.0f} s")
        return kept, {name: int(reader.values["end"] - reader.values["messages"]) for name, reader in readers.items()}


def held_by(server: OurServer) -> dict[str, float]:
    pid = server.process.pid
    if pid is None:
        raise SystemExit(f"{server.name} ended")
    return figures_of(pid)


def main(
    quick: bool = False,
    *,
    messages: int = 10 * MILLION,
    minutes: float = math.inf,
    samples: int = 120,
    output: Path | None = None,
) -> None:
    kept, missing = live(*((20 * TURN, math.inf, 20) if quick else (messages, minutes, samples)), output)
    too_much = [growth for growth in growths(kept) if show(growth)]
    print(", ".join(f"the {reader} lacks {lacking} messages" for reader, lacking in missing.items()))
    if any(missing.values()) or (too_much and not quick):  # a short run is all warm-up
        raise SystemExit(1)


def show(growth: Growth) -> bool:
    """Prints a line about the growth, and returns whether it is too much."""
    print(f"{growth}{': TOO MUCH' if growth.is_too_much else ''}")
    return growth.is_too_much


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_life", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    parser.add_argument("--messages", type=int, default=10 * MILLION)
    parser.add_argument("--minutes", type=float, default=math.inf, help="end earlier, when so many have passed")
    parser.add_argument("--samples", type=int, default=120, help="how many samples are kept of each process")
    parser.add_argument("--output", type=Path, help="a file for the samples, as JSON")
    parser.add_argument("--role", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    match options.role:
        case None:
            main(
                options.quick,
                messages=options.messages,
                minutes=options.minutes,
                samples=options.samples,
                output=options.output,
            )
        case ["send", address, number, until]:
            trio.run(send, address, int(number), float(until))
        case ["receive", address]:
            trio.run(receive, address)
        case ["stream", address, checkpoint]:
            from benchmarks.support.long_stream import stream  # Spark's modules are of no use to the other processes

            stream(address, TOPIC, STREAM_GROUP, Path(checkpoint))
        case _:
            parser.error(f"no role {options.role}")
