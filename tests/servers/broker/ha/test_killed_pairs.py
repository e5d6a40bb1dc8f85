"""Masters and slaves as processes, killed at random under sends that wait: the slave has what is acknowledged."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from pyrmq_core.errors import RocketMQError
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage
from tests.support.apache import ask
from tests.support.copies import check_copy, log_end
from tests.support.our_cluster import OurServer, boot_our_broker, boot_our_cluster
from tests.support.spark_streams import wait_until
from tests.support.store_jobs import message

SECONDS = 60.0
SETTINGS = {"mappedFileSizeCommitLog": "65536"}
WAITS = {**SETTINGS, "brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "20000"}
FOLLOWS = {**SETTINGS, "brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true"}


@dataclass
class Sends:
    """The bodies that a master acknowledged."""

    acknowledged: set[bytes] = field(default_factory=set)


@contextmanager
def sending(address: str) -> Iterator[Sends]:
    """Sends messages of many sizes, one after another, for as long as the block runs; a failed one counts for none."""
    sends, stop = Sends(), threading.Event()

    def run() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            body = b"%d " % number + bytes(number * 997 % 5000)
            try:
                if ask(address, message("Single", 0, body).to_command()).code == 0:
                    sends.acknowledged.add(body)
            except (OSError, RocketMQError):
                stop.wait(0.01)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield sends
    finally:
        stop.set()
        thread.join()


def kill_rounds(rounds: int, victims: str) -> None:
    """Kills a master or its slave in each round; `victims` has m and s in turn."""
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")  # noqa: T201 - shown when it fails, and by `make soak`
    draw = random.Random(seed)
    with boot_our_cluster(["broker-a"], broker_settings=WAITS) as cluster:
        master, home = cluster.brokers["broker-a"], cluster.nameserver.store.parent
        with boot_our_broker("broker-a", cluster.nameserver.address, home / "slave", FOLLOWS) as slave:
            with sending(master.address) as sends:
                wait_sent(sends, 1)
                check_has(slave, set(sends.acknowledged))  # and their topic
                for number in range(rounds):
                    wait_sent(sends, len(sends.acknowledged) + draw.randrange(1, 40))
                    time.sleep(draw.uniform(0, 0.05))
                    kill_one(master, slave, sends, victims[number % len(victims)])
                wait_sent(sends, len(sends.acknowledged) + 1)
            wait_until(lambda: log_end(slave.address) == log_end(master.address), SECONDS)
            check_has(slave, sends.acknowledged)
            slave.terminate()
            master.terminate()
        assert check_copy(slave.store, master.store, has_index=False) > 0
    print(f"{len(sends.acknowledged)} acknowledged")  # noqa: T201 - shown by `make soak`


def wait_sent(sends: Sends, count: int) -> None:
    wait_until(lambda: len(sends.acknowledged) >= count, SECONDS)


def kill_one(master: OurServer, slave: OurServer, sends: Sends, victim: str) -> None:
    if victim == "s":
        slave.kill()
        slave.start()
        return
    master.kill()
    check_has(slave, set(sends.acknowledged))
    master.start()


def check_has(slave: OurServer, acknowledged: set[bytes]) -> None:
    """Checks that the slave has these messages; it replays them a moment after it has reported their bytes."""
    wait_until(lambda: acknowledged <= bodies(slave.address), SECONDS)


def bodies(address: str) -> set[bytes]:
    """Returns the bodies that are readable now."""
    stored_bodies: set[bytes] = set()
    offset = 0
    while True:
        pulled = ask(address, PullMessage("G", "Single", 0, offset, 32).to_command())
        if pulled.code != ResponseCode.SUCCESS:
            return stored_bodies
        answer = PullAnswer.from_command(pulled)
        stored_bodies.update(record.body for record in iterate_records(answer.records, check_crc=True))
        offset = answer.next_begin_offset


def test_a_slave_has_every_acknowledged_message() -> None:
    kill_rounds(3, "msm")


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_slave_has_every_acknowledged_message_over_fifty_kills() -> None:
    kill_rounds(50, "ms")
