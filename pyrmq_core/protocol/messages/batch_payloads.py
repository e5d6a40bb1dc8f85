"""The division of messages into batches, one for each send request.

The properties of a message are encoded before its id (UNIQ_KEY) exists, as the text before the id and the text after
it. Compressed and uncompressed bodies never share a request: it has one sysFlag, which a broker stores with each of its
messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pyrmq_core.errors import InvalidArgument, InvalidMessage
from pyrmq_core.model import Message
from pyrmq_core.protocol.messages.batch import OVERHEAD_BYTES, encode_batch_body
from pyrmq_core.protocol.messages.compression import CompressionType, compress
from pyrmq_core.protocol.messages.names import MAX_MESSAGE_BYTES, is_retry_topic
from pyrmq_core.protocol.messages.payload import WAITS_NOT, Payload, check_message
from pyrmq_core.protocol.messages.properties import is_delayed, message_properties_string, properties_around_id

EMPTY_BATCH: Final = "a batch holds at least one message"
# Properties with at most this many characters always fit into a message, together with its id.
SHORT_CHARS: Final = 8_000
# A placeholder with the length of an id, since messages get their ids only when they are sent.
UNIQUE_ID: Final = "0" * 32


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """Messages that may share a batch: they have the same topic and the same `wait_store_msg_ok`.

    `ends` has two texts for each message: its encoded properties before UNIQ_KEY, and those after it.
    """

    messages: tuple[Message, ...]
    ends: Sequence[tuple[str, str]]

    def part(self, indices: Sequence[int]) -> CheckedBatch:
        return CheckedBatch(tuple([self.messages[index] for index in indices]), [self.ends[index] for index in indices])


def checked_batch(messages: Sequence[Message], max_message_bytes: int = MAX_MESSAGE_BYTES) -> CheckedBatch:
    """Returns messages with their encoded properties, after checking that they may share a batch.

    Raises `InvalidMessage` if they may not, or if there are none. `max_message_bytes` limits each body. The size of
    the batch is not checked.
    """
    batch = tuple(messages)
    for message in batch:
        check_message(message, max_message_bytes)
    if not batch:
        raise InvalidMessage(EMPTY_BATCH)
    check_batch(batch)
    return CheckedBatch(batch, [checked_ends(message) for message in batch])


def checked_ends(message: Message) -> tuple[str, str]:
    ends = before, after = properties_around_id(message)
    if len(before) + len(after) > SHORT_CHARS:
        message_properties_string(message, UNIQUE_ID)
    return ends


def check_batch(messages: Sequence[Message]) -> None:
    head = messages[0]
    if is_retry_topic(head.topic):
        raise InvalidMessage(f"topic {head.topic}: retry topics take no batches; send one message at a time")
    topic, waits = head.topic, head.wait_store_msg_ok
    for index, message in enumerate(messages):
        if message.topic != topic:
            raise InvalidMessage(
                f"a batch has one topic; message {index} is for {message.topic}, the first for {topic}"
            )
        if message.wait_store_msg_ok != waits:
            raise InvalidMessage(f"a batch has one wait_store_msg_ok; message {index} of {topic} differs")
        if is_delayed(message):
            raise InvalidMessage(f"a batch cannot be delayed; message {index} of {topic} is: send it alone")
        if message.priority is not None:
            raise InvalidMessage(
                f"brokers ignore a priority in a batch; message {index} of {topic} has one: send it alone"
            )
        if message.lite_topic is not None:
            raise InvalidMessage(f"no lite topic gets messages of a batch; send message {index} of {topic} alone")


def encode_batch(
    messages: Sequence[Message],
    unique_ids: Sequence[str],
    *,
    compression: CompressionType | None = None,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
) -> Payload:
    """Returns messages of one topic as one request, which a broker accepts or refuses as a unit.

    Raises `InvalidMessage` for messages that a batch cannot hold (MessageBatch.java): different topics or wait flags,
    delays, retry topics, more than `max_message_bytes` together. With `compression` every body is compressed. The
    request's own properties have no UNIQ_KEY, since brokers before 5.4 would show it as the id of every message.
    """
    payloads = list(split_batch(messages, unique_ids, compression=compression, max_message_bytes=max_message_bytes))
    if len(payloads) != 1:
        size = sum(len(payload.body) for payload in payloads)
        raise InvalidMessage(
            f"topic {messages[0].topic}: a batch of {len(messages)} messages takes {size} bytes; {max_message_bytes} "
            "at most (max_message_bytes); send it in parts"
        )
    return payloads[0]


def split_batch(
    messages: Sequence[Message],
    unique_ids: Sequence[str],
    *,
    compression: CompressionType | None = None,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    request_bytes: int | None = None,
    request_messages: int | None = None,
    split_by_tag: bool = False,
) -> Iterator[Payload]:
    """Yields requests with the messages in order, each with at most `request_bytes` and `request_messages`.

    `request_bytes` is `max_message_bytes` by default. Each request is filled before the next one begins. A message
    above `request_bytes` is sent alone. With `split_by_tag` a new request also begins at each change of the tag. With
    `compression` every body is compressed. Raises `InvalidMessage` as `encode_batch` does, and `InvalidArgument` unless
    each message has an id.
    """
    if len(messages) != len(unique_ids):
        raise InvalidArgument(f"{len(messages)} messages and {len(unique_ids)} ids; each message has one")
    yield from split_checked(
        checked_batch(messages, max_message_bytes),
        unique_ids,
        compression=compression,
        max_message_bytes=max_message_bytes,
        request_bytes=request_bytes,
        request_messages=request_messages,
        split_by_tag=split_by_tag,
    )


def split_checked(
    batch: CheckedBatch,
    unique_ids: Sequence[str],
    *,
    compression: CompressionType | None = None,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    request_bytes: int | None = None,
    request_messages: int | None = None,
    split_by_tag: bool = False,
) -> Iterator[Payload]:
    room = max_message_bytes if request_bytes is None else min(request_bytes, max_message_bytes)
    messages = batch.messages
    items: list[tuple[int, bytes, bytes]] = []
    first = size = 0
    for index, (message, (before, after), unique_id) in enumerate(zip(messages, batch.ends, unique_ids, strict=True)):
        body = message.body if compression is None else compress(message.body, compression)
        properties = f"{before}UNIQ_KEY\x01{unique_id}\x02{after}".encode()
        item_bytes = OVERHEAD_BYTES + len(body) + len(properties)
        if item_bytes > max_message_bytes:
            raise _too_large(message, item_bytes, max_message_bytes)
        full = size + item_bytes > room or len(items) == request_messages
        if items and (full or (split_by_tag and message.tags != messages[first].tags)):
            yield _batch_payload(messages[first:index], items, unique_ids[first:index], compression)
            items, first, size = [], index, 0
        items.append((message.flag, body, properties))
        size += item_bytes
    yield _batch_payload(messages[first:], items, unique_ids[first:], compression)


def _too_large(message: Message, item_bytes: int, max_message_bytes: int) -> InvalidMessage:
    return InvalidMessage(
        f"topic {message.topic}: a message of {item_bytes} bytes does not fit into a batch; "
        f"{max_message_bytes} at most (max_message_bytes); send it alone"
    )


def _batch_payload(
    messages: Sequence[Message],
    items: Sequence[tuple[int, bytes, bytes]],
    unique_ids: Sequence[str],
    compression: CompressionType | None,
) -> Payload:
    head = messages[0]
    return Payload(
        topic=head.topic,
        body=encode_batch_body(items),
        count=len(items),
        properties="" if head.wait_store_msg_ok else WAITS_NOT,
        sys_flag=0 if compression is None else compression.sys_flag,
        batch=True,
        unique_ids=tuple(unique_ids),
        single_tag=len({message.tags for message in messages}) == 1,
    )
