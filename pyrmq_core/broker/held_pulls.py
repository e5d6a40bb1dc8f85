"""Pulls that found nothing new and wait for a message, for as long as their client allows.

Source: broker/longpolling/PullRequestHoldService.java (5.4.0), which looks at expired ones every 5 s; here each one is
answered on its time. The number held is bounded: beyond it a pull is answered at once.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final

import trio

from pyrmq_core.broker.store.formats import ENTRY
from pyrmq_core.broker.store.recovery import QueueKey

MILLISECONDS: Final = 1000


@dataclass(eq=False, slots=True)
class _Held:
    tags_codes: Container[int] | None
    woken: trio.Event = field(default_factory=trio.Event)


class HeldPulls:
    """Waiting pulls by queue."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[QueueKey, dict[_Held, None]] = {}
        self.count = 0

    @property
    def is_full(self) -> bool:
        return self.count >= self._most

    async def wait(self, key: QueueKey, tags_codes: Container[int] | None, timeout_ms: int) -> None:
        """Returns when the queue got a message with one of these tags codes (None: any), or after the time."""
        held = _Held(tags_codes)
        self._held.setdefault(key, {})[held] = None
        self.count += 1
        try:
            with trio.move_on_after(timeout_ms / MILLISECONDS):
                await held.woken.wait()
        finally:
            self.count -= 1
            waiting = self._held[key]
            del waiting[held]
            if not waiting:
                del self._held[key]

    def wake(self, key: QueueKey, entries: bytes) -> None:
        """A queue got messages: told to those who want one of them."""
        waiting = self._held.get(key)
        if waiting is None:
            return
        codes = {code for _, _, code in ENTRY.iter_unpack(entries)}
        for held in waiting:
            tags_codes = held.tags_codes
            if tags_codes is None or any(code in tags_codes for code in codes):
                held.woken.set()
