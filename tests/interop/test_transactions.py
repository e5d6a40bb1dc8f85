"""Transactions on RocketMQ as on ours, Java's producer on ours, and one store in the hands of both."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import trio

from pyrmq_core import PullConsumer
from pyrmq_core.blocking import Admin, EmbeddedCluster
from tests.support.apache import (
    BROKER_SETTINGS,
    NEWEST_AND_LONG_OLDER,
    ApacheBroker,
    ApacheCluster,
    boot_cluster,
    free_port,
)
from tests.support.java_programs import run_java
from tests.support.maven import ApacheUnavailable
from tests.support.our_cluster import OurServer
from tests.support.transaction_jobs import (
    COMMIT,
    ROLLBACK,
    checks_end,
    every_end_is_honoured,
    fresh,
    halves_are_left,
    made_topic,
    visible,
)

PROGRAM = Path(__file__).parent / "java" / "Transact.java"
# 5.4.0 records ends within 3 s, and checks what has no record.
CHECKS = {"transactionCheckInterval": "1000", "transactionTimeOut": "4000", "transactionCheckMax": "4"}
QUICK = {"transactionCheckInterval": "100", "transactionTimeOut": "500", "transactionCheckMax": "3"}
LENGTHS = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue")


@pytest.fixture(scope="module", params=NEWEST_AND_LONG_OLDER)
def apache(request: pytest.FixtureRequest) -> Iterator[ApacheCluster]:
    try:
        with boot_cluster(request.param, ("broker-a",), broker_settings=CHECKS) as cluster:
            yield cluster
    except ApacheUnavailable as reason:
        pytest.skip(f"Apache RocketMQ {request.param}: {reason}")


async def test_every_end_is_honoured(apache: ApacheCluster) -> None:
    await every_end_is_honoured(apache.nameserver.address, most_checks=4)


def test_half_messages_go_from_broker_to_broker(apache: ApacheCluster) -> None:
    """Left open at one broker and ended at the other, there and back; the one that ours ended is delivered once.

    RocketMQ records the answer to a check up to 3 s later, and may check and deliver the message again meanwhile.
    """
    nameserver, group = apache.nameserver.address, fresh("handed")
    broker = apache.brokers["broker-a"]
    topic = trio.run(made_topic, nameserver)
    trio.run(halves_are_left, nameserver, topic, group, b"from java 1", b"from java 2", b"from java 3")
    broker.kill()  # before it checks them in vain
    with ours(apache, broker):
        trio.run(checks_end, nameserver, topic, group, {b"from java 1": COMMIT, b"from java 2": ROLLBACK})
        trio.run(halves_are_left, nameserver, topic, group, b"from ours 1", b"from ours 2")
    broker.restart(transactionCheckMax="1000")
    states = {b"from java 3": COMMIT, b"from ours 1": COMMIT, b"from ours 2": ROLLBACK}
    trio.run(checks_end, nameserver, topic, group, states)
    counts = trio.run(bodies, nameserver, topic)
    assert counts.keys() == {b"from java 1", b"from java 3", b"from ours 1"}
    assert counts[b"from java 1"] == 1


@contextmanager
def ours(apache: ApacheCluster, broker: ApacheBroker) -> Iterator[OurServer]:
    """Runs our broker in the place of Apache's, and kills it."""
    settings = {name: BROKER_SETTINGS[name] for name in LENGTHS} | QUICK | {"transactionCheckMax": "1000"}
    settings |= {
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "listenPort": str(free_port((0,))),
        "namesrvAddr": apache.nameserver.address,
        "storePathRootDir": str(broker.store),
    }
    home = apache.home / fresh("ours")
    server = OurServer("broker-a", "pyrmq_core.servers.broker", home, apache.nameserver.address, settings)
    try:
        server.start()
        yield server
    finally:
        server.kill()


async def bodies(nameserver: str, topic: str) -> Counter[bytes]:
    async with PullConsumer("readers", nameserver=nameserver, timeout=15) as consumer:
        return Counter(message.body for message in await visible(consumer, topic))


@pytest.mark.parametrize("version", NEWEST_AND_LONG_OLDER)
def test_javas_transactions_on_our_broker(version: str) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(EmbeddedCluster(settings=QUICK))
        stack.enter_context(Admin(nameserver=cluster.nameserver, timeout=20)).create_topic("Ledger", queues=2)
        try:
            printed = run_java(version, PROGRAM, cluster.nameserver, "Ledger", "java-ledgers", timeout=120)
        except ApacheUnavailable as reason:
            pytest.skip(f"Apache RocketMQ {version}: {reason}")
    sent = {
        body: (msg_id, queue) for body, msg_id, queue in re.findall(r"^sent (\S+) SEND_OK (\S+) (\d+)$", printed, re.M)
    }
    assert len(sent) == 5
    read = re.findall(r"^read (?!plain)(\S+) (\S+) (\S+) (\d+)$", printed, re.M)
    assert sorted(body for body, *_ in read) == ["checked-commit", "commit", "forgotten"]
    for body, msg_id, transaction_id, queue in read:
        assert (msg_id, queue) == sent[body]
        assert transaction_id == msg_id
    checked = re.findall(r"^checked (\S+) (\d+) (\S+) (\S+)$", printed, re.M)
    times = [int(number) for body, number, *_ in checked if body == "forgotten"]
    assert times[:4] == [1, 2, 3, 1]
    assert {"checked-commit", "checked-rollback"} <= {body for body, *_ in checked}
    assert all((msg_id, topic) == (sent[body][0], "Ledger") for body, _, msg_id, topic in checked)
    assert "resumed true" in printed
