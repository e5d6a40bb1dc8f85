"""Sends lists of messages in the background, each in a task. `InFlight` limits the number and bytes of all sends.

A task sends the parts of its list one after another. Every try has a timeout, so every task ends. Source:
DefaultMQProducer.java, `send(Collection, SendCallback)`.
"""

from __future__ import annotations

import trio

from pyrmq_core.client.producer.batch_member import MEMBER_BYTES
from pyrmq_core.client.producer.bulk.pending_sends import InFlight, PendingBatch
from pyrmq_core.client.producer.bulk.split_batches import send_list
from pyrmq_core.client.producer.message_encoder import BATCH_BYTES, MessageEncoder
from pyrmq_core.client.producer.send.receipt import given_up, unexpected
from pyrmq_core.client.producer.send.send_options import CommunicationMode
from pyrmq_core.client.producer.send.sender import Sender
from pyrmq_core.errors import RocketMQError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.messages.batch_payloads import CheckedBatch
from pyrmq_core.protocol.messages.batch_topic import MAX_RECORD_MESSAGES


class BatchSends:
    def __init__(self, nursery: trio.Nursery, sender: Sender, in_flight: InFlight) -> None:
        self._nursery = nursery
        self._sender = sender
        self._in_flight = in_flight
        self._under_way: dict[PendingBatch, float] = {}
        self._ended: trio.Event | None = None

    def start(
        self,
        pending: PendingBatch,
        encoding: MessageEncoder,
        batch: CheckedBatch,
        queue: MessageQueue | None,
        timeout: float,
    ) -> None:
        self._under_way[pending] = trio.current_time() + timeout * _most_waits(batch)
        self._nursery.start_soon(self._send, pending, encoding, batch, queue, timeout)

    def longest_seconds(self, now: float) -> float:
        return max((deadline - now for deadline in list(self._under_way.values())), default=0.0)

    async def drain(self) -> None:
        while self._under_way:
            if self._ended is None:
                self._ended = trio.Event()
            await self._ended.wait()

    async def _send(
        self,
        pending: PendingBatch,
        encoding: MessageEncoder,
        batch: CheckedBatch,
        queue: MessageQueue | None,
        timeout: float,
    ) -> None:
        topic = batch.messages[0].topic
        error: RocketMQError = given_up(topic)
        mode = CommunicationMode.ASYNC
        try:
            results = await send_list(self._sender, encoding, batch, queue, timeout=timeout, mode=mode)
        except RocketMQError as failed:
            error = failed
        except Exception as failed:
            error = unexpected(topic, failed)
        else:
            pending.set_results(results)
        finally:
            del self._under_way[pending]
            self._in_flight.leave((pending,))
            pending.set_error(error)  # does nothing if the batch already has its results
            ended, self._ended = self._ended, None
            if ended is not None:
                ended.set()


def _most_waits(batch: CheckedBatch) -> int:
    """Returns the most requests that a list may need. Each of them may take the complete timeout.

    It counts one request for each part of the list, and two for the topic's route and settings. A character of the
    properties has up to 4 bytes, and two requests in a row have more than `BATCH_BYTES` together.
    """
    messages = batch.messages
    targets = len({(message.sharding_key, message.tags) for message in messages})
    size = sum([len(message.body) for message in messages]) + len(messages) * MEMBER_BYTES
    size += 4 * sum([len(before) + len(after) for before, after in batch.ends])
    return 2 + targets + 2 * size // BATCH_BYTES + len(messages) // MAX_RECORD_MESSAGES
