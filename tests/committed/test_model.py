"""A model of committed writes: drivers, tasks and a reader as values, in every order that hypothesis draws.

A batch of a query has the same rows in every attempt, as Spark's log of offsets fixes them. Two drivers may run the
same query, tasks go on after their driver, answers are lost, and the reader looks at any moment. Other writers commit
batches without a name, and a stranger writes messages that are no records, and records whose lists are wrong.
"""

import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from pyrmq_core.committed.deciding import commits_between, committed_at, needed_from, next_record, without_record
from pyrmq_core.committed.ranges import ranges_to_read
from pyrmq_core.committed.records import CommitRecord, CommittedBatches, Decided, StoredRange
from pyrmq_core.errors import ManifestError
from pyrmq_core.model import MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 0)
TASKS, ROWS_A_TASK, ATTEMPTS = 2, 2, 3
WRITER = "query"

Row = tuple[int, int, int]  # batch, task, number within the task


@dataclass
class Attempt:
    """One attempt of a task: the offsets at which its rows were acknowledged."""

    batch: int
    task: int
    acknowledged: list[int] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return len(self.acknowledged) == ROWS_A_TASK


@dataclass
class Driver:
    """A driver that runs one batch; `delivered` are the tasks whose report the driver has."""

    batch: int
    is_decided: bool = False
    delivered: dict[int, tuple[StoredRange, ...]] = field(default_factory=dict)
    looked: tuple[int, CommittedBatches, int] | None = None
    is_committed: bool = False


class Delivery(RuleBasedStateMachine):
    """The query, its topic, its manifest, and a reader. `fault` plants one defect."""

    fault = ""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Row] = []
        self.manifest: list[CommitRecord | None] = []  # None for a message that is no record
        self.spark_log = -1  # the last batch in Spark's log of commits
        self.drivers: list[Driver] = []
        self.attempts: list[Attempt] = []
        self.orphans: list[CommitRecord] = []
        self.reached = 0
        self.read: Counter[Row] = Counter()

    @initialize()
    def start(self) -> None:
        self.drivers = [Driver(0)]

    # --- Tasks.

    @rule(driver=st.integers(0, 1), task=st.integers(0, TASKS - 1))
    def starts_an_attempt(self, driver: int, task: int) -> None:
        if driver < len(self.drivers) and not self.drivers[driver].is_decided:
            self.attempts = [*self.attempts[-5:], Attempt(self.drivers[driver].batch, task)]

    @precondition(lambda self: self.attempts)
    @rule(pick=st.integers(0, 11), is_answered=st.booleans())
    def sends_a_row(self, pick: int, is_answered: bool) -> None:
        """Stores the next row of an attempt; a lost answer has it sent again."""
        attempt = self.attempts[pick % len(self.attempts)]
        if not attempt.is_done:
            self.log.append((attempt.batch, attempt.task, len(attempt.acknowledged)))
            if is_answered:
                attempt.acknowledged.append(len(self.log) - 1)

    @precondition(lambda self: self.attempts)
    @rule(driver=st.integers(0, 1), pick=st.integers(0, 11))
    def delivers_its_report(self, driver: int, pick: int) -> None:
        """Passes on one report of each task, of any attempt of this batch that has ended."""
        attempt = self.attempts[pick % len(self.attempts)]
        if driver >= len(self.drivers) or not (attempt.is_done or self.fault == "record before its rows"):
            return
        owner = self.drivers[driver]
        if owner.batch == attempt.batch and attempt.task not in owner.delivered:
            offsets = list(attempt.acknowledged)
            if self.fault == "another attempt's ranges" and len(self.attempts) > 1:
                others = [other for other in self.attempts if other.batch == attempt.batch and other is not attempt]
                offsets += [offset for other in others for offset in other.acknowledged[:1]]
            owner.delivered[attempt.task] = tuple(StoredRange(QUEUE, at, 1, "", "") for at in offsets)

    # --- Drivers.

    @rule(driver=st.integers(0, 1))
    def tasks_look(self, driver: int) -> None:
        if driver < len(self.drivers):
            owner = self.drivers[driver]
            decided, _ = self._decided(len(self.manifest))
            owner.is_decided = owner.is_decided or (WRITER in decided and decided[WRITER].number >= owner.batch)

    @rule(driver=st.integers(0, 1))
    def looks(self, driver: int) -> None:
        if driver < len(self.drivers):
            end = len(self.manifest)
            self.drivers[driver].looked = (end, *self._decided(end))

    @rule(driver=st.integers(0, 1), is_answered=st.booleans(), is_late=st.booleans())
    def appends(self, driver: int, is_answered: bool, is_late: bool) -> None:
        """Appends the record; a late one arrives some time later, whatever becomes of its driver."""
        if driver >= len(self.drivers) or self.drivers[driver].is_committed:
            return
        owner = self.drivers[driver]
        if not owner.is_decided and len(owner.delivered) < TASKS:
            return
        if self.fault == "commit without a look":
            owner.looked = (len(self.manifest), {}, 0)
        if owner.looked is None:
            return
        seen, decided, without = owner.looked
        ranges = [stored_range for reported in owner.delivered.values() for stored_range in reported]
        record = next_record(
            WRITER, owner.batch, ranges, commit="c", seen=seen, decided=decided, without_decided=without
        )
        owner.looked = None
        if record is None:
            owner.is_committed = True
        elif owner.is_decided:
            return  # its tasks wrote nothing: it looks again
        elif is_late:
            self.orphans.append(record)
        else:
            self.manifest.append(record)
            owner.is_committed = is_answered

    @precondition(lambda self: self.orphans)
    @rule(pick=st.integers(0, 9))
    def a_late_record_arrives(self, pick: int) -> None:
        self.manifest.append(self.orphans.pop(pick % len(self.orphans)))

    @rule(driver=st.integers(0, 1))
    def writes_sparks_log(self, driver: int) -> None:
        if driver < len(self.drivers) and self.drivers[driver].is_committed:
            self.spark_log = max(self.spark_log, self.drivers[driver].batch)
            self.drivers[driver] = Driver(self.drivers[driver].batch + 1)

    @rule(is_alone=st.booleans())
    def another_driver_starts(self, is_alone: bool) -> None:
        """Starts a driver that goes on from Spark's log; the one before is dead, or is not."""
        new = Driver(self.spark_log + 1)
        self.drivers = [new] if is_alone else [*self.drivers[-1:], new]

    # --- Others.

    @rule(writer=st.integers(0, 10**6))
    def another_writer_commits_once(self, writer: int) -> None:
        end = len(self.manifest)
        decided, without = self._decided(end)
        record = next_record(
            f"once {writer}", 0, (), commit="o", seen=end, decided=decided, without_decided=without, named=False
        )
        if record is not None:
            self.manifest.append(record)

    @rule(batch=st.integers(0, 9), seen=st.integers(0, 3), is_record=st.booleans())
    def a_stranger_writes(self, batch: int, seen: int, is_record: bool) -> None:
        end = len(self.manifest)
        forged = {WRITER: Decided(10**9 + batch, 0, seen - 1)}
        record = CommitRecord("stranger", batch, 0, (), max(0, end - seen), "s", decided=forged)
        self.manifest.append(record if is_record else None)

    # --- The reader.

    @rule(short=st.integers(0, 3))
    def reads(self, short: int) -> None:
        start, end = self.reached, max(self.reached, len(self.manifest) - short)
        self.reached = end
        needed = start if self.fault == "second record read" else needed_from(self._entries(0, end), start, end)
        entries = self._entries(needed, end)
        if self.fault == "second record read":
            entries = {offset: replace(record, seen=offset) for offset, record in entries.items()}
        for readable in ranges_to_read(commits_between(entries, start, end), QUEUE.topic):
            for row in self.log[readable.start : readable.end]:
                self.read[row] += 1

    def teardown(self) -> None:
        """Checks that each row of a batch that Spark counts as done was read once, and no other row more often."""
        self.reads(0)
        assert [row for row, times in self.read.items() if times > 1] == []
        done = {
            (batch, task, number)
            for batch in range(self.spark_log + 1)
            for task in range(TASKS)
            for number in range(ROWS_A_TASK)
        }
        assert done <= self.read.keys()
        parts = Counter(row[0] for row in self.read)
        assert {batch for batch, rows in parts.items() if rows != TASKS * ROWS_A_TASK} == set()

    def _entries(self, start: int, end: int) -> dict[int, CommitRecord]:
        records = enumerate(self.manifest[start:end], start)
        return {offset: record for offset, record in records if record is not None}

    def _decided(self, end: int) -> tuple[CommittedBatches, int]:
        """Returns what is decided, from as few of the last entries as possible."""
        disbelieved = set[int]()
        while True:
            states = (
                committed_at(self._entries(start, end), start, end, disbelieved=disbelieved)
                for start in range(end, -1, -1)
            )
            decided, without = next(state for state in states if state is not None)
            if self.fault == "named writers forgotten" and len(decided) > 2:
                decided = {writer: last for writer, last in decided.items() if writer != WRITER}
            if self.fault == "lists believed" or not without_record(self._entries(0, end), decided):
                return decided, without
            disbelieved.add(end - 1 - without)


SEEDS = 1000
MOVES = {
    "attempt": 5,
    "row": 12,
    "report": 10,
    "tasks look": 1,
    "look": 5,
    "append": 8,
    "late record": 2,
    "log": 5,
    "driver": 1,
    "read": 1,
    "once": 1,
    "stranger": 1,
}


def play(machine: Delivery, seed: int, steps: int = 150) -> None:
    """Makes as many moves as `steps`, drawn by the seed; moves that bring a batch to its end are drawn more often."""
    draw = random.Random(seed)
    machine.start()
    for move in draw.choices(list(MOVES), list(MOVES.values()), k=steps):
        driver, pick = draw.randrange(len(machine.drivers)), draw.randrange(12)
        match move:
            case "attempt":
                machine.starts_an_attempt(driver, draw.randrange(TASKS))
            case "row" if machine.attempts:
                machine.sends_a_row(pick, draw.random() < 0.8)
            case "report" if machine.attempts:
                machine.delivers_its_report(driver, pick)
            case "look":
                machine.looks(driver)
            case "tasks look":
                machine.tasks_look(driver)
            case "append":
                machine.appends(driver, draw.random() < 0.6, draw.random() < 0.3)
            case "late record" if machine.orphans:
                machine.a_late_record_arrives(pick)
            case "log":
                machine.writes_sparks_log(driver)
            case "driver":
                machine.another_driver_starts(draw.random() < 0.5)
            case "read":
                machine.reads(draw.randrange(4))
            case "once":
                machine.another_writer_commits_once(draw.randrange(10**6))
            case "stranger":
                machine.a_stranger_writes(draw.randrange(10), draw.randrange(4), draw.random() < 0.6)
    machine.teardown()


def test_each_row_is_read_once_by_hypothesis() -> None:
    run_state_machine_as_test(Delivery, settings=settings(stateful_step_count=60, deadline=None))


def test_each_row_is_read_once() -> None:
    rows = 0
    for seed in range(SEEDS):
        machine = Delivery()
        play(machine, seed)
        rows += len(machine.read)
    assert rows > SEEDS  # the moves lead to batches that are committed


@pytest.mark.parametrize(
    "fault",
    [
        "second record read",
        "record before its rows",
        "another attempt's ranges",
        "commit without a look",
        "lists believed",
        "named writers forgotten",
    ],
)
def test_the_model_finds_each_fault(fault: str) -> None:
    planted = type("Planted", (Delivery,), {"fault": fault})
    faults = 0
    for seed in range(SEEDS):
        try:
            play(planted(), seed)
        except (AssertionError, ManifestError):
            faults += 1
    assert faults
