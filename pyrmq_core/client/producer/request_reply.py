"""Requests and replies: a message whose sender waits for a reply, which a broker pushes over the sender's connection.

    from       to         what
    requester  a topic    the request message, with the properties CORRELATION_ID, REPLY_TO_CLIENT and TTL
    replier    a broker   the reply to topic <cluster>_REPLY_TOPIC (SEND_REPLY_MESSAGE_V2, 325)
    broker     requester  the reply, over a connection that had a heartbeat (PUSH_REPLY_MESSAGE_TO_CLIENT, 326)

Sources: client/impl/producer/DefaultMQProducerImpl.java (request), client/utils/MessageUtil.java,
client/impl/ClientRemotingProcessor.java, 5.3.3. Java's synchronous request of 5.3.1 to 5.3.3 stops waiting when the
send is acknowledged. Here it waits for the reply.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

import trio

from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.producer.send.send_options import Target
from pyrmq_core.client.producer.send.sender import Sender
from pyrmq_core.errors import InvalidArgument, RequestTimeout, RocketMQError
from pyrmq_core.model import MessageExt
from pyrmq_core.network import Handler, Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.messages.names import REPLY_TOPIC_SUFFIX
from pyrmq_core.protocol.messages.payload import Payload
from pyrmq_core.protocol.messages.properties import (
    ARRIVE_TIME,
    CLUSTER,
    CORRELATION_ID,
    MSG_TYPE,
    REPLY_TO_CLIENT,
    TTL,
    decode_properties,
)
from pyrmq_core.protocol.requests.client.push_reply import PushReply

log = logging.getLogger(__name__)


class AwaitedReply:
    """The reply to one request message. `received` is set when the reply arrives.

    `error` is the failure to read a reply. The wait goes on after it, since the reply may be sent again.
    """

    def __init__(self) -> None:
        self.received = trio.Event()
        self.message: MessageExt | None = None
        self.error: RocketMQError | None = None


class Replies:
    """The client's requests that wait for a reply, by correlation id, and the handler of replies from brokers."""

    def __init__(self) -> None:
        self._awaited: dict[str, AwaitedReply] = {}

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._take}

    def _take(self, request: Command, peer: Peer) -> Command:
        """Passes a reply to its waiting task. A reply that no task awaits is also acknowledged, as in Java."""
        reply = PushReply.from_command(request)
        awaited = self._awaited.get(decode_properties(reply.properties or "").get(CORRELATION_ID, ""))
        if awaited is None:
            log.debug("%s pushed a reply that no request waits for", peer.address)
            return success()
        try:
            message = reply.message()
        except RocketMQError as error:
            awaited.error = error
            raise
        arrived = {**message.properties, ARRIVE_TIME: str(time.time_ns() // 1_000_000)}
        awaited.message = replace(message, properties=arrived)
        awaited.received.set()
        return success()

    @contextmanager
    def expecting(self, correlation_id: str) -> Iterator[AwaitedReply]:
        awaited = self._awaited[correlation_id] = AwaitedReply()
        try:
            yield awaited
        finally:
            del self._awaited[correlation_id]


REPLY: Final = "reply"


class RequestSender:
    def __init__(self, client: ClientSession, sender: Sender) -> None:
        self._client = client
        self._sender = sender
        self._replies = client.callbacks(Replies)
        self._clusters: set[str] = set()

    def properties(self, timeout: float) -> dict[str, str]:
        """Returns the properties that make a message a request: CORRELATION_ID, this client's id and the timeout."""
        return {
            CORRELATION_ID: str(uuid.uuid4()),
            REPLY_TO_CLIENT: self._client.client_id,
            TTL: str(max(1, int(timeout * 1000))),
        }

    async def ask(self, payload: Payload, correlation_id: str, to: Target, *, timeout: float) -> MessageExt:
        """Sends a request and returns its reply. Raises the errors of a send, and `RequestTimeout` after `timeout`."""
        deadline = trio.current_time() + timeout
        with trio.move_on_after(timeout):
            await self._make_known(payload.topic, timeout)
        with self._replies.expecting(correlation_id) as awaited:
            receipt = await self._sender.send(payload, to, timeout=max(0.0, deadline - trio.current_time()))
            with trio.move_on_at(deadline):
                await awaited.received.wait()
        if awaited.message is None:
            remedy = "look whether a consumer replies, or wait longer"
            if awaited.error is not None:
                remedy = f"a reply came that cannot be read: {awaited.error}"
            raise RequestTimeout(
                f"topic {payload.topic}: send request message to {receipt.requested.broker_name} OK, but wait reply "
                f"message timeout, {timeout * 1000:.0f} ms: {remedy}"
            ) from awaited.error
        return awaited.message

    async def _make_known(self, topic: str, timeout: float) -> None:
        """Sends a heartbeat to the brokers of the topic's clusters: without one they push no reply to this client."""
        info = await self._sender.publish_info(topic, timeout=timeout)
        names = {queue.broker_name for queue in info.queues}
        for cluster in {self._client.routes.broker(name).cluster for name in names} - self._clusters:
            with suppress(RocketMQError):
                await self._client.routes.route(cluster + REPLY_TOPIC_SUFFIX, timeout=timeout)
            self._clusters.add(cluster)
        masters = [broker.master for broker in self._client.routes.brokers if broker.cluster in self._clusters]
        async with trio.open_nursery() as nursery:
            for address in masters:
                if address is not None and not self._client.heartbeats.was_reached(address):
                    nursery.start_soon(self._client.heartbeats.introduce, address)


def reply_properties(request: MessageExt) -> tuple[str, dict[str, str]]:
    """Returns the topic and properties of the reply to a request. Raises `InvalidArgument` for other messages."""
    missing = [name for name in (CLUSTER, CORRELATION_ID, REPLY_TO_CLIENT) if not request.properties.get(name)]
    if missing:
        raise InvalidArgument(
            f"create reply message fail, requestMessage error, property[{missing[0]}] is null: message "
            f"{request.msg_id} of {request.topic} was not sent by request()"
        )
    copied = {name: request.properties[name] for name in (CORRELATION_ID, REPLY_TO_CLIENT)}
    if TTL in request.properties:
        copied[TTL] = request.properties[TTL]
    return request.properties[CLUSTER] + REPLY_TOPIC_SUFFIX, {MSG_TYPE: REPLY, **copied}
