"""LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42)."""

from __future__ import annotations

from typing import Final

from pyrmq_core.broker.broker import Broker
from pyrmq_core.broker.processors.name_rules import client_fault, group_fault, topic_fault
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.requests.broker.lock_queues import LockedQueues, LockQueues, UnlockQueues
from pyrmq_core.protocol.routes.topic_config import MAX_QUEUES_PER_TOPIC

# Java's clients name all queues of a broker that they hold for a group (RebalanceImpl.lockAll).
MAX_BODY_BYTES: Final = 4 << 20


def lock_queues(broker: Broker, request: Command, _: Peer) -> Command:
    lock = _read(request, LockQueues)
    if isinstance(lock, Command):
        return lock
    taken = broker.locks.take(lock.consumer_group, lock.client_id, lock.queues, broker.running_ms())
    return LockedQueues(tuple(taken)).to_command()


def unlock_queues(broker: Broker, request: Command, _: Peer) -> Command:
    unlock = _read(request, UnlockQueues)
    if isinstance(unlock, Command):
        return unlock
    broker.locks.release(unlock.consumer_group, unlock.client_id, unlock.queues)
    return success()


def _read(request: Command, form: type[LockQueues]) -> LockQueues | Command:
    """Returns the request, or a refusal of impossible names and of more queues than a topic has."""
    if len(request.body) > MAX_BODY_BYTES:
        remark = f"the body has {len(request.body)} bytes; {MAX_BODY_BYTES} at most name the queues of a topic"
        return refusal(ResponseCode.INVALID_PARAMETER, remark)
    decoded = form.from_command(request)
    fault = group_fault(decoded.consumer_group) or client_fault(decoded.client_id)
    if not fault and len(decoded.queues) > MAX_QUEUES_PER_TOPIC:
        fault = f"{len(decoded.queues)} queues are named; {MAX_QUEUES_PER_TOPIC} at most in one request"
    for queue in decoded.queues if not fault else ():
        fault = topic_fault(queue.topic) or client_fault(queue.broker_name)
        if fault:
            break
    return refusal(ResponseCode.INVALID_PARAMETER, fault) if fault else decoded
