"""GET_CONSUMER_RUNNING_INFO (307): a consumer's settings, queues and rates, for `mqadmin consumerStatus`.

An administrator sends it to a broker, which passes it on to the client `clientId`. With `jstackEnable`, the answer's
`jstack` has the stacks of all threads. 4.9 has neither `mqPopTable`, the queues of a pop consumer, nor
`userConsumerInfo`. Sources:
remoting/protocol/header/GetConsumerRunningInfoRequestHeader.java, remoting/protocol/body/ConsumerRunningInfo.java,
ProcessQueueInfo.java, PopProcessQueueInfo.java, ConsumeStatus.java, client/impl/factory/MQClientInstance.java
(consumerRunningInfo), 5.4.0 and 4.9.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

from pyrmq_core.errors import BodyError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.fields import wire
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.java.integers import int_member, long_member
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.java.members import flag_member, float_member, from_members, member, text_member, to_members
from pyrmq_core.protocol.java.object_keys import dump_object, load_object_keys
from pyrmq_core.protocol.messages.queue_tables import dump_queue_table, queue_table_from
from pyrmq_core.protocol.requests.broker.heartbeat import SubscriptionData

# Names that Java gives to entries of `properties`. The other entries are the consumer's settings.
PROP_NAMESERVER_ADDR: Final = "PROP_NAMESERVER_ADDR"
PROP_THREADPOOL_CORE_SIZE: Final = "PROP_THREADPOOL_CORE_SIZE"
PROP_CONSUME_ORDERLY: Final = "PROP_CONSUMEORDERLY"
PROP_CONSUME_TYPE: Final = "PROP_CONSUME_TYPE"
PROP_CLIENT_VERSION: Final = "PROP_CLIENT_VERSION"
PROP_CONSUMER_START_TIMESTAMP: Final = "PROP_CONSUMER_START_TIMESTAMP"


@dataclass(frozen=True, slots=True)
class GetConsumerRunningInfo(HeaderRequest):
    """A request for the state of one consumer. With `jstack_enable` the answer has the stacks of its threads, too."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_CONSUMER_RUNNING_INFO
    consumer_group: str = wire("consumerGroup")
    client_id: str = wire("clientId")
    jstack_enable: bool = wire("jstackEnable", False)


@dataclass(frozen=True, slots=True)
class ProcessQueueInfo:
    """A push consumer's state of one queue: committed offset, messages in the consumer's memory, and lock."""

    commit_offset: int = member("commitOffset", 0, long_member)
    cached_msg_min_offset: int = member("cachedMsgMinOffset", 0, long_member)
    cached_msg_max_offset: int = member("cachedMsgMaxOffset", 0, long_member)
    cached_msg_count: int = member("cachedMsgCount", 0, int_member)
    cached_msg_size_mib: int = member("cachedMsgSizeInMiB", 0, int_member)
    transaction_msg_min_offset: int = member("transactionMsgMinOffset", 0, long_member)
    transaction_msg_max_offset: int = member("transactionMsgMaxOffset", 0, long_member)
    transaction_msg_count: int = member("transactionMsgCount", 0, int_member)
    locked: bool = member("locked", False, flag_member)
    try_unlock_times: int = member("tryUnlockTimes", 0, long_member)
    last_lock_timestamp_ms: int = member("lastLockTimestamp", 0, long_member)
    dropped: bool = member("droped", False, flag_member)
    last_pull_timestamp_ms: int = member("lastPullTimestamp", 0, long_member)
    last_consume_timestamp_ms: int = member("lastConsumeTimestamp", 0, long_member)


@dataclass(frozen=True, slots=True)
class PopProcessQueueInfo:
    wait_ack_count: int = member("waitAckCount", 0, int_member)
    dropped: bool = member("droped", False, flag_member)
    last_pop_timestamp_ms: int = member("lastPopTimestamp", 0, long_member)


@dataclass(frozen=True, slots=True)
class ConsumeStatus:
    """A consumer's figures for one topic: times in ms, messages per second, and failed messages in the last hour."""

    pull_rt: float = member("pullRT", 0.0, float_member)
    pull_tps: float = member("pullTPS", 0.0, float_member)
    consume_rt: float = member("consumeRT", 0.0, float_member)
    consume_ok_tps: float = member("consumeOKTPS", 0.0, float_member)
    consume_failed_tps: float = member("consumeFailedTPS", 0.0, float_member)
    consume_failed_msgs: int = member("consumeFailedMsgs", 0, long_member)


@dataclass(frozen=True, slots=True)
class ConsumerRunningInfo:
    """The answer to `GetConsumerRunningInfo`: a consumer's settings, subscriptions, queues and rates by topic."""

    properties: Mapping[str, str] = field(default_factory=dict)
    subscriptions: tuple[SubscriptionData, ...] = ()
    queues: Mapping[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    pop_queues: Mapping[MessageQueue, PopProcessQueueInfo] = field(default_factory=dict)
    statuses: Mapping[str, ConsumeStatus] = field(default_factory=dict)
    user_consumer_info: Mapping[str, str] = field(default_factory=dict)
    jstack: str | None = None

    def to_command(self) -> Command:
        members = [
            ("mqPopTable", _queue_table(self.pop_queues)),
            ("mqTable", _queue_table(self.queues)),
            ("properties", dumps(dict(self.properties))),
            ("statusTable", dumps({topic: to_members(self.statuses[topic]) for topic in sorted(self.statuses)})),
            ("subscriptionSet", dumps([data.to_members() for data in self.subscriptions])),
            ("userConsumerInfo", dumps(dict(sorted(self.user_consumer_info.items())))),
        ]
        if self.jstack is not None:
            members.insert(0, ("jstack", dumps(self.jstack)))
        return success(body=dump_object(members))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        members = load_object_keys(command.body, "consumer's running information")
        try:
            return cls._from_members(members)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BodyError(f"consumer's running information: a member is missing or wrong: {error!r}") from error

    @classmethod
    def _from_members(cls, members: Mapping[str, Any]) -> Self:
        queues, pop_queues = queue_table_from(members.get("mqTable")), queue_table_from(members.get("mqPopTable"))
        jstack = members.get("jstack")
        return cls(
            properties=_texts(members.get("properties")),
            subscriptions=tuple(SubscriptionData.from_members(data) for data in members.get("subscriptionSet") or ()),
            queues={queue: from_members(ProcessQueueInfo, info) for queue, info in queues.items()},
            pop_queues={queue: from_members(PopProcessQueueInfo, info) for queue, info in pop_queues.items()},
            statuses={
                topic: from_members(ConsumeStatus, status)
                for topic, status in (members.get("statusTable") or {}).items()
            },
            user_consumer_info=_texts(members.get("userConsumerInfo")),
            jstack=None if jstack is None else text_member(jstack),
        )


def _queue_table(queues: Mapping[MessageQueue, Any]) -> bytes:
    return dump_queue_table({queue: to_members(info) for queue, info in queues.items()})


def _texts(value: Any) -> dict[str, str]:
    return {name: _text(member) for name, member in (value or {}).items()}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return text_member(value) if not isinstance(value, int | float) else str(value)
