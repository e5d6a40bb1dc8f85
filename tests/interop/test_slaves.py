"""A slave of each release follows our master: log, queues and index are equal byte for byte, and sends wait for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile

import pytest

from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.json_text import load_object
from pyrmq_core.protocol.requests.broker.consumer_offsets import UpdateConsumerOffset
from tests.support.apache import (
    BROKER_SETTINGS,
    WITH_LONG_NEWEST,
    ApacheBroker,
    ask,
    boot_broker,
)
from tests.support.copies import lag, send_turn
from tests.support.maven import ApacheUnavailable
from tests.support.our_cluster import OurServer, boot_our_broker, boot_our_cluster
from tests.support.spark_streams import wait_until
from tests.support.store_jobs import contents, index_bytes, make_batch_topic, message, wait_end

SECONDS = 60.0
METADATA_SECONDS = 100.0  # a slave of 5.4.0 fetches it a minute after its boot
LENGTHS = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
QUEUES_AND_LOG = ("commitlog", "consumequeue", "batchconsumequeue")


@dataclass
class Pair:
    """Our master and its slave of a release."""

    master: OurServer
    slave: ApacheBroker
    nameserver: str

    def send(self, turn: int) -> None:
        send_turn(self.master.address, self.slave.version, turn)

    def send_one(self) -> int:
        return ask(self.master.address, message("Single", 0, b"one").to_command(), timeout=30).code

    def wait_copied(self, turns: int) -> None:
        """Returns when the slave has the log, and its queues have the messages of so many turns."""
        wait_until(lambda: lag(self.master) == 0, SECONDS)
        wait_end(self.slave.address, "SCHEDULE_TOPIC_XXXX", 17, turns)


def refused_fetches(slave: ApacheBroker) -> list[str]:
    """Returns the lines that a slave logged of tables that the master does not have."""
    lines = [line for path in slave.home.rglob("broker*.log") for line in path.read_text().splitlines()]
    assert lines
    return [line for line in lines if "not supported" in line]


def configure(server: OurServer, **settings: str) -> None:
    body = "".join(f"{name}={value}\n" for name, value in settings.items()).encode()
    assert ask(server.address, Command(RequestCode.UPDATE_BROKER_CONFIG, body=body)).code == 0


def files_of(store: Path) -> dict[str, bytes]:
    """Returns the bytes of log and queues by path, without the zeros behind them."""
    files = [path for folder in QUEUES_AND_LOG for path in (store / folder).rglob("*") if path.is_file()]
    return {str(path.relative_to(store)): path.read_bytes().rstrip(b"\0") for path in files}


@pytest.fixture(scope="module", params=WITH_LONG_NEWEST)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A pair for both tests, of which the second ends it.

    The slave has the master's topics from its first start: it makes a batch topic's queues by them.
    """
    try:
        with booted(request.param) as pair:
            yield pair
    except ApacheUnavailable as reason:
        pytest.skip(f"Apache RocketMQ {request.param}: {reason}")


@contextmanager
def booted(version: str) -> Iterator[Pair]:
    settings = {name: BROKER_SETTINGS[name] for name in LENGTHS}
    settings |= {"brokerRole": "SYNC_MASTER", "slaveTimeout": "25000"}
    with boot_our_cluster(["broker-a"], broker_settings=settings) as cluster:
        master = cluster.brokers["broker-a"]
        make_batch_topic(master.address)
        send_turn(master.address, version, 0)
        store = master.store.parent / "slave"
        (store / "config").mkdir(parents=True)
        copyfile(master.store / "config" / "topics.json", store / "config" / "topics.json")
        follows = {
            **settings,
            "brokerId": "1",
            "brokerRole": "SLAVE",
            "slaveReadEnable": "true",
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
        }
        with boot_broker(version, cluster.nameserver.address, settings=follows) as slave:
            yield Pair(master, slave, cluster.nameserver.address)


def test_a_send_waits_for_the_slave(pair: Pair) -> None:
    pair.wait_copied(1)
    configure(pair.master, inSyncReplicas="2")
    assert pair.send_one() == ResponseCode.SUCCESS
    configure(pair.master, slaveTimeout="500")
    pair.slave.pause()
    assert pair.send_one() == ResponseCode.FLUSH_SLAVE_TIMEOUT
    pair.slave.resume()
    configure(pair.master, slaveTimeout="25000")
    pair.wait_copied(1)
    assert pair.send_one() == ResponseCode.SUCCESS
    wait_end(pair.slave.address, "Single", 0, 8)
    assert contents(pair.slave.address) == contents(pair.master.address)
    configure(pair.master, inSyncReplicas="1")


def test_a_slave_has_what_its_master_has(pair: Pair) -> None:
    pair.wait_copied(1)
    pair.send(1)
    pair.wait_copied(2)
    assert contents(pair.slave.address) == contents(pair.master.address)
    pair.master.kill()
    pair.master.start()
    pair.send(2)
    pair.wait_copied(3)
    offset = UpdateConsumerOffset("G", "Single", 0, 7)
    assert ask(pair.master.address, offset.to_command()).code == 0

    def offset_on(address: str) -> object:
        answer = ask(address, Command(RequestCode.GET_ALL_CONSUMER_OFFSET))
        return load_object(answer.body, "offsets")["offsetTable"].get("Single@G")

    wait_until(lambda: offset_on(pair.slave.address) == offset_on(pair.master.address), METADATA_SECONDS)
    if pair.slave.version != "4.9.7":  # 4.9.7 writes no log here
        assert refused_fetches(pair.slave) == []
    slave_contents = contents(pair.slave.address)
    pair.slave.terminate()
    pair.master.terminate()
    assert files_of(pair.slave.store) == files_of(pair.master.store)
    if pair.slave.version != "4.9.7":  # 4.9.7 has no keys of tags
        assert index_bytes(pair.slave.store) == index_bytes(pair.master.store)
    settings = {name: BROKER_SETTINGS[name] for name in LENGTHS} | {"storePathRootDir": str(pair.slave.store)}
    home = pair.master.store.parent / "promoted"
    with boot_our_broker("broker-a", pair.nameserver, home, settings) as promoted:
        assert contents(promoted.address) == slave_contents
