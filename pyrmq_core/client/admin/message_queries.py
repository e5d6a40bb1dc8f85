"""Look-ups of stored messages by id or key, and of the oldest message of a queue, for `Admin.messages`.

Source: client/impl/MQAdminImpl.java, 5.4.0. Java skips brokers that fail, so that the result looks complete. Here the
result has their errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from pyrmq_core.client.arguments import MAX_LONG, instance_of, queue_of, whole_number
from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.query_many import query_many
from pyrmq_core.client.routing.publish_info import broker_addresses, reading_address
from pyrmq_core.client.unpacking import in_steps, in_thread
from pyrmq_core.errors import BodyTooLarge, BrokerNotFound, InvalidArgument, RecordError, RocketMQError
from pyrmq_core.model import EVERYTHING, MessageExt, MessageQueue, PullStatus
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.messages.message_id import decode_offset_msg_id
from pyrmq_core.protocol.messages.names import check_topic
from pyrmq_core.protocol.messages.namespaces import message_without_namespace, with_namespace
from pyrmq_core.protocol.messages.payload import RawPull
from pyrmq_core.protocol.messages.readable import Readable, UnreadableRecord, iterate_readable
from pyrmq_core.protocol.messages.record import unpack_host, unpack_record
from pyrmq_core.protocol.requests.broker.offsets import GetEarliestStoreTime, StoreTimeFound
from pyrmq_core.protocol.requests.broker.query_message import MessagesFound, QueryMessage, ViewMessage
from pyrmq_core.protocol.shown_values import shown

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MAX_INT: Final = 2**31 - 1
# The most words of a key that are looked up: the longest ones, since these are likely to be in few messages.
MAX_KEY_WORDS: Final = 16
# The number of records that Java requests for a UNIQ_KEY; the broker applies its own limit.
UNIQUE_KEY_RECORDS: Final = 32
PORT_BYTES: Final = 4


# The most bytes of decompressed bodies that a look-up returns.
MAX_FOUND_BYTES: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class MessageList:
    """Messages in order of store time, and `failures`: by broker name, the errors of brokers whose messages are
    missing.

    Messages are missing if their broker did not answer, if they cannot be read, or if all bodies together were too
    large.
    """

    messages: tuple[MessageExt, ...]
    failures: Mapping[str, RocketMQError]


class MessageQueries:
    """Look-ups of stored messages over one client's connections. Arguments and results are without the `namespace`.

    Each request to a broker may take `timeout` seconds.
    """

    def __init__(self, client: ClientSession, *, timeout: float, namespace: str | None = None) -> None:
        self._client = client
        self._timeout = timeout
        self._namespace = namespace

    async def by_id(self, offset_msg_id: str, topic: str | None) -> MessageExt:
        """Returns the message at the broker and log offset in the id. Raises `ResponseError` if there is none.

        Only brokers with authorization need the `topic`.
        """
        location = decode_offset_msg_id(_text("offset_msg_id", offset_msg_id))
        address = unpack_host(location.ip + (location.port & 0xFFFFFFFF).to_bytes(PORT_BYTES))
        on_wire = None if topic is None else self._on_wire(topic)
        answer = await self._client.call(
            address, ViewMessage(location.offset, on_wire).to_command(), timeout=self._timeout
        )
        if answer.code != ResponseCode.SUCCESS:
            raise response_error(answer, RequestCode.VIEW_MESSAGE_BY_ID, address, f"message {offset_msg_id}")
        item = await in_thread(_first, bytes(answer.body), self._broker_name(address))
        if isinstance(item, UnreadableRecord):
            raise item.error
        if item is None or item.commit_log_offset != location.offset:
            raise RecordError(f"{address} answers with another message than {offset_msg_id}")
        return message_without_namespace(item, self._namespace)

    async def by_key(
        self,
        topic: str,
        key: str,
        max_num: int,
        begin: datetime | None,
        end: datetime | None,
        body_bytes: int | None = None,
    ) -> MessageList:
        """Returns the topic's messages that have the key, ordered by store time: the newest `max_num` of each broker.

        They were stored from `begin` to `end`, where None means no limit. `body_bytes` cuts bodies to that length. A
        `key` with spaces must be the whole text of a message's keys. Brokers index single words, so the key's longest
        words are looked up: several of them, since every message may have the same first word, such as `{"id":`.
        """
        whole_number("max_num", max_num, 1, MAX_INT)
        words = sorted({word for word in _text("key", key).split(" ") if word}, key=len, reverse=True)[:MAX_KEY_WORDS]
        if not words:
            raise InvalidArgument(f"key={shown(key)}: it is spaces alone, which separate the keys of a message")
        begin_ms, end_ms = _ms("begin", begin, 0), _ms("end", end, MAX_LONG)
        first = QueryMessage(self._on_wire(topic), words[0], max_num, begin_ms, end_ms, index_type="K")
        requests = [replace(first, key=word) for word in words]

        def is_wanted(message: MessageExt) -> bool:
            keys = message.keys or ""
            return keys.strip(" ") == key.strip(" ") if " " in key else key in keys.split(" ")

        return await self._everywhere(topic, requests, is_wanted, _body_bytes(body_bytes))

    async def by_unique_key(self, topic: str, unique_key: str, body_bytes: int | None = None) -> MessageList:
        key = _text("unique_key", unique_key)
        request = QueryMessage(self._on_wire(topic), key, UNIQUE_KEY_RECORDS, 0, MAX_LONG, index_type="U")
        return await self._everywhere(topic, [request], lambda message: message.msg_id == key, _body_bytes(body_bytes))

    async def earliest_store_time(self, queue: MessageQueue) -> datetime | None:
        topic = self._on_wire(queue_of(queue).topic)
        request = GetEarliestStoreTime(topic, queue.queue_id, queue.broker_name).to_command()
        answer = await self._client.ask_broker(queue, request, timeout=self._timeout, namespace=self._namespace)
        found_ms = StoreTimeFound.from_command(answer).timestamp_ms
        return None if found_ms < 0 else EPOCH + timedelta(milliseconds=found_ms)

    async def _everywhere(
        self,
        topic: str,
        requests: Sequence[QueryMessage],
        is_wanted: Callable[[MessageExt], bool],
        body_bytes: int | None,
    ) -> MessageList:
        """Sends the requests to all brokers of the topic, and returns the messages for which `is_wanted` returns True.

        `is_wanted` is needed because a broker's index has only hashes of keys. Messages are left out if they cannot be
        read, or once all bodies together exceed 256 MiB. In `failures` the broker then has the error of the first
        message left out.
        """
        check_topic(topic)
        on_wire = requests[0].topic
        route = await self._client.routes.refresh(on_wire, timeout=self._timeout)
        if route is None:
            raise self._client.routes.no_route(topic)
        brokers = broker_addresses([route])

        async def found_by(name: str) -> list[bytes] | RocketMQError:
            try:
                return [await query(name, request) for request in requests]
            except RocketMQError as error:
                return error

        async def query(name: str, request: QueryMessage) -> bytes:
            address = reading_address(brokers[name])
            if address is None:
                raise BrokerNotFound(f"broker {name} has no address in the route of {topic}", broker_name=name)
            answer = await self._client.call(address, request.to_command(), timeout=self._timeout)
            if answer.code == ResponseCode.QUERY_NOT_FOUND:
                return b""
            if answer.code != ResponseCode.SUCCESS:
                raise response_error(answer, RequestCode.QUERY_MESSAGE, f"{name} ({address})", f"topic {topic}")
            return bytes(MessagesFound.from_command(answer).records)

        answers = await query_many(brokers, found_by)
        failures = {name: answer for name, answer in answers.items() if isinstance(answer, RocketMQError)}
        if failures and len(failures) == len(brokers):
            raise next(iter(failures.values()))
        reading = _Reading(on_wire, is_wanted, self._namespace, body_bytes)
        for name, answer in answers.items():
            for records in () if isinstance(answer, RocketMQError) else answer:
                await reading.read(records, name)
        failures |= reading.failures
        mine = reading.messages
        mine.sort(key=lambda message: (message.store_timestamp_ms, message.commit_log_offset))
        return MessageList(tuple(mine), failures)

    def _broker_name(self, address: str) -> str:
        brokers = self._client.routes.brokers
        return next((broker.broker_name for broker in brokers if address in broker.broker_addrs.values()), "")

    def _on_wire(self, topic: str) -> str:
        return with_namespace(topic, self._namespace)


class _Reading:
    def __init__(
        self, topic: str, is_wanted: Callable[[MessageExt], bool], namespace: str | None, body_bytes: int | None
    ) -> None:
        self.messages: list[MessageExt] = []
        self.failures: dict[str, RocketMQError] = {}
        self._topic = topic
        self._is_wanted = is_wanted
        self._namespace = namespace
        self._body_bytes = body_bytes
        self._room = MAX_FOUND_BYTES
        self._places: set[tuple[str, int, int]] = set()

    async def read(self, records: bytes, broker_name: str) -> None:

        def keep(item: Readable) -> MessageExt | None:
            message = item.message if isinstance(item, UnreadableRecord) else item
            if message is not None and (message.topic != self._topic or not self._is_wanted(message)):
                return None
            if isinstance(item, UnreadableRecord):
                self.failures.setdefault(broker_name, item.error)
                return None
            place = (broker_name, item.queue_id, item.queue_offset)
            if place in self._places:  # another word of its keys has found the message before
                return None
            self._places.add(place)
            body = item.body[: self._body_bytes]
            if len(body) > self._room:
                self.failures.setdefault(broker_name, too_much_found(item))
                return None
            self._room -= len(body)
            return message_without_namespace(replace(item, body=body), self._namespace)

        async with aclosing(in_steps(_messages(records, broker_name), keep)) as lists:
            async for messages in lists:
                self.messages += messages


def too_much_found(message: MessageExt) -> BodyTooLarge:
    return BodyTooLarge(
        f"the bodies found are more than {MAX_FOUND_BYTES} bytes together; message {message.msg_id} and others are "
        "left out: ask for fewer by max_num or times, or for their first bytes by body_bytes",
        max_bytes=MAX_FOUND_BYTES,
    )


def _messages(records: bytes, broker_name: str) -> Iterator[Readable]:
    """Decodes stored records, which may be of several queues, into messages.

    It stops at a record of unknown length, which it yields as unreadable.
    """
    position = 0
    while position < len(records):
        try:
            raw = unpack_record(records, position)
        except RecordError as error:
            yield UnreadableRecord(error, 0)
            return
        record = records[position : position + raw.store_size]
        queue = MessageQueue("", broker_name, raw.queue_id)
        yield from iterate_readable(RawPull(queue, 0, 0, 0, 0, PullStatus.FOUND, record), EVERYTHING)
        position += raw.store_size


def _first(records: bytes, broker_name: str) -> Readable | None:
    return next(_messages(records, broker_name), None)


def _body_bytes(value: int | None) -> int | None:
    if value is not None:
        whole_number("body_bytes", value, 0)
    return value


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
