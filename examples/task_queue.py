"""Tasks of taskiq: six workers share a topic of four queues, one of them is killed, and its task runs again.

    python examples/task_queue.py 127.0.0.1:9876

It needs `pip install "pyrmq-spark[taskiq]"` and a broker of RocketMQ 5.0 or later. A service would start its workers by
`taskiq worker task_queue:broker`. Here each is a process of this script, and prints what it does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

from taskiq.api import run_receiver_task

from pyrmq_core.aio import Admin
from pyrmq_core.tools.taskiq import RocketMQBroker

TOPIC, TASKS = "reports", 8
# Longer than a task is invisible: its message is extended while it runs, be it a second or an hour.
TASK_SECONDS, INVISIBLE_SECONDS = float(os.environ.get("TASK_SECONDS", "2")), 1.5

broker = RocketMQBroker(TOPIC, "reporters", nameserver=os.environ.get("NAMESRV_ADDR"), invisible=INVISIBLE_SECONDS)


@broker.task("report")
async def report(number: int) -> None:
    print(f"begins {number} in {os.getpid()}", flush=True)
    await asyncio.sleep(TASK_SECONDS)
    print(f"ends {number} in {os.getpid()}", flush=True)


async def send() -> None:
    async with Admin(nameserver=os.environ["NAMESRV_ADDR"]) as admin:
        await admin.create_topic(TOPIC, queues=4)
    await broker.startup()
    for number in range(TASKS):
        await report.kiq(number)
    await broker.shutdown()


async def work() -> None:
    try:
        await run_receiver_task(broker, max_async_tasks=TASKS, run_startup=True)
    finally:  # also behind Ctrl-C: unfinished tasks go to other workers at once
        await broker.shutdown()


def main(nameserver: str, workers: int) -> None:
    if workers < 2:
        sys.exit("one worker is killed, so it takes 2 at least")
    os.environ["NAMESRV_ADDR"] = nameserver
    subprocess.run([sys.executable, __file__, "send"], check=True)
    reading, writing = os.pipe()
    processes = [subprocess.Popen([sys.executable, __file__, "work"], stdout=writing) for _ in range(workers)]
    os.close(writing)
    killed, ended = None, set[str]()
    try:
        with open(reading) as lines:
            while len(ended) < TASKS:
                what, number, _, process = lines.readline().split()
                print(what, number, flush=True)
                if killed is None:
                    killed = number
                    os.kill(int(process), signal.SIGKILL)
                    print("killed", killed, flush=True)
                elif what == "ends":
                    ended.add(number)
    finally:
        for worker in processes:
            worker.kill()
            worker.wait()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["send"]:
            asyncio.run(send())
        case ["work"]:
            asyncio.run(work())
        case [nameserver, *count]:
            main(nameserver, int(count[0]) if count else 6)
