"""The encoding of a message into the content of a send request, and the decoding of a pull's records into messages.

`Payload` is the content of one send request, and `RawPull` the answer to one pull. `check_message` checks a message
before it is sent, by the rules of client/Validators.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, TypeGuard

from pyrmq_core.errors import BodyDamaged, BodyError, BodyTooLarge, InvalidMessage, RecordError
from pyrmq_core.model import (
    EVERYTHING,
    NO_PROPERTIES,
    Message,
    MessageExt,
    MessageQueue,
    OffsetRange,
    PullStatus,
)
from pyrmq_core.protocol.framing.fast_dataclass import maker_of
from pyrmq_core.protocol.java.integers import MAX_INT, MIN_INT
from pyrmq_core.protocol.messages.batch import iterate_batch_body
from pyrmq_core.protocol.messages.bodies import (
    MAX_BODY_BYTES,
    MAX_DECOMPRESSED_BYTES,
    BodyRules,
    decompressed_body,
    too_much,
)
from pyrmq_core.protocol.messages.completeness import check_complete
from pyrmq_core.protocol.messages.compression import CompressionType, compress
from pyrmq_core.protocol.messages.names import (
    DLQ_PREFIX,
    MAX_MESSAGE_BYTES,
    RETRY_PREFIX,
    SENDABLE_TOPICS,
    check_sent_topic,
)
from pyrmq_core.protocol.messages.namespaces import message_without_namespace
from pyrmq_core.protocol.messages.properties import (
    ORIGIN_MESSAGE_ID,
    WAIT,
    decode_java_utf8,
    decode_properties,
    encode_properties,
    message_properties_string,
)
from pyrmq_core.protocol.messages.record import RawRecord, batch_base, unpack_record
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD
from pyrmq_core.protocol.messages.unread_message import UnreadMessage, add_plain_messages, unread_message
from pyrmq_core.protocol.shown_values import shown

# By default bodies of at least this size are compressed (`compressMsgBodyOverHowmuch` of Java's producer).
COMPRESS_OVER_BYTES: Final = 4096
# Topics with these prefixes never contain a valid batch record, since no broker accepts batches for them.
NO_BATCHES: Final = (RETRY_PREFIX, DLQ_PREFIX)
WAITS_NOT: Final = encode_properties({WAIT: "false"})


@dataclass(frozen=True, slots=True)
class Payload:
    """The content of one send request.

    It holds `count` messages of one topic. `properties` is the request's own properties string (header field `i`).
    `unique_ids` are the UNIQ_KEYs of the messages, in their order, or None if the messages have none. In a batch,
    `single_tag` is True if all messages have the same tag or none: a batch topic may then store them as one record
    (`batch_topic.py`).
    """

    topic: str
    body: bytes | memoryview
    count: int
    properties: str
    sys_flag: int = 0
    flag: int = 0
    batch: bool = False
    unique_ids: Sequence[str] | None = None
    single_tag: bool = False


# A fast constructor (`fast_dataclass`), called for every message that is sent alone.
make_payload: Final = maker_of(Payload)


@dataclass(frozen=True, slots=True)
class RawPull:
    """The answer to one pull before decoding: stored records of `queue`, from offset `start` or a little before it.

    `passes` is a filter that `decode` applies to the properties of each message, since a broker cannot filter the
    messages inside a batch record. `is_unfiltered` says that every message was requested: `decode` then raises
    `DataLost` for an offset from `start` to `next_offset` without a message. `address` is the broker's address.
    `namespace`, if set, is removed from the topics of `queue` and of the decoded messages.
    """

    queue: MessageQueue
    start: int
    next_offset: int
    min_offset: int
    max_offset: int
    status: PullStatus
    records: bytes | memoryview = b""
    passes: Callable[[Mapping[str, str]], bool] | None = field(default=None, compare=False)
    is_unfiltered: bool = field(default=False, compare=False)
    address: str = field(default="", compare=False)
    namespace: str | None = None

    def own(self, within: OffsetRange) -> OffsetRange:
        """Returns the part of the range `within` that this pull covers, from `start` to `next_offset`.

        A batch record in the answer may also have messages outside this part, which belong to other pulls.
        """
        return OffsetRange(max(self.start, within.start), min(self.next_offset, within.end))

    @property
    def reaches_back_to(self) -> int:
        """The first offset in the records, which is below `start` if `start` is inside a batch record."""
        base = batch_base(self.records)
        return self.start if base is None else min(base, self.start)

    @property
    def is_batched(self) -> bool:
        """True if the first record is a batch record, which only a batch topic has."""
        return batch_base(self.records) is not None


# A fast constructor (`fast_dataclass`), called for every answer to a pull.
make_raw_pull: Final = maker_of(RawPull)


def check_message(message: Message, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
    """Raises `InvalidMessage` for a topic, body or flag that RocketMQ refuses.

    Properties are checked when they are encoded.
    """
    # Comparing classes costs less than `isinstance`, and this runs for every message.
    if message.__class__ is not Message and not _is_message(message):
        raise InvalidMessage(f"what is sent is {_kind(message)}, and no Message; write Message(topic, body)")
    topic, body = message.topic, message.body
    if topic.__class__ is not str or topic not in SENDABLE_TOPICS:
        check_sent_topic(topic)
    if body.__class__ is not bytes and not _is_bytes(body):
        raise InvalidMessage(f"topic {topic}: the body is {type(body).__name__}; it has to be bytes (text.encode())")
    if not body:
        raise InvalidMessage(f"topic {topic}: the body is empty; brokers refuse empty bodies")
    if len(body) > max_message_bytes:
        raise InvalidMessage(
            f"topic {topic}: the body has {len(body)} bytes; {max_message_bytes} at most (max_message_bytes, and the "
            "broker's maxMessageSize)"
        )
    flag, waits = message.flag, message.wait_store_msg_ok
    if flag.__class__ is not int or (flag and not MIN_INT <= flag <= MAX_INT):
        raise InvalidMessage(f"topic {topic}: flag is {shown(flag)}; it is a whole number of 32 bits")
    if waits is not True and waits is not False:
        raise InvalidMessage(f"topic {topic}: wait_store_msg_ok is {shown(waits)}; it is True or False")


def encode_one(
    message: Message,
    unique_id: str,
    compress_over_bytes: int = COMPRESS_OVER_BYTES,
    compression: CompressionType | None = CompressionType.ZLIB,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    system_properties: Mapping[str, str] = NO_PROPERTIES,
) -> Payload:
    """Returns the payload of one message, whose UNIQ_KEY is `unique_id`, after checking the message.

    A body of `compress_over_bytes` or more is compressed, unless `compression` is None. `max_message_bytes` limits the
    uncompressed body, as in Java. `system_properties` have reserved names, which only the producer may set. Raises
    `InvalidMessage`, whose text names the rule that the message breaks.
    """
    check_message(message, max_message_bytes)
    properties = message_properties_string(message, unique_id, system_properties)
    body, sys_flag = message.body, 0
    if compression is not None and len(body) >= compress_over_bytes:
        body, sys_flag = compress(body, compression), compression.sys_flag
    return make_payload(message.topic, body, 1, properties, sys_flag, message.flag, False, (unique_id,), False)


def decode(
    pull: RawPull,
    within: OffsetRange = EVERYTHING,
    *,
    keep_undecodable: bool = False,
    verify_crc: bool = True,
    max_body_bytes: int = MAX_BODY_BYTES,
    allow_gaps: bool = False,
) -> list[MessageExt]:
    """Returns the messages of a pull whose offsets lie within `within`, in offset order.

    Bodies are compared with their CRC and decompressed, and a batch record becomes its messages. With
    `keep_undecodable` a body that cannot be decompressed is returned as it is stored.

    Raises `RecordError`, with queue and offset, for a record that cannot be read: `BodyDamaged` for a wrong CRC,
    `BodyTooLarge` for a body beyond `max_body_bytes`, or bodies beyond 256 MiB together. Unless `allow_gaps`, raises
    `DataLost` if an offset of an unfiltered pull has no message.
    """
    rules = BodyRules(verify_crc, keep_undecodable, max_body_bytes)
    messages, left_out = messages_of(pull, within, rules, allow_gaps=allow_gaps)
    if left_out is not None:
        raise too_much(pull.queue, left_out)
    return messages


def single_message(record: bytes, broker_name: str, what: str) -> MessageExt:
    """Returns the message of a stored record, which has to contain exactly one.

    Raises `RecordError` for an unreadable record, or if it contains no message or several (`what` begins this error).
    """
    queue = MessageQueue("", broker_name, unpack_record(record, 0).queue_id)
    messages = decode(RawPull(queue, 0, 0, 0, 0, PullStatus.FOUND, record))
    if len(messages) != 1:
        raise RecordError(f"{what} holds {len(messages)} messages instead of one")
    return messages[0]


def messages_of(
    pull: RawPull, within: OffsetRange, rules: BodyRules, *, allow_gaps: bool = False
) -> tuple[list[MessageExt], int | None]:
    """Returns the messages of a pull at offsets within `within`, at most 256 MiB of bodies together.

    The second value is the offset of the first message that is left out, or None if all are returned.
    """
    items = _stored_items(pull, within, rules, allow_gaps=allow_gaps)
    if _are_read(items) and pull.passes is None and pull.namespace is None:
        return items, None
    messages: list[MessageExt] = []
    plain_bytes = 0
    for message in _read_items(pull, items, rules):
        plain_bytes += len(message.body)
        if plain_bytes > MAX_DECOMPRESSED_BYTES and messages:
            return messages, message.queue_offset
        messages.append(message)
    return messages, None


def iterate_messages(
    pull: RawPull, within: OffsetRange, rules: BodyRules, *, allow_gaps: bool = False
) -> Iterator[MessageExt]:
    yield from _read_items(pull, _stored_items(pull, within, rules, allow_gaps=allow_gaps), rules)


def _is_message(message: object) -> bool:
    return isinstance(message, Message)


def _kind(value: object) -> str:
    size = f" of {len(value)}" if isinstance(value, Sized) else ""
    return f"a {type(value).__name__}{size}"


def _is_bytes(body: object) -> bool:
    return isinstance(body, bytes)


def _read_items(pull: RawPull, items: Iterable[_Stored], rules: BodyRules) -> Iterator[MessageExt]:
    yield from messages_passing(pull, _unpacked(pull, items, rules))


def _unpacked(pull: RawPull, items: Iterable[_Stored], rules: BodyRules) -> Iterator[MessageExt]:
    topic_bytes, topic = b"", ""
    with _errors_with_place(pull):
        for item in items:
            if isinstance(item, MessageExt):
                yield item
                continue
            raw, offset, body, properties, flag = item
            unpacked = decompressed_body(raw, rules, pull.queue, pull.address) if body is None else body
            if raw.topic != topic_bytes:
                topic_bytes, topic = raw.topic, decode_java_utf8(raw.topic)
            yield unread_message(pull.queue, topic, raw, offset, unpacked, properties, flag)
            del unpacked  # frees the body before the next one is unpacked


def messages_passing(pull: RawPull, messages: Iterable[MessageExt]) -> Iterator[MessageExt]:
    for message in messages:
        if pull.passes is None or pull.passes(message.properties):
            yield message if pull.namespace is None else message_without_namespace(message, pull.namespace)
        del message


# A record, and the offset, body, properties and flag of a message in it. The body is None for a message that has the
# record's body.
_Item = tuple[RawRecord, int, bytes | None, bytes, int]
_Stored = MessageExt | _Item


def _are_read(items: list[_Stored]) -> TypeGuard[list[MessageExt]]:
    return {*map(type, items)} <= {UnreadMessage}


def _stored_items(pull: RawPull, within: OffsetRange, rules: BodyRules, *, allow_gaps: bool) -> list[_Stored]:
    items: list[_Stored] = []
    records, position = bytes(pull.records), 0
    start, stop = within.start, within.end
    plain_bytes = 0
    with _errors_with_place(pull):
        while True:
            position = add_plain_messages(items, records, position, pull.queue, start, stop, crc=rules.verify_crc)
            if position >= len(records):
                break
            raw = unpack_record(records, position)
            position += raw.store_size
            if raw.sys_flag & BATCH_RECORD == BATCH_RECORD:
                if pull.queue.topic.startswith(NO_BATCHES):
                    raise _no_message(raw)
                body = decompressed_body(
                    raw, replace(rules, keep_undecodable=False, keep_compressed=False), pull.queue, pull.address
                )
                plain_bytes += len(body)
                if plain_bytes > MAX_DECOMPRESSED_BYTES:
                    raise too_much(pull.queue, raw.queue_offset)
                items += _unwrapped(raw, body, start, stop)
            elif start <= raw.queue_offset < stop:
                items.append((raw, raw.queue_offset, None, raw.properties, raw.flag))
    if pull.is_unfiltered:
        own, offsets = pull.own(within), [item[1] if isinstance(item, tuple) else item.queue_offset for item in items]
        if offsets and not (own.start <= min(offsets) and max(offsets) < own.end):  # a batch reaches beyond the range
            offsets = [offset for offset in offsets if own.start <= offset < own.end]
        check_complete(pull.queue, offsets, own, allow_gaps=allow_gaps)
    return items


@contextmanager
def _errors_with_place(pull: RawPull) -> Iterator[None]:
    try:
        yield
    except (BodyDamaged, BodyTooLarge):
        raise
    except RecordError as error:
        raise RecordError(f"{pull.queue}, pulled from offset {pull.start}: {error}") from error


def _no_message(raw: RawRecord) -> RecordError:
    origin = decode_properties(decode_java_utf8(raw.properties)).get(ORIGIN_MESSAGE_ID, "not named")
    return RecordError(
        f"the record at offset {raw.queue_offset} is a whole batch, which earlier brokers took back in place of one "
        f"message; the record of its topic is {origin} (offset_msg_id)"
    )


def _unwrapped(raw: RawRecord, body: bytes, start: int, stop: int) -> Iterator[_Item]:
    try:
        for offset, item in enumerate(iterate_batch_body(body), raw.queue_offset):
            if start <= offset < stop:
                yield raw, offset, bytes(item.body), item.properties, item.flag
    except BodyError as error:
        raise RecordError(f"the batch record at offset {raw.queue_offset}: {error}") from error
