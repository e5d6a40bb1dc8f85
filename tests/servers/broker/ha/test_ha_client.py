"""A slave of ours: its log, queues and index are its master's, whatever it begins with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pyrmq_core.protocol.framing.codes import ResponseCode
from tests.servers.broker.serving import Served, serving, until

SLAVE = {"brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true"}


@asynccontextmanager
async def slave_of(master: Served, directory: Path, **settings: str) -> AsyncIterator[Served]:
    follows = {**SLAVE, "haMasterAddress": master.running.ha_address, **settings}
    async with serving(directory, **follows) as slave:
        yield slave


async def caught_up(slave: Served, master: Served) -> None:
    """Returns when the slave has all bytes, and they are readable."""
    await until(lambda: slave.running.broker.store.readable_end == master.running.broker.store.end)


def stored_files(directory: Path) -> dict[str, bytes]:
    """Returns the bytes of log and queues by path, without the zeros behind them."""
    folders = ("commitlog", "consumequeue", "batchconsumequeue")
    files = [path for folder in folders for path in (directory / folder).rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes().rstrip(b"\0") for path in files}


async def test_an_empty_slave_copies_its_master(tmp_path: Path) -> None:
    async with serving(tmp_path / "master") as master:
        for number in range(100):
            await master.send("T", b"%d" % number, "TAGS\x01a\x02", queue_id=number % 3)
        async with slave_of(master, tmp_path / "slave") as slave:
            await caught_up(slave, master)
            await master.send("T", b"later", queue_id=0)
            await caught_up(slave, master)
            refused = await slave.send("T")
            assert refused.code == ResponseCode.SYSTEM_BUSY
            assert "is a slave" in str(refused.remark)
    assert stored_files(tmp_path / "slave") == stored_files(tmp_path / "master")
