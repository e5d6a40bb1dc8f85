"""`OrderlyService`: passes the messages of each queue to a handler in their order, one batch after another.

In a clustering group a queue is consumed only while its broker keeps the queue locked for this client. A failed batch
is tried again before any later message. Source: client/impl/consumer/ConsumeMessageOrderlyService.java, 5.4.0.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import trio

from pyrmq_core.client.consumer.consume.assigned_queues import AssignedQueue
from pyrmq_core.client.consumer.consume.handler_calls import HandlerCalls, Messages, Outcome
from pyrmq_core.client.consumer.consume.observers import CallObserver
from pyrmq_core.client.consumer.consume.queue_locks import RENEW_SECONDS, QueueLocks
from pyrmq_core.client.consumer.consume.send_back import SendBack
from pyrmq_core.model import MessageExt

log = logging.getLogger(__name__)

FIRST_RENEWAL_SECONDS: Final = 1.0
NOT_LOCKED_SECONDS: Final = 3.0
LEAST_SUSPENSION_SECONDS: Final = 0.01
LONGEST_SUSPENSION_SECONDS: Final = 30.0


class OrderlyService:
    """A service that calls the handler with one batch of a queue at a time, for at most `workers` queues at once.

    Broadcasting consumers have no `locks`, because each reads every queue. `most_tries` is None if there is no limit.
    """

    def __init__(
        self,
        calls: HandlerCalls,
        observer: CallObserver,
        send_back: SendBack | None,
        locks: QueueLocks | None,
        *,
        workers: int,
        batch_size: int,
        suspension: float,
        most_tries: int | None,
    ) -> None:
        self._calls = calls
        self._observer = observer
        self._send_back = send_back
        self._locks = locks
        self._limiter = trio.CapacityLimiter(workers)
        self._batch_size = batch_size
        self._suspension = suspension
        self._most_tries = most_tries
        self._arrived: dict[AssignedQueue, trio.Event] = {}
        self._nursery: trio.Nursery | None = None
        self._early: list[AssignedQueue] = []
        self._is_ending = False
        self._busy = 0
        self._finishing = trio.lowlevel.ParkingLot()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for assigned in self._early:
                nursery.start_soon(self._consume, assigned)
            if self._locks is not None:
                nursery.start_soon(self._renew_locks, self._locks)
            await trio.sleep_forever()

    def added(self, assigned: AssignedQueue) -> None:
        self._arrived[assigned] = trio.Event()
        if self._nursery is None:
            self._early.append(assigned)
        else:
            self._nursery.start_soon(self._consume, assigned)

    def arrived(self, assigned: AssignedQueue) -> None:
        if (event := self._arrived.get(assigned)) is not None:
            event.set()

    async def finish(self) -> None:
        self._is_ending = True
        while self._busy:
            await self._finishing.park()

    async def _consume(self, assigned: AssignedQueue) -> None:
        while not assigned.process_queue.is_dropped and not self._is_ending:
            if not assigned.process_queue.waiting:
                event = self._arrived[assigned] = trio.Event()
                with assigned.interruptible():
                    await event.wait()
            elif self._is_locked(assigned):
                await self._consume_batch(assigned)
            else:
                with assigned.interruptible():
                    await self._get_lock(assigned)
        self._arrived.pop(assigned, None)

    def _is_locked(self, assigned: AssignedQueue) -> bool:
        return self._locks is None or self._locks.is_held(assigned.queue)

    async def _get_lock(self, assigned: AssignedQueue) -> None:
        assert self._locks is not None
        if assigned.queue not in await self._locks.lock([assigned.queue]):
            with trio.move_on_after(NOT_LOCKED_SECONDS):
                while not self._is_locked(assigned):
                    await self._locks.changed.wait()

    async def _consume_batch(self, assigned: AssignedQueue) -> None:
        process_queue = assigned.process_queue
        async with self._limiter:
            if self._is_ending or process_queue.is_dropped or not self._is_locked(assigned):
                return
            messages = process_queue.take(self._batch_size)
            self._busy += 1
            assigned.entered(len(messages))
            try:
                context = self._observer.begin(assigned.queue, messages)
                began = time.perf_counter()
                outcome = await self._calls.call(messages)
                seconds = time.perf_counter() - began
                assigned.note_calls(1, len(messages), len(outcome.failed), seconds)
                if context is not None:
                    self._observer.end(context, outcome, seconds)
                again = await self._settle(assigned, messages, outcome)
            finally:
                self._busy -= 1
                assigned.left(len(messages))
                self._finishing.unpark_all()
        if again:
            process_queue.give_back(again)
            with assigned.interruptible():
                await trio.sleep(self._suspension_of(outcome))

    async def _settle(self, assigned: AssignedQueue, messages: Messages, outcome: Outcome) -> Sequence[MessageExt]:
        process_queue = assigned.process_queue
        failed = list(outcome.failed)
        process_queue.finish(messages[: len(messages) - len(failed)])
        again: list[MessageExt] = []
        for message in failed:
            if process_queue.is_dropped or outcome.left:
                break
            if await self._is_dead(message):
                process_queue.finish([message])
            else:
                again.append(replace(message, reconsume_times=message.reconsume_times + 1))
        return again

    async def _is_dead(self, message: MessageExt) -> bool:
        """Sends a message without tries left to the group's retry topic, and returns True if it is stored there.

        The broker then moves it to the dead-letter topic. A message with tries left is not sent, and the result is
        False.
        """
        if self._send_back is None or self._most_tries is None or message.reconsume_times < self._most_tries:
            return False
        # No delay (0), since a 4.9 broker would apply it to a dead letter as well.
        return await self._send_back.send_to_retry_topic(message, 0)

    def _suspension_of(self, outcome: Outcome) -> float:
        seconds = self._suspension
        if outcome.suspend is not None and outcome.suspend.seconds is not None:
            seconds = outcome.suspend.seconds
        return min(max(seconds, LEAST_SUSPENSION_SECONDS), LONGEST_SUSPENSION_SECONDS)

    async def _renew_locks(self, locks: QueueLocks) -> None:
        await trio.sleep(FIRST_RENEWAL_SECONDS)
        while True:
            # A dropped queue is not locked again, even if its handler still runs, since its next owner needs the lock.
            if own := [assigned.queue for assigned in self._arrived if not assigned.process_queue.is_dropped]:
                await locks.lock(own)
            await trio.sleep(RENEW_SECONDS)
