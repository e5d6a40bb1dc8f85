"""The values that users and the library's packages share, with RocketMQ's names: messages, queues, results.

All are frozen. A time is milliseconds since 1970 if the field's name ends in `_ms`, and otherwise a `datetime` in UTC.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

# The most that a `repr` shows: bytes of a body, and characters of any other value.
SHOWN_BYTES: Final = 64
SHOWN_CHARS: Final = 1000

NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})

# MessageConst.STRING_HASH_SET: Java refuses these names for user properties.
RESERVED_NAMES: Final = frozenset(
    """
    TRACE_ON MSG_REGION KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET
    BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME UNIQ_KEY MAX_RECONSUME_TIMES
    CONSUME_START_TIME POP_CK POP_CK_OFFSET 1ST_POP_TIME TRAN_PREPARED_QUEUE_OFFSET DUP_INFO EXTEND_UNIQ_INFO
    INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE
    INNER_MULTI_QUEUE_OFFSET TIMER_DELAY_MS TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS
    TIMER_ROLL_TIMES TIMER_OUT_MS TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL __BORNHOST BORN_TIMESTAMP DLQ_ORIGIN_TOPIC
    DLQ_ORIGIN_MESSAGE_ID __CRC32# ORIGIN_GROUP
    """.split()  # noqa: SIM905 - a line a name would be 51
)
# A broker refuses a single message with these properties (code 13), although Java's client sends it.
BATCH_RECORD_NAMES: Final = frozenset(("INNER_BASE", "INNER_NUM"))
# The names that a user's property may not have. A priority or lite topic is set by its own field, which is checked.
# INNER_MULTI_DISPATCH is set by brokers of 5.5 and lists the queues of lite topics that have the message. A copy of the
# message with this property would create such queues again.
KEPT_NAMES: Final = RESERVED_NAMES | BATCH_RECORD_NAMES | {"INNER_MULTI_DISPATCH", "_SYS_MSG_PRIORITY_", "__LITE_TOPIC"}
# The names of properties that RocketMQ's clients and brokers set.
SYSTEM_NAMES: Final = KEPT_NAMES | {"TRANSACTION_CHECK_TIMES"}


@dataclass(frozen=True, slots=True, init=False)
class Message:
    """A message for a producer to send (common/message/Message.java).

    `keys` are words under which a broker's index finds the message (a string is split at spaces). `tags` is one word by
    which brokers filter. `sharding_key` keeps messages of one key in one queue, in order. `delay_level` is 1 to 18 (1 s
    to 2 h), while `deliver_at` and `delay` need a broker of 5.0 or later. `flag` is a number for the consumer, which
    RocketMQ ignores. `priority` (0 or more) is the id of the queue in which brokers of 5.4 or later store the message,
    or its last queue if the number is larger. `lite_topic` names a lite topic of `topic`, for which brokers of 5.5 with
    `enableLmq` and `enableMultiDispatch` keep a queue.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | Sequence[str] | None = None
    sharding_key: str | None = None
    properties: Mapping[str, str] = field(default_factory=lambda: NO_PROPERTIES)
    flag: int = 0
    delay_level: int | None = None
    deliver_at: datetime | None = None
    delay: timedelta | None = None
    wait_store_msg_ok: bool = True
    priority: int | None = None
    lite_topic: str | None = None

    def __repr__(self) -> str:
        return _short_repr(self)

    def __init__(
        self,
        topic: str,
        body: bytes,
        tags: str | None = None,
        keys: str | Sequence[str] | None = None,
        sharding_key: str | None = None,
        properties: Mapping[str, str] = NO_PROPERTIES,
        flag: int = 0,
        delay_level: int | None = None,
        deliver_at: datetime | None = None,
        delay: timedelta | None = None,
        wait_store_msg_ok: bool = True,
        priority: int | None = None,
        lite_topic: str | None = None,
    ) -> None:
        if self.__class__ is not Message:  # a subclass may have other slots
            first = (topic, body, tags, keys, sharding_key, properties)
            last = (flag, delay_level, deliver_at, delay, wait_store_msg_ok, priority, lite_topic)
            for name, value in zip(_MessageDraft.__slots__, first + last, strict=True):
                object.__setattr__(self, name, value)
            return
        # Assignments to a class that is not frozen take 0.47 us, where `object.__setattr__` for each field takes 1.24.
        _set_class(self, _MessageDraft)
        draft: Any = self
        draft.topic = topic
        draft.body = body
        draft.tags = tags
        draft.keys = keys
        draft.sharding_key = sharding_key
        draft.properties = properties
        draft.flag = flag
        draft.delay_level = delay_level
        draft.deliver_at = deliver_at
        draft.delay = delay
        draft.wait_store_msg_ok = wait_store_msg_ok
        draft.priority = priority
        draft.lite_topic = lite_topic
        draft.__class__ = Message


def _short_repr(message: Message | MessageExt) -> str:
    values = {field.name: getattr(message, field.name) for field in fields(message)}
    shown = ", ".join(f"{name}={_beginning(value)}" for name, value in values.items())
    return f"{type(message).__name__}({shown})"


def _beginning(value: object) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        body = bytes(value[:SHOWN_BYTES])
        return repr(body) if len(value) <= SHOWN_BYTES else f"{body!r}... ({len(value)} bytes)"
    text = repr(dict(value) if isinstance(value, Mapping) else value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}... ({len(text)} characters)"


# The setter behind `object.__setattr__(message, "__class__", ...)`, which itself takes 1.5 times as long.
_set_class = object.__dict__["__class__"].__set__


class _MessageDraft:
    __slots__ = tuple(field.name for field in fields(Message))


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic on one broker (common/message/MessageQueue.java)."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"


@dataclass(frozen=True, slots=True)
class MessageExt:
    """A message as a broker stored it (common/message/MessageExt.java).

    `msg_id` is the producer's UNIQ_KEY, or `offset_msg_id` if there is none. `body` is decompressed, `sys_flag` still
    describes the stored body. `properties` has all properties, including RocketMQ's own, as Java's `getProperties()`
    returns them. A message from a batch topic has its own queue offset, but the commit-log offset and times of its
    batch record.
    """

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    body: bytes
    properties: Mapping[str, str]
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: str
    store_timestamp_ms: int
    store_host: str
    commit_log_offset: int
    store_size: int
    body_crc: int
    reconsume_times: int
    prepared_transaction_offset: int
    msg_id: str
    offset_msg_id: str

    def __repr__(self) -> str:
        return _short_repr(self)

    @property
    def user_properties(self) -> dict[str, str]:
        """The properties that users set, including a sharding key, with which a new `Message` can be sent."""
        return {name: text for name, text in self.properties.items() if name not in SYSTEM_NAMES}

    @property
    def tags(self) -> str | None:
        """The tag of the message, or None if it has none."""
        return self.properties.get("TAGS")

    @property
    def keys(self) -> str | None:
        """The message's keys as stored, words separated by spaces, or None if it has none."""
        return self.properties.get("KEYS")

    @property
    def sharding_key(self) -> str | None:
        """The key that chose the queue, or None if the message has none."""
        return self.properties.get("__SHARDINGKEY")

    @property
    def queue(self) -> MessageQueue:
        """The message's topic, broker and queue id. A retried message has the broker and id of its retry topic."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    @property
    def born_timestamp(self) -> datetime:
        """The time at which the producer made the message, by its own clock, in UTC."""
        return datetime.fromtimestamp(self.born_timestamp_ms / 1000, UTC)

    @property
    def store_timestamp(self) -> datetime:
        """The time at which the broker stored the message, by its own clock, in UTC."""
        return datetime.fromtimestamp(self.store_timestamp_ms / 1000, UTC)


class SendStatus(enum.Enum):
    """The broker's report on a stored message: whether it was flushed to disk and copied to a slave in time.

    Source: client/producer/SendStatus.java. The value is the response code.
    """

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


@dataclass(frozen=True, slots=True)
class SendResult:
    """A broker's acknowledgement of one stored message, with its queue and offset (client/producer/SendResult.java)."""

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    message_queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region_id: str | None = None
    recall_handle: str | None = None


class LocalTransactionState(enum.IntEnum):
    """The state of a local transaction (client/producer/LocalTransactionState.java).

    The value is the number in requests. UNKNOW is RocketMQ's own spelling. After it, the broker asks for the state
    again later.
    """

    UNKNOW = 0
    COMMIT_MESSAGE = 8
    ROLLBACK_MESSAGE = 12


@dataclass(frozen=True, slots=True)
class TransactionSendResult:
    """The result of a message sent in a transaction, and the state reported to the broker.

    `result` is that of the half message. Once committed, the message has other offsets. `error` is the exception that
    the local transaction raised.
    """

    result: SendResult
    local_transaction_state: LocalTransactionState
    error: Exception | None = None


class PullStatus(enum.Enum):
    """The result of a pull (client/consumer/PullStatus.java). The value is the response code."""

    FOUND = 0
    NO_NEW_MSG = 19
    NO_MATCHED_MSG = 20
    OFFSET_ILLEGAL = 21


@dataclass(frozen=True, slots=True)
class PullResult:
    """The answer to one pull. The next pull starts at `next_offset`, even when `messages` is empty."""

    status: PullStatus
    messages: tuple[MessageExt, ...]
    next_offset: int
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The queue offsets from `start` to before `end`."""

    start: int
    end: int

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.end

    def __len__(self) -> int:
        return max(0, self.end - self.start)


EVERYTHING = OffsetRange(0, 2**63 - 1)


@dataclass(frozen=True, slots=True)
class TopicQueues:
    """A topic's queues as a NameServer reports them.

    `unreadable` queues exist, but lack the permission to read them. The brokers in `masterless` have only slaves left.
    """

    readable: tuple[MessageQueue, ...]
    unreadable: tuple[MessageQueue, ...] = ()
    masterless: frozenset[str] = frozenset()

    @property
    def all(self) -> tuple[MessageQueue, ...]:
        """All queues. Queues that may not be read come last."""
        return self.readable + self.unreadable


class ConsumeFromWhere(enum.Enum):
    """The offset at which a group starts in a queue without a stored offset (common/consumer/ConsumeFromWhere.java).

    The value is Java's name. `%RETRY%` topics start at their beginning, whatever the setting.
    """

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class MessageModel(enum.Enum):
    """The way in which a group's consumers share messages (remoting/protocol/heartbeat/MessageModel.java).

    The value is Java's name. CLUSTERING: each message goes to one consumer of the group. BROADCASTING: each goes to all
    of them.
    """

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeReturnType(enum.IntEnum):
    """The result of one call of a consumer's handler (client/consumer/listener/ConsumeReturnType.java).

    The value is Java's ordinal, which trace records contain. EXCEPTION: the handler raised an exception. FAILED: it
    returned the messages for later delivery. TIME_OUT: it took longer than the limit, whatever it returned. RETURNNULL
    exists in Java alone.
    """

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNNULL = 3
    FAILED = 4


class Permission(enum.IntFlag):
    """The permissions of a topic's queues (common/constant/PermName.java)."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A broker's settings of a topic (common/TopicConfig.java). `attributes`, such as `queue.type`, exist since 5.0."""

    topic: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = Permission.READ | Permission.WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=lambda: NO_PROPERTIES)


@dataclass(frozen=True, slots=True)
class Problem:
    """A background request that has failed at least twice in a row, and is retried.

    `work` describes the request, `error` is the last failure, `since` the time of the first failure. `is_lasting` is
    True if waiting does not help, such as when a server refuses the access key.
    """

    work: str
    error: Exception
    failures: int
    since: datetime
    is_lasting: bool

    def __str__(self) -> str:
        since = self.since.isoformat(sep=" ", timespec="seconds")
        return f"{self.work} failed {self.failures} times in a row since {since}: {self.error}"
