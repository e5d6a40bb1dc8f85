"""A broker on a free port inside the test's loop, and its requests and answers."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from pyrmq_core.network import ConnectionPool, Handler
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage, PullSysFlag
from pyrmq_core.protocol.requests.broker.send_message import SendMessage
from pyrmq_core.servers.broker import BrokerConfig, DiskFiles, RunningBroker, run_broker
from pyrmq_core.servers.embedded.forgetful_files import ForgetfulFiles

# With a size of their own, stores do not depend on what else is on this machine's disk.
SMALL_FILES = {
    "mappedFileSizeCommitLog": str(8 << 20),
    "mappedFileSizeConsumeQueue": "6000",
    "maxStoreBytes": str(1 << 30),
}
NOW_MS = 1_700_000_000_000


@dataclass
class Served:
    """A running broker and connections to it."""

    running: RunningBroker
    pool: ConnectionPool
    ended: trio.Event
    nursery: trio.Nursery

    def another(self, hear: Handler | None = None) -> "Served":
        """Returns the same broker over another connection; `hear` handles the broker's requests over it."""
        return Served(self.running, ConnectionPool(self.nursery, handler=hear), self.ended, self.nursery)

    async def ask(self, command: Command, *, timeout: float = 60.0) -> Command:
        return await self.pool.call(self.running.address, command, timeout=timeout)

    async def send(self, topic: str, body: bytes = b"body", properties: str = "", queue_id: int = 0) -> Command:
        return await self.ask(message(topic, body, properties, queue_id).to_command())

    async def pull(self, topic: str, queue_id: int = 0, offset: int = 0, *, wait_ms: int = 0) -> PullAnswer:
        flags = PullSysFlag.SUBSCRIPTION | (PullSysFlag.SUSPEND if wait_ms else 0)
        request = PullMessage("G", topic, queue_id, offset, 32, int(flags), suspend_timeout_ms=wait_ms)
        return PullAnswer.from_command(await self.ask(request.to_command()))


def message(topic: str, body: bytes = b"body", properties: str = "", queue_id: int = 0) -> SendMessage:
    return SendMessage(
        producer_group="P",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp_ms=NOW_MS,
        flag=0,
        properties=properties,
        body=body,
    )


def config(directory: Path, **settings: str) -> BrokerConfig:
    given = {"listenPort": "0", "storePathRootDir": str(directory), **SMALL_FILES, **settings}
    return BrokerConfig().with_settings(given)


async def until(holds: Callable[[], bool]) -> None:
    """Returns when the condition holds; polls it, with a deadline."""
    with trio.fail_after(60):
        while not holds():  # noqa: ASYNC110 - the condition sets no event
            await trio.sleep(0.005)


@asynccontextmanager
async def serving(directory: Path, **settings: str) -> AsyncIterator[Served]:
    """Yields a broker with these settings (RocketMQ's names), stopped in order afterwards unless the test ended it."""
    settings_value = config(directory, **settings)
    ended = trio.Event()
    async with trio.open_nursery() as nursery:
        files = ForgetfulFiles(DiskFiles(directory))
        start = partial(_run, settings_value, files, ended)
        running: RunningBroker = await nursery.start(start)
        pool = ConnectionPool(nursery)
        yield Served(running, pool, ended, nursery)
        await pool.aclose()
        running.stop()
        await ended.wait()
        nursery.cancel_scope.cancel()


async def _run(
    settings: BrokerConfig,
    files: ForgetfulFiles,
    ended: trio.Event,
    task_status: trio.TaskStatus[RunningBroker],
) -> None:
    try:
        await run_broker(settings, files=files, task_status=task_status)
    finally:
        ended.set()
