"""Names of topics and groups, and the rules a message must keep before it is sent.

Sources: client/Validators.java, common/topic/TopicValidator.java, common/MixAll.java (5.4.0).
"""

from __future__ import annotations

import re
from collections.abc import Sized
from typing import Final

from pyrmq_core.errors import InvalidArgument, InvalidMessage
from pyrmq_core.model import Message
from pyrmq_core.protocol.shown_values import shown

MAX_TOPIC_CHARS: Final = 127
MAX_GROUP_CHARS: Final = 255
# `maxMessageSize` of brokers and producers, by default.
MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024

# Java's int.
MIN_INT: Final = -(2**31)
MAX_INT: Final = 2**31 - 1

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
SYSTEM_PREFIX: Final = "rmq_sys_"
# Brokers read the addresses under their name from the routes of these topics, which name no acting master.
MEMBER_GROUP_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
# A cluster's replies are sent to the topic `<cluster>_REPLY_TOPIC`.
REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"
# The topic whose settings a broker copies when it creates a topic by itself.
AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
# Topics of half messages: the waiting ones, the queue offsets of ended ones, and those checked too often.
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
# The group whose committed offsets are the broker's progress in the first two.
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"

# A broker refuses a message for one of these with code 16 (NO_PERMISSION).
FORBIDDEN_TOPICS: Final = frozenset(
    (
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    )
)
SYSTEM_TOPICS: Final = FORBIDDEN_TOPICS | {
    AUTO_CREATE_TOPIC,
    "BenchmarkTest",
    "RMQ_SYS_TRACE_TOPIC",
    "CHECKPOINT_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
}
# Java's tools read under this group, which every broker has: reading by a group of another name creates that group.
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
# The groups that every broker has (broker/subscription/SubscriptionGroupManager.java).
SYSTEM_GROUPS: Final = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)
# Java's placeholders for a missing group name.
PLACEHOLDER_GROUPS: Final = frozenset(("DEFAULT_PRODUCER", "DEFAULT_CONSUMER"))

# Topics already found valid, so that each is checked once and not with every message.
CHECKED_TOPICS_KEPT: Final = 10_000
_CHECKED_TOPICS: Final[set[str]] = set()

_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_NAME_RULE: Final = "letters, digits and % | _ - are allowed"


def is_system_topic(topic: str) -> bool:
    """Returns whether the topic is RocketMQ's own; topics named after clusters and brokers are not recognised."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def is_system_group(group: str) -> bool:
    """Checks whether the group is RocketMQ's own, also as tools of a tenant name it: `NS%TOOLS_CONSUMER`."""
    return group.rpartition("%")[2] in SYSTEM_GROUPS


def is_retry_topic(topic: str) -> bool:
    """Checks whether the topic is a group's retry topic."""
    return topic.startswith(RETRY_PREFIX)


def is_dead_letter_topic(topic: str) -> bool:
    """Checks whether the topic is a group's dead-letter topic."""
    return topic.startswith(DLQ_PREFIX)


def check_topic(topic: str) -> None:
    """Raises `InvalidArgument` unless a topic may have this name."""
    _check_name("topic", topic, MAX_TOPIC_CHARS, InvalidArgument)


def check_group(group: str) -> None:
    """Raises `InvalidArgument` unless a producer or consumer group may have this name."""
    _check_name("group", group, MAX_GROUP_CHARS, InvalidArgument)
    if group in PLACEHOLDER_GROUPS:
        raise InvalidArgument(f"group {group} stands for a missing name in RocketMQ; choose another one")


def check_address(address: str) -> None:
    """Raises `InvalidArgument` unless a server may have this address: a host and a port, joined by a colon."""
    host, _, port = address.rpartition(":")
    if not host or len(port) > 5 or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise InvalidArgument(f"the address {address[:80]!r} is not host:port with a port from 0 to 65535")


def check_message(message: Message, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
    """Raises `InvalidMessage` for a topic, body or flag that RocketMQ refuses; properties are checked when encoded.

    Compares classes by identity before it calls `isinstance`: it runs for every message.
    """
    if message.__class__ is not Message and not _is_message(message):
        raise InvalidMessage(f"what is sent is {_kind(message)}, and no Message; write Message(topic, body)")
    topic, body = message.topic, message.body
    if topic.__class__ is not str or topic not in _CHECKED_TOPICS:
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


def check_sent_topic(topic: str) -> None:
    """Raises `InvalidMessage` for a topic to which nothing may be sent."""
    _check_name("topic", topic, MAX_TOPIC_CHARS, InvalidMessage)
    if topic in FORBIDDEN_TOPICS:
        raise InvalidMessage(f"topic {topic} is RocketMQ's own; nothing may be sent to it")
    if len(_CHECKED_TOPICS) < CHECKED_TOPICS_KEPT:
        _CHECKED_TOPICS.add(topic)


def _is_message(message: object) -> bool:
    return isinstance(message, Message)


def _kind(value: object) -> str:
    """Returns the type of an object that was sent instead of a message, but not its content, which may be the body."""
    size = f" of {len(value)}" if isinstance(value, Sized) else ""
    return f"a {type(value).__name__}{size}"


def _is_bytes(body: object) -> bool:
    return isinstance(body, bytes)


def _check_name(kind: str, name: object, max_chars: int, error: type[InvalidArgument]) -> None:
    if not isinstance(name, str) or not name.strip():
        raise error(f"the {kind} is {shown(name)}; a {kind} needs a name")
    if len(name) > max_chars:
        raise error(f"{kind} {name[:32]}... has {len(name)} characters; {max_chars} at most")
    if not _NAME.fullmatch(name):
        raise error(f"{kind} {name!r} holds characters that RocketMQ does not take; {_NAME_RULE}")
