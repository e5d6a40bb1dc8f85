"""Names of topics and groups, and the rules for them.

Sources: client/Validators.java, common/topic/TopicValidator.java, common/MixAll.java (5.4.0).
"""

from __future__ import annotations

import re
from typing import Final

from pyrmq_core.errors import InvalidArgument, InvalidMessage
from pyrmq_core.protocol.shown_values import shown

MAX_TOPIC_CHARS: Final = 127
MAX_GROUP_CHARS: Final = 255
# The default limit of a message's size at brokers and producers (`maxMessageSize`).
MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
# The queue of a lite topic of 5.5 is addressed as a topic with this prefix.
LMQ_PREFIX: Final = "%LMQ%$"
# The separators of group and topic in the name of a pop consumer's retry topic, in its older and its newer form.
POP_RETRY_SEPARATORS: Final = ("_", "+")
SYSTEM_PREFIX: Final = "rmq_sys_"
# The prefix of the topic that has a cluster's records of pops and acknowledgements.
REVIVE_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
# The prefix of a topic for each broker name. In its route, a master and its slaves find each other's addresses.
MEMBER_GROUP_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
# A cluster's replies are sent to the topic `<cluster>_REPLY_TOPIC`.
REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"
# The topic whose settings a broker copies when it creates a topic on the first send to it.
AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
# Topics of transactions: half messages, the queue offsets of half messages whose transactions have ended, and half
# messages that were checked too often.
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
# The group whose committed offsets are the broker's own progress in HALF_TOPIC and OP_HALF_TOPIC.
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"

# A broker refuses a message for any of these topics with code 16 (NO_PERMISSION).
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
# The group of Java's tools. Every broker has it, so reading with it does not create a group.
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
# The names that Java's clients use if no group name is set.
PLACEHOLDER_GROUPS: Final = frozenset(("DEFAULT_PRODUCER", "DEFAULT_CONSUMER"))

# The most topics that are remembered after they passed `check_sent_topic`, so that later messages skip the check.
SENDABLE_TOPICS_KEPT: Final = 10_000
SENDABLE_TOPICS: Final[set[str]] = set()

_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_NAME_RULE: Final = "letters, digits and % | _ - are allowed"


def is_system_topic(topic: str) -> bool:
    """Returns whether the topic is RocketMQ's own. Topics named after clusters and brokers are not recognized."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def is_system_group(group: str) -> bool:
    """Returns whether the group is RocketMQ's own. Its name may begin with a namespace, as in `NS%TOOLS_CONSUMER`."""
    return group.rpartition("%")[2] in SYSTEM_GROUPS


def is_tools_group(group: str) -> bool:
    return group.rpartition("%")[2] == TOOLS_GROUP


def is_retry_topic(topic: str) -> bool:
    """Returns whether the topic is a group's retry topic."""
    return topic.startswith(RETRY_PREFIX)


def is_dead_letter_topic(topic: str) -> bool:
    """Returns whether the topic is a group's dead-letter topic."""
    return topic.startswith(DLQ_PREFIX)


def popped_topic(topic: str, group: str) -> str:
    """Returns the topic that a group pops, given that topic or the group's retry topic for it."""
    for separator in POP_RETRY_SEPARATORS:
        if topic.startswith(prefix := f"{RETRY_PREFIX}{group}{separator}"):
            return topic.removeprefix(prefix)
    return topic


def is_lite_queue(topic: str) -> bool:
    """Returns whether a topic's name stands for a lite topic's queue (`%LMQ%...`)."""
    return topic.startswith(LMQ_PREFIX)


def owner_topic(topic: str) -> str:
    """Returns the parent topic if `topic` is the queue of a lite topic, else `topic` itself."""
    return topic.removeprefix(LMQ_PREFIX).partition("$")[0] if topic.startswith(LMQ_PREFIX) else topic


def check_topic(topic: str) -> None:
    """Raises `InvalidArgument` for a name that no topic may have."""
    _check_name("topic", topic, MAX_TOPIC_CHARS, InvalidArgument)


def check_group(group: str) -> None:
    _check_name("group", group, MAX_GROUP_CHARS, InvalidArgument)
    if group in PLACEHOLDER_GROUPS:
        raise InvalidArgument(f"group {group} stands for a missing name in RocketMQ; choose another one")


def check_address(address: str) -> None:
    """Raises `InvalidArgument` for an address that is not `host:port`."""
    host, _, port = address.rpartition(":")
    if not host or len(port) > 5 or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise InvalidArgument(f"the address {address[:80]!r} is not host:port with a port from 0 to 65535")


def check_sent_topic(topic: str) -> None:
    _check_name("topic", topic, MAX_TOPIC_CHARS, InvalidMessage)
    if topic in FORBIDDEN_TOPICS:
        raise InvalidMessage(f"topic {topic} is RocketMQ's own; nothing may be sent to it")
    if len(SENDABLE_TOPICS) < SENDABLE_TOPICS_KEPT:
        SENDABLE_TOPICS.add(topic)


def _check_name(kind: str, name: object, max_chars: int, error: type[InvalidArgument]) -> None:
    if not isinstance(name, str) or not name.strip():
        raise error(f"the {kind} is {shown(name)}; a {kind} needs a name")
    if len(name) > max_chars:
        raise error(f"{kind} {name[:32]}... has {len(name)} characters; {max_chars} at most")
    if not _NAME.fullmatch(name):
        raise error(f"{kind} {name!r} holds characters that RocketMQ does not take; {_NAME_RULE}")
