"""`SendBack`: sends messages back to a broker, which delivers them again or moves them to the dead-letter topic.

The request CONSUMER_SEND_MSG_BACK (36) makes the broker store the message again. If it fails, or for a message in a
batch record, a copy is sent to the group's retry topic. Sources: client/impl/consumer/DefaultMQPushConsumerImpl.java
(sendMessageBack), ConsumeMessageOrderlyService.java (sendMessageBack), 5.4.0.
"""

from __future__ import annotations

import logging
from typing import Final

from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.producer.send.send_options import AnyQueue, CommunicationMode, SendSettings
from pyrmq_core.client.producer.send.sender import Sender
from pyrmq_core.client.unique_ids import unique_ids
from pyrmq_core.errors import RocketMQError
from pyrmq_core.model import MessageExt, MessageQueue
from pyrmq_core.network.rare_lines import RareLine
from pyrmq_core.protocol.messages.compression import compress, compression_of
from pyrmq_core.protocol.messages.names import RETRY_PREFIX
from pyrmq_core.protocol.messages.payload import Payload
from pyrmq_core.protocol.messages.properties import (
    DELAY,
    MAX_RECONSUME_TIMES,
    ORIGIN_MESSAGE_ID,
    RECONSUME_TIME,
    RETRY_TOPIC,
    TRAN_MSG,
    UNIQ_KEY,
    encode_properties,
)
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD
from pyrmq_core.protocol.requests.broker.consumer_send_back import ConsumerSendMsgBack

log = logging.getLogger(__name__)

INNER_PRODUCER: Final = "CLIENT_INNER_PRODUCER"
SEND_BACK_TIMEOUT_SECONDS: Final = 5.0
FIRST_RETRY_LEVEL: Final = 3
DEAD_LETTER: Final = -1


class SendBack:
    """A sender of one group's failed messages back to their brokers, which deliver them again.

    `max_reconsume_times` is the number of tries after the first.
    """

    def __init__(self, client: ClientSession, group: str, max_reconsume_times: int) -> None:
        self._client = client
        self._group = group
        self._most = max_reconsume_times
        self._sender = Sender(client, SendSettings(INNER_PRODUCER))
        self._refused, self._failed = RareLine(), RareLine()

    async def send_back(self, message: MessageExt, queue: MessageQueue, delay_level: int) -> bool:
        """Sends a message back. Returns whether it is stored, for another try or in the group's dead-letter topic.

        `queue` is the queue from which the message was pulled. With `delay_level` 0 the delay grows with the number of
        tries, and -1 moves the message to the dead-letter topic. A message of a batch record is sent to the retry
        topic, since the broker could only store the complete batch again.
        """
        if message.sys_flag & BATCH_RECORD:
            return await self.send_to_retry_topic(message, _level(message, delay_level))
        request = ConsumerSendMsgBack(
            offset=message.commit_log_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.offset_msg_id,
            origin_topic=queue.topic,
            max_reconsume_times=self._most,
            broker_name=queue.broker_name,
        )
        try:
            await self._client.ask_broker(queue, request.to_command(), timeout=SEND_BACK_TIMEOUT_SECONDS)
        except RocketMQError as error:
            if self._refused.is_due():
                text = f"{error}{self._refused.left_out()}"
                log.info("%s was not sent back and is sent to the retry topic instead: %s", message.msg_id, text)
            return await self.send_to_retry_topic(message, _level(message, delay_level))
        return True

    async def send_to_retry_topic(self, message: MessageExt, delay_level: int) -> bool:
        """Sends a copy, with one more try counted, to the group's retry topic. Returns whether it is stored.

        If the message has had too many tries, the broker moves the copy to the dead-letter topic.
        """
        try:
            await self._sender.send(
                self._copy(message, delay_level),
                AnyQueue(),
                timeout=SEND_BACK_TIMEOUT_SECONDS,
                mode=CommunicationMode.SYNC,
            )
        except RocketMQError as error:
            if self._failed.is_due():
                log.warning(
                    "%s of %s could not be given back and is consumed here again: %s%s",
                    message.msg_id,
                    message.topic,
                    error,
                    self._failed.left_out(),
                )
            return False
        return True

    def _copy(self, message: MessageExt, delay_level: int) -> Payload:
        tries = self._most + 1 if delay_level == DEAD_LETTER else message.reconsume_times + 1
        properties = {
            RETRY_TOPIC: message.topic,
            ORIGIN_MESSAGE_ID: message.offset_msg_id,
            **message.properties,
            RECONSUME_TIME: str(tries),
            MAX_RECONSUME_TIMES: str(self._most),
        }
        properties.pop(TRAN_MSG, None)
        properties.pop(DELAY, None)
        if delay_level > 0:
            properties[DELAY] = str(delay_level)
        unique_id = properties.setdefault(UNIQ_KEY, unique_ids(1)[0])
        kind = compression_of(message.sys_flag)
        return Payload(
            RETRY_PREFIX + self._group,
            message.body if kind is None else compress(message.body, kind),
            1,
            encode_properties(properties),
            0 if kind is None else kind.sys_flag,
            message.flag,
            unique_ids=(unique_id,),
        )


def _level(message: MessageExt, delay_level: int) -> int:
    return delay_level or FIRST_RETRY_LEVEL + message.reconsume_times
