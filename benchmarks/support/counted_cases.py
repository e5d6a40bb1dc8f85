"""The cases of `benchmarks.instructions`: run under callgrind, by path, with the packages of either checkout.

Only what both checkouts have is used: the public API, and helpers of their own benchmarks. The rows are those of
`user_rows` beside this file, in both. Each case runs once to warm up, and once counted. Servers and clients at the
other end are processes of their own, which nothing counts.

    python -P counted_cases.py NAMESERVER PEERS PATTERN
"""

from __future__ import annotations

import gc
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

QUEUES = 4
# For an answer: under callgrind everything takes fifty times as long, and the machine may have other work.
SECONDS = 600.0
# What a broker does by the clock counts more on a busy machine: the index of keys rests by it, the flusher begins.
BY_THE_CLOCK = {
    "messageIndexEnable": "false",
    "flushIntervalCommitLog": "600000",
    "flushIntervalConsumeQueue": "600000",
}


class Counting:
    """Runs the chosen cases, and names each with its number of units, on standard output, in their order."""

    def __init__(self, pattern: str) -> None:
        self._wanted = re.compile(pattern)
        # Of this folder: `benchmarks` may be the other checkout's.
        names = runpy.run_path(str(Path(__file__).with_name("callgrind_requests.py")))
        self._requests = names["CallgrindRequests"]()

    def wants(self, name: str) -> bool:
        return self._wanted.search(name) is not None

    def run(self, name: str, units: int, work: Callable[[], object], *, warm: bool = True) -> None:
        if not self.wants(name):
            return
        if warm:
            work()
        self._begin()
        work()
        self._end(name, units)

    async def run_async(self, name: str, units: int, work: Callable[[], Awaitable[object]]) -> None:
        if not self.wants(name):
            return
        await work()
        self._begin()
        await work()
        self._end(name, units)

    def _begin(self) -> None:
        gc.collect()
        self._requests.start()

    def _end(self, name: str, units: int) -> None:
        self._requests.stop(name)
        print(f"{name}\t{units}", flush=True)


def rows_beside_this_file() -> Any:
    """Returns the module `user_rows` of this folder, which is then that of every import."""
    name = "benchmarks.support.user_rows"
    spec = spec_from_file_location(name, Path(__file__).with_name("user_rows.py"))
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


user_rows: Any = rows_beside_this_file()


def main(nameserver: str, peers: str, pattern: str) -> None:
    counting = Counting(pattern)
    imports(counting)
    codec(counting)
    with peer(peers, "echo") as port:
        calls(counting, int(port))
    for size in (9, 100, 1024, 4096):
        for direction, answer_bytes in (("send", 0), ("receive", size * 1024)):
            name = f"network_bulk, {direction} {size} KiB"
            if counting.wants(name):
                with peer(peers, "bulk", str(answer_bytes)) as port:
                    bulk(counting, name, int(port), size * 1024, send=direction == "send")
    import trio

    trio.run(serving, counting, peers)
    trio.run(client, counting, nameserver)
    spark(counting, nameserver)


def imports(counting: Counting) -> None:
    def command_line() -> None:
        from pyrmq_core.tools.cli.commands import pyrmq

        with redirect_stdout(StringIO()):
            pyrmq(["topic", "--help"], "pyrmq", standalone_mode=False)

    def names() -> None:
        from pyrmq_core import Message, Producer, PullConsumer  # noqa: F401

    counting.run("import pyrmq_core", 1, lambda: __import__("pyrmq_core"), warm=False)
    counting.run("import Producer, PullConsumer", 1, names, warm=False)
    counting.run("command line, topic --help, after that", 1, command_line, warm=False)


def codec(counting: Counting) -> None:
    from benchmarks import codec_columns as columns
    from pyrmq_core.protocol.messages.bodies import BodyRules

    own: Any = columns
    own.pulls_of, own.rows_of = user_rows.pulls_of, lambda count, case: case.record_batch(count)
    own.MOST_BY_MESSAGE = 0  # the comparison of the two ways is not counted, and takes long here
    for case in user_rows.CASES.values():
        for count in columns.COUNTS:
            inner = max(1, 300 // count)
            cases: dict[str, Callable[[], Callable[[], object]]] = {"encode": partial(encoder, columns, count, case)}
            for name, schema, crc in decodings(columns):
                if crc or count == columns.COUNTS[-1]:
                    rules = BodyRules(verify_crc=crc)
                    cases[name] = partial(decoder, columns, count, case, schema, rules)
            for name, make in cases.items():
                whole = f"codec, {name}, {case.name} x {count}"
                if counting.wants(whole):
                    way = make()
                    counting.run(whole, inner * count, lambda: [way() for _ in range(inner)])  # noqa: B023


def decodings(columns: Any) -> Iterator[tuple[str, Any, bool]]:
    schemas = {
        "decode, 12 columns": columns.schema_of(),
        "decode, no properties": columns.schema_of(columns.NO_PROPERTIES),
        "decode, body alone": columns.schema_of(["body"]),
    }
    for name, schema in schemas.items():
        yield name, schema, True
        yield f"{name}, no CRC", schema, False


def encoder(columns: Any, count: int, case: Any) -> Callable[[], object]:
    way: Callable[[], object] = columns.encoders(count, case)[0]
    return way


def decoder(columns: Any, count: int, case: Any, schema: Any, rules: Any) -> Callable[[], object]:
    way: Callable[[], object] = columns.decoders(count, case, schema, rules)[0]
    return way


def calls(counting: Counting, port: int) -> None:
    from benchmarks import network_calls

    for window in (1, 16, 256):
        for form in (False, True):
            call_count = 200 if window == 1 else 2048
            name = f"network_calls, {window} callers{', form' if form else ''}"
            counting.run(name, call_count, partial(network_calls.ours, port, window, call_count, form=form))


def bulk(counting: Counting, name: str, port: int, size: int, *, send: bool) -> None:
    from benchmarks import network_bulk

    count = max(16, (4 << 20) // size)
    counting.run(name, count, partial(network_bulk.ours, port, size if send else 0, size, count))


async def serving(counting: Counting, peers: str) -> None:
    """Counts servers in this process, under clients of their own."""
    from pyrmq_core.embedded import EmbeddedCluster

    cases = {
        "nameserver, a route": ("routes", 300),
        "broker, single sends": ("soon", 1000),
        "broker, batches": ("batch", 4000),
        "broker, pulls": ("read", 10_000),
        "serve, 256 callers": ("calls", 2048),
    }
    if not any(map(counting.wants, cases)):
        return
    topics = {"sends": QUEUES, "filled": QUEUES}
    async with EmbeddedCluster(1, topics=topics, settings=BY_THE_CLOCK) as cluster, served() as port:
        await run_peer(peers, "batch", cluster.nameserver, "filled", "10000")
        for name, (mode, count) in cases.items():
            at = str(port) if mode == "calls" else cluster.nameserver
            topic = "filled" if mode == "read" else "sends"
            await counting.run_async(name, count, partial(run_peer, peers, mode, at, topic, str(count)))


def served() -> Any:
    """Returns a context with the port of `serve` and a handler that answers at once."""
    from contextlib import asynccontextmanager

    import trio

    from benchmarks import network_calls
    from pyrmq_core.network import serve

    answer = network_calls.ANSWER.to_command()

    @asynccontextmanager
    async def context() -> Any:
        async with trio.open_nursery() as nursery:
            listening = await nursery.start(partial(serve, lambda request, peer: answer, "127.0.0.1", 0))
            yield listening.port
            nursery.cancel_scope.cancel()

    return context()


async def run_peer(peers: str, *arguments: str) -> None:
    import trio

    await trio.run_process([sys.executable, "-P", peers, *arguments], env=peer_environment())


@contextmanager
def peer(peers: str, *arguments: str) -> Iterator[str]:
    """Runs a process of the other end. Yields the first line that it prints."""
    command = [sys.executable, "-P", peers, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=peer_environment()) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def peer_environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.environ["PEERS_PATH"]}


async def client(counting: Counting, nameserver: str) -> None:
    """Counts a producer and consumers in this process, at a broker of its own process."""
    await sends(counting, nameserver)
    await reads(counting, nameserver)


async def sends(counting: Counting, nameserver: str) -> None:
    import pyarrow as pa
    import trio

    from pyrmq_core import Batching, Producer

    cases = user_rows.SMALL, user_rows.EQUAL
    rows, equal = (pa.Table.from_batches([case.record_batch(10_000)]) for case in cases)
    messages = [message(number) for number in range(4000)]

    async with Producer("counted", nameserver=nameserver, send_timeout=SECONDS) as producer:

        async def one_task(count: int = 300) -> None:
            for number in range(count):
                await producer.send(messages[number])

        async def tasks() -> None:
            async with trio.open_nursery() as nursery:
                for _ in range(256):
                    nursery.start_soon(one_task, 8)

        await counting.run_async("send, one task", 300, one_task)
        await counting.run_async("send, 256 tasks", 2048, tasks)
        await counting.run_async("send_soon", 4000, partial(soon, producer, 4000))
        await counting.run_async("send_batch", 4000, partial(producer.send_batch, messages))
        await counting.run_async("send_arrow", 10_000, partial(producer.send_arrow, rows, topic="sends"))
        await counting.run_async("send_arrow, equal", 10_000, partial(producer.send_arrow, equal, topic="sends"))
    many: Any = {"max_in_flight": 20_000, "batching": Batching(max_delay=5.0)}
    async with Producer("batching", nameserver=nameserver, send_timeout=SECONDS, **many) as producer:
        await counting.run_async("send_soon, batching", 10_000, partial(soon, producer, 10_000))


async def soon(producer: Any, count: int) -> None:
    for number in range(count):
        last = await producer.send_soon(message(number))
    await last.wait()


def message(number: int) -> Any:
    from pyrmq_core import Message

    rows = user_rows.SMALL
    body, keys, tags = rows.body(number), rows.key(number), rows.tag(number)
    return Message("sends", body, keys=keys, tags=tags, properties=rows.properties(number))


async def reads(counting: Counting, nameserver: str) -> None:
    from pyrmq_core import ConsumeFromWhere, OffsetRange, PullConsumer, PushConsumer, ReadWindow, decode

    async with PullConsumer("counted", nameserver=nameserver, timeout=SECONDS) as consumer:

        async def arrow(topic: str, count: int, columns: list[str] | None = None) -> None:
            for queue in await consumer.message_queues(topic):
                async with consumer.read_arrow(queue, 0, count // QUEUES, columns=columns) as batches:
                    async for _ in batches:
                        pass

        async def received(topic: str, count: int) -> None:
            ranges = [(queue, OffsetRange(0, count // QUEUES)) for queue in await consumer.message_queues(topic)]
            async with consumer.read_ranges(ranges, window=ReadWindow(lends_records=True), share_lists=True) as lists:
                async for _ in lists:
                    pass

        async def messages(count: int) -> None:
            for queue in await consumer.message_queues("plain100"):
                async with consumer.read(queue, 0, count // QUEUES) as pulls:
                    async for pull in pulls:
                        decode(pull)

        for topic in ("plain100", "batched100", "plain1024", "equal100"):
            await counting.run_async(f"read_arrow, {topic}", 20_000, partial(arrow, topic, 20_000))
            await counting.run_async(f"read_arrow, {topic}, body", 20_000, partial(arrow, topic, 20_000, ["body"]))
            await counting.run_async(f"received alone, {topic}", 20_000, partial(received, topic, 20_000))
        await counting.run_async("PullConsumer.read, plain100", 4000, partial(messages, 4000))
    turn = 0

    async def push() -> None:
        nonlocal turn
        turn += 1
        seen = 0
        group = f"pushed-{os.getpid()}-{turn}"
        settings: Any = {"consume_from_where": ConsumeFromWhere.FIRST_OFFSET, "consume_message_batch_max_size": 32}
        async with PushConsumer(group, nameserver=nameserver, **settings) as consumer:
            await consumer.subscribe("pushed")

            async def handler(messages: Any) -> None:
                nonlocal seen
                seen += len(messages)
                if seen >= 4000:
                    await consumer.stop()

            await consumer.run(handler)

    await counting.run_async("PushConsumer, batches of 32", 4000, push)


def spark(counting: Counting, nameserver: str) -> None:
    """Counts what Spark's Python workers call, without a session."""
    if not any(map(counting.wants, ("Spark, read", "Spark, write"))):
        return
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    from pyrmq_spark import RocketMQDataSource

    options = {"nameServer": nameserver, "topic": "plain100"}
    source = RocketMQDataSource(options)

    def read() -> None:
        reader = source.reader(StructType([StructField("body", BinaryType())]))
        for partition in reader.partitions():
            for _ in reader.read(partition):
                pass

    counting.run("Spark, read of the body", 1, read)
    schema = StructType([StructField("body", BinaryType()), StructField("keys", StringType())])
    rows = user_rows.SMALL.record_batch(10_000).select(["body", "keys"])
    sink = RocketMQDataSource({"nameServer": nameserver, "topic": "sends"})
    counting.run("Spark, write", 10_000, lambda: sink.writer(schema, False).write(iter([rows])))


if __name__ == "__main__":
    main(*sys.argv[1:])
