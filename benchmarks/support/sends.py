"""Our single sends, each way as a benchmark runs it. `python -m benchmarks.support.sends idle|million ...` runs one."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import replace

import trio

from benchmarks.support.pairs import Clock, Figure
from benchmarks.support.processes import peak_mib
from benchmarks.support.user_rows import SMALL, Case
from pyrmq_core import Message, PendingSend, Producer, SendResult
from pyrmq_core import aio as aio_face
from pyrmq_core import blocking as blocking_face

TIMEOUT_SECONDS = 30.0


def message(topic: str, number: int, rows: Case = SMALL) -> Message:
    return Message(topic, *fields(number, rows))


def fields(number: int, rows: Case = SMALL) -> tuple[bytes, str, str, None, dict[str, str]]:
    """Returns body, tag, keys and properties of the row of this number, in the order of a message's fields."""
    return rows.body(number), rows.tag(number), rows.key(number), None, rows.properties(number)


def blocking(nameserver: str, topic: str, threads: int, count: int) -> Figure:
    """Measures `send` of the blocking face from so many threads."""
    with blocking_face.Producer("ours", nameserver=nameserver, send_timeout=TIMEOUT_SECONDS) as producer:

        def send(calls: int) -> None:
            for number in range(calls):
                producer.send(message(topic, number))

        send(100)
        callers = [threading.Thread(target=send, args=(count // threads,)) for _ in range(threads)]
        clock = Clock()
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        return clock.figure(count // threads * threads)


def send_soon(nameserver: str, topic: str, window: int, count: int, *, batching: bool = False) -> Figure:
    """Measures `send_soon` of the trio face with so many under way. Texts exist before, as those of the Java client."""
    texts = [fields(number) for number in range(count)]

    async def work(producer: Producer, count: int) -> None:
        last: deque[PendingSend] = deque(maxlen=window)
        for number in range(count):
            last.append(await producer.send_soon(Message(topic, *texts[number])))
        for pending in last:
            await pending.wait()

    return _on_trio(nameserver, work, count, max_in_flight=window, batching=batching)


def blocking_send_soon(nameserver: str, topic: str, window: int, count: int) -> Figure:
    """Measures `send_soon` of the blocking face with so many under way."""

    def work(calls: int) -> None:
        last: deque[Future[SendResult]] = deque(maxlen=window)
        for number in range(calls):
            last.append(producer.send_soon(message(topic, number)))
        for future in last:
            future.result()

    with blocking_face.Producer(
        "ours", nameserver=nameserver, send_timeout=TIMEOUT_SECONDS, max_in_flight=window
    ) as producer:
        work(max(1, count // 4))
        clock = Clock()
        work(count)
        return clock.figure(count)


def asyncio_send_soon(nameserver: str, topic: str, window: int, count: int) -> Figure:
    """Measures `send_soon` of the asyncio face with so many under way."""

    async def work(producer: aio_face.Producer, calls: int) -> None:
        last: deque[asyncio.Future[SendResult]] = deque(maxlen=window)
        for number in range(calls):
            last.append(await producer.send_soon(message(topic, number)))
        for future in last:
            await future

    async def main() -> Figure:
        async with aio_face.Producer(
            "ours", nameserver=nameserver, send_timeout=TIMEOUT_SECONDS, max_in_flight=window
        ) as producer:
            await work(producer, max(1, count // 4))
            clock = Clock()
            await work(producer, count)
            return clock.figure(count)

    return asyncio.run(main())


def asyncio_callers(nameserver: str, topic: str, tasks: int, count: int) -> Figure:
    """Measures `send` of the asyncio face from so many tasks at once."""

    async def main() -> Figure:
        async with aio_face.Producer("ours", nameserver=nameserver, send_timeout=TIMEOUT_SECONDS) as producer:

            async def send(calls: int) -> None:
                for number in range(calls):
                    await producer.send(message(topic, number))

            await send(100)
            clock = Clock()
            await asyncio.gather(*(send(count // tasks) for _ in range(tasks)))
            return clock.figure(count // tasks * tasks)

    return asyncio.run(main())


def callers(nameserver: str, topic: str, window: int, count: int) -> Figure:
    """Measures `send` from so many tasks at once. The messages exist already, as those of the plain sockets do."""
    times: list[float] = []
    messages = [message(topic, number) for number in range(count // window)]

    async def caller(producer: Producer, calls: int) -> None:
        for number in range(calls):
            began = time.perf_counter()
            await producer.send(messages[number])
            if window == 1:
                times.append(time.perf_counter() - began)

    async def work(producer: Producer, count: int) -> None:
        times.clear()
        async with trio.open_nursery() as nursery:
            for _ in range(window):
                nursery.start_soon(caller, producer, count // window)

    result = _on_trio(nameserver, work, count // window * window)
    return replace(result, p50_us=statistics.median(times) * 1e6) if times else result


def send_batch(nameserver: str, topic: str, count: int, rows: Case = SMALL) -> Figure:
    """Measures `send_batch` of one list that exists already."""
    messages = [message(topic, number, rows) for number in range(count)]

    async def work(producer: Producer, count: int) -> None:
        results = await producer.send_batch(messages[:count])
        assert len(results) == count

    return _on_trio(nameserver, work, count)


def _on_trio(
    nameserver: str,
    work: Callable[[Producer, int], Awaitable[None]],
    count: int,
    *,
    max_in_flight: int = 1000,
    batching: bool = False,
) -> Figure:
    """Measures the work, after a quarter of it to warm up. It ends when all of it is acknowledged."""

    async def main() -> Figure:
        async with Producer(
            "ours",
            nameserver=nameserver,
            send_timeout=TIMEOUT_SECONDS,
            max_in_flight=max_in_flight,
            batching=batching,
        ) as producer:
            await work(producer, max(1, count // 4))
            clock = Clock()
            await work(producer, count)
            return clock.figure(count)

    return trio.run(main)


def idle(nameserver: str, topic: str, seconds: int) -> None:
    """Prints the share of a core, in percent, taken by a producer that is idle after one send."""
    with blocking_face.Producer("idle", nameserver=nameserver) as producer:
        producer.send(message(topic, 0))
        time.sleep(2)  # the first heartbeat belongs to the start
        cpu = time.process_time()
        time.sleep(seconds)
        print(f"rate {(time.process_time() - cpu) / seconds * 100:.4f}")


def million(nameserver: str, topic: str, count: int) -> None:
    """Prints the largest resident set, in MiB, of a process that sends so many in a loop and keeps none of them."""

    async def main() -> None:
        async with Producer("many", nameserver=nameserver, send_timeout=TIMEOUT_SECONDS) as producer:
            for number in range(count):
                await producer.send_soon(message(topic, number))

    trio.run(main)
    print(f"rate {peak_mib(os.getpid()):.1f}")


if __name__ == "__main__":
    {"idle": idle, "million": million}[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
