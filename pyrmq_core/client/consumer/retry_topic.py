"""Creates the retry topic of a group that only commits offsets. Without that topic, Java's tools do not see the group.

`mqadmin consumerProgress` and the console query only the brokers in the route of `%RETRY%group`. A member's heartbeat
makes brokers create that topic. But a pull consumer is no member: as a member it would get a share of the group's
queues, and not read them. A broker also creates the topic when a message is sent back (code 36), before it looks for
the message. So this module sends back a message that does not exist, for which the consumer's permission on the group
is enough. Source: broker/processor/AbstractSendMessageProcessor.java (consumerSendMsgBack), 4.9.7 and 5.4.0.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from typing import Final

import trio

from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.errors import RocketMQError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.messages.names import RETRY_PREFIX
from pyrmq_core.protocol.messages.namespaces import with_namespace
from pyrmq_core.protocol.requests.broker.consumer_send_back import ConsumerSendMsgBack

log = logging.getLogger(__name__)

# A log offset at which no broker has a message.
NOWHERE: Final = -1
TRY_AGAIN_SECONDS: Final = 30.0


class RetryTopic:
    """The retry topic of one group, and the requests that create it at brokers, of up to `timeout` seconds each."""

    def __init__(self, client: ClientSession, group: str, *, timeout: float, namespace: str | None) -> None:
        self._client = client
        self._timeout = timeout
        self._namespace = namespace
        self._group = with_namespace(group, namespace)
        self._next_try: dict[str, float] = {}  # the time of the next try by broker

    async def ensure(self, queues: Iterable[MessageQueue]) -> None:
        """Makes the queues' brokers create the group's retry topic, except brokers that the topic's route has already.

        A broker that fails is skipped for 30 s. The failure is logged, and not raised.
        """
        for queue in {queue.broker_name: queue for queue in queues}.values():
            await self._ensure(queue)

    async def _ensure(self, queue: MessageQueue) -> None:
        broker_name = queue.broker_name
        if trio.current_time() < self._next_try.get(broker_name, -math.inf):
            return
        self._next_try[broker_name] = math.inf
        try:
            topic = RETRY_PREFIX + self._group
            route = await self._client.routes.refresh(topic, timeout=self._timeout)
            if route is None or broker_name not in {data.broker_name for data in route.queue_datas}:
                await give_back_nothing(
                    self._client, self._group, queue, timeout=self._timeout, namespace=self._namespace
                )
        except RocketMQError as error:
            # A pause before the next try, since otherwise each commit would wait for servers that do not answer.
            self._next_try[broker_name] = trio.current_time() + TRY_AGAIN_SECONDS
            log.info("group %s may be hidden from tools at %s: %s", self._group, broker_name, error)


async def give_back_nothing(
    client: ClientSession, group: str, queue: MessageQueue, *, timeout: float, namespace: str | None
) -> None:
    """Makes the queue's broker create the group's retry topic, and the group if its settings allow that.

    This sends back a message that does not exist, which the broker refuses. `group` includes the namespace.
    """
    request = ConsumerSendMsgBack(NOWHERE, group, 0, origin_topic=RETRY_PREFIX + group, broker_name=queue.broker_name)
    address = await client.master_address(queue, timeout=timeout, namespace=namespace)
    await client.call(address, request.to_command(), timeout=timeout)
