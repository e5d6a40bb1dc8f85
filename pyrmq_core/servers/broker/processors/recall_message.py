"""RECALL_MESSAGE (370): cancels a timer message by storing a second timer message, which refers to the first.

Source: broker/processor/RecallMessageProcessor.java (5.4.0), with its checks in its order, and its answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
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
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.identity import Identity
from pyrmq_core.servers.broker.processors.delays import DelayedQueues
from pyrmq_core.servers.broker.processors.handlers import Handlers
from pyrmq_core.servers.broker.processors.name_rules import checked, topic_fault
from pyrmq_core.servers.broker.processors.put_message import MessageWriter, RequestRefused
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.store.appending import Append
from pyrmq_core.servers.broker.store.batch_pieces import piece
from pyrmq_core.servers.broker.tables.topics import WRITE, TopicTable
from pyrmq_core.servers.broker.timers.timer_rules import TIMER_DEL_UNIQKEY

RECALL_TAG: Final = "_RECALL_TAG_"
RECALL_BODY: Final = b"0"


@dataclass(frozen=True, slots=True)
class RecallRequests:
    settings: LiveSettings
    identity: Identity
    topics: TopicTable
    delays: DelayedQueues
    writer: MessageWriter

    def handlers(self) -> Handlers:
        return {RequestCode.RECALL_MESSAGE: checked(self.recall, topic=topic_fault)}

    def recall(self, request: Command, peer: Peer) -> Command:
        region = {MSG_REGION: self.settings.config.region_id}
        try:
            message = RecallMessage.from_command(request)
            handle = self._possible(message)
            self._store(message, handle, peer)
        except RequestRefused as refused:
            return refusal(refused.code, str(refused), region)
        answer = MessageRecalled(handle.unique_id).to_command()
        return Command(answer.code, {**answer.ext, **region})

    def _possible(self, message: RecallMessage) -> RecallHandle:
        config = self.settings.config
        if not config.recall_message_enable:
            raise RequestRefused(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if not config.broker_permission & WRITE and not config.allow_recall_when_broker_not_writeable:
            raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available")
        if message.topic not in self.topics:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{message.topic}] not exist")
        try:
            handle = RecallHandle.decode(message.recall_handle)
        except InvalidArgument as error:
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid") from error
        if handle.topic != message.topic:
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != config.broker_name:
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, "recall failed, broker service not available")
        if not 0 < handle.deliver_ms - clock.now_ms() < self.delays.timers.settings.max_delay_ms:
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        return handle

    def _store(self, message: RecallMessage, handle: RecallHandle, peer: Peer) -> None:
        properties = {
            TAGS: RECALL_TAG,
            TIMER_DEL_UNIQKEY: handle.unique_id,
            UNIQ_KEY: handle.unique_id,
            TIMER_DELIVER_MS: str(handle.deliver_ms),
            "BORN_TIMESTAMP": str(clock.now_ms()),
            "TRACE_CONTEXT": "",
            PGROUP: message.producer_group,
        }
        try:
            place = self.delays.queue_of(message.topic, 0, properties)
        except RequestRefused as refused:
            raise _failed() from refused
        encoded = encode_properties(properties).encode("utf-8", "replace")
        if len(encoded) > MAX_STORED_PROPERTIES_BYTES:
            raise _failed()
        self.writer.put(
            Append(
                topic=place.topic,
                queue_id=place.queue_id,
                pieces=[piece(0, RECALL_BODY, encoded)],
                born_timestamp_ms=clock.now_ms(),
                born_host=pack_host(peer.address),
                store_host=self.identity.store_host,
            ),
        )


def _failed() -> RequestRefused:
    return RequestRefused(ResponseCode.SYSTEM_ERROR, "recall failed, execute error")
