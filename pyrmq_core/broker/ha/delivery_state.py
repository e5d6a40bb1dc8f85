"""`DeliveryState`: how far a master has delivered delayed messages and timers, taken when this slave's log is that far.

A slave that becomes the master goes on from there, and finds in the log what was delivered later. The state may name
deliveries whose messages this slave does not have yet: if the master was lost then, no broker would deliver them. So a
state is kept back until this log reaches the end that the master's log had afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import trio

from pyrmq_core.broker.schedule.delay_levels import DelayLevels
from pyrmq_core.broker.store.message_store import MessageStore
from pyrmq_core.broker.timers.slave_checkpoint import keep_checkpoint
from pyrmq_core.broker.timers.timer_checkpoint import TimerCheckpoint


@dataclass(frozen=True, slots=True)
class FetchedState:
    """The next offset of each delay level, and the checkpoint of timers, if the master has any.

    `log_end` is an end of the master's log behind all that was delivered before.
    """

    delay_offsets: dict[int, int]
    timers: TimerCheckpoint | None
    log_end: int


class DeliveryState:
    """The state that waits for this slave's log, if any."""

    def __init__(self, store: MessageStore, delays: DelayLevels) -> None:
        self._store = store
        self._delays = delays
        self._waiting: FetchedState | None = None
        self._kept: TimerCheckpoint | None = None
        self._turn = trio.Lock()

    async def fetched(self, state: FetchedState) -> None:
        """Notes a state; one that waits already stays, since a slave that is far behind would never reach the next."""
        if self._waiting is None or state.log_end < self._waiting.log_end:  # or the master lost its end
            self._waiting = state
        await self.adopt()

    async def adopt(self) -> None:
        """Takes the state over if this log is synced up to its end; `StoreError` if the disk fails, and it waits on."""
        async with self._turn:
            state = self._waiting
            if state is None or self._store.flushed < state.log_end:
                return
            if state.timers not in (None, self._kept):
                await trio.to_thread.run_sync(keep_checkpoint, self._store.files, state.timers)
                self._kept = state.timers
            self._delays.replace(state.delay_offsets)
            self._waiting = None
