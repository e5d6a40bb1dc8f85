"""RECALL_MESSAGE (370): cancels a timer message by storing, for the same time, a second message that names the first.

Source: broker/processor/RecallMessageProcessor.java (5.4.0), in the same order and with the same answers.
"""

from __future__ import annotations

from typing import Final

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.protocol.messages.properties import (
    MAX_STORED_PROPERTIES_BYTES,
    MSG_REGION,
    PGROUP,
    TAGS,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    encode_properties,
)
from pyrmq_core.protocol.messages.record import pack_host
from pyrmq_core.protocol.requests.broker.recall_message import MessageRecalled, RecallHandle, RecallMessage
from pyrmq_core.servers.broker.broker import Broker
from pyrmq_core.servers.broker.processors.delays import delayed
from pyrmq_core.servers.broker.processors.put_message import RequestRefused, put
from pyrmq_core.servers.broker.store.appending import Append
from pyrmq_core.servers.broker.store.batch_pieces import piece
from pyrmq_core.servers.broker.tables.topics import WRITE
from pyrmq_core.servers.broker.timers.timer_rules import TIMER_DEL_UNIQKEY

RECALL_TAG: Final = "_RECALL_TAG_"
RECALL_BODY: Final = b"0"


def recall(broker: Broker, request: Command, peer: Peer) -> Command:
    region = {MSG_REGION: broker.config.region_id}
    try:
        message = RecallMessage.from_command(request)
        handle = _possible(broker, message)
        _store(broker, message, handle, peer)
    except RequestRefused as refused:
        return refusal(refused.code, str(refused), region)
    answer = MessageRecalled(handle.unique_id).to_command()
    return Command(answer.code, {**answer.ext, **region})


def _possible(broker: Broker, message: RecallMessage) -> RecallHandle:
    """Returns the handle's parts; raises `RequestRefused` if it can recall no message."""
    config = broker.config
    if not config.recall_message_enable:
        raise RequestRefused(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
    if not config.broker_permission & WRITE and not config.allow_recall_when_broker_not_writeable:
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available")
    if message.topic not in broker.topics:
        raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{message.topic}] not exist")
    try:
        handle = RecallHandle.decode(message.recall_handle)
    except InvalidArgument as error:
        raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid") from error
    if handle.topic != message.topic:
        raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
    if handle.broker_name != config.broker_name:
        raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, "recall failed, broker service not available")
    if not 0 < handle.deliver_ms - broker.now_ms() < broker.timers.settings.max_delay_ms:
        raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
    return handle


def _store(broker: Broker, message: RecallMessage, handle: RecallHandle, peer: Peer) -> None:
    """Stores the message that recalls the delayed message, in the same slot of the timers."""
    properties = {
        TAGS: RECALL_TAG,
        TIMER_DEL_UNIQKEY: handle.unique_id,
        UNIQ_KEY: handle.unique_id,
        TIMER_DELIVER_MS: str(handle.deliver_ms),
        "BORN_TIMESTAMP": str(broker.now_ms()),
        "TRACE_CONTEXT": "",
        PGROUP: message.producer_group,
    }
    try:
        place = delayed(broker, message.topic, 0, properties)
    except RequestRefused as refused:
        raise _failed() from refused
    encoded = encode_properties(properties).encode("utf-8", "replace")
    if len(encoded) > MAX_STORED_PROPERTIES_BYTES:
        raise _failed()
    put(
        broker,
        Append(
            topic=place.topic,
            queue_id=place.queue_id,
            pieces=[piece(0, RECALL_BODY, encoded)],
            born_timestamp_ms=broker.now_ms(),
            born_host=pack_host(peer.address),
            store_host=broker.store_host,
        ),
    )


def _failed() -> RequestRefused:
    return RequestRefused(ResponseCode.SYSTEM_ERROR, "recall failed, execute error")
