"""Topics that come, grow and go at random while a pattern reads them, on every cluster; subclassed as `StreamJobs`."""

from __future__ import annotations

import os
import random
import time
from contextlib import suppress
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pyrmq_core import Message, MessageQueue, RocketMQError
from pyrmq_core.blocking import Producer
from tests.support.spark_streams import Topic, stream

STEPS = 150
STEPS_A_BATCH = 5
# The limit for the last rows: each discovery queries every broker for every queue.
CALM_SECONDS = 60.0
NAMES = 6
MOST_QUEUES = 4
ADDING = ("send", "send", "send", "create", "grow")
REMOVING = ("delete", "recreate")


class Churn:
    """Topics that change at random, and the messages sent to them."""

    def __init__(self, sent: Topic, chance: random.Random, producer: Producer) -> None:
        self._sent = sent
        self._chance = chance
        self._producer = producer
        self._brokers = sorted(sent.admin.cluster_info().broker_addr_table)
        self._queues = {sent.name: 2}
        self._next = 0
        self.done: list[str] = []
        self.acknowledged: set[int] = set()

    @property
    def pattern(self) -> str:
        return f"{self._sent.name}(_.*)?"

    def step(self, actions: tuple[str, ...]) -> None:
        action = self._chance.choice(actions)
        topic = self._chance.choice(sorted(self._queues)) if self._queues else None
        if topic is None or (action == "create" and len(self._queues) < NAMES):
            self.create(f"{self._sent.name}_{self._chance.randrange(NAMES)}")
        elif action == "send":
            self.send(topic)
        elif action == "grow":
            self.create(topic, min(MOST_QUEUES, self._queues[topic] + 1))
        elif action in REMOVING:
            self._sent.admin.delete_topic(topic)
            del self._queues[topic]
            self.done.append(f"delete {topic}")
            if action == "recreate":
                self.create(topic)

    def create(self, topic: str, queues: int = 1) -> None:
        """Creates a topic, or adds queues to it: an existing topic never loses queues."""
        queues = max(queues, self._queues.get(topic, 0))
        self.done.append(f"create {topic} {queues}")
        self._sent.create(queues, topic)
        self._queues[topic] = queues

    def send(self, topic: str) -> set[int]:
        """Sends to one of the topic's queues and returns the numbers."""
        queue = MessageQueue(topic, self._chance.choice(self._brokers), self._chance.randrange(self._queues[topic]))
        numbers = range(self._next, self._next + self._chance.randrange(1, 20))
        self._next = numbers.stop
        self.done.append(f"send {queue} {numbers}")
        self._producer.send_batch([Message(topic, f"{number}".encode()) for number in numbers], queue=queue)
        self.acknowledged.update(numbers)
        return set(numbers)

    def send_to_all(self) -> set[int]:
        return {number for topic in sorted(self._queues) for number in self.send(topic)}


class Read:
    """A query over the pattern, and the numbers it has read."""

    def __init__(self, spark: SparkSession, sent: Topic, churn: Churn, directory: Path, *, fail: bool) -> None:
        self.numbers: list[int] = []
        self._batches = 0
        options = {"topicPattern": churn.pattern, "startingOffsets": "earliest", "failOnDataLoss": str(fail).lower()}
        frame = stream(spark, sent.nameserver, **options, maxOffsetsPerTrigger=500)
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(directory))
        self.query = writer.trigger(processingTime="50 milliseconds").start()

    def _take(self, batch: DataFrame, number: int) -> None:
        self.numbers += [int(row.body) for row in batch.selectExpr("cast(body as string) as body").collect()]
        self._batches += 1

    def wait_now_and_then(self, step: int) -> None:
        """Waits every few steps for another batch, half a second at most: the query sees topics in between."""
        batches, deadline = self._batches, time.monotonic() + 0.5
        while step % STEPS_A_BATCH == 0 and self._batches == batches and time.monotonic() < deadline:
            time.sleep(0.01)

    def wait_for(self, numbers: set[int], churn: Churn) -> None:
        """Waits for the numbers; fails with the changes to the topics when the query fails or does not read them."""

        deadline = time.monotonic() + CALM_SECONDS
        while missing := numbers - set(self.numbers):
            failure = self.query.exception()
            assert failure is None, f"{failure}\nafter {churn.done}"
            assert time.monotonic() < deadline, (
                f"{len(missing)} rows did not come: {sorted(missing)}\nafter {churn.done}"
            )
            time.sleep(0.05)


class StressJobs:
    """Each test has topics of its own."""

    def test_topics_that_come_and_grow_lose_no_row(self, spark: SparkSession, sent: Topic, tmp_path: Path) -> None:
        with Producer("churn", nameserver=sent.nameserver, send_timeout=20) as producer:
            churn = Churn(sent, _chance(), producer)
            read = Read(spark, sent, churn, tmp_path, fail=True)
            try:
                for number in range(STEPS):
                    churn.step(ADDING)
                    read.wait_now_and_then(number)
                read.wait_for(churn.acknowledged, churn)
            finally:
                read.query.stop()
        assert sorted(read.numbers) == sorted(churn.acknowledged)

    def test_topics_that_also_go_never_fail_a_query_that_may_lose_rows(
        self, spark: SparkSession, sent: Topic, tmp_path: Path
    ) -> None:
        """Rows of a deleted topic may be read or not; once changes stop, no other row is left out."""
        with Producer("churn", nameserver=sent.nameserver, send_timeout=20) as producer:
            churn = Churn(sent, _chance(), producer)
            read = Read(spark, sent, churn, tmp_path, fail=False)
            try:
                for number in range(STEPS):
                    with suppress(RocketMQError):  # of sends: a broker learns of a new topic later than a NameServer
                        churn.step(ADDING + REMOVING)
                    read.wait_now_and_then(number)
                last = f"{sent.name}_last"
                churn.create(last)
                read.wait_for(churn.send(last), churn)  # the query has now looked at all topics since the last change
                numbers = churn.send_to_all()
                read.wait_for(numbers, churn)
            finally:
                read.query.stop()
        assert len([number for number in read.numbers if number in numbers]) == len(numbers)


def _chance() -> random.Random:
    """Returns a source of choices; PYRMQ_SEED repeats a run's choices, though not its moments."""
    seed = int(os.environ.get("PYRMQ_SEED") or random.SystemRandom().getrandbits(32))
    print(f"PYRMQ_SEED={seed}")  # noqa: T201 - shown when the test fails
    return random.Random(seed)
