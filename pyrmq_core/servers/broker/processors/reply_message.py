"""SEND_REPLY_MESSAGE (324, 325): pushes a reply (326) to the requesting client, and stores it in the reply topic.

The reply is stored before it is pushed (`storeReplyMessageEnable`). The answer to its sender has the stored reply's
offset, and says whether the push succeeded. A stored reply is never delivered later, so a disconnected client misses
it. Source: broker/processor/ReplyMessageProcessor.java (5.4.0, and 4.9.7 answers the same). RocketMQ stores a reply in
any topic that its sender names, without access control. Here only the reply topic is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from pyrmq_core.network import Peer
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.message_id import offset_msg_id
from pyrmq_core.protocol.messages.names import REPLY_TOPIC_SUFFIX
from pyrmq_core.protocol.messages.properties import (
    MAX_STORED_PROPERTIES_BYTES,
    MSG_REGION,
    PUSH_REPLY_TIME,
    REPLY_TO_CLIENT,
    TRACE_ON,
    decode_properties,
    encode_properties,
)
from pyrmq_core.protocol.messages.record import INT, pack_host, unpack_host
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD
from pyrmq_core.protocol.requests.broker.send_message import MessageStored, SendMessage
from pyrmq_core.protocol.requests.client.push_reply import PushReply
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.clients.client_table import ClientTable
from pyrmq_core.servers.broker.clients.consumer_calls import ConsumerCalls
from pyrmq_core.servers.broker.identity import Identity
from pyrmq_core.servers.broker.processors.handlers import Handlers
from pyrmq_core.servers.broker.processors.put_message import RequestRefused
from pyrmq_core.servers.broker.processors.send_message import SendRequests, queue_of_send
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.store.appending import Append, AppendResult
from pyrmq_core.servers.broker.store.batch_pieces import piece

log = line_logger(__name__)

# How long a client may take to acknowledge that it received a reply (Broker2Client.callClient).
PUSH_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class ReplyRequests:
    """The handler of clients' replies to the request messages of other clients."""

    settings: LiveSettings
    identity: Identity
    sends: SendRequests
    clients: ClientTable
    calls: ConsumerCalls

    def handlers(self) -> Handlers:
        return {RequestCode.SEND_REPLY_MESSAGE: self.reply, RequestCode.SEND_REPLY_MESSAGE_V2: self.reply}

    async def reply(self, request: Command, peer: Peer) -> Command:
        """Stores a reply and pushes it to the requesting client. The answer says whether that client received it."""
        message = SendMessage.from_command(request)
        try:
            self._check_reply_topic(message.topic)
            self.sends.check_topic(message.topic)
            if message.properties and len(message.properties) > MAX_STORED_PROPERTIES_BYTES:
                raise self.sends.writer.illegal()
            topic = await self.sends.saved_topic(message)
            queue_id = queue_of_send(message, topic, peer)
            properties = decode_properties(message.properties or "")
            if not message.body:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR, "the body is empty, and an empty reply cannot be stored"
                )
            if message.sys_flag & BATCH_RECORD or self.sends.is_in_transaction(properties, message.sys_flag, 0):
                raise self.sends.writer.illegal("A reply is one message, and in no transaction.")
            properties |= {MSG_REGION: self.settings.config.region_id, TRACE_ON: self.sends.trace_text()}
            append = self._append(message, queue_id, properties, peer)
        except RequestRefused as refused:
            return self.sends.refused(refused)
        stored = self._store(append) if self.settings.config.store_reply_message_enable else None
        fault = await self._push(replace(message, queue_id=queue_id), properties, peer)
        return self._answer(queue_id, stored, fault)

    def _check_reply_topic(self, topic: str) -> None:
        reply_topic = f"{self.settings.config.broker_cluster_name}{REPLY_TOPIC_SUFFIX}"
        if topic != reply_topic:
            remark = f"replies are not stored in topic[{topic}], but in {reply_topic}"
            raise RequestRefused(ResponseCode.NO_PERMISSION, remark)

    def _append(self, message: SendMessage, queue_id: int, properties: dict[str, str], peer: Peer) -> Append:
        encoded = encode_properties(properties).encode("utf-8", "replace")
        if len(encoded) > MAX_STORED_PROPERTIES_BYTES or len(message.body) > self.settings.config.max_message_size:
            raise self.sends.writer.illegal()
        return Append(
            topic=message.topic,
            queue_id=queue_id,
            pieces=[piece(message.flag, bytes(message.body), encoded)],
            born_timestamp_ms=message.born_timestamp_ms,
            born_host=pack_host(peer.address),
            store_host=self.identity.store_host,
            sys_flag=message.sys_flag,
            reconsume_times=message.reconsume_times or 0,
        )

    async def _push(self, message: SendMessage, properties: dict[str, str], peer: Peer) -> str | None:
        client_id = properties.get(REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{REPLY_TO_CLIENT}] is null"
        asker = self.clients.producer(client_id)
        if asker is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now_ms = clock.now_ms()
        pushed = PushReply(
            producer_group=message.producer_group,
            topic=message.topic,
            default_topic=message.default_topic,
            default_topic_queue_nums=message.default_topic_queue_nums,
            queue_id=message.queue_id,
            sys_flag=message.sys_flag,
            born_timestamp_ms=message.born_timestamp_ms,
            flag=message.flag,
            properties=encode_properties({**properties, PUSH_REPLY_TIME: str(now_ms)}),
            reconsume_times=message.reconsume_times or 0,
            unit_mode=bool(message.unit_mode),
            born_host=f"/{peer.address}",
            store_host=f"/{unpack_host(self.identity.store_host)}",
            store_timestamp_ms=now_ms,
            body=bytes(message.body),
        )
        answer = await self.calls.call(asker, pushed.to_command(), client_id, seconds=PUSH_SECONDS)
        if answer.code == ResponseCode.SUCCESS:
            return None
        return f"push reply message to {client_id}fail. {answer.remark or f'It answered code {answer.code}.'}"

    def _store(self, append: Append) -> AppendResult | None:
        try:
            return self.sends.writer.put(append)
        except RequestRefused as refused:
            log.warning("a reply is not stored: %s", refused)
            return None

    def _answer(self, queue_id: int, stored: AppendResult | None, fault: str | None) -> Command:
        ip, port = self.identity.store_host[:-4], INT.unpack(self.identity.store_host[-4:])[0]
        answer = MessageStored(
            msg_ids="0" if stored is None else offset_msg_id(ip, port, stored.positions[0]),
            queue_id=queue_id,
            queue_offset=0 if stored is None else stored.queue_offset,
            region_id=self.settings.config.region_id,
            trace_on=self.sends.trace_text(),
        ).to_command()
        return answer if fault is None else Command(ResponseCode.SYSTEM_ERROR, answer.ext, remark=fault)
