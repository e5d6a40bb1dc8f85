"""`ConcurrentService`: passes messages to a handler in any order, several batches at once, and retries failures.

Source: client/impl/consumer/ConsumeMessageConcurrentlyService.java, 5.4.0.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import trio

from pyrmq_core.client.consumer.consume.assigned_queues import AssignedQueue
from pyrmq_core.client.consumer.consume.handler_calls import SLICE_SECONDS, CallRun, HandlerCalls, Messages, Outcome
from pyrmq_core.client.consumer.consume.handler_exceptions import TIMEOUT_DELAY_LEVEL
from pyrmq_core.client.consumer.consume.observers import CallObserver
from pyrmq_core.client.consumer.consume.send_back import SendBack
from pyrmq_core.model import MessageExt
from pyrmq_core.network.rare_lines import RareLine

log = logging.getLogger(__name__)

CONSUME_AGAIN_SECONDS: Final = 5.0
LONGEST_SWEEP_SECONDS: Final = 30.0
# The time after which batches that wait behind a slow handler call are taken from their worker.
RECALL_SECONDS: Final = 0.01


@dataclass(eq=False, slots=True)
class Worker:
    """A task that calls the handler with a `run`, some batches of one `queue`. Both are None while the task is idle.

    `began` is the time at which it took the batches, by trio's clock. Cancelling `scope` ends a call that takes longer
    than `consume_timeout`.
    """

    scope: trio.CancelScope
    queue: AssignedQueue | None = None
    run: CallRun | None = None
    began: float = 0.0


class ConcurrentService:
    """A service that calls the handler in up to `workers` tasks.

    `send_back` sends failed messages back to the broker. It is None in a broadcasting group, where they are dropped.
    """

    def __init__(
        self,
        calls: HandlerCalls,
        observer: CallObserver,
        send_back: SendBack | None,
        *,
        workers: int,
        batch_size: int,
        consume_timeout: float,
    ) -> None:
        self._calls = calls
        self._observer = observer
        self._send_back = send_back
        self._batch_size = batch_size
        self._consume_timeout = consume_timeout
        self._workers = [Worker(trio.CancelScope()) for _ in range(workers)]
        self._ready: deque[AssignedQueue] = deque()  # the queues with waiting messages, each once
        self._in_ready: set[AssignedQueue] = set()
        self._idle = trio.lowlevel.ParkingLot()
        self._finishing = trio.lowlevel.ParkingLot()
        self._runs_begun = trio.lowlevel.ParkingLot()
        self._nursery: trio.Nursery | None = None
        self._is_ending = False
        self._dropped = RareLine()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for worker in self._workers:
                nursery.start_soon(self._work, worker)
            nursery.start_soon(self._end_hung_calls)
            nursery.start_soon(self._recall_from_slow_runs)

    def added(self, assigned: AssignedQueue) -> None: ...

    def arrived(self, assigned: AssignedQueue) -> None:
        if assigned not in self._in_ready and assigned.process_queue.waiting:
            self._in_ready.add(assigned)
            self._ready.append(assigned)
        if self._idle:
            self._idle.unpark(count=max(1, -(-len(assigned.process_queue.waiting) // self._batch_size)))

    async def finish(self) -> None:
        """Waits until the handler calls under way have ended. No further call begins."""
        self._is_ending = True
        while any(worker.queue is not None for worker in self._workers):
            await self._finishing.park()

    async def _work(self, worker: Worker) -> None:
        while True:
            with trio.CancelScope() as worker.scope:
                await self._work_until_cancelled(worker)
            await self._timed_out(worker)

    async def _work_until_cancelled(self, worker: Worker) -> None:
        yielded, now = time.perf_counter(), trio.current_time()
        while not worker.scope.cancel_called:
            assigned = self._next_queue()
            if assigned is None:
                await self._idle.park()
                yielded, now = time.perf_counter(), trio.current_time()
                continue
            worker.queue, worker.began = assigned, now
            await self._make_calls(worker, assigned)
            worker.queue = worker.run = None
            if self._is_ending:
                self._finishing.unpark_all()
            if time.perf_counter() - yielded > SLICE_SECONDS:
                await trio.lowlevel.checkpoint()
                yielded, now = time.perf_counter(), trio.current_time()

    def _next_queue(self) -> AssignedQueue | None:
        ready = self._ready
        while ready and not self._is_ending:
            assigned = ready.popleft()
            waiting = len(assigned.process_queue.waiting)
            if waiting > self._batch_size:
                ready.append(assigned)
            else:
                self._in_ready.discard(assigned)
            if waiting:
                return assigned
        return None

    async def _make_calls(self, worker: Worker, assigned: AssignedQueue) -> None:
        process_queue, size = assigned.process_queue, self._batch_size
        count = 1 if self._observer.has_hooks else self._batches_a_run()
        batches: list[Messages] = [messages for _ in range(count) if (messages := process_queue.take(size))]
        context = self._observer.begin(assigned.queue, batches[0]) if self._observer.has_hooks else None
        worker.run = run = CallRun(batches, context)
        assigned.entered(sum(map(len, batches)))
        if len(batches) > 1:
            self._runs_begun.unpark()
        try:
            await self._calls.make_calls(run)
        except trio.Cancelled:
            for batch, outcome in zip(batches, run.outcomes, strict=False):
                process_queue.finish(batch[: len(batch) - len(outcome.failed)])
            raise
        worker.began = math.inf  # `consume_timeout` limits only the calls, which have ended
        if worker.scope.cancel_called:  # the calls timed out, and `_timed_out` settles the run
            await trio.lowlevel.checkpoint()
        self._return(assigned, run.recall())
        if run.outcomes:  # empty if all messages were recalled before the thread began
            await self._settle(assigned, run)

    def _batches_a_run(self) -> int:
        """Returns how many batches a worker takes, so that idle workers get as many, or 1 if the handler is slow."""
        most = self._calls.batches_a_run
        if most == 1:
            return 1
        free = sum(1 for worker in self._workers if worker.queue is None)
        waiting = sum(len(queue.process_queue.waiting) for queue in self._ready)
        return max(1, min(most, waiting // (self._batch_size * (free + 1))))

    async def _recall_from_slow_runs(self) -> None:
        while True:
            await self._runs_begun.park()
            while any(worker.run is not None and worker.run.has_waiting for worker in self._workers):
                await trio.sleep(RECALL_SECONDS)
                now = trio.current_time()
                for worker in self._workers:
                    queue, run = worker.queue, worker.run
                    # With hooks (`context`), the only batch of a run was already reported to them, and is not recalled.
                    if queue is None or run is None or run.context is not None:
                        continue
                    if now - worker.began >= RECALL_SECONDS:
                        self._return(queue, run.recall())

    def _return(self, assigned: AssignedQueue, batches: Sequence[Messages]) -> None:
        for batch in reversed(batches):
            assigned.process_queue.give_back(batch)
            assigned.left(len(batch))
        if batches:
            self.arrived(assigned)

    async def _settle(self, assigned: AssignedQueue, run: CallRun) -> None:
        process_queue, outcomes = assigned.process_queue, run.outcomes
        handled = run.batches[: len(outcomes)]
        messages = list(chain.from_iterable(handled)) if len(handled) > 1 else handled[0]
        if run.context is not None:
            self._observer.end(run.context, outcomes[0], run.seconds)
        failed = [outcome for outcome in outcomes if outcome.failed]
        if not failed:
            assigned.consumed(messages, len(outcomes), run.seconds)
            return
        left_over = sum([len(outcome.failed) for outcome in failed])
        assigned.note_calls(len(outcomes), len(messages), left_over, run.seconds)
        for batch, outcome in zip(handled, outcomes, strict=True):
            process_queue.finish(batch[: len(batch) - len(outcome.failed)])
        for outcome in failed:
            # The next owner of a dropped queue consumes these messages again, so they are not sent back.
            if not outcome.left and not process_queue.is_dropped:
                await self._give_back(
                    assigned, outcome.failed, 0 if outcome.later is None else outcome.later.delay_level
                )
        assigned.left(len(messages))

    async def _give_back(self, assigned: AssignedQueue, messages: Messages, delay_level: int) -> None:
        """Sends failed messages back to the broker. If that fails, this consumer handles them again after 5 s."""
        process_queue = assigned.process_queue
        again: list[MessageExt] = []
        for message in messages:
            if self._send_back is None:
                if self._dropped.is_due():
                    log.warning(
                        "%s was not consumed and is dropped: a broadcasting group has no retries%s",
                        message.msg_id,
                        self._dropped.left_out(),
                    )
                process_queue.finish([message])
            elif await self._send_back.send_back(message, assigned.queue, delay_level):
                process_queue.finish([message])
            else:
                again.append(replace(message, reconsume_times=message.reconsume_times + 1))
        if again and self._nursery is not None:
            self._nursery.start_soon(self._consume_again, assigned, again)

    async def _consume_again(self, assigned: AssignedQueue, messages: Messages) -> None:
        await trio.sleep(CONSUME_AGAIN_SECONDS)
        assigned.process_queue.give_back(messages)
        self.arrived(assigned)

    async def _end_hung_calls(self) -> None:
        while True:
            await trio.sleep(min(self._consume_timeout / 4, LONGEST_SWEEP_SECONDS))
            now = trio.current_time()
            for worker in self._workers:
                if worker.queue is not None and now - worker.began > self._consume_timeout:
                    worker.scope.cancel()

    async def _timed_out(self, worker: Worker) -> None:
        """Settles a run of batches in which a handler call took longer than `consume_timeout` and was cancelled.

        Batches before that call are acknowledged, and batches after it go back into the queue. The messages of the
        cancelled call are sent back to the broker, unless their queue is dropped.
        """
        assigned, run = worker.queue, worker.run
        worker.queue = worker.run = None
        if self._is_ending:
            self._finishing.unpark_all()
        if assigned is None or run is None:
            return
        self._return(assigned, run.recall())
        done = len(run.outcomes)
        hung = run.batches[done : done + 1]
        self._return(assigned, run.batches[done + 1 :])
        if done:
            await self._settle(assigned, run)
        for batch in hung:
            seconds = trio.current_time() - worker.began
            assigned.note_calls(1, len(batch), len(batch), seconds)
            if run.context is not None:
                self._observer.end(run.context, Outcome(batch, timed_out=True), seconds)
            log.warning(
                "the handler did not end within %g s; its %d messages from %s on are sent back",
                self._consume_timeout,
                len(batch),
                batch[0].msg_id,
            )
            if not assigned.process_queue.is_dropped:
                await self._give_back(assigned, batch, TIMEOUT_DELAY_LEVEL)
            assigned.left(len(batch))
