"""Locks of queues (requests 41 and 42), by which only one client of a group reads a queue, to consume it in order.

A lock ends when its client releases it or does not renew it for 60 s. Source:
broker/client/rebalance/RebalanceLockManager.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pyrmq_core.model import MessageQueue

# How long a lock lasts without renewal, as in RocketMQ (`rocketmq.broker.rebalance.lockMaxLiveTime`).
LIFE_MS: Final = 60_000
# The most locks, which take 100 MB. RocketMQ has no limit.
MOST_LOCKS: Final = 500_000


@dataclass(frozen=True, slots=True)
class _Lock:
    client_id: str
    renewed_ms: int


class QueueLocks:
    """The locks by group and queue, at most `most` in total. Times are monotonic."""

    def __init__(self, most: int = MOST_LOCKS) -> None:
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._most = most
        self._count = 0

    def take(self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int) -> list[MessageQueue]:
        """Locks queues for a client or renews its locks. Returns those of `queues` that the client now holds.

        No lock is added while all groups together hold as many locks as `most` allows.
        """
        return [queue for queue in queues if self._take_one(group, client_id, queue, now_ms)]

    def release(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        locks = self._groups.get(group, {})
        self._drop(group, [queue for queue in queues if queue in locks and locks[queue].client_id == client_id])

    def is_locked(self, group: str, now_ms: int) -> bool:
        return any(now_ms - lock.renewed_ms <= LIFE_MS for lock in self._groups.get(group, {}).values())

    def expire(self, now_ms: int) -> None:
        for group, locks in list(self._groups.items()):
            self._drop(group, [queue for queue, lock in locks.items() if now_ms - lock.renewed_ms > LIFE_MS])

    def _take_one(self, group: str, client_id: str, queue: MessageQueue, now_ms: int) -> bool:
        locks = self._groups.get(group, {})
        lock = locks.get(queue)
        if lock is None:
            if self._count >= self._most:
                return False
            self._groups.setdefault(group, locks)
            self._count += 1
        elif lock.client_id != client_id and now_ms - lock.renewed_ms <= LIFE_MS:
            return False
        locks[queue] = _Lock(client_id, now_ms)
        return True

    def _drop(self, group: str, queues: Iterable[MessageQueue]) -> None:
        locks = self._groups.get(group, {})
        for queue in queues:
            if locks.pop(queue, None) is not None:
                self._count -= 1
        if not locks:
            self._groups.pop(group, None)
