"""Old segments removed by either broker: the other one opens the store, and answers the same about what is left."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.requests.broker.offsets import GetMaxOffset, GetMinOffset, OffsetFound
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage
from tests.interop.test_store_files import OPENED
from tests.support.apache import NEWEST_AND_LONG_OLDER, VERSIONS, ApacheBroker, ask, boot_broker
from tests.support.java_programs import mqadmin
from tests.support.maven import ApacheUnavailable
from tests.support.store_jobs import make_batch_topic, message, send_whole, wait_end

QUEUES = {("Long", 0), ("Single", 0), ("Single", 1)}
WHOLE = ("Whole", 0)
# Segments of 1 MiB; each file is old at once, and goes when a tool says so.
SETTINGS = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "600",
    "mapperFileSizeBatchConsumeQueue": "460000",
    "fileReservedTime": "0",
    "deleteWhen": "99",
    "cleanResourceInterval": "500",
}
Figures = dict[tuple[str, int], tuple[int, int]]


def wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Returns when the condition holds; another process makes it true."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def figures(address: str, queues: set[tuple[str, int]]) -> Figures:
    """Returns the minimum and the maximum offset of each queue."""

    def offset(request: GetMinOffset | GetMaxOffset) -> int:
        return OffsetFound.from_command(ask(address, request.to_command())).offset

    return {key: (offset(GetMinOffset(*key)), offset(GetMaxOffset(*key))) for key in queues}


def pulled(address: str, key: tuple[str, int], offset: int) -> PullAnswer:
    return PullAnswer.from_command(ask(address, PullMessage("G", *key, offset, 32).to_command()))


def left(address: str, queue_bounds: Figures) -> dict[tuple[str, int], list[bytes]]:
    """Returns the bodies from each minimum on; checks that a pull below it is answered 21 with it."""
    bodies: dict[tuple[str, int], list[bytes]] = {}
    for key, (low, high) in queue_bounds.items():
        if low == high:
            continue
        if low:
            moved = pulled(address, key, 0)
            assert (moved.code, moved.next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, low)
        offset, bodies[key] = low, []
        while offset < high:
            answer = pulled(address, key, offset)
            assert answer.code == 0
            bodies[key] += [record.body for record in iterate_records(answer.records, check_crc=True)]
            offset = answer.next_begin_offset
    return bodies


def send(address: str, number: int) -> None:
    """Sends one message to the second queue of Single, then more than two segments of others."""
    for count in range(26):
        sent = message("Long", 0, bytes([number, count]) * 50_000)
        assert ask(address, sent.to_command()).code == 0
        assert ask(address, message("Single", 0, b"%d-%d" % (number, count)).to_command()).code == 0


@contextmanager
def java(version: str, cluster: EmbeddedCluster, store: Path) -> Iterator[ApacheBroker]:
    settings = {"storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog"), **SETTINGS}
    try:
        with boot_broker(version, cluster.nameserver, "java-broker", settings=settings, java_options=OPENED) as broker:
            yield broker
    except ApacheUnavailable as reason:
        pytest.skip(f"Apache RocketMQ {version}: {reason}")


def goes_on(address: str, before: Figures) -> Figures:
    """Sends more, and checks that each queue goes on behind its last message; returns the figures then."""
    send(address, 9)
    assert ask(address, message("Single", 1, b"on").to_command()).code == 0
    wait_end(address, "Single", 1, before["Single", 1][1] + 1)
    after = figures(address, set(before))
    assert after["Long", 0] == (before["Long", 0][0], before["Long", 0][1] + 26)
    assert after["Single", 1][1] == before["Single", 1][1] + 1
    assert pulled(address, ("Single", 1), after["Single", 1][1] - 1).records
    return after


@pytest.mark.parametrize("version", NEWEST_AND_LONG_OLDER)
def test_java_opens_what_our_broker_removed(version: str, tmp_path: Path) -> None:
    queues = QUEUES | ({WHOLE} if version.startswith("5") else set())
    with EmbeddedCluster(directory=tmp_path, settings=SETTINGS) as cluster:
        address = cluster.brokers["broker-a"]
        if WHOLE in queues:
            make_batch_topic(address)
            send_whole(address, 0)
        assert ask(address, message("Single", 1, b"first").to_command()).code == 0
        send(address, 1)
        first = figures(address, queues)
        assert {low for low, _ in first.values()} == {0}
        mqadmin(version, "deleteExpiredCommitLog", "-b", address, nameserver=cluster.nameserver)
        wait_until(lambda: len(list((tmp_path / "broker-a" / "commitlog").iterdir())) == 1)
        ours = figures(address, queues)
        assert {key: high for key, (_, high) in ours.items()} == {key: high for key, (_, high) in first.items()}
        assert ours["Single", 1] == (1, 1)
        assert 0 < ours["Long", 0][0] < 26
        kept = left(address, ours)
        cluster.kill("broker-a")
        with java(version, cluster, tmp_path / "broker-a") as broker:
            theirs = figures(broker.address, queues)
            if version.startswith("4"):  # 4.9 reports the minimum of a queue without messages as it was
                ours["Single", 1] = theirs["Single", 1] = (0, 1)
            assert theirs == ours
            assert left(broker.address, {key: ours[key] for key in kept}) == kept
            after = goes_on(broker.address, ours)
        cluster.start("broker-a")
        address = cluster.brokers["broker-a"]
        again = figures(address, queues)
        assert again == after | {("Single", 1): (1, 2)}
        assert all(left(address, again)[key][: len(bodies)] == bodies for key, bodies in kept.items())
        mqadmin(version, "cleanUnusedTopic", "-b", address, nameserver=cluster.nameserver)
        assert figures(address, queues) == again
        mqadmin(version, "cleanExpiredCQ", "-b", address, nameserver=cluster.nameserver)
        assert figures(address, queues) == {
            key: (0, 0) if low == high else (low, high) for key, (low, high) in again.items()
        }


@pytest.mark.soak
@pytest.mark.timeout(400)
@pytest.mark.parametrize("version", VERSIONS)
def test_ours_opens_what_java_removed_and_reports_the_same(version: str, tmp_path: Path) -> None:
    """Java's broker looks a minute after its start for the first time."""
    with EmbeddedCluster(directory=tmp_path, settings=SETTINGS) as cluster:
        cluster.kill("broker-a")
        with java(version, cluster, tmp_path / "broker-a") as broker:
            assert ask(broker.address, message("Single", 1, b"first").to_command()).code == 0
            send(broker.address, 1)
            mqadmin(version, "deleteExpiredCommitLog", "-b", broker.address, nameserver=cluster.nameserver)
            wait_until(lambda: len(list((tmp_path / "broker-a" / "commitlog").iterdir())) <= 2, 120)
            wait_until(lambda: figures(broker.address, QUEUES)["Long", 0][0] > 0, 60)
            theirs = figures(broker.address, QUEUES)
            kept = left(broker.address, {key: theirs[key] for key in QUEUES - {("Single", 1)}})
        cluster.start("broker-a")
        address = cluster.brokers["broker-a"]
        ours = figures(address, QUEUES)
        assert ours["Single", 1] == (1, 1)
        assert {key: ours[key] for key in kept} == {key: theirs[key] for key in kept}
        assert left(address, ours) == kept
        goes_on(address, ours)
