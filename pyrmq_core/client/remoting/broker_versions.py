"""The check that a broker is new enough for a message: older ones would deliver a delayed one at once."""

from __future__ import annotations

from pyrmq_core.client.remoting.heartbeats import Heartbeats
from pyrmq_core.errors import InvalidMessage, NetworkError, ResponseError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.framing.versions import V5_0_0


async def require_timer_messages(heartbeats: Heartbeats, queue: MessageQueue, address: str, *, timeout: float) -> None:
    """Raises `InvalidMessage` if the queue's broker is older than 5.0; a heartbeat asks for a version not yet known.

    Raises `NetworkError` when the broker does not answer: the message has not left then.
    """
    version = heartbeats.version_of(address)
    if version is None:
        try:
            version = await heartbeats.tell(address, timeout=timeout)
        except ResponseError:
            version = heartbeats.version_of(address) or 0
        except NetworkError as error:
            raise NetworkError(
                f"the message was not sent, because {queue.broker_name} did not report its version: {error}",
                address=address,
                request_left=False,
            ) from error
    if version < V5_0_0:
        raise InvalidMessage(
            f"topic {queue.topic}: deliver_at and delay need brokers of 5.0 or later; {queue.broker_name} "
            f"({address}) is older (version {version}) and would deliver at once; use delay_level"
        )
