"""`QueueLocks`: the locks at brokers that reserve queues for one orderly consumer of a group (requests 41, 42).

A lock lasts 60 s at its broker. This client renews it every 20 s, and relies on it for 30 s. A lock that is not
released blocks its queue for the group until the 60 s end. So the client receives the answer to each lock request, even
if the caller is cancelled, and releases a lock that is no longer wanted. Source:
client/impl/consumer/RebalanceImpl.java (lock, lockAll, unlock), ProcessQueue.java, 5.4.0.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Final

import trio

from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.errors import BrokerNotFound, RocketMQError
from pyrmq_core.model import MessageQueue
from pyrmq_core.network.problems import Problems
from pyrmq_core.network.rare_lines import RareLine
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.requests.broker.lock_queues import LockedQueues, LockQueues, UnlockQueues
from pyrmq_core.protocol.routes.route import MASTER_ID

log = logging.getLogger(__name__)

LOCK_TIMEOUT_SECONDS: Final = 1.0
RENEW_SECONDS: Final = 20.0
EXPIRY_SECONDS: Final = 30.0
LOCK: Final = "locking queues at"


class QueueLocks:
    """The locks on queues that brokers keep for one client of a group."""

    def __init__(self, client: ClientSession, group: str, problems: Problems) -> None:
        self._client = client
        self._group = group
        self._problems = problems
        self._not_given_back = RareLine()
        self._locked_at: dict[MessageQueue, float] = {}
        self._wanted: dict[MessageQueue, None] = {}  # locks that were requested, and neither refused nor released
        self.changed = trio.Event()

    @property
    def wanted(self) -> tuple[MessageQueue, ...]:
        """The queues whose locks a broker may hold for this client."""
        return tuple(self._wanted)

    def is_held(self, queue: MessageQueue) -> bool:
        at = self._locked_at.get(queue)
        return at is not None and trio.current_time() - at < EXPIRY_SECONDS

    async def lock(self, queues: Collection[MessageQueue]) -> frozenset[MessageQueue]:
        """Requests the locks and returns the queues that are now locked for this client.

        If the broker does not answer, an earlier lock is relied on until it expires. If another client has locked the
        queue, the lock is given up at once. A cancelled call still waits for the answers, up to `LOCK_TIMEOUT_SECONDS`.
        """
        locked: set[MessageQueue] = set()
        self._wanted.update(dict.fromkeys(queues))

        async def lock_at(broker_name: str, own: list[MessageQueue]) -> None:
            answered = await self._ask(broker_name, own)
            if answered is None:
                return
            now = trio.current_time()
            for queue in own:
                if queue not in answered:
                    self._locked_at.pop(queue, None)
                    self._wanted.pop(queue, None)
                elif queue in self._wanted:
                    self._locked_at[queue] = now
                    locked.add(queue)
            await self.unlock([queue for queue in own if queue in answered and queue not in self._wanted])

        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                for broker_name, own in _by_broker(queues).items():
                    nursery.start_soon(lock_at, broker_name, own)
        changed, self.changed = self.changed, trio.Event()
        changed.set()
        return frozenset(locked)

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        for broker_name, own in _by_broker(queues).items():
            for queue in own:
                self._locked_at.pop(queue, None)
                self._wanted.pop(queue, None)
            if all(queue.broker_name != broker_name for queue in self._wanted):
                self._problems.forget(LOCK, broker_name)
            address = self._master(broker_name)
            if address is None:
                continue
            request = UnlockQueues(self._group, self._client.client_id, tuple(own))
            try:
                await self._client.send_oneway(address, request.to_command(), timeout=LOCK_TIMEOUT_SECONDS)
            except RocketMQError as error:
                if self._not_given_back.is_due():
                    text = f"{error}{self._not_given_back.left_out()}"
                    log.warning("locks at %s were not given back, and expire there: %s", broker_name, text)

    async def _ask(self, broker_name: str, queues: list[MessageQueue]) -> frozenset[MessageQueue] | None:
        address = self._master(broker_name)
        if address is None:
            text = f"{broker_name} has no master now, and only a master locks queues: look whether it runs"
            self._problems.failed(LOCK, broker_name, BrokerNotFound(text, broker_name=broker_name))
            return None
        request = LockQueues(self._group, self._client.client_id, tuple(queues))
        try:
            answer = await self._client.call(address, request.to_command(), timeout=LOCK_TIMEOUT_SECONDS)
            if answer.code != ResponseCode.SUCCESS:
                error = response_error(answer, request.CODE, address, f"group {self._group}")
                self._problems.failed(LOCK, broker_name, error)
                return frozenset()
            locked = frozenset(LockedQueues.from_command(answer).queues)
        except RocketMQError as failure:
            self._problems.failed(LOCK, broker_name, failure)
            return None
        self._problems.passed(LOCK, broker_name)
        return locked

    def _master(self, broker_name: str) -> str | None:
        try:
            return self._client.routes.broker(broker_name).broker_addrs.get(MASTER_ID)
        except RocketMQError:
            return None


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    by_broker: defaultdict[str, list[MessageQueue]] = defaultdict(list)
    for queue in queues:
        by_broker[queue.broker_name].append(queue)
    return dict(by_broker)
