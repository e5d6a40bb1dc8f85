"""`DeliveryState`: how far a master has delivered delayed messages, taken when this slave's log is that far.

A slave that becomes the master goes on from there. The state may name deliveries whose messages this slave does not
have yet: if the master was lost then, no broker would deliver them. So a state is kept back until this log reaches the
end that the master's log had afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyrmq_core.broker.schedule.delay_levels import DelayLevels
from pyrmq_core.broker.store.message_store import MessageStore


@dataclass(frozen=True, slots=True)
class FetchedState:
    """The next offset of each delay level, and an end of the master's log behind all that was delivered before."""

    delay_offsets: dict[int, int]
    log_end: int


class DeliveryState:
    """The state that waits for this slave's log, if any."""

    def __init__(self, store: MessageStore, delays: DelayLevels) -> None:
        self._store = store
        self._delays = delays
        self._waiting: FetchedState | None = None

    def fetched(self, state: FetchedState) -> None:
        """Notes a state; one that waits already stays, since a slave that is far behind would never reach the next."""
        if self._waiting is None or state.log_end < self._waiting.log_end:  # or the master lost its end
            self._waiting = state
        self.adopt()

    def adopt(self) -> None:
        """Takes the state over if this log has been synced up to its end."""
        state = self._waiting
        if state is not None and self._store.flushed >= state.log_end:
            self._waiting = None
            self._delays.replace(state.delay_offsets)
