"""Delays and delivery times need brokers of 5.0 or younger: older ones take such a message and deliver it at once."""

from __future__ import annotations

from typing import Final

from pyrmq_core.client.remoting.heartbeats import Heartbeats
from pyrmq_core.errors import InvalidMessage, NetworkError, ResponseError
from pyrmq_core.model import MessageQueue

# V5_0_0 of common/MQVersion.java.
FIRST_VERSION_WITH_TIMERS: Final = 413


async def require_timer_messages(heartbeats: Heartbeats, queue: MessageQueue, address: str, *, timeout: float) -> None:
    """`InvalidMessage` when the queue's broker is too old; one that never said its version is asked by a heartbeat.

    `NetworkError` when it does not tell: the message has not left then.
    """
    version = heartbeats.version_of(address)
    if version is None:
        try:
            version = await heartbeats.tell(address, timeout=timeout)
        except ResponseError:
            version = heartbeats.version_of(address) or 0
        except NetworkError as error:
            raise NetworkError(
                f"the message was not sent, because {queue.broker_name} did not tell its version: {error}",
                address=address,
                request_left=False,
            ) from error
    if version < FIRST_VERSION_WITH_TIMERS:
        raise InvalidMessage(
            f"topic {queue.topic}: deliver_at and delay need brokers of 5.0 or younger; {queue.broker_name} "
            f"({address}) is older (version {version}) and would deliver at once; use delay_level"
        )
