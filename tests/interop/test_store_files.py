"""One store directory, opened by our broker and by Apache's in turn: each reads the other's files, and goes on."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.protocol.messages.record import StoredRecord
from pyrmq_core.protocol.requests.broker.offsets import OffsetFound, SearchOffset
from pyrmq_core.protocol.requests.broker.send_message import MessageStored
from tests.support.apache import BROKER_SETTINGS, WITH_LONG_NEWEST, ask, boot_broker, boot_cluster
from tests.support.maven import ApacheUnavailable
from tests.support.spark_streams import wait_until
from tests.support.store_jobs import (
    contents,
    found_by_key,
    index_bytes,
    make_batch_topic,
    message,
    read,
    send_some,
    send_whole,
    wait_end,
)

TURNS = 3  # ours, Apache's, ours
# A killed 4.9.7 opens its store again on Java 17 only with these.
OPENED = ("--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED", "--add-opens", "java.base/jdk.internal.ref=ALL-UNNAMED")
# The lengths of the store's files: both brokers need the same.
SMALL_LOG = {"mappedFileSizeCommitLog": str(1 << 20)}
LONG = 40  # messages in six files of that size
TIMER_CHECKPOINT = "config/timercheck"
LENGTHS = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")


def check_index(address: str, turn: int, before: dict[tuple[str, int], list[StoredRecord]], *, least: int) -> None:
    """Checks that messages of all turns are found by key, or after a kill of Apache's broker those of the last."""
    stored = [record for key, records in before.items() if key[0] == "Single" for record in records]
    keyed = [record for record in stored if "KEYS\x01k3\x02" in record.properties]
    assert len(keyed) == turn + 1
    hits = found_by_key(address, "k3", least)
    assert len(hits) >= least
    assert {record.commit_log_offset: record.body for record in hits}.items() <= {
        record.commit_log_offset: record.body for record in keyed
    }.items()


@contextmanager
def ours(directory: Path, *, kill: bool, **others: str) -> Iterator[str]:
    """Runs our broker on the directory; ends it in order, or kills it."""
    conf = directory.with_suffix(".conf")
    settings = {name: BROKER_SETTINGS[name] for name in LENGTHS} | {
        "storePathRootDir": str(directory),
        "listenPort": "0",
        **others,
    }
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    environment = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
    process = subprocess.Popen(
        [sys.executable, "-m", "pyrmq_core.servers.broker", "-c", str(conf)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    try:
        line = next(line for line in process.stdout if "boot success" in line)
        yield line.partition("]")[0].rpartition(" ")[2]
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        process.wait(60)
    finally:
        process.kill()
        process.wait(60)
        process.stdout.close()


@pytest.mark.parametrize("entries", ["200000", pytest.param("64", marks=pytest.mark.soak)])
@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("version", WITH_LONG_NEWEST)
def test_a_store_goes_from_broker_to_broker(version: str, kill: bool, entries: str) -> None:
    """The index has one file, or one for every 64 entries."""
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(boot_cluster(version, ()))
        except ApacheUnavailable as reason:
            pytest.skip(f"Apache RocketMQ {version}: {reason}")
        directory = cluster.home / "store"
        index = {"maxIndexNum": entries}
        places = {"storePathRootDir": str(directory), "storePathCommitLog": str(directory / "commitlog"), **index}
        before: dict[tuple[str, int], list[StoredRecord]] = {}
        for turn in range(TURNS):
            if turn % 2 == 0:
                with ours(directory, kill=kill, **index) as address:
                    before = take_turn(address, turn, before)
                    check_index(address, turn, before, least=turn + 1)
            else:
                nameserver = cluster.nameserver.address
                with boot_broker(version, nameserver, settings=places, java_options=OPENED) as broker:
                    before = take_turn(broker.address, turn, before)
                    check_index(broker.address, turn, before, least=1 if kill else turn + 1)
                    if not kill:
                        broker.terminate()
        if version != "4.9.7" and not kill:  # one file, of which each broker wrote a part: as ours alone makes it
            written = index_bytes(directory)
            shutil.rmtree(directory / "index")
            with ours(directory, kill=False, messageIndexSafe="true", **index):
                pass
            assert index_bytes(directory) == written
        counts = {key: len(before[key]) for key in (("Single", 0), ("Batch", 1), ("Long", 0))}
        assert counts == {("Single", 0): 5 * TURNS, ("Batch", 1): 100 * TURNS, ("Long", 0): TURNS}


@pytest.mark.parametrize(
    ("version", "others"),
    [
        pytest.param("5.5.0", {}, marks=pytest.mark.soak),
        ("5.5.0", {"enableAcceleratedRecovery": "true"}),
        pytest.param("5.4.0", {}, marks=pytest.mark.soak),
        pytest.param("4.9.7", {}, marks=pytest.mark.soak),
    ],
    ids=["5.5.0", "5.5.0 accelerated", "5.4.0", "4.9.7"],
)
def test_after_a_power_cut_each_release_serves_everything(version: str, others: Mapping[str, str]) -> None:
    """The log has many files behind the checkpoint; then Apache's broker is killed, and ours goes on in its place."""
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(boot_cluster(version, ()))
        except ApacheUnavailable as reason:
            pytest.skip(f"Apache RocketMQ {version}: {reason}")
        before = store_after_power_cut(cluster.home / "ours")
        directory = next((cluster.home / "ours").rglob("commitlog")).parent
        timer_state = (directory / TIMER_CHECKPOINT).read_bytes()
        places = {"storePathRootDir": str(directory), "storePathCommitLog": str(directory / "commitlog")}
        settings = {**places, **SMALL_LOG, "timerFlushIntervalMs": "100", **others}
        with boot_broker(version, cluster.nameserver.address, settings=settings, java_options=OPENED) as broker:
            wait_end(broker.address, "Long", 0, LONG)
            assert long_records(broker.address) == before
            answer = ask(broker.address, message("Long", 0, b"theirs").to_command())
            assert (answer.code, MessageStored.from_command(answer).queue_offset) == (0, LONG)
            if version != "4.9.7":  # which has no timers
                wait_end(broker.address, "Timed", 0, 1)
                wait_until(lambda: (directory / TIMER_CHECKPOINT).read_bytes()[:56] != timer_state[:56])
        # What our broker keeps behind RocketMQ's fields is left as it was.
        assert (directory / TIMER_CHECKPOINT).read_bytes()[56:] == timer_state[56:]
        with ours(directory, kill=True, **SMALL_LOG) as address:
            wait_end(address, "Timed", 0, 1)
            after = long_records(address)
            assert after[:LONG] == before
            assert [record.body for record in after[LONG:]] == [b"theirs"]
            assert ask(address, message("Long", 0, b"ours").to_command()).code == 0


def store_after_power_cut(directory: Path) -> list[StoredRecord]:
    """Fills a store, cuts its power long after the last checkpoint, and returns the records of its queue."""
    settings = {**SMALL_LOG, "flushDiskType": "SYNC_FLUSH", "flushIntervalConsumeQueue": "600000"}
    with EmbeddedCluster(brokers=1, directory=directory, forgetful=True, settings=settings) as cluster:
        address = cluster.brokers["broker-a"]
        assert ask(address, message("Long", 0, b"first").to_command()).code == 0
        timer = message("Timed", 0, b"later", f"TIMER_DELIVER_MS\x01{int(time.time() * 1000) + 15_000}\x02")
        assert ask(address, timer.to_command()).code == 0
        wait_end(address, "rmq_sys_wheel_timer", 0, 1)
        cluster.stop("broker-a")  # writes its checkpoints
        cluster.start("broker-a")
        for number in range(1, LONG):
            assert ask(address, message("Long", 0, b"%03d" % number * 40_000).to_command()).code == 0
        before = long_records(address)
        cluster.power_cut("broker-a")
    return before


def long_records(address: str) -> list[StoredRecord]:
    return list(read(address, "Long", 0))


def test_a_batch_topic_goes_from_broker_to_broker() -> None:
    """Batches that are one record each, in queue files of their own kind; each goes on where the other was killed."""
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(boot_cluster("5.4.0", ()))
        except ApacheUnavailable as reason:
            pytest.skip(f"Apache RocketMQ 5.4.0: {reason}")
        directory = cluster.home / "store"
        places = {"storePathRootDir": str(directory), "storePathCommitLog": str(directory / "commitlog")}
        before: list[StoredRecord] = []
        for turn in range(TURNS):
            if turn % 2 == 0:
                with ours(directory, kill=True) as address:
                    before = take_batch_turn(address, turn, before)
            else:
                nameserver = cluster.nameserver.address
                with boot_broker("5.4.0", nameserver, settings=places, java_options=OPENED) as broker:
                    before = take_batch_turn(broker.address, turn, before)
        offsets = [record.queue_offset for record in before]
        assert offsets == [base + turn * 101 for turn in range(TURNS) for base in (0, 50, 51)]


def take_batch_turn(address: str, turn: int, before: list[StoredRecord]) -> list[StoredRecord]:
    if not turn:
        make_batch_topic(address)
    assert list(read(address, "Whole", 0)) == before
    send_whole(address, turn)
    after = list(read(address, "Whole", 0))
    assert after[: len(before)] == before
    return after


def take_turn(
    address: str, turn: int, before: dict[tuple[str, int], list[StoredRecord]]
) -> dict[tuple[str, int], list[StoredRecord]]:
    """Checks that all records of earlier turns are there, byte for byte, and found by their time; then sends more."""
    if before:
        assert contents(address) == before
        last = before["Batch", 1][-1]
        search = SearchOffset("Batch", 1, last.store_timestamp_ms)
        first = next(record for record in before["Batch", 1] if record.store_timestamp_ms == last.store_timestamp_ms)
        offset = OffsetFound.from_command(ask(address, search.to_command())).offset
        assert first.queue_offset <= offset <= last.queue_offset
    send_some(address, turn)
    after = contents(address)
    for key, records in before.items():
        assert after[key][: len(records)] == records
    return after
