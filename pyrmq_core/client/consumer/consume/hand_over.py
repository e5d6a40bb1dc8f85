"""`HandOver`: the messages that `LitePullConsumer.poll` returns, from one queue after another.

Returned messages count as consumed only when the next poll begins, so after a crash they are delivered again. Java's
lite pull consumer counts them as consumed when they are returned (DefaultLitePullConsumerImpl.java, poll).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

import trio

from pyrmq_core.client.consumer.consume.assigned_queues import AssignedQueue
from pyrmq_core.client.consumer.consume.observers import PollObserver
from pyrmq_core.model import MessageExt, MessageQueue


class HandOver:
    """The queues that have messages for the next polls, and the messages that the last poll returned.

    Each poll takes messages of one queue, and the queues take turns. `number` is the number of polls that returned
    messages.
    """

    def __init__(self, batch_size: int, observer: PollObserver) -> None:
        self._observer = observer
        self._batch_size = batch_size
        self._ready: deque[AssignedQueue] = deque()  # queues with waiting messages, each once
        self._in_ready: set[AssignedQueue] = set()
        self._paused: set[MessageQueue] = set()
        self._returned: tuple[AssignedQueue, list[MessageExt]] | None = None
        self._arrival = trio.Event()
        self.is_closed = False
        self.number = 0

    def arrived(self, assigned: AssignedQueue) -> None:
        queue = assigned.queue
        if assigned in self._in_ready or queue in self._paused or not assigned.process_queue.waiting:
            return
        self._ready.append(assigned)
        self._in_ready.add(assigned)
        self._arrival.set()

    @property
    def has_some(self) -> bool:
        return bool(self._ready)

    def take(self) -> list[MessageExt]:
        while self._ready:
            assigned = self._ready.popleft()
            self._in_ready.remove(assigned)
            if assigned.queue in self._paused or assigned.process_queue.is_dropped:
                continue
            messages = assigned.process_queue.take(self._batch_size)
            if messages:
                assigned.entered(len(messages))
                self._returned = assigned, messages
                self.number += 1
                self._observer.returned(assigned, messages)
                self.arrived(assigned)
                return messages
        return []

    async def wait(self) -> None:
        while not self._ready and not self.is_closed:
            self._arrival = trio.Event()
            await self._arrival.wait()

    def settle(self, received: int | None = None) -> None:
        """Ends the last poll. Its messages count as consumed, or go back into the queue if the caller lost them.

        `received` is the `number` of the last poll whose messages reached the caller. None means that all of them did.
        """
        returned, self._returned = self._returned, None
        if returned is None:
            return
        assigned, messages = returned
        succeeded = received in (None, self.number)
        if succeeded:
            assigned.process_queue.finish(messages)
        else:
            assigned.process_queue.give_back(messages)
        self._observer.ended(assigned, len(messages), success=succeeded)
        assigned.left(len(messages))
        self.arrived(assigned)

    def close(self) -> None:
        """Ends a poll that waits for messages. Reports the messages of an unsettled poll to hooks as failed."""
        self.is_closed = True
        self._arrival.set()
        returned, self._returned = self._returned, None
        if returned is not None:
            assigned, messages = returned
            self._observer.ended(assigned, len(messages), success=False)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        self._paused.update(queues)

    def resume(self, assigned: Iterable[AssignedQueue]) -> None:
        for entry in assigned:
            self._paused.discard(entry.queue)
            self.arrived(entry)

    def is_paused(self, queue: MessageQueue) -> bool:
        return queue in self._paused

    def keep(self, queues: Collection[MessageQueue]) -> None:
        self._paused.intersection_update(queues)
