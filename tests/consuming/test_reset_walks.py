"""A queue of a group that changes hands, is reset, pulled, consumed and committed, in thousands of random orders.

The walk plays the network and the members between the parts that decide: the broker's `GroupOffsets` and the members'
`ProcessQueue`s. Answers may be lost, or arrive when their queue is being given up. In the end the last owner goes on
undisturbed: it must have consumed every message from the last reset on, and have committed them.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from pyrmq_core import MessageExt
from pyrmq_core.client.consumer.consume.process_queue import ProcessQueue
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from tests.consuming.test_process_queue import QUEUE, message
from tests.servers.broker.memory_files import MemoryFiles

KEY = ("g", "T", 0)
END = 12
PULLED_AT_ONCE = 3
WALKS = 3000
STEPS = 40
MOST_RESETS = 3


class GivesOnce(GroupOffsets):
    """The offsets of a broker that gives a reset to one pull, as Apache RocketMQ does."""

    def moved_to(
        self, group: str, topic: str, queue_id: int, offset: int | None, now: float, member: object = None
    ) -> int | None:
        moved_to = super().moved_to(group, topic, queue_id, None, now)
        if moved_to is not None:
            self.end_reset(group, topic, queue_id)
        return moved_to


@dataclass(eq=False)
class Pull:
    """A pull of a process queue; once it is answered, its move or its messages are on the way."""

    process_queue: ProcessQueue
    offset: int
    is_answered: bool = False
    moved_to: int | None = None


class Walk:
    """One random walk; `steps` are the names of what happened."""

    def __init__(self, random: Random, offsets: GroupOffsets) -> None:
        self.random = random
        self.broker = offsets
        self.broker.commit(*KEY, 0)
        self.is_lossy = not isinstance(offsets, GivesOnce)
        self.owner = ProcessQueue(QUEUE, 0)
        self.in_handler: list[MessageExt] = []
        self.pulls: list[Pull] = []
        self.handled: set[int] = set()  # since the last reset
        self.last_reset = self.resets = 0
        self.steps: list[str] = []

    def run(self) -> None:
        steps = [self.pull, self.answer, self.handle, self.end_call, self.commit, self.drop, self.take_over, self.reset]
        weights = [8, 8, 6, 4, 2, 1, 3, 2]
        for step in self.random.choices(steps, weights, k=STEPS):
            step()
            self.steps.append(step.__name__)
            assert not (self.owner.is_dropped and self.owner.waiting), "a handler would get a lost queue's message"
            if self.is_lossy and self.pulls and self.random.random() < 0.05:
                self.steps.append("lose")
                del self.pulls[self.random.randrange(len(self.pulls))]
        self.finish()

    def pull(self) -> None:
        """Sends the owner's next pull, which is held at the end of the queue."""
        owner = self.owner
        if not owner.is_dropped and all(pull.process_queue is not owner for pull in self.pulls):
            moved_to = self.broker.moved_to(*KEY, owner.position, now=0.0)
            is_answered = moved_to is not None or owner.position < END
            self.pulls.append(Pull(owner, owner.position, is_answered, moved_to))

    def answer(self) -> None:
        """Delivers an answer to its process queue, given up or not."""
        if answered := [pull for pull in self.pulls if pull.is_answered]:
            self.deliver(self.random.choice(answered))

    def deliver(self, pull: Pull) -> None:
        self.pulls.remove(pull)
        if pull.moved_to is not None:
            pull.process_queue.correct(pull.moved_to)
        else:
            following = min(END, pull.offset + PULLED_AT_ONCE)
            pull.process_queue.put([message(offset) for offset in range(pull.offset, following)], following)

    def handle(self) -> None:
        messages = self.owner.take(self.random.randint(1, 4))
        self.in_handler += messages
        self.handled.update(delivery.queue_offset for delivery in messages)

    def end_call(self) -> None:
        """Ends the work on some messages, or gives them back."""
        count = self.random.randint(0, len(self.in_handler))
        ended, self.in_handler = self.in_handler[:count], self.in_handler[count:]
        if self.random.random() < 0.8:
            self.owner.finish(ended)
        else:
            self.owner.give_back(ended)

    def commit(self) -> None:
        offset = self.owner.offset_to_commit
        if self.broker.may_commit(*KEY, offset, now=0.0):
            self.broker.commit(*KEY, offset)

    def drop(self) -> None:
        self.owner.drop()

    def take_over(self) -> None:
        """Stores the offset of a queue that was given up; its next owner, perhaps the same member, begins there."""
        if not self.owner.is_dropped or (not self.is_lossy and any(pull.moved_to is not None for pull in self.pulls)):
            return
        self.commit()
        if not self.is_lossy:  # the held pull of a former owner would take the reset
            self.pulls.clear()
        offset = self.broker.committed(*KEY)
        assert offset is not None
        self.owner, self.in_handler = ProcessQueue(QUEUE, offset), []

    def reset(self) -> None:
        """Resets the group and wakes the held pulls, in any order."""
        if self.resets >= MOST_RESETS:
            return
        self.resets += 1
        self.last_reset = self.random.randint(0, END)
        self.broker.reset(*KEY, self.last_reset)
        self.handled.clear()
        held = [pull for pull in self.pulls if not pull.is_answered]
        for pull in self.random.sample(held, len(held)):
            pull.is_answered, pull.moved_to = True, self.broker.moved_to(*KEY, None, now=0.0)

    def is_reset(self) -> bool:
        group, topic, queue_id = KEY
        resets = self.broker._resets.get((topic, group), {})
        return queue_id in resets and not resets[queue_id].is_over

    def finish(self) -> None:
        """Lets the owner go on to the end without losses, and checks what came of the last reset."""
        self.owner.give_back(self.in_handler)
        self.in_handler = []
        self.pulls = [pull for pull in self.pulls if pull.process_queue is self.owner and pull.is_answered]
        while self.pulls or self.owner.is_dropped or self.owner.offset_to_commit < END or self.is_reset():
            for pull in list(self.pulls):
                self.deliver(pull)
            while self.owner.waiting:
                self.handle()
                self.owner.finish(self.in_handler)
                self.in_handler = []
            self.take_over()
            self.pull()
            self.pulls = [pull for pull in self.pulls if pull.is_answered]
            self.steps.append("round")
            assert len(self.steps) < 10 * STEPS, "the queue stands still"
        self.commit()
        assert self.broker.committed(*KEY) == END
        assert self.handled >= set(range(self.last_reset, END))


@pytest.mark.parametrize("offsets", [GroupOffsets, GivesOnce])
def test_no_order_of_events_loses_a_reset_or_a_message(offsets: type[GroupOffsets]) -> None:
    for seed in range(WALKS):
        walk = Walk(Random(seed), offsets(MemoryFiles()))
        try:
            walk.run()
        except AssertionError as error:
            steps = " ".join(walk.steps)
            raise AssertionError(f"walk {seed}: {error}; last reset to {walk.last_reset}: {steps}") from error
