"""Streams into topics while Spark's workers, its driver and brokers are killed at random: the guarantees hold.

The writes are committed: a read of all rows has repeats, a committed read has each row once.

The seed is printed; PYRMQ_SOAK_SEED=... repeats a run's choices, though not its moments.
"""

import os
import random
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from pyrmq_core.blocking import Admin, PullConsumer
from pyrmq_core.protocol.requests.nameserver.kv_config import PutKvConfig
from tests.support.apache import ask
from tests.support.our_cluster import OurCluster, boot_our_cluster
from tests.support.soaking import (
    ROWS_A_KEY,
    Driver,
    Feed,
    batches_of_files,
    committed_rows,
    file_of,
    held,
    kill,
    stored_rows,
    wait_until,
)

pytestmark = pytest.mark.spark

TOPICS = ("plain", "shuffled")
ROWS_A_FILE = 400
SECONDS = 240.0


RIGHT = [(f"0-0 {number}", f"id {number}") for number in range(2 * ROWS_A_KEY)]
AGAIN = [*RIGHT, *RIGHT[:5]]


@pytest.mark.parametrize(
    ("topic", "by_queue", "fault"),
    [
        ("plain", {"q": RIGHT[1:]}, "1 of 200 rows are lost"),
        ("plain", {"q": [*RIGHT, ("0-0 200", "id 200")]}, "1 rows are there that were never sent"),
        ("plain", {"q": [RIGHT[1], RIGHT[0], *RIGHT[2:]]}, "rows of key 0-0 are out of order"),
        ("shuffled", {"q": [*RIGHT[:150], *RIGHT[160:], *RIGHT[150:160]]}, "rows of key 0-0 are out of order"),
        ("shuffled", {"q": [*RIGHT[ROWS_A_KEY:], *RIGHT[:ROWS_A_KEY]]}, "batches of key 0-0 are out of order"),
        ("shuffled", {"q": RIGHT[:50], "r": RIGHT[50:]}, "key 0-0 is in two queues"),
        ("plain", {"q": [*RIGHT[:-1], ("0-0 199", "id 0")]}, "two rows have the id id 0"),
        ("plain", {"q": [*RIGHT, ("0-0 0", "another id")]}, "a repeat in the same order has another id"),
    ],
)
def test_the_check_fails(topic: str, by_queue: dict[str, list[tuple[str, str]]], fault: str) -> None:
    with pytest.raises(AssertionError, match=fault):
        check(topic, by_queue, {body for body, _ in RIGHT}, {0: 0, 2: 1})


@pytest.mark.parametrize(("topic", "stored"), [("plain", RIGHT), ("plain", AGAIN), ("shuffled", AGAIN)])
def test_the_check_passes_what_is_right(topic: str, stored: list[tuple[str, str]]) -> None:
    """Repeats may follow; only a shuffle may give them other ids."""
    again = [("0-0 0", "another id")] if topic == "shuffled" else []
    check(topic, {"q": [*stored, *again]}, {body for body, _ in RIGHT}, {0: 0, 2: 1})


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_streams_survive_a_kill_of_each_kind(tmp_path: Path) -> None:
    soak(tmp_path, ["broker", "worker", "driver"], files=2)


@pytest.mark.soak
@pytest.mark.timeout(5400)
def test_streams_survive_fifty_kills(tmp_path: Path) -> None:
    soak(tmp_path, ["worker", "driver", "broker"] * 16 + ["worker", "broker"], files=4)


def soak(directory: Path, victims: list[str], *, files: int) -> None:
    """Runs a round for each victim; adds `files` files of rows in each."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no Java here; install a JDK 17 or 21")
    seed = int(os.environ.get("PYRMQ_SOAK_SEED") or random.getrandbits(32))
    chance = random.Random(seed)
    print(f"PYRMQ_SOAK_SEED={seed}", flush=True)  # noqa: T201 - what a failed run is repeated with
    chance.shuffle(victims)
    with (
        boot_our_cluster(nameserver_settings={"orderMessageEnable": "true"}) as cluster,
        PullConsumer("soak", nameserver=cluster.nameserver.address) as consumer,
    ):
        nameserver = cluster.nameserver.address
        create_order_topics(nameserver, cluster.brokers)
        feed, driver = Feed(directory / "rows"), Driver(nameserver, directory)
        try:
            for number, victim in enumerate(victims):
                one_round(cluster, consumer, feed, files, driver, chance, victim)
                print(f"{number + 1} of {len(victims)}: {victim} killed", flush=True)  # noqa: T201
            (directory / "complete").touch()
            driver.ensure()
            wait_until(lambda: ended(driver), SECONDS, lambda: f"the streams did not end\n{log_of(driver)}")
        finally:
            driver.end()
        for topic in TOPICS:
            check(topic, stored_rows(consumer, topic), feed.rows, batches_of_files(directory / topic))
            assert sorted(committed_rows(consumer, topic)) == sorted(feed.rows), f"{topic}: not each row once"


def create_order_topics(nameserver: str, brokers: Iterable[str]) -> None:
    """Creates topics whose queues stay the same while a broker is away: a key keeps its queue from write to write."""
    with Admin(nameserver=nameserver) as admin:
        for topic in TOPICS:
            admin.create_topic(topic, queues=4, order=True)
            conf = ";".join(f"{name}:4" for name in brokers)
            ask(nameserver, PutKvConfig("ORDER_TOPIC_CONFIG", topic, conf).to_command())


def one_round(
    cluster: OurCluster,
    consumer: PullConsumer,
    feed: Feed,
    files: int,
    driver: Driver,
    chance: random.Random,
    victim: str,
) -> None:
    """Adds more files, and kills the victim when a random number of their rows is stored."""
    driver.ensure()
    topic = chance.choice(TOPICS)
    before = held(consumer, topic) or 0
    for _ in range(files):
        feed.add()
    enough = before + chance.randrange(1, files * ROWS_A_FILE)
    wait_until(
        lambda: ended(driver) or (held(consumer, topic) or 0) >= enough,
        SECONDS,
        lambda: f"{topic} holds {held(consumer, topic)} rows, not {enough}\n{log_of(driver)}",
    )
    if victim == "driver":
        driver.kill()
    elif victim == "worker":
        if workers := driver.workers():
            kill(chance.choice(workers))
    else:
        broker = chance.choice(list(cluster.brokers.values()))
        broker.kill()
        broker.restart()


def ended(driver: Driver) -> bool:
    """Returns whether the driver is done; starts it again when it failed."""
    if driver.has_ended_well:
        return True
    driver.ensure()
    return False


def log_of(driver: Driver) -> str:
    return driver.log.read_text(errors="replace")[-3000:]


def check(topic: str, by_queue: dict[str, list[tuple[str, str]]], rows: set[str], batch_of: dict[int, int]) -> None:
    """Checks that every row is stored, with its own id, and its key's rows in one queue in order of first appearance.

    Batches come one after another, and a file's rows in theirs; files of one batch are of several tasks.
    """
    bodies: dict[str, str] = {}
    ids_of: dict[str, set[str]] = {}
    queue_of: dict[str, str] = {}
    seen: dict[str, list[int]] = {}
    for queue, messages in by_queue.items():
        for body, msg_id in messages:
            assert bodies.setdefault(msg_id, body) == body, f"{topic}: two rows have the id {msg_id}"
            key, _, number = body.partition(" ")
            if key != "none":
                assert queue_of.setdefault(key, queue) == queue, f"{topic}: key {key} is in two queues"
                if body not in ids_of:
                    seen.setdefault(key, []).append(int(number))
            ids_of.setdefault(body, set()).add(msg_id)
    assert rows <= set(ids_of), f"{topic}: {len(rows - set(ids_of))} of {len(rows)} rows are lost"
    assert rows >= set(ids_of), f"{topic}: {len(set(ids_of) - rows)} rows are there that were never sent"
    for key, numbers in seen.items():
        batches = [batch_of[file_of(key, number)] for number in numbers]
        assert batches == sorted(batches), f"{topic}: batches of key {key} are out of order"
        by_file = sorted(numbers, key=lambda number: file_of(key, number))
        assert by_file == sorted(numbers), f"{topic}: rows of key {key} are out of order"
    if topic == "plain":
        assert max(map(len, ids_of.values())) == 1, "a repeat in the same order has another id"
    stored = sum(map(len, by_queue.values()))
    print(f"{topic}: {len(rows)} rows, {stored - len(rows)} repeats, all in order", flush=True)  # noqa: T201
