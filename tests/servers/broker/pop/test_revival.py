"""Checkpoints, acknowledgements and revival against a small model: random pops, acks, changes and restarts."""

import heapq
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.servers.broker.pop.records import Ack, CheckPoint, PopKey, ReviveEntry
from pyrmq_core.servers.broker.pop.revival import DISORDER_MS, GRACE_MS, Revival

STEP_MS = 40


@dataclass
class Held:
    """A popped message, and the checkpoint that holds it."""

    offset: int
    point: CheckPoint


@dataclass
class World:
    """A queue, timers and a revive log as lists, with the code under test beside them."""

    draw: random.Random
    now_ms: int = 10_000
    log: list[tuple[ReviveEntry, int]] = field(default_factory=list)
    timers: list[tuple[int, int, ReviveEntry]] = field(default_factory=list)
    free: list[int] = field(default_factory=lambda: list(range(40)))
    held: dict[int, Held] = field(default_factory=dict)
    acked: set[int] = field(default_factory=set)
    revival: Revival = field(default_factory=lambda: Revival(0))
    committed: int = 0
    pops: int = 0
    written: int = 0

    def write(self, entry: ReviveEntry) -> None:
        if entry.deliver_ms <= self.now_ms:
            self.log.append((entry, entry.deliver_ms))
        else:
            self.written += 1
            heapq.heappush(self.timers, (entry.deliver_ms, self.written, entry))

    def pop(self) -> None:
        offsets = tuple(sorted(self.draw.sample(self.free, min(len(self.free), self.draw.randint(1, 4)))))
        if offsets:
            self.hold(offsets, self.draw.choice((0, 300, 1500, 4000)))
            self.free = [offset for offset in self.free if offset not in offsets]

    def hold(self, offsets: tuple[int, ...], invisible_ms: int) -> None:
        self.pops += 1
        key = PopKey("T", f"G{self.pops}", 0, offsets[0], self.now_ms, "b")
        point = CheckPoint(key, invisible_ms, offsets)
        self.write(point)
        self.held.update((offset, Held(offset, point)) for offset in offsets)

    def in_time(self) -> list[Held]:
        return [held for held in self.held.values() if held.point.revive_ms > self.now_ms]

    def ack(self) -> None:
        if living := self.in_time():
            held = self.draw.choice(living)
            self.write(Ack(held.point.key, (held.offset,), held.point.revive_ms))
            del self.held[held.offset]
            self.acked.add(held.offset)

    def change(self) -> None:
        if living := self.in_time():
            held = self.draw.choice(living)
            self.hold((held.offset,), self.draw.choice((0, 500, 3000)))
            self.write(Ack(held.point.key, (held.offset,), held.point.revive_ms))

    def restart(self) -> None:
        self.revival = Revival(self.committed)

    def tick(self) -> None:
        self.now_ms += self.draw.choice((STEP_MS, STEP_MS, 3 * STEP_MS))
        while self.timers and self.timers[0][0] <= self.now_ms:
            deliver_ms, _, entry = heapq.heappop(self.timers)
            self.log.append((entry, deliver_ms))
        while self.revival.position < len(self.log):
            self.revival.take(self.revival.position, *self.log[self.revival.position])
        while (due := self.revival.due(self.now_ms)) is not None:
            for offset in due.offsets:
                held = self.held.pop(offset, None)
                assert held is not None, f"{offset} is visible twice, or after its acknowledgement"
                assert held.point.key == due.check_point.key
                assert held.point.revive_ms + GRACE_MS <= self.now_ms
                self.free.append(offset)
            if due.offsets:
                self.write(Ack(due.check_point.key, due.offsets, due.check_point.revive_ms))
            self.revival.end(due)
            self.committed = self.revival.done
        late = [held for held in self.held.values() if held.point.revive_ms + GRACE_MS <= self.now_ms]
        assert late == [], "a message is not visible again in time"


@given(st.integers(0, 2**32))
def test_nothing_is_lost_nothing_comes_after_its_ack_and_all_else_comes_in_time(seed: int) -> None:
    world = World(random.Random(seed))
    for _ in range(150):
        world.draw.choice((world.pop, world.pop, world.ack, world.ack, world.change, world.restart, world.tick))()
        world.tick()
    for _ in range(200):
        world.tick()
    assert world.held == {}
    assert sorted([*world.free, *world.acked]) == list(range(40))
    assert world.revival.done == len(world.log)
    assert world.revival.next_ms is None


@pytest.mark.parametrize("delay_ms", [DISORDER_MS + 1, DISORDER_MS - 1])
def test_behind_its_time_a_log_is_judged_by_the_times_of_its_entries(delay_ms: int) -> None:
    """A backlog is not read to its end before the first checkpoint is over."""
    revival, key = Revival(0), PopKey("T", "G", 0, 0, 1000, "b")
    revival.take(0, CheckPoint(key, 0, (0, 1)), 0)
    revival.take(1, Ack(key, (1,), 1000), 1000)
    revival.take(2, None, 1000 + delay_ms)
    due = revival.due(0)
    if delay_ms < DISORDER_MS:
        assert due is None
    else:
        assert due is not None
        assert due.offsets == (0,)
        revival.end(due)
        assert revival.done == 3


def test_a_checkpoint_that_is_not_over_is_read_again_at_a_restart() -> None:
    revival, key = Revival(0), PopKey("T", "G", 0, 0, 1000, "b")
    revival.take(0, None)
    revival.take(1, CheckPoint(key, 5000, (0,)), 5000)
    revival.take(2, Ack(key._replace(queue_id=1), (0,), 0), 5000)
    assert (revival.position, revival.done) == (3, 1)
    assert revival.next_ms == 6000 + GRACE_MS
    assert revival.due(6000 + GRACE_MS - 1) is None
