"""Look-ups of stored messages by id or key, and the age of a queue, for `Admin.messages`.

Source: client/impl/MQAdminImpl.java, 5.4.0. Java passes over brokers that fail; here the list names them with their
errors, since it would look complete without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pyrmq_core.client.arguments import MAX_LONG, instance_of, queue_of, whole_number
from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.query_many import query_many
from pyrmq_core.client.routing.publish_info import broker_addresses, reading_address
from pyrmq_core.errors import BrokerNotFound, InvalidArgument, RecordError, RocketMQError
from pyrmq_core.model import MessageExt, MessageQueue, PullStatus
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.messages.message_id import decode_offset_msg_id
from pyrmq_core.protocol.messages.names import check_topic
from pyrmq_core.protocol.messages.namespaces import message_without_namespace, with_namespace
from pyrmq_core.protocol.messages.payload import RawPull, decode
from pyrmq_core.protocol.messages.record import unpack_host, unpack_record
from pyrmq_core.protocol.requests.broker.offsets import GetEarliestStoreTime, StoreTimeFound
from pyrmq_core.protocol.requests.broker.query_message import MessagesFound, QueryMessage, ViewMessage
from pyrmq_core.protocol.shown_values import shown

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MAX_INT: Final = 2**31 - 1
# The number of records that Java requests for a UNIQ_KEY; the broker applies its own limit.
UNIQUE_KEY_RECORDS: Final = 32
PORT_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class MessageList:
    """Messages by store time, and the errors of the brokers that gave no answer."""

    messages: tuple[MessageExt, ...]
    failures: Mapping[str, RocketMQError]


class MessageQueries:
    """Look-ups of one client; with `namespace`, topics are the tenant's own. Each query may take `timeout` seconds."""

    def __init__(self, client: ClientSession, *, timeout: float, namespace: str | None = None) -> None:
        self._client = client
        self._timeout = timeout
        self._namespace = namespace

    async def by_id(self, offset_msg_id: str, topic: str | None) -> MessageExt:
        """Returns the message at the log offset in the id; raises `ResponseError` if the broker has none there."""
        place = decode_offset_msg_id(_text("offset_msg_id", offset_msg_id))
        address = unpack_host(place.ip + (place.port & 0xFFFFFFFF).to_bytes(PORT_BYTES))
        on_wire = None if topic is None else self._on_wire(topic)
        answer = await self._client.call(
            address, ViewMessage(place.offset, on_wire).to_command(), timeout=self._timeout
        )
        if answer.code != ResponseCode.SUCCESS:
            raise response_error(answer, RequestCode.VIEW_MESSAGE_BY_ID, address, f"message {offset_msg_id}")
        message = next(_messages(bytes(answer.body), self._broker_name(address)), None)
        if message is None or message.commit_log_offset != place.offset:
            raise RecordError(f"{address} answers with another message than {offset_msg_id}")
        return message_without_namespace(message, self._namespace)

    async def by_key(
        self, topic: str, key: str, max_num: int, begin: datetime | None, end: datetime | None
    ) -> MessageList:
        """Returns messages of the topic that have the key, by store time: of each broker the newest `max_num`."""
        whole_number("max_num", max_num, 1, MAX_INT)
        if " " in _text("key", key):
            raise InvalidArgument(f"key={shown(key)}: it is one word; a message's keys are separated by spaces")
        begin_ms, end_ms = _ms("begin", begin, 0), _ms("end", end, MAX_LONG)
        request = QueryMessage(self._on_wire(topic), key, max_num, begin_ms, end_ms, index_type="K")
        return await self._everywhere(topic, request, lambda message: key in (message.keys or "").split(" "))

    async def by_unique_key(self, topic: str, unique_key: str) -> MessageList:
        """Returns every message with this UNIQ_KEY, of the brokers that answer: a send that was repeated has two."""
        key = _text("unique_key", unique_key)
        request = QueryMessage(self._on_wire(topic), key, UNIQUE_KEY_RECORDS, 0, MAX_LONG, index_type="U")
        return await self._everywhere(topic, request, lambda message: message.msg_id == key)

    async def earliest_store_time(self, queue: MessageQueue) -> datetime | None:
        """Returns the store time of the oldest message that is kept; None for a queue without messages."""
        topic = self._on_wire(queue_of(queue).topic)
        request = GetEarliestStoreTime(topic, queue.queue_id, queue.broker_name).to_command()
        answer = await self._client.ask_broker(queue, request, timeout=self._timeout, namespace=self._namespace)
        found_ms = StoreTimeFound.from_command(answer).timestamp_ms
        return None if found_ms < 0 else EPOCH + timedelta(milliseconds=found_ms)

    async def _everywhere(
        self, topic: str, request: QueryMessage, is_wanted: Callable[[MessageExt], bool]
    ) -> MessageList:
        """Returns the topic's messages that its brokers find and `is_wanted` accepts; an index holds only hashes.

        Raises an error only when no broker answers.
        """
        check_topic(topic)
        route = await self._client.routes.refresh(request.topic, timeout=self._timeout)
        if route is None:
            raise self._client.routes.no_route(topic)
        brokers = broker_addresses([route])

        async def found_by(name: str) -> list[MessageExt] | RocketMQError:
            try:
                return await query(name)
            except RocketMQError as error:
                return error

        async def query(name: str) -> list[MessageExt]:
            address = reading_address(brokers[name])
            if address is None:
                raise BrokerNotFound(f"broker {name} has no address in the route of {topic}", broker_name=name)
            answer = await self._client.call(address, request.to_command(), timeout=self._timeout)
            if answer.code == ResponseCode.QUERY_NOT_FOUND:
                return []
            if answer.code != ResponseCode.SUCCESS:
                raise response_error(answer, RequestCode.QUERY_MESSAGE, f"{name} ({address})", f"topic {topic}")
            return list(_messages(MessagesFound.from_command(answer).records, name))

        answers = await query_many(brokers, found_by)
        failures = {name: answer for name, answer in answers.items() if isinstance(answer, RocketMQError)}
        if failures and len(failures) == len(brokers):
            raise next(iter(failures.values()))
        lists = [answer for answer in answers.values() if not isinstance(answer, RocketMQError)]
        mine = [
            message_without_namespace(message, self._namespace)
            for messages in lists
            for message in messages
            if message.topic == request.topic and is_wanted(message)
        ]
        mine.sort(key=lambda message: (message.store_timestamp_ms, message.commit_log_offset))
        return MessageList(tuple(mine), failures)

    def _broker_name(self, address: str) -> str:
        """Returns the name of the broker at the address by the known routes; an empty text for an unknown address."""
        brokers = self._client.routes.brokers
        return next((broker.broker_name for broker in brokers if address in broker.broker_addrs.values()), "")

    def _on_wire(self, topic: str) -> str:
        return with_namespace(topic, self._namespace)


def _messages(records: bytes, broker_name: str) -> Iterator[MessageExt]:
    position = 0
    while position < len(records):
        raw = unpack_record(records, position)
        record = records[position : position + raw.store_size]
        queue = MessageQueue("", broker_name, raw.queue_id)
        yield from decode(RawPull(queue, 0, 0, 0, 0, PullStatus.FOUND, record))
        position += raw.store_size


def _text(name: str, value: str) -> str:
    if not instance_of(name, value, str, "a text"):
        raise InvalidArgument(f"{name}={shown(value)}: it is a text that is not empty")
    return value


def _ms(name: str, when: datetime | None, otherwise: int) -> int:
    if when is None:
        return otherwise
    if getattr(when, "tzinfo", None) is None:
        raise InvalidArgument(f"{name}={shown(when)} has no time zone; write datetime(..., tzinfo=UTC)")
    return (when - EPOCH) // timedelta(milliseconds=1)
