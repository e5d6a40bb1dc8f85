"""LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42)."""

from __future__ import annotations

from pyrmq_core.broker.state import Broker
from pyrmq_core.network import Peer
from pyrmq_core.protocol.command import Command, success
from pyrmq_core.protocol.requests.lock_queues import LockedQueues, LockQueues, UnlockQueues


def lock_queues(broker: Broker, request: Command, _: Peer) -> Command:
    wanted = LockQueues.from_command(request)
    taken = broker.locks.take(wanted.consumer_group, wanted.client_id, wanted.queues, broker.now_ms())
    return LockedQueues(tuple(taken)).to_command()


def unlock_queues(broker: Broker, request: Command, _: Peer) -> Command:
    given = UnlockQueues.from_command(request)
    broker.locks.release(given.consumer_group, given.client_id, given.queues)
    return success()
