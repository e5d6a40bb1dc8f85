"""Our slave follows a master of each release, and ours: all that both have is equal, whatever is killed meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copytree

import pytest

from pyrmq_core.protocol.messages.record import StoredRecord
from tests.support.apache import BROKER_SETTINGS, WITH_LONG_NEWEST, boot_broker
from tests.support.copies import (
    Server,
    check_copy,
    contents_left,
    log_end,
    log_files,
    send_more,
    send_turn,
    wait_copied,
)
from tests.support.maven import ApacheUnavailable
from tests.support.our_cluster import OurServer, boot_our_broker, boot_our_cluster
from tests.support.spark_streams import wait_until
from tests.support.store_jobs import USED_QUEUES, contents, make_batch_topic

SECONDS = 60.0
SEGMENT_BYTES = 4 << 20
# A turn's longest message leaves no room for a second one: each turn ends a segment with a blank record.
SETTINGS = {name: BROKER_SETTINGS[name] for name in ("mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")} | {
    "mappedFileSizeCommitLog": str(SEGMENT_BYTES)
}
FOLLOWS = {**SETTINGS, "brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true"}
Contents = dict[tuple[str, int], list[StoredRecord]]


@dataclass
class Stage:
    """A NameServer, and a folder for masters of one make and slaves of ours."""

    maker: str
    nameserver: str
    home: Path
    booted: int = field(default=0)

    @property
    def version(self) -> str:
        """The release whose kinds of messages are stored."""
        return "5.4.0" if self.maker == "ours" else self.maker

    @contextmanager
    def master(self, store: Path) -> Iterator[Server]:
        settings = {**SETTINGS, "storePathRootDir": str(store), "brokerRole": "ASYNC_MASTER"}
        if self.maker == "ours":
            with boot_our_broker("broker-a", self.nameserver, self._next_home(), settings) as ours:
                yield ours
            return
        settings["storePathCommitLog"] = str(store / "commitlog")
        try:
            with boot_broker(self.maker, self.nameserver, settings=settings) as theirs:
                yield theirs
        except ApacheUnavailable as reason:
            pytest.skip(f"Apache RocketMQ {self.maker}: {reason}")

    @contextmanager
    def slave(self, store: Path) -> Iterator[OurServer]:
        settings = {**FOLLOWS, "storePathRootDir": str(store)}
        with boot_our_broker("broker-a", self.nameserver, self._next_home(), settings) as slave:
            yield slave

    def _next_home(self) -> Path:
        self.booted += 1
        return self.home / f"home-{self.booted}"


@pytest.fixture(params=["ours", *WITH_LONG_NEWEST])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with boot_our_cluster([]) as cluster:
        yield Stage(request.param, cluster.nameserver.address, cluster.nameserver.store.parent)


def test_our_slave_has_what_its_master_has(stage: Stage) -> None:
    home, version = stage.home, stage.version
    with stage.master(home / "master") as master:
        if version != "4.9.7":
            make_batch_topic(master.address)
        send_turn(master.address, version, 0)
        with stage.slave(home / "slave") as slave:
            send_more(master.address, version, 0)
            wait_copied(master, slave)
            assert contents(slave.address) == contents(master.address)
            slave.terminate()
            copytree(slave.store, home / "first turn")
            send_turn(master.address, version, 1)
            slave.start()
            wait_copied(master, slave)
            slave.kill()
            copytree(slave.store, home / "two turns")
            master.kill()
            master.start()
            send_turn(master.address, version, 2)
            send_more(master.address, version, 1)
            slave.start()
            wait_copied(master, slave)
            slave_contents = contents(slave.address)
            assert slave_contents == contents(master.address)
            slave.terminate()
            master.terminate()
        end = check_copy(slave.store, master.store, has_index=version != "4.9.7")
        assert end > 2 * SEGMENT_BYTES
    check_others(stage, slave_contents)


def check_others(stage: Stage, slave_contents: Contents) -> None:
    """Opens an older store of the slave as its master's, without the first segment; then slaves of it begin.

    4.9.7 is not asked for messages: after such a start it takes the first segment that it has for the one at 0.
    """
    home, store = stage.home, stage.home / "two turns"
    (store / "commitlog" / f"{0:020}").unlink()
    with stage.master(store) as master:
        end = log_end(master.address)
        assert SEGMENT_BYTES < end < 2 * SEGMENT_BYTES
        if stage.version != "4.9.7":
            left = contents_left(master.address)
            for key, records in slave_contents.items():
                assert left[key] == [record for record in records if SEGMENT_BYTES <= record.commit_log_offset < end]
        check_refused(stage, home / "slave", "Nothing is cut")
        check_refused(stage, home / "first turn", "what lies between was removed there")
        with stage.slave(home / "empty") as slave:
            wait_copied(master, slave, [])
            send_turn(master.address, stage.version, 2)
            wait_copied(master, slave, USED_QUEUES)
            if stage.version != "4.9.7":
                assert contents_left(slave.address) == contents_left(master.address)
            slave.terminate()
        logs, others = log_files(slave.store), log_files(master.store)
        assert logs == others
        assert min(logs) == f"{SEGMENT_BYTES:020}"


def check_refused(stage: Stage, store: Path, reason: str) -> None:
    """Checks that a slave does not follow, says so once, and changes nothing."""
    before = log_files(store)
    with stage.slave(store) as slave:
        wait_until(lambda: slave.process.wrote(reason), SECONDS)
        slave.terminate()
        lines = [line for line in slave.process.log.read_text().splitlines() if "does not follow" in line]
        assert len(lines) == 1, lines
    assert log_files(store) == before
