"""Queues that one client of a group has for itself, for consumers that keep the order (41, 42).

A lock is its client's until it is given back or not renewed for 60 s.
Source: broker/client/rebalance/RebalanceLockManager.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pyrmq_core.model import MessageQueue

# `rocketmq.broker.rebalance.lockMaxLiveTime`
LIFE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class _Lock:
    client_id: str
    renewed_ms: int


class QueueLocks:
    """Locks by group and queue."""

    def __init__(self) -> None:
        self._locks: dict[tuple[str, MessageQueue], _Lock] = {}

    def take(self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int) -> list[MessageQueue]:
        """Those of the queues that the client has now."""
        return [queue for queue in queues if self._take_one(group, client_id, queue, now_ms)]

    def release(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            lock = self._locks.get((group, queue))
            if lock is not None and lock.client_id == client_id:
                del self._locks[group, queue]

    def is_held(self, group: str, now_ms: int) -> bool:
        """Whether any queue is locked for the group."""
        return any(name == group and now_ms - lock.renewed_ms <= LIFE_MS for (name, _), lock in self._locks.items())

    def expire(self, now_ms: int) -> None:
        for key in [key for key, lock in self._locks.items() if now_ms - lock.renewed_ms > LIFE_MS]:
            del self._locks[key]

    def _take_one(self, group: str, client_id: str, queue: MessageQueue, now_ms: int) -> bool:
        lock = self._locks.get((group, queue))
        if lock is not None and lock.client_id != client_id and now_ms - lock.renewed_ms <= LIFE_MS:
            return False
        self._locks[group, queue] = _Lock(client_id, now_ms)
        return True
