"""One store directory, opened by our broker and by Apache's in turn: each reads the other's files, and goes on."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pyrmq_core.protocol.messages.batch import BatchItem, encode_batch_body
from pyrmq_core.protocol.messages.record import StoredRecord, iterate_records
from pyrmq_core.protocol.requests.broker.offsets import GetMaxOffset, OffsetFound, SearchOffset
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage
from pyrmq_core.protocol.requests.broker.query_message import QueryMessage
from pyrmq_core.protocol.requests.broker.send_message import SendMessage
from pyrmq_core.protocol.requests.broker.topic_admin import UpdateTopic
from tests.support.apache import BROKER_SETTINGS, VERSIONS, ask, boot_broker, boot_cluster
from tests.support.maven import ApacheUnavailable

QUEUES = 4
TURNS = 3  # ours, Apache's, ours
# A killed 4.9.7 opens its store again on Java 17 only with these.
OPENED = ("--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED", "--add-opens", "java.base/jdk.internal.ref=ALL-UNNAMED")
# The lengths of the store's files: both brokers need the same.
LENGTHS = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
EVER = (0, 1 << 60)


def message(topic: str, queue_id: int, body: bytes, properties: str = "") -> SendMessage:
    return SendMessage("P", topic, "TBW102", QUEUES, queue_id, 0, 1_700_000_000_000, 7, properties, body=body)


def make_batch_topic(address: str) -> None:
    made = UpdateTopic("Whole", 1, 1, 6, attributes="+queue.type=BatchCQ")
    assert ask(address, made.to_command()).code == 0


def send_whole(address: str, turn: int) -> None:
    """Sends two batches that are one record each, and a message between them."""
    for number in range(3):
        items = [BatchItem(0, b"%d-%d-%d" % (turn, number, one), b"TAGS\x01t\x02") for one in range(50)]
        batch = replace(message("Whole", 0, encode_batch_body(items), f"UNIQ_KEY\x01R{turn}{number}\x02"), batch=True)
        sent = message("Whole", 0, b"single") if number == 1 else batch
        assert ask(address, sent.to_command()).code == 0
    wait_end(address, "Whole", 0, (turn + 1) * 101)


def send_some(address: str, turn: int) -> None:
    """Sends single messages, a batch, a message that fills most of a segment's rest, and a delayed one."""
    for number in range(20):
        text = f"TAGS\x01t{number % 3}\x02KEYS\x01k{number}\x02"
        sent = ask(address, message("Single", number % QUEUES, b"%d-%d" % (turn, number), text).to_command())
        assert sent.code == 0, sent.remark
    items = [BatchItem(number, b"%d-%d" % (turn, number), b"TAGS\x01t\x02") for number in range(100)]
    batch = replace(message("Batch", 1, encode_batch_body(items)), batch=True)
    assert ask(address, batch.to_command()).code == 0
    assert ask(address, message("Long", 0, bytes([turn]) * 3_000_000).to_command()).code == 0
    # The longest delay: it is not delivered while the test runs.
    assert ask(address, message("Single", 0, b"late", "DELAY\x0118\x02").to_command()).code == 0
    wait_end(address, "SCHEDULE_TOPIC_XXXX", 17, turn + 1)


def wait_end(address: str, topic: str, queue_id: int, end: int) -> None:
    """Returns when a queue has so many messages, and every queue those sent before.

    Apache's broker makes the entries of all queues in the order of the log, a moment after it has answered.
    """
    deadline = time.monotonic() + 60
    while OffsetFound.from_command(ask(address, GetMaxOffset(topic, queue_id).to_command())).offset < end:
        assert time.monotonic() < deadline, f"queue {queue_id} of {topic} does not reach {end}"


def contents(address: str) -> dict[tuple[str, int], list[StoredRecord]]:
    """Returns every record of every queue, read in pulls as consumers do."""
    queues = [("Single", number) for number in range(QUEUES)] + [("Batch", 1), ("Long", 0), ("SCHEDULE_TOPIC_XXXX", 17)]
    return {(topic, queue_id): list(read(address, topic, queue_id)) for topic, queue_id in queues}


def read(address: str, topic: str, queue_id: int) -> Iterator[StoredRecord]:
    offset = 0
    while True:
        pull = PullMessage("G", topic, queue_id, offset, 32)
        answer = PullAnswer.from_command(ask(address, pull.to_command()))
        if answer.code != 0:
            found = OffsetFound.from_command(ask(address, GetMaxOffset(topic, queue_id).to_command()))
            assert (answer.code, found.offset) == (19, offset)
            return
        yield from iterate_records(answer.records, check_crc=True)
        offset = answer.next_begin_offset


def found_by_key(address: str, key: str, at_least: int) -> list[StoredRecord]:
    """Returns the records of a key when so many are found: Apache's broker indexes them a moment after storing them."""
    deadline = time.monotonic() + 60
    while True:
        answer = ask(address, QueryMessage("Single", key, 64, *EVER).to_command())
        found = list(iterate_records(bytes(answer.body), check_crc=True))
        if len(found) >= at_least or time.monotonic() > deadline:
            return found


def check_index(address: str, turn: int, before: dict[tuple[str, int], list[StoredRecord]], *, least: int) -> None:
    """Checks that messages of all turns are found by key, or after a kill of Apache's broker those of the last."""
    stored = [record for key, records in before.items() if key[0] == "Single" for record in records]
    keyed = [record for record in stored if "KEYS\x01k3\x02" in record.properties]
    assert len(keyed) == turn + 1
    found = found_by_key(address, "k3", least)
    assert len(found) >= least
    assert {one.commit_log_offset: one.body for one in found}.items() <= {
        one.commit_log_offset: one.body for one in keyed
    }.items()


def index_bytes(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((directory / "index").iterdir())]


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
        [sys.executable, "-m", "pyrmq_core.broker", "-c", str(conf)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    try:
        line = next(line for line in process.stdout if "boot success" in line)
        yield line.partition("]")[0].rpartition(" ")[2]
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        process.wait(60)
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()


@pytest.mark.timeout(300)  # three boots, and Apache's broker takes up to 10 s to stop
@pytest.mark.parametrize("entries", ["200000", pytest.param("64", marks=pytest.mark.soak)])
@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("version", VERSIONS)
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
        if version == "5.4.0" and not kill:  # one file, of which each broker wrote a part: as ours alone makes it
            written = index_bytes(directory)
            shutil.rmtree(directory / "index")
            with ours(directory, kill=False, messageIndexSafe="true", **index):
                pass
            assert index_bytes(directory) == written
        counts = {key: len(before[key]) for key in (("Single", 0), ("Batch", 1), ("Long", 0))}
        assert counts == {("Single", 0): 5 * TURNS, ("Batch", 1): 100 * TURNS, ("Long", 0): TURNS}


@pytest.mark.timeout(180)
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
        first = next(one for one in before["Batch", 1] if one.store_timestamp_ms == last.store_timestamp_ms)
        found = OffsetFound.from_command(ask(address, search.to_command())).offset
        assert first.queue_offset <= found <= last.queue_offset
    send_some(address, turn)
    after = contents(address)
    for key, records in before.items():
        assert after[key][: len(records)] == records
    return after
