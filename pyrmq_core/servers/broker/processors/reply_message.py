"""SEND_REPLY_MESSAGE (324, 325): pushes a reply (326) to the requesting client, and stores it in the reply topic.

The reply is stored before it is pushed (`storeReplyMessageEnable`). The answer to its sender has the reply's offset in
the store and the code of the push. A stored reply is never delivered later: a client that is away misses it. Source:
broker/processor/ReplyMessageProcessor.java (5.4.0; 4.9.7 answers the same). RocketMQ stores a reply in any topic that
its sender names, past access control, which does not look at these requests: here the reply topic alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pyrmq_core.network import Peer
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.framing.codes import ResponseCode
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
from pyrmq_core.servers.broker.broker import Broker
from pyrmq_core.servers.broker.processors.put_message import RequestRefused, message_illegal, put
from pyrmq_core.servers.broker.processors.send_message import (
    check_topic,
    is_in_transaction,
    queue_of_send,
    saved_topic,
    send_refusal,
    trace_text,
)
from pyrmq_core.servers.broker.store.appending import Append, AppendResult
from pyrmq_core.servers.broker.store.batch_pieces import piece

log = line_logger(__name__)

# How long a client may take to acknowledge a reply, which it does before it processes it (Broker2Client.callClient).
PUSH_SECONDS: Final = 10.0


async def reply(broker: Broker, request: Command, peer: Peer) -> Command:
    """Pushes and stores a reply; the answer to its sender says whether the requesting client received it."""
    message = SendMessage.from_command(request)
    try:
        _check_reply_topic(broker, message.topic)
        check_topic(broker, message.topic)
        if message.properties and len(message.properties) > MAX_STORED_PROPERTIES_BYTES:
            raise message_illegal(broker)
        topic = await saved_topic(broker, message)
        queue_id = queue_of_send(message, topic, peer)
        properties = decode_properties(message.properties or "")
        if not message.body:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the body is empty, and an empty reply cannot be stored")
        if message.sys_flag & BATCH_RECORD or is_in_transaction(broker, properties, message.sys_flag, 0):
            raise message_illegal(broker, "A reply is one message, and in no transaction.")
        properties |= {MSG_REGION: broker.config.region_id, TRACE_ON: trace_text(broker)}
        append = _append(broker, message, queue_id, properties, peer)
    except RequestRefused as refused:
        return send_refusal(broker, refused)
    stored = _store(broker, append) if broker.config.store_reply_message_enable else None
    fault = await _push(broker, replace(message, queue_id=queue_id), properties, peer)
    return _answer(broker, queue_id, stored, fault)


def _check_reply_topic(broker: Broker, topic: str) -> None:
    reply_topic = f"{broker.config.broker_cluster_name}{REPLY_TOPIC_SUFFIX}"
    if topic != reply_topic:
        remark = f"replies are not stored in topic[{topic}], but in {reply_topic}"
        raise RequestRefused(ResponseCode.NO_PERMISSION, remark)


def _append(broker: Broker, message: SendMessage, queue_id: int, properties: dict[str, str], peer: Peer) -> Append:
    encoded = encode_properties(properties).encode("utf-8", "replace")
    if len(encoded) > MAX_STORED_PROPERTIES_BYTES or len(message.body) > broker.config.max_message_size:
        raise message_illegal(broker)
    return Append(
        topic=message.topic,
        queue_id=queue_id,
        pieces=[piece(message.flag, bytes(message.body), encoded)],
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=pack_host(peer.address),
        store_host=broker.store_host,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times or 0,
    )


async def _push(broker: Broker, message: SendMessage, properties: dict[str, str], peer: Peer) -> str | None:
    """Pushes the reply to the requesting client; returns why that is not possible, or None."""
    client_id = properties.get(REPLY_TO_CLIENT)
    if client_id is None:
        return f"reply message properties[{REPLY_TO_CLIENT}] is null"
    asker = broker.clients.producer(client_id)
    if asker is None:
        return f"push reply message fail, channel of <{client_id}> not found."
    now_ms = broker.now_ms()
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
        store_host=f"/{unpack_host(broker.store_host)}",
        store_timestamp_ms=now_ms,
        body=bytes(message.body),
    )
    answer = await broker.replies.call(asker, pushed.to_command(), client_id, seconds=PUSH_SECONDS)
    if answer.code == ResponseCode.SUCCESS:
        return None
    return f"push reply message to {client_id}fail. {answer.remark or f'It answered code {answer.code}.'}"


def _store(broker: Broker, append: Append) -> AppendResult | None:
    try:
        return put(broker, append)
    except RequestRefused as refused:
        log.warning("a reply is not stored: %s", refused)
        return None


def _answer(broker: Broker, queue_id: int, stored: AppendResult | None, fault: str | None) -> Command:
    ip, port = broker.store_host[:-4], INT.unpack(broker.store_host[-4:])[0]
    answer = MessageStored(
        msg_ids="0" if stored is None else offset_msg_id(ip, port, stored.positions[0]),
        queue_id=queue_id,
        queue_offset=0 if stored is None else stored.queue_offset,
        region_id=broker.config.region_id,
        trace_on=trace_text(broker),
    ).to_command()
    return answer if fault is None else Command(ResponseCode.SYSTEM_ERROR, answer.ext, remark=fault)
