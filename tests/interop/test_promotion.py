"""Our slave of a lost Java master, started as the master, delivers each delayed message and each timer once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.json_text import load_object
from pyrmq_core.servers.broker.timers.timer_checkpoint import TimerCheckpoint
from tests.servers.broker.serving import serving
from tests.support.apache import BROKER_SETTINGS, WITH_LONG_NEWEST, ApacheBroker, ApacheCluster, ask, boot_cluster
from tests.support.maven import ApacheUnavailable
from tests.support.store_jobs import message, read, wait_end

SECONDS = 60.0
LENGTHS = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
SETTINGS = {name: BROKER_SETTINGS[name] for name in LENGTHS}
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}


@pytest.fixture(params=WITH_LONG_NEWEST)
def cluster(request: pytest.FixtureRequest) -> Iterator[ApacheCluster]:
    try:
        with boot_cluster(request.param, broker_settings={"timerFlushIntervalMs": "1000"}) as cluster:
            yield cluster
    except ApacheUnavailable as reason:
        pytest.skip(f"Apache RocketMQ {request.param}: {reason}")


def send(address: str, body: bytes, properties: str) -> None:
    sent = message("T", 0, body, f"UNIQ_KEY\x01{body.decode()}\x02{properties}\x02")
    assert ask(address, sent.to_command()).code == 0


def bodies(address: str) -> list[bytes]:
    return sorted(record.body for record in read(address, "T", 0))


async def wait_until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(SECONDS):
        while not holds():  # noqa: ASYNC110
            await trio.sleep(0.05)


def log_end(master: ApacheBroker) -> int:
    answer = ask(master.address, Command(RequestCode.GET_BROKER_RUNTIME_INFO))
    return int(load_object(answer.body, "figures")["table"]["commitLogMaxOffset"])


async def test_our_slave_goes_on_where_a_java_master_was(cluster: ApacheCluster, tmp_path: Path) -> None:
    master = cluster.brokers["broker-a"]
    has_timers = cluster.version != "4.9.7"
    waiting = [(b"delay", "DELAY\x011"), (b"late delay", "DELAY\x012")]
    if has_timers:
        waiting += [(b"timer", "TIMER_DELAY_MS\x011000"), (b"late timer", "TIMER_DELAY_MS\x017000")]
    kept = tmp_path / "config" / "timercheck"

    def has_state() -> bool:
        """Returns True when the slave has the state of the first deliveries."""
        checkpoint = TimerCheckpoint.decode(kept.read_bytes()) if kept.exists() else None
        return slave.running.broker.deliveries.delays.progress() == [(1, 1, 1)] and (
            not has_timers or (checkpoint is not None and checkpoint.queue_offset == 1)
        )

    async with serving(tmp_path, namesrvAddr=cluster.nameserver.address, **SETTINGS, **SLAVE) as slave:
        for body, properties in waiting[::2]:
            await trio.to_thread.run_sync(send, master.address, body, properties)
        await trio.to_thread.run_sync(wait_end, master.address, "T", 0, len(waiting) // 2)
        await wait_until(has_state)
        for body, properties in waiting[1::2]:
            await trio.to_thread.run_sync(send, master.address, body, properties)
        await trio.to_thread.run_sync(send, master.address, b"between", "DELAY\x011")
        await trio.to_thread.run_sync(wait_end, master.address, "T", 0, len(waiting) // 2 + 1)
        end = await trio.to_thread.run_sync(log_end, master)
        await wait_until(lambda: slave.running.broker.store.readable_end >= end)
        await trio.to_thread.run_sync(master.kill)
    async with serving(tmp_path, **SETTINGS) as promoted:
        address, store = promoted.running.address, promoted.running.broker.store
        await wait_until(lambda: store.reader.bounds(("T", 0))[1] > len(waiting))
        for body, properties in ((b"last 1", "DELAY\x011"), (b"last 2", "DELAY\x012")):
            await trio.to_thread.run_sync(send, address, body, properties)
        await wait_until(lambda: store.reader.bounds(("T", 0))[1] > len(waiting) + 2)
        deliveries = await trio.to_thread.run_sync(bodies, address)
        assert deliveries == sorted([*(body for body, _ in waiting), b"between", b"last 1", b"last 2"])
