"""Dead letters of a group: read from its topic `%DLQ%group`, and sent again.

RocketMQ deletes no single message, so a dead letter that is sent again also stays where it is. `retry` sends a copy to
the group's retry topic, and the group's members receive it under the original topic, as a first try. `origin` sends a
copy to the original topic, and so to all groups. Both copies have the original unique key.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final, Literal

from pyrmq_core.client.admin.message_queries import MAX_FOUND_BYTES, MessageList, too_much_found
from pyrmq_core.client.admin.servers import AdminServers
from pyrmq_core.client.arguments import first_millisecond, whole_number
from pyrmq_core.client.consumer.pull.puller import Puller
from pyrmq_core.client.consumer.queue_offsets import QueueOffsets
from pyrmq_core.client.producer.send.send_options import AnyQueue, CommunicationMode, SendSettings
from pyrmq_core.client.producer.send.sender import Sender
from pyrmq_core.client.query_many import query_many
from pyrmq_core.client.unique_ids import unique_ids
from pyrmq_core.client.unpacking import in_steps
from pyrmq_core.errors import InvalidArgument, RocketMQError
from pyrmq_core.model import MessageExt, MessageQueue, OffsetRange, SendResult
from pyrmq_core.protocol.messages.compression import compress, compression_of
from pyrmq_core.protocol.messages.names import DLQ_PREFIX, RETRY_PREFIX
from pyrmq_core.protocol.messages.namespaces import message_without_namespace
from pyrmq_core.protocol.messages.payload import Payload
from pyrmq_core.protocol.messages.properties import (
    DELAY,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    MAX_RECONSUME_TIMES,
    ORIGIN_MESSAGE_ID,
    REAL_TOPIC,
    RECONSUME_TIME,
    RETRY_TOPIC,
    UNIQ_KEY,
    WAIT,
    encode_properties,
)
from pyrmq_core.protocol.messages.readable import Readable, UnreadableRecord, iterate_readable

INNER_PRODUCER: Final = "CLIENT_INNER_PRODUCER"
# Properties of the dead letter's earlier deliveries, which its copy must not have.
FORMER: Final = (DELAY, MAX_RECONSUME_TIMES, REAL_TOPIC, RECONSUME_TIME, DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID)
MAX_LETTERS: Final = 100_000


class DeadLetters:
    def __init__(self, servers: AdminServers, group: str) -> None:
        self._servers = servers
        self._group = group
        session, namespace = servers.session, servers.namespace
        self._queues = QueueOffsets(session, group, timeout=servers.timeout, namespace=namespace)
        self._puller = Puller(session, group, namespace)

    async def newest(self, max_num: int, begin: datetime | None, body_bytes: int | None = None) -> MessageList:
        """Returns the newest `max_num` dead letters of each queue, stored from `begin` on, in order of store time.

        `begin` None means any time. With `body_bytes` bodies are cut to that length. Raises an error if no broker
        answers.
        """
        whole_number("max_num", max_num, 1, MAX_LETTERS)
        begin_ms = None if begin is None else first_millisecond(begin)
        topic = DLQ_PREFIX + self._group
        queues = (await self._queues.current_queues([topic]))[topic] or ()
        failures: dict[str, RocketMQError] = {}
        reading = _Reading(MAX_FOUND_BYTES, body_bytes)

        silent = set()

        async def read(queue: MessageQueue) -> None:
            try:
                await self._read(queue, max_num, begin_ms, reading)
            except RocketMQError as error:
                failures[queue.broker_name] = error
                silent.add(queue.broker_name)

        await query_many(queues, read)
        if silent and not reading.letters and silent == {queue.broker_name for queue in queues}:
            raise next(iter(failures.values()))
        reading.letters.sort(key=lambda message: (message.store_timestamp_ms, message.commit_log_offset))
        return MessageList(
            tuple(message_without_namespace(letter, self._servers.namespace) for letter in reading.letters),
            {**reading.faults, **failures},
        )

    async def _read(self, queue: MessageQueue, max_num: int, begin_ms: int | None, reading: _Reading) -> None:
        bounds = (await self._queues.offset_bounds([queue]))[queue]
        first = bounds.start if begin_ms is None else await self._queues.offset_at(queue, begin_ms)
        first = max(bounds.start, first, bounds.end - max_num)
        if first >= bounds.end:
            return
        async with self._puller.read(queue, first, bounds.end) as pulls:
            async for pull in pulls:
                items = iterate_readable(pull, OffsetRange(pull.start, pull.next_offset))
                async with aclosing(in_steps(items, partial(reading.keep, queue))) as lists:
                    async for letters in lists:
                        reading.letters += letters

    async def resend(self, message: MessageExt, to: Literal["retry", "origin"]) -> SendResult:
        origin = self.origin(message)
        properties = {name: value for name, value in message.properties.items() if name not in FORMER}
        unique_id = properties.setdefault(UNIQ_KEY, unique_ids(1)[0])
        properties[WAIT] = "true"  # brokers store dead letters with "false", but this send must be confirmed
        match to:
            case "retry":
                topic = self._servers.on_wire(RETRY_PREFIX + self._group)
                properties[RETRY_TOPIC] = self._servers.on_wire(origin)
                properties.setdefault(ORIGIN_MESSAGE_ID, message.offset_msg_id)
                properties[RECONSUME_TIME] = "0"
            case "origin":
                topic = self._servers.on_wire(origin)
                properties.pop(RETRY_TOPIC, None)
            case _:
                raise InvalidArgument(f"to={to!r}: it is 'retry' or 'origin'")
        kind = compression_of(message.sys_flag)
        payload = Payload(
            topic,
            message.body if kind is None else compress(message.body, kind),
            1,
            encode_properties(properties),
            0 if kind is None else kind.sys_flag,
            message.flag,
            unique_ids=(unique_id,),
        )
        sender = Sender(self._servers.session, SendSettings(INNER_PRODUCER))
        receipt = await sender.send(payload, AnyQueue(), timeout=self._servers.timeout, mode=CommunicationMode.SYNC)
        return receipt.result()

    def origin(self, message: MessageExt) -> str:
        if message.topic != DLQ_PREFIX + self._group:
            raise InvalidArgument(f"message {message.msg_id} of {message.topic} is no dead letter of {self._group}")
        return origin_topic(message, self._servers)


class _Reading:
    """The dead letters read so far, and for each broker the error of the first dead letter that was left out.

    A dead letter is left out if it cannot be read, or if all bodies together would exceed `room` bytes. With
    `body_bytes` each body is first cut to that length.
    """

    def __init__(self, room: int, body_bytes: int | None) -> None:
        self.letters: list[MessageExt] = []
        self.faults: dict[str, RocketMQError] = {}
        self._room = room
        self._body_bytes = body_bytes

    def keep(self, queue: MessageQueue, item: Readable) -> MessageExt | None:
        if isinstance(item, UnreadableRecord):
            self.faults.setdefault(queue.broker_name, item.error)
            return None
        body = item.body[: self._body_bytes]
        if len(body) > self._room:
            self.faults.setdefault(queue.broker_name, too_much_found(item))
            return None
        self._room -= len(body)
        return item if self._body_bytes is None else replace(item, body=body)


def origin_topic(message: MessageExt, servers: AdminServers) -> str:
    topic = message.properties.get(DLQ_ORIGIN_TOPIC) or message.properties.get(RETRY_TOPIC)
    if not topic:
        raise InvalidArgument(f"dead letter {message.msg_id} does not name the topic that it was first sent to")
    return servers.own(topic)
