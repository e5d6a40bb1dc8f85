"""A million timer messages in our broker's store: memory, processor time of each step, a start, and how late they come.

    python -m benchmarks timers [--quick]

The messages are stored directly, without sockets: half of them due within three hours, half in three days. Then others
are due, 10,000 a second for ten seconds, and the service delivers them beside a task that needs a turn every 5 ms, as
another client's request would. `late` is from the millisecond at which a message was due to the one at which it was
stored in its own topic; `turn` is how long the other task waited for its turn.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from pyrmq_core.broker.store.appending import Append
from pyrmq_core.broker.store.batch_pieces import piece
from pyrmq_core.broker.store.disk.disk_files import DiskFiles
from pyrmq_core.broker.store.layout import StoreSettings
from pyrmq_core.broker.store.message_store import MessageStore
from pyrmq_core.broker.timers.service import Timers
from pyrmq_core.broker.timers.timer_rules import TIMER_TOPIC, TimerSettings, place_timer
from pyrmq_core.protocol.messages.properties import encode_properties
from pyrmq_core.protocol.messages.record import iterate_records, pack_host
from tests.broker.stores import ALL

HOST = pack_host("127.0.0.1:10911")
RATE = 10_000
SECONDS = 10
TURN_SECONDS = 0.005
BODY = b"x" * 100


def main(*, quick: bool) -> None:
    count = 50_000 if quick else 1_000_000
    draw = random.Random(1)
    with opened_store() as (store, directory):
        before, timers = memory_mib(), service(store)
        began = time.process_time()
        for number in range(count):
            hours = 3 if number % 2 else 71
            put(store, b"%d" % number, now_ms() + draw.randrange(60_000, hours * 3_600_000))
        report("stored", count, time.process_time() - began)
        began = time.process_time()
        while timers.messages.queue_offset < count:
            timers.messages.work(now_ms())
        report("taken into the timer files", count, time.process_time() - began)
        stored_mib = memory_mib()
        timers.close()
        began = time.perf_counter()
        timers = service(store)
        waiting = len(timers.messages.files.slots)
        print(f"a start with them: {time.perf_counter() - began:.2f} s; slots with messages: {waiting}")
        print(f"memory: {before:.0f} MiB before, {stored_mib:.0f} MiB with all of them")
        size = sum(file.stat().st_blocks * 512 for file in [directory / "timerwheel", *directory.glob("timerlog/*")])
        print(f"timer files: {size / 2**20:.0f} MiB")
        trio.run(deliver, store, timers, 1 if quick else SECONDS)


async def deliver(store: MessageStore, timers: Timers, seconds: int) -> None:
    """Sends messages that are due at an even rate, and reports how late they come."""
    first_ms, wanted = now_ms() + 6000 * (1 + seconds), seconds * RATE
    due = {b"d%d" % number: first_ms + number * 1000 // RATE for number in range(wanted)}
    for body, due_ms in due.items():
        put(store, body, due_ms, "Due")
    turns: list[float] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timers.run)
        await trio.sleep(max(0, first_ms - now_ms()) / 1000)
        began = time.process_time()
        while store.bounds(("Due", 0))[1] < wanted:
            asked = time.perf_counter()
            await trio.sleep(TURN_SECONDS)
            turns.append((time.perf_counter() - asked - TURN_SECONDS) * 1000)
        report("delivered", wanted, time.process_time() - began)
        nursery.cancel_scope.cancel()
    late: list[int] = []
    while len(late) < wanted:
        records = iterate_records(store.get(("Due", 0), len(late), ALL).records)
        late += [record.store_timestamp_ms - due[record.body] for record in records]
    print(f"late: {figures(late)} ms; turn: {figures(turns)} ms")


@contextmanager
def opened_store() -> Iterator[tuple[MessageStore, Path]]:
    with tempfile.TemporaryDirectory(prefix="pyrmq-timers-") as name:
        store = MessageStore(DiskFiles(Path(name)), StoreSettings(segment_bytes=1 << 30, queue_file_bytes=6_000_000))
        store.open(os.getpid())
        yield store, Path(name)
        store.abandon()


def service(store: MessageStore) -> Timers:
    timers = Timers(store, store.files, TimerSettings(), enabled=True, flush_ms=1000)
    timers.open()
    store.on_readable = lambda key, entries: timers.arrived() if key[0] == TIMER_TOPIC else None
    return timers


def put(store: MessageStore, body: bytes, due_ms: int, topic: str = "T") -> None:
    properties = {"UNIQ_KEY": body.decode(), "TIMER_DELIVER_MS": str(due_ms)}
    place_timer(properties, topic, 0, now_ms(), TimerSettings())
    whole = piece(0, body if topic == "Due" else BODY, encode_properties(properties).encode())
    store.put(Append(TIMER_TOPIC, 0, [whole], now_ms(), HOST, HOST), now_ms())


def report(what: str, count: int, seconds: float) -> None:
    print(f"{what}: {seconds / count * 1e6:.0f} us of processor time each, {count / seconds:,.0f} a second", flush=True)


def figures(values: list[float] | list[int]) -> str:
    cuts = statistics.quantiles(values, n=100)
    return f"median {cuts[49]:.0f}, p99 {cuts[98]:.0f}, longest {max(values):.0f}"


def memory_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def now_ms() -> int:
    return time.time_ns() // 1_000_000
