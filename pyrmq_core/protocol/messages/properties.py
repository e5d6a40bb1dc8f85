"""Message properties: their string, reserved names, rules for values, and the message type that they express.

    name 0x01 value 0x02        repeated, nothing escaped

The last 0x02 may be missing: 4.9 leaves it out. Sources: common/message/MessageDecoder.java, MessageConst.java,
MessageType.java (5.4.0), client/impl/producer/DefaultMQProducerImpl.java (sendKernelImpl),
client/impl/MQClientAPIImpl.java.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyrmq_core.errors import InvalidMessage
from pyrmq_core.model import KEPT_NAMES, NO_PROPERTIES, Message
from pyrmq_core.protocol.java.integers import MAX_INT
from pyrmq_core.protocol.shown_values import shown

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
UNIQ_KEY: Final = "UNIQ_KEY"
SHARDING_KEY: Final = "__SHARDINGKEY"
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
LITE_TOPIC: Final = "__LITE_TOPIC"
CLUSTER: Final = "CLUSTER"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
INNER_BASE: Final = "INNER_BASE"
INNER_NUM: Final = "INNER_NUM"
POP_CK: Final = "POP_CK"
# The host of a gRPC client, as the client reports it. The record's born host is then the proxy's address.
BORN_HOST: Final = "__BORNHOST"
# The time of the first pop in ms, and the group that popped. A broker adds both to the copy of an unacknowledged
# message in a retry topic.
FIRST_POP_TIME: Final = "1ST_POP_TIME"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
# A dead letter's properties with its original topic and its original message id.
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
TRAN_MSG: Final = "TRAN_MSG"
PGROUP: Final = "PGROUP"
INSTANCE_ID: Final = "INSTANCE_ID"
TRANSACTION_ID: Final = "__transactionId__"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
CHECK_IMMUNITY_TIME: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
MSG_TYPE: Final = "MSG_TYPE"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
ARRIVE_TIME: Final = "ARRIVE_TIME"

# A stored properties string has at most 32,767 bytes, since its length is a signed short. A producer sends fewer, since
# a 5.4.0 broker adds 62 bytes (MSG_REGION, CLUSTER, TRACE_ON), or more with a long cluster name.
MAX_STORED_PROPERTIES_BYTES: Final = 32_767
MAX_PROPERTIES_BYTES: Final = 32_600

MAX_DELAY_LEVEL: Final = 18
# A valid name of a lite topic (5.5). Only RocketMQ's proxy checks it. A broker accepts any name.
LITE_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
LITE_TOPIC_RULE: Final = "a lite topic's name has 1 to 64 letters, digits, hyphens and underscores"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# The most names of users' properties that are remembered after their check. Programs use few, and a check takes 0.1 us.
PLAIN_NAMES_KEPT: Final = 1_000
_PLAIN_NAMES: Final[set[str]] = set()

# Java reads an encoded surrogate as one U+FFFD, even if its last byte is missing. Python's "replace" would write one
# for each byte.
_ENCODED_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def encode_properties(properties: Mapping[str, str]) -> str:
    """Returns the properties string. It ends with a separator, as in 5.2 and later."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])


def decode_properties(text: str) -> dict[str, str]:
    """Returns the properties as Java reads them: empty names and values are dropped, the last of equal names counts."""
    properties: dict[str, str] = {}
    for pair in text.split("\x02"):
        name, _, value = pair.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


def decode_java_utf8(raw: bytes) -> str:
    """Decodes UTF-8 as Java's `new String(raw, UTF_8)` does: invalid bytes become U+FFFD and never raise."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub("\ufffd".encode(), raw).decode("utf-8", "replace")


def message_properties(
    message: Message, unique_id: str | None, system_properties: Mapping[str, str] = NO_PROPERTIES
) -> dict[str, str]:
    """Returns all properties with which a message is sent. Raises `InvalidMessage` if one of them breaks a rule.

    `unique_id` becomes UNIQ_KEY, unless it is None. `system_properties` have reserved names, which only the producer
    may set, such as those of transactions. Unlike Java's client, it allows names and values of blanks, which Java's
    parser keeps. `message_properties_string` refuses empty ones, since parsers drop them.
    """
    properties: dict[str, str] = {}
    if message.keys is not None and (keys := _joined_keys(message.keys)):
        properties[KEYS] = keys
    if unique_id is not None:
        properties[UNIQ_KEY] = unique_id
    properties[WAIT] = "true" if message.wait_store_msg_ok else "false"
    for name, text in ((TAGS, message.tags), (SHARDING_KEY, message.sharding_key)):
        if text is not None:
            if not _is_text(text):
                raise InvalidMessage(f"topic {message.topic}: {name} is {shown(text)}; it has to be text")
            properties[name] = text
    if is_delayed(message):
        name, value = _delivery(message)
        properties[name] = value
    if message.properties:
        _check_names(message)
        properties.update(message.properties)
    if message.priority is not None:
        properties[PRIORITY] = _priority(message)
    if message.lite_topic is not None:
        properties[LITE_TOPIC] = _lite_topic(message)
    if system_properties:
        properties.update(system_properties)
    return properties


def message_properties_string(
    message: Message, unique_id: str | None, system_properties: Mapping[str, str] = NO_PROPERTIES
) -> str:
    """Returns a message's properties string.

    Raises `InvalidMessage` if the string is too long, or if a name or value is empty, contains a separator or breaks
    another rule.
    """
    if unique_id is None or system_properties or (ends := plain_ends(message)) is None:
        text = _checked_string(message, message_properties(message, unique_id, system_properties))
    else:
        text = f"{ends[0]}UNIQ_KEY\x01{unique_id}\x02{ends[1]}"
    if text.isascii() and len(text) <= MAX_PROPERTIES_BYTES:
        return text
    if (size := _encoded_bytes(message, text)) > MAX_PROPERTIES_BYTES:
        raise InvalidMessage(
            f"topic {message.topic}: the properties take {size} bytes; {MAX_PROPERTIES_BYTES} at most are sent, since "
            f"a broker keeps {MAX_STORED_PROPERTIES_BYTES} with what it adds itself; move large values into the body"
        )
    return text


def properties_around_id(message: Message) -> tuple[str, str]:
    """Returns a message's properties string in two parts, between which its UNIQ_KEY is inserted later.

    Raises `InvalidMessage` if a property breaks a rule. The length of the string is not checked.
    """
    ends = plain_ends(message)
    return checked_ends(message, NO_PROPERTIES) if ends is None else ends


def checked_ends(message: Message, system_properties: Mapping[str, str]) -> tuple[str, str]:
    properties = message_properties(message, None, system_properties)
    text = _checked_string(message, properties)
    before = len(encode_properties({KEYS: properties[KEYS]})) if KEYS in properties else 0
    _encoded_bytes(message, text)  # raises for a text with a lone surrogate
    return text[:before], text[before:]


def _checked_string(message: Message, properties: Mapping[str, str]) -> str:
    text, pairs = encode_properties(properties), len(properties)
    if text.count("\x01") != pairs or text.count("\x02") != pairs or "\x01\x02" in text or "\x02\x01" in text:
        raise InvalidMessage(f"topic {message.topic}: {next(_faults(properties))}")
    return text


def plain_ends(message: Message) -> tuple[str, str] | None:
    """Returns the parts of the properties string before and after UNIQ_KEY, or None for an unusual message.

    This fast form builds no dict. It returns None for a message with a delay, a priority or a lite topic, or with an
    unprintable or invalid text. `message_properties` then has to encode it.
    """
    if message.delay_level is not None or message.deliver_at is not None or message.delay is not None:
        return None
    if message.priority is not None or message.lite_topic is not None:
        return None
    head, tail = "", "WAIT\x01true\x02" if message.wait_store_msg_ok else "WAIT\x01false\x02"
    keys: Any = message.keys
    if keys is not None:
        if keys.__class__ is not str or keys.isspace():
            keys = _joined_keys(keys)
        if not (keys and keys.isprintable()):
            return None
        head = f"KEYS\x01{keys}\x02"
    if (tags := message.tags) is not None:
        if tags.__class__ is not str or not (tags and tags.isprintable()):
            return None
        tail = f"{tail}TAGS\x01{tags}\x02"
    if (key := message.sharding_key) is not None:
        if key.__class__ is not str or not (key and key.isprintable()):
            return None
        tail = f"{tail}{SHARDING_KEY}\x01{key}\x02"
    if message.properties:
        own = _plain_string(message.properties)
        if own is None or (key is not None and SHARDING_KEY in message.properties):
            return None
        tail += own
    return head, tail


def _plain_string(properties: Any) -> str | None:
    if properties.__class__ is not dict:
        return None
    text = ""
    for name, value in properties.items():
        if name not in _PLAIN_NAMES and not _is_plain_name(name):
            return None
        if value.__class__ is not str or not (value and value.isprintable()):
            return None
        text += f"{name}\x01{value}\x02"
    return text


def _is_plain_name(name: Any) -> bool:
    if name.__class__ is not str or name in KEPT_NAMES or not (name and name.isprintable()):
        return False
    if len(_PLAIN_NAMES) < PLAIN_NAMES_KEPT:
        _PLAIN_NAMES.add(name)
    return True


def _joined_keys(keys: str | Sequence[str]) -> str:
    if isinstance(keys, str):
        if not keys.strip(" "):
            raise InvalidMessage("keys holds no word; leave it out (None) instead")
        return keys
    if not _is_a(keys, Iterable) or _is_a(keys, bytes):
        raise InvalidMessage(f"keys is {shown(keys)}; it is a text of words, or a list of texts")
    for key in keys:
        if not _is_text(key) or not key or " " in key:
            raise InvalidMessage(
                f"keys: {shown(key)} is no key; each is a text without spaces, because a space separates keys in KEYS"
            )
    return " ".join(keys)


def _delivery(message: Message) -> tuple[str, str]:
    if (message.delay_level, message.deliver_at, message.delay).count(None) != 2:
        raise InvalidMessage(
            f"topic {message.topic}: delay_level, deliver_at and delay exclude one another; give one of them"
        )
    if message.delay_level is not None:
        if not _is_whole(message.delay_level) or not 1 <= message.delay_level <= MAX_DELAY_LEVEL:
            raise InvalidMessage(
                f"topic {message.topic}: delay_level is {shown(message.delay_level)}; levels are 1 (1 s) to 18 (2 h)"
            )
        return DELAY, str(int(message.delay_level))
    if message.deliver_at is not None:
        if not _is_a(message.deliver_at, datetime):
            raise InvalidMessage(f"topic {message.topic}: deliver_at is {shown(message.deliver_at)}; it is a datetime")
        if message.deliver_at.utcoffset() is None:
            raise InvalidMessage(
                f"topic {message.topic}: deliver_at has no time zone; use datetime.now(UTC) + timedelta(...)"
            )
        return TIMER_DELIVER_MS, str((message.deliver_at - EPOCH) // timedelta(milliseconds=1))
    delay = message.delay
    if not _is_a(delay, timedelta):
        raise InvalidMessage(f"topic {message.topic}: delay is {shown(delay)}; it is a timedelta")
    if delay is None or delay <= timedelta(0):  # too long a delay (timerMaxDelaySec) is refused by the broker
        raise InvalidMessage(f"topic {message.topic}: delay is {delay}; it is more than nothing")
    return TIMER_DELAY_MS, str(max(1, delay // timedelta(milliseconds=1)))


def _priority(message: Message) -> str:
    """Returns the priority's text. Raises `InvalidMessage` for a priority that a broker would silently ignore."""
    priority = message.priority
    if not _is_whole(priority) or not 0 <= (priority or 0) <= MAX_INT:
        raise InvalidMessage(f"topic {message.topic}: priority is {shown(priority)}; it is a whole number from 0 on")
    if is_delayed(message):
        raise InvalidMessage(f"topic {message.topic}: a delayed message has no priority; give one of them")
    if _has_sharding_key(message):
        raise InvalidMessage(f"topic {message.topic}: a priority and a sharding key both choose the queue; give one")
    return str(priority)


def _lite_topic(message: Message) -> str:
    """Returns the name of the message's lite topic.

    Raises `InvalidMessage` for an invalid name, and for a message with a delay, a priority or a sharding key.
    """
    name = message.lite_topic
    if name is None or not _is_text(name) or not LITE_TOPIC_NAME.fullmatch(name):
        raise InvalidMessage(f"topic {message.topic}: lite_topic is {shown(name)}; {LITE_TOPIC_RULE}")
    if is_delayed(message) or message.priority is not None or _has_sharding_key(message):
        raise InvalidMessage(
            f"topic {message.topic}: a message of a lite topic has no delay, priority or sharding key, which make it "
            "one of another type; leave them out"
        )
    return name


def _has_sharding_key(message: Message) -> bool:
    return message.sharding_key is not None or SHARDING_KEY in message.properties


def is_delayed(message: Message) -> bool:
    return message.delay_level is not None or message.deliver_at is not None or message.delay is not None


def goes_alone(message: Message) -> bool:
    """Returns whether a message has to be sent alone: in a batch, brokers ignore its delay, priority or lite topic."""
    return message.priority is not None or message.lite_topic is not None or is_delayed(message)


def _check_names(message: Message) -> None:
    if not _is_a(message.properties, Mapping):
        raise InvalidMessage(
            f"topic {message.topic}: properties is {shown(message.properties)}; it maps names to values, all texts"
        )
    for name, value in message.properties.items():
        if not _is_text(name) or not _is_text(value):
            raise InvalidMessage(
                f"topic {message.topic}: property {shown(name)} is {shown(value)}; names and values are text"
            )
        if name in KEPT_NAMES:
            raise InvalidMessage(
                f"topic {message.topic}: {name} is a name RocketMQ keeps for itself; set it by the message's own "
                "field (keys, tags, delay_level, priority, lite_topic, ...) or choose another name"
            )
        if name == SHARDING_KEY and message.sharding_key is not None and value != message.sharding_key:
            raise InvalidMessage(f"topic {message.topic}: {SHARDING_KEY} and sharding_key differ; give one of them")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_a(value: object, kind: type) -> bool:
    return isinstance(value, kind)


def _faults(properties: Mapping[str, str]) -> Iterator[str]:
    for name, value in properties.items():
        for what, text in (("name", name), ("value", value)):
            if not text:
                yield f"property {shown(name)} has an empty {what}, which is lost on the way; leave it out"
            if "\x01" in text or "\x02" in text:
                yield (
                    f"the {what} of property {shown(name)} holds U+0001 or U+0002, which separate properties; "
                    "remove them"
                )


def _encoded_bytes(message: Message, text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidMessage(f"topic {message.topic}: a property is no valid Unicode text: {error.reason}") from error


class MessageType(enum.Enum):
    """The type of a message. The values are Java's ordinals, which trace records contain."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3
    ORDER = 4


HALF: Final = "TRAN_MSG\x01true\x02"
REPLY: Final = "MSG_TYPE\x01reply\x02"
DELAY_LEVEL: Final = "DELAY\x01"
# The properties that delay a message at brokers of 5.0 or later. Earlier brokers ignore them and deliver at once.
TIMERS: Final = ("TIMER_DELIVER_MS\x01", "TIMER_DELAY_MS\x01", "TIMER_DELAY_SEC\x01")


def message_type(properties: str) -> MessageType:
    if has_property(properties, HALF):
        return MessageType.TRANSACTION_HALF
    if has_property(properties, DELAY_LEVEL) or has_timer(properties):
        return MessageType.DELAY
    return MessageType.NORMAL


def has_timer(properties: str) -> bool:
    return "TIMER_D" in properties and any(has_property(properties, start) for start in TIMERS)


def is_reply(properties: str) -> bool:
    """Returns whether a message with these properties is a reply, which brokers push to one client and do not store."""
    return REPLY in properties and has_property(properties, REPLY)


def has_property(properties: str, start: str) -> bool:
    """Returns whether a property in a properties string begins with the text `start`."""
    position = properties.find(start)
    while position > 0 and properties[position - 1] != "\x02":
        position = properties.find(start, position + 1)
    return position >= 0
