"""A stream over a topic in any state: the rows that must come, may come twice, or may be reported as lost.

The topic shrinks, grows, is deleted and made again, loses its READ permission, its oldest file, one in its middle, or
its newest messages; brokers and the NameServer leave and come back; between a batch's plan and its run, too. Each
batch is compared with the messages that brokers have at that moment; at the end, with all brokers back, every row that
exists has come, except those stored below an offset that the stream had passed.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from pyrmq_core import MessageQueue, OffsetRange
from pyrmq_core.client.consumer.pull import range_reader as range_reading
from pyrmq_core.loop_thread.portal import HeldContext, portal
from pyrmq_core.model import Permission
from pyrmq_spark import patience, worker
from pyrmq_spark.read import partition_reader as reading
from pyrmq_spark.spark_errors import RocketMQSparkError
from pyrmq_spark.stream import latest_offsets as watching
from pyrmq_spark.stream.stream_offset import UNRESOLVED, Offsets, StreamOffset
from tests.support.changing_cluster import (
    READ_WRITE,
    TOPIC,
    ChangingBroker,
    ChangingCluster,
    WatchfulQuery,
    changing_cluster,
)
from tests.support.stream_queries import Offset

SHORT = hypothesis.settings(max_examples=12, stateful_step_count=30, deadline=None, print_blob=True)
LONG = hypothesis.settings(max_examples=1000, stateful_step_count=80, deadline=None, print_blob=True)
UNAVAILABLE, LOST = "[RMQ_BROKER_UNAVAILABLE]", "[RMQ_DATA_LOSS]"
UNREADABLE, REFUSED, UNKNOWN = "[RMQ_NOT_READABLE]", "[RMQ_REFUSED]", "[RMQ_TOPIC_NOT_FOUND]"
T = TypeVar("T")
names = st.sampled_from(["broker-a", "broker-b"])
numbers = st.integers(0, 5)
small = st.integers(1, 4)


@dataclass
class Expected:
    """The rows of a run that succeeds, the rows it may skip, and the conditions it may fail with."""

    rows: list[str] = field(default_factory=list)
    excused: set[str] = field(default_factory=set)
    reasons: set[str] = field(default_factory=set)
    must_fail: bool = False


class StreamOverChanges(RuleBasedStateMachine):
    """One query; `fail` is its failOnDataLoss."""

    fail: bool

    def __init__(self) -> None:
        super().__init__()
        self.opened = HeldContext(portal(), changing_cluster("broker-a", "broker-b"))
        self.cluster: ChangingCluster = self.opened.value
        self.query = WatchfulQuery(
            self.cluster.nameserver.address,
            topic=TOPIC,
            startingOffsets="earliest",
            failOnDataLoss=str(self.fail).lower(),
            pullTimeoutMs=60,
        )
        self.planned: tuple[Offset, Offset] | None = None
        self.numbers = 0
        self.knows_queues = False
        self.came: Counter[str] = Counter()
        self.may_repeat: set[str] = set()
        self.may_lack: set[str] = set()

    # --- The topic.

    @rule(which=numbers, count=st.integers(1, 8))
    def sends(self, which: int, count: int) -> None:
        self.send(which, count)

    @rule(which=numbers, count=st.integers(1, 8))
    def sends_and_reads(self, which: int, count: int) -> None:
        self.send(which, count)
        self.reads()

    def send(self, which: int, count: int) -> None:
        broker, number = self.pick(which)
        if not broker.is_up or number >= broker.queue_count:
            return
        passed = self.passed().get(broker.queue(number), 0)
        for _ in range(count):
            self.numbers += 1
            if broker.put(TOPIC, number, str(self.numbers).encode()) < passed:
                self.may_lack.add(str(self.numbers))

    def pick(self, which: int) -> tuple[ChangingBroker, int]:
        """Returns one of the queues that exist, or did."""
        queues = self.cluster.queues() or [MessageQueue(TOPIC, "broker-a", 0)]
        queue = queues[which % len(queues)]
        return self.cluster.broker(queue), queue.queue_id

    @rule(name=names, queues=st.integers(1, 3))
    def has_so_many_queues(self, name: str, queues: int) -> None:
        broker = self.cluster.brokers[name]
        for number in range(queues, broker.queue_count):
            self.may_repeat |= set(broker.kept(number).values())
        broker.queue_count = queues
        self.cluster.publish()

    @rule(name=names)
    def is_deleted(self, name: str) -> None:
        self.cluster.brokers[name].forget()
        self.cluster.publish()

    @rule(name=names, perm=st.sampled_from([READ_WRITE, Permission.WRITE]))
    def permits(self, name: str, perm: int) -> None:
        self.cluster.brokers[name].perm = perm
        self.cluster.publish()

    @rule(which=numbers, count=small)
    def loses_its_oldest_file(self, which: int, count: int) -> None:
        broker, number = self.pick(which)
        broker.remove_first(number, count)

    @rule(which=numbers, count=small)
    def loses_its_newest(self, which: int, count: int) -> None:
        broker, number = self.pick(which)
        broker.remove_last(number, count)

    @rule(which=numbers, skipped=st.integers(0, 6), count=small)
    def loses_a_file_in_its_middle(self, which: int, skipped: int, count: int) -> None:
        broker, number = self.pick(which)
        first, end = broker.bounds(number)
        gone = range(first + skipped, min(end, first + skipped + count))
        broker.holes |= {(TOPIC, number, offset) for offset in gone}

    # --- Servers.

    @rule(name=names, still_registered=st.booleans())
    def leaves(self, name: str, still_registered: bool) -> None:
        broker = self.cluster.brokers[name]
        if broker.is_up:
            portal().run(self.cluster.servers[name].stop)
        broker.is_up, broker.is_registered = False, still_registered
        self.cluster.publish()

    @rule(name=names)
    def comes_back(self, name: str) -> None:
        broker = self.cluster.brokers[name]
        if not broker.is_up:
            portal().run(self.cluster.servers[name].start)
        broker.is_up = broker.is_registered = True
        self.cluster.publish()

    @rule(name=names)
    def is_forgotten(self, name: str) -> None:
        """Unregisters a broker that still serves."""
        self.cluster.brokers[name].is_registered = False
        self.cluster.publish()

    @rule()
    def nameserver_changes(self) -> None:
        server = self.cluster.nameserver
        portal().run(server.stop if self.cluster.nameserver_is_up else server.start)
        self.cluster.nameserver_is_up = not self.cluster.nameserver_is_up

    @rule()
    def all_servers_are_back(self) -> None:
        if not self.cluster.nameserver_is_up:
            self.nameserver_changes()
        for name, broker in self.cluster.brokers.items():
            self.comes_back(name)
            broker.perm = READ_WRITE
        self.cluster.publish()

    # --- The query.

    @rule(fresh_workers=st.booleans())
    def restarts(self, fresh_workers: bool) -> None:
        if fresh_workers:
            worker.close()
        self.query.restart()
        self.knows_queues = False

    @rule()
    def reads(self) -> None:
        if self.planned is None:
            self.plan(fail=self.fail)
        if self.planned is not None:
            self.run(fail=self.fail)

    @precondition(lambda self: self.planned is None)
    @rule()
    def plans(self) -> None:
        self.plan(fail=self.fail)

    @precondition(lambda self: self.planned is None and self.fail)
    @rule()
    def gives_up_what_is_lost(self) -> None:
        self.accepting()

    @precondition(lambda self: self.planned is not None)
    @rule()
    def runs(self) -> None:
        self.run(fail=self.fail)

    def accepting(self) -> None:
        """Runs a batch with failOnDataLoss=false, as a user does after a loss."""
        self.query.restart(failOnDataLoss="false")
        self.knows_queues = False
        self.plan(fail=False)
        if self.planned is not None:
            self.run(fail=False)
        self.query.restart(failOnDataLoss=str(self.fail).lower())
        self.knows_queues = False

    def plan(self, *, fail: bool) -> None:
        start = self.query.start()
        reached = {} if start == UNRESOLVED else StreamOffset.from_json(start).offsets
        allowed = tuple(self.why_no_plan(reached, fail=fail))
        limit = self.query.reader.getDefaultReadLimit()
        end = self.tried(lambda: self.query.reader.latestOffset(start, limit), allowed)
        if end is None:
            return
        planned = StreamOffset.from_json(end)
        self.knows_queues |= self.cluster.nameserver_is_up
        self.check_plan(reached, StreamOffset(planned.offsets) if end == start else planned, fail=fail)
        if end == start:
            self.query.offset = start
        else:
            self.planned = start, end

    def run(self, *, fail: bool) -> None:
        assert self.planned is not None
        start, end = self.planned
        right = self.expected(StreamOffset.from_json(end).ranges(), fail=fail)
        before = len(self.query.rows)

        def run() -> bool:
            del self.query.rows[before:]  # Spark drops the rows of a failed batch
            self.query.run(start, end)
            return True

        if self.tried(run, tuple(right.reasons)) is None:
            del self.query.rows[before:]
            return
        assert not right.must_fail
        rows = [body for _, _, body in self.query.rows[before:]]
        assert rows == right.rows
        self.may_lack |= right.excused
        self.came.update(rows)
        assert {body for body in rows if self.came[body] > 1} <= self.may_repeat
        self.planned = None

    def tried(self, call: Callable[[], T], allowed: tuple[str, ...]) -> T | None:
        """Returns None for an allowed failure. A server that has just come back may be slow to answer once."""
        for is_last in (False, False, True):
            try:
                return call()
            except RocketMQSparkError as error:
                if str(error).startswith(allowed):
                    return None
                if is_last or not str(error).startswith(UNAVAILABLE):
                    raise
        raise AssertionError

    # --- What is right.

    def passed(self) -> Offsets:
        """Returns the offsets that are read, or planned to be."""
        offset = self.planned[1] if self.planned is not None else self.query.offset
        return {} if offset is None else StreamOffset.from_json(offset).offsets

    def why_no_plan(self, reached: Offsets, *, fail: bool) -> Iterator[str]:
        cluster, brokers = self.cluster, self.cluster.brokers.values()
        if not all(broker.is_up and broker.is_registered for broker in brokers):
            yield UNAVAILABLE
        if not cluster.nameserver_is_up and not self.knows_queues:
            yield UNAVAILABLE
        if any(not broker.perm & Permission.READ for broker in brokers):
            yield UNREADABLE
        if not reached and TOPIC not in cluster.table.routes:
            yield UNKNOWN
        if fail and any(self.is_lossy(queue, offset) for queue, offset in reached.items()):
            yield LOST

    def is_lossy(self, queue: MessageQueue, offset: int) -> bool:
        first, end = self.cluster.broker(queue).bounds(queue.queue_id)
        return not self.cluster.is_routed(queue) or not first <= offset <= end

    def check_plan(self, reached: Offsets, end: StreamOffset, *, fail: bool) -> None:
        """Checks that each queue continues where it was left, or right behind its lost messages."""
        for queue, offset in reached.items():
            broker = self.cluster.broker(queue)
            if queue not in end.offsets:
                assert not fail
                assert self.cluster.nameserver_is_up
                assert broker.is_registered
                assert not self.cluster.is_routed(queue)
                continue
            first, last = broker.bounds(queue.queue_id)
            begin = end.began.get(queue, end.offsets[queue])
            assert begin == (offset if fail else min(max(offset, first), last))
            assert end.offsets[queue] == last
        for queue in end.offsets.keys() - reached.keys():
            assert end.began[queue] == self.cluster.broker(queue).bounds(queue.queue_id)[0]
        for broker in self.cluster.brokers.values():
            if self.cluster.nameserver_is_up and broker.is_registered and broker.perm & Permission.READ:
                kept = {broker.queue(number) for number in range(broker.queue_count) if self.waits(broker, number)}
                assert kept <= end.offsets.keys()

    def waits(self, broker: ChangingBroker, number: int) -> bool:
        first, end = broker.bounds(number)
        return end > first

    def expected(self, ranges: Mapping[MessageQueue, OffsetRange], *, fail: bool) -> Expected:
        right = Expected()
        for queue, target in sorted(ranges.items(), key=lambda item: item[0]):
            broker = self.cluster.broker(queue)
            bodies = {offset: body for offset, body in self.cluster.kept(queue).items() if offset in target}
            is_known = self.cluster.nameserver_is_up and broker.is_registered
            if not is_known or not broker.is_up:
                right.reasons.add(UNAVAILABLE)
            if broker.queue_count and not broker.perm & Permission.READ:
                right.reasons.add(REFUSED)
            if not self.cluster.is_routed(queue):
                right.excused |= set(bodies.values())
                right.must_fail |= not is_known  # it is unknown whether the queue is gone
                bodies = {}
            if len(bodies) < len(target):
                right.reasons |= {LOST} if fail else set()
                right.must_fail |= fail or (self.cluster.nameserver_is_up and not broker.is_registered)
            right.must_fail |= not broker.is_up and self.cluster.is_routed(queue)
            right.rows += bodies.values()
        return right

    def teardown(self) -> None:
        try:
            self.all_comes()
        finally:
            worker.close()
            self.opened.close()

    def all_comes(self) -> None:
        self.all_servers_are_back()
        if TOPIC not in self.cluster.table.routes:
            return
        self.query.restart(failOnDataLoss="false")
        self.knows_queues = False
        for _ in range(4):
            if self.planned is not None:
                self.run(fail=False)
            self.plan(fail=False)
        assert self.planned is None
        there = {body for queue in self.cluster.queues() for body in self.cluster.kept(queue).values()}
        assert there <= self.came.keys() | self.may_lack


class Strict(StreamOverChanges):
    """failOnDataLoss=true."""

    fail = True


class Lenient(StreamOverChanges):
    """failOnDataLoss=false."""

    fail = False


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers on loopback need no pauses."""
    for module, name, seconds in (
        (watching, "FLOOR_SECONDS", 0.0),
        (watching, "LOSS_PAUSE_SECONDS", 0.0),
        (patience, "PAUSE_SECONDS", 0.02),
        (reading, "PAUSE_SECONDS", 0.02),
        (range_reading, "RETRY_PAUSE_SECONDS", 0.02),
    ):
        monkeypatch.setattr(module, name, seconds)


@pytest.mark.parametrize("machine", [Strict, Lenient])
def test_a_stream_over_a_topic_in_any_state(machine: type[StreamOverChanges]) -> None:
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="before PySpark 4.2 a source has no limit")
    run_state_machine_as_test(machine, settings=SHORT)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("machine", [Strict, Lenient])
def test_a_stream_over_a_topic_in_any_state_for_long(machine: type[StreamOverChanges]) -> None:
    run_state_machine_as_test(machine, settings=LONG)
