"""Answers of synchronous masters with and without a slave: ours beside RocketMQ 4.9.7's and 5.4.0's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import pytest

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from tests.support.apache import WITH_LONG_NEWEST, ApacheBroker, ask, boot_broker, boot_cluster
from tests.support.maven import ApacheUnavailable
from tests.support.our_cluster import boot_our_cluster
from tests.support.spark_streams import wait_until
from tests.support.store_jobs import message

pytestmark = pytest.mark.timeout(400)

SECONDS: Final = 60.0
GAP_BYTES: Final = 100_000
# Longer than a request waits for its answer: an answer that comes was given at once.
NEVER_MS: Final = "120000"
AT_ONCE_SECONDS: Final = 50.0
IN_SYNC: Final = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "haMaxGapNotInSync": str(GAP_BYTES)}
SYNC: Final[Mapping[str, Mapping[str, str]]] = {
    "4.9.7": {"brokerRole": "SYNC_MASTER", "haSlaveFallbehindMax": str(GAP_BYTES)},
    **dict.fromkeys(("5.4.0", "5.5.0"), IN_SYNC),
}


@contextmanager
def master(version: str, maker: str) -> Iterator[tuple[str, str]]:
    """Yields the addresses of a NameServer and of its synchronous master; both are ours, or of a release."""
    settings = {**SYNC[version], "slaveTimeout": NEVER_MS}
    if maker == "ours":
        with boot_our_cluster(["broker-a"], broker_settings=settings) as ours:
            yield ours.nameserver.address, ours.brokers["broker-a"].address
    else:
        with boot_cluster(version, ["broker-a"], broker_settings=settings) as theirs:
            yield theirs.nameserver.address, theirs.brokers["broker-a"].address


def send(address: str, size: int = 3) -> int:
    return ask(address, message("Single", 0, bytes(size)).to_command(), timeout=AT_ONCE_SECONDS).code


def wait_at_most(address: str, slave_timeout_ms: str) -> None:
    body = f"slaveTimeout={slave_timeout_ms}\n".encode()
    assert ask(address, Command(RequestCode.UPDATE_BROKER_CONFIG, body=body)).code == 0


def answers(version: str, address: str, slave: ApacheBroker) -> list[int]:
    """Returns the answers with a slave that follows, that stands still, that is too far behind, and that is back."""
    wait_at_most(address, "500")
    wait_until(lambda: send(address) == 0, SECONDS)
    wait_at_most(address, NEVER_MS)
    codes = [send(address)]
    slave.pause()
    wait_at_most(address, "500")
    codes.append(send(address))
    if version == "4.9.7":
        wait_at_most(address, NEVER_MS)
    codes.append(send(address, GAP_BYTES))
    slave.resume()
    wait_at_most(address, "500")
    wait_until(lambda: send(address) == 0, SECONDS)
    return codes


@pytest.mark.parametrize("maker", ["ours", pytest.param("Apache's", marks=pytest.mark.soak)])
@pytest.mark.parametrize("version", WITH_LONG_NEWEST)
def test_a_synchronous_master_answers_as_the_releases_do(version: str, maker: str) -> None:
    try:
        with master(version, maker) as (nameserver, address):
            if version != "4.9.7":
                wait_at_most(address, "500")
            alone = send(address)
            follows = {"brokerId": "1", "brokerRole": "SLAVE"}
            with boot_broker(version, nameserver, settings=follows) as slave:
                codes = answers(version, address, slave)
    except ApacheUnavailable as reason:
        pytest.skip(f"Apache RocketMQ {version}: {reason}")
    without = 11 if version == "4.9.7" else 12
    assert (alone, codes) == (without, [0, 12, without])
