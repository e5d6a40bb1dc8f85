"""RocketMQ for Python on trio: a client, a NameServer and a broker.

Every name here is public, and loaded when it is first used. `blocking` has the same client for threads without a loop,
`columnar` messages as Arrow columns, `embedded` a cluster in this process, `testing` the names that tests need,
`nameserver` and `broker` the servers, `cli` the command `pyrmq`.

Inside, imports run one way: `model`, `errors` and `filtering` are plain values, `protocol` is bytes and values without
sockets or clocks, and `network` has the connections. `client` and the two servers use these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyrmq_core.errors import (
    BatchFailed,
    BrokerNotFound,
    CallTimeout,
    ConnectFailed,
    ConnectionClosed,
    DataLost,
    InvalidArgument,
    InvalidMessage,
    InvalidState,
    ManifestError,
    MissingLibrary,
    NetworkError,
    NoNameServer,
    NoRoute,
    Outcome,
    PeerError,
    ProtocolError,
    QueueNotFound,
    RequestTimeout,
    ResponseError,
    RocketMQError,
    RoutingError,
    SendFailed,
    SendForbidden,
    WindowFull,
)
from pyrmq_core.lazy_names import load_when_named
from pyrmq_core.model import (
    ConsumeFromWhere,
    ConsumeReturnType,
    LocalTransactionState,
    Message,
    MessageExt,
    MessageModel,
    MessageQueue,
    OffsetRange,
    Problem,
    PullResult,
    PullStatus,
    SendResult,
    SendStatus,
    TopicQueues,
    TransactionSendResult,
)

if TYPE_CHECKING:
    from pyrmq_core.client.admin.admin import Admin
    from pyrmq_core.client.client import Client
    from pyrmq_core.client.consumer.consume.delivery import Deliveries, Delivery
    from pyrmq_core.client.consumer.consume.handler_exceptions import ConsumeLater, SuspendCurrentQueue
    from pyrmq_core.client.consumer.consume.hooks import ConsumeContext, ConsumeMessageHook
    from pyrmq_core.client.consumer.lite_pull_consumer import LitePullConsumer
    from pyrmq_core.client.consumer.manifest_reader import Commits, ManifestEnd
    from pyrmq_core.client.consumer.pull.puller import ReadWindow
    from pyrmq_core.client.consumer.pull_consumer import PullConsumer
    from pyrmq_core.client.consumer.push_consumer import PushConsumer
    from pyrmq_core.client.consumer.rebalance.strategies import (
        AllocateMachineRoomNearby,
        AllocateMessageQueueAveragely,
        AllocateMessageQueueAveragelyByCircle,
        AllocateMessageQueueByConfig,
        AllocateMessageQueueByMachineRoom,
        AllocateMessageQueueConsistentHash,
        AllocateMessageQueueStrategy,
        MachineRoomResolver,
    )
    from pyrmq_core.client.producer.bulk.accumulator import Batching
    from pyrmq_core.client.producer.bulk.pending_sends import PendingBatch, PendingSend
    from pyrmq_core.client.producer.bulk.send_window import RefusedMessage, SendWindow, WriteSummary
    from pyrmq_core.client.producer.producer import Producer
    from pyrmq_core.client.producer.send.fault_latency import FaultLatencySettings, SelectionRule
    from pyrmq_core.client.producer.send.hooks import (
        CheckForbiddenHook,
        EndTransactionContext,
        EndTransactionHook,
        MessageHook,
        SendContext,
        SendHook,
    )
    from pyrmq_core.client.producer.send.send_options import AnyQueue, CommunicationMode, KeyedQueue, ThisQueue
    from pyrmq_core.client.producer.transactions import Transaction, TransactionListener
    from pyrmq_core.client.remoting.rpc_hooks import RpcHook
    from pyrmq_core.client.routing.name_server_choice import parse_nameservers
    from pyrmq_core.client.routing.publish_info import TopicPublishInfo
    from pyrmq_core.client.service_state import ServiceState
    from pyrmq_core.client.unique_ids import unique_id_runs, unique_ids
    from pyrmq_core.client.visible_texts import line_logger, visible_text
    from pyrmq_core.columnar.body_schema import BodyColumn, BodySchema, infer_body_schema
    from pyrmq_core.committed.deciding import Commit, next_record
    from pyrmq_core.committed.ranges import CommittedRange, check_id, check_ids, manifest_of, ranges_to_read
    from pyrmq_core.committed.records import CommitRecord, Decided, StoredRange, commit_messages
    from pyrmq_core.filtering.tags import TagFilter
    from pyrmq_core.protocol.framing.codes import PASSING_CODES, RequestCode, ResponseCode
    from pyrmq_core.protocol.framing.command import Command
    from pyrmq_core.protocol.messages.batch_payloads import encode_batch, split_batch
    from pyrmq_core.protocol.messages.names import check_topic, is_dead_letter_topic, is_retry_topic, is_system_topic
    from pyrmq_core.protocol.messages.namespaces import with_namespace
    from pyrmq_core.protocol.messages.payload import Payload, RawPull, decode, encode_one
    from pyrmq_core.protocol.messages.properties import MessageType
    from pyrmq_core.protocol.messages.split_payload import readdressed

__version__ = "0.1.0"

__all__ = [
    "PASSING_CODES",
    "Admin",
    "AllocateMachineRoomNearby",
    "AllocateMessageQueueAveragely",
    "AllocateMessageQueueAveragelyByCircle",
    "AllocateMessageQueueByConfig",
    "AllocateMessageQueueByMachineRoom",
    "AllocateMessageQueueConsistentHash",
    "AllocateMessageQueueStrategy",
    "AnyQueue",
    "BatchFailed",
    "Batching",
    "BodyColumn",
    "BodySchema",
    "BrokerNotFound",
    "CallTimeout",
    "CheckForbiddenHook",
    "Client",
    "Command",
    "Commit",
    "CommitRecord",
    "Commits",
    "CommittedRange",
    "CommunicationMode",
    "ConnectFailed",
    "ConnectionClosed",
    "ConsumeContext",
    "ConsumeFromWhere",
    "ConsumeLater",
    "ConsumeMessageHook",
    "ConsumeReturnType",
    "DataLost",
    "Decided",
    "Deliveries",
    "Delivery",
    "EndTransactionContext",
    "EndTransactionHook",
    "FaultLatencySettings",
    "InvalidArgument",
    "InvalidMessage",
    "InvalidState",
    "KeyedQueue",
    "LitePullConsumer",
    "LocalTransactionState",
    "MachineRoomResolver",
    "ManifestEnd",
    "ManifestError",
    "Message",
    "MessageExt",
    "MessageHook",
    "MessageModel",
    "MessageQueue",
    "MessageType",
    "MissingLibrary",
    "NetworkError",
    "NoNameServer",
    "NoRoute",
    "OffsetRange",
    "Outcome",
    "Payload",
    "PeerError",
    "PendingBatch",
    "PendingSend",
    "Problem",
    "Producer",
    "ProtocolError",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "QueueNotFound",
    "RawPull",
    "ReadWindow",
    "RefusedMessage",
    "RequestCode",
    "RequestTimeout",
    "ResponseCode",
    "ResponseError",
    "RocketMQError",
    "RoutingError",
    "RpcHook",
    "SelectionRule",
    "SendContext",
    "SendFailed",
    "SendForbidden",
    "SendHook",
    "SendResult",
    "SendStatus",
    "SendWindow",
    "ServiceState",
    "StoredRange",
    "SuspendCurrentQueue",
    "TagFilter",
    "ThisQueue",
    "TopicPublishInfo",
    "TopicQueues",
    "Transaction",
    "TransactionListener",
    "TransactionSendResult",
    "WindowFull",
    "WriteSummary",
    "check_id",
    "check_ids",
    "check_topic",
    "commit_messages",
    "decode",
    "encode_batch",
    "encode_one",
    "infer_body_schema",
    "is_dead_letter_topic",
    "is_retry_topic",
    "is_system_topic",
    "line_logger",
    "manifest_of",
    "next_record",
    "parse_nameservers",
    "ranges_to_read",
    "readdressed",
    "split_batch",
    "unique_id_runs",
    "unique_ids",
    "visible_text",
    "with_namespace",
]

# Loaded at first use: a process that needs only options or errors does not load trio.
_LAZY: Final = {
    "PASSING_CODES": "pyrmq_core.protocol.framing.codes",
    "Admin": "pyrmq_core.client.admin.admin",
    "AllocateMachineRoomNearby": "pyrmq_core.client.consumer.rebalance.strategies",
    "AllocateMessageQueueAveragely": "pyrmq_core.client.consumer.rebalance.strategies",
    "AllocateMessageQueueAveragelyByCircle": "pyrmq_core.client.consumer.rebalance.strategies",
    "AllocateMessageQueueByConfig": "pyrmq_core.client.consumer.rebalance.strategies",
    "AllocateMessageQueueByMachineRoom": "pyrmq_core.client.consumer.rebalance.strategies",
    "AllocateMessageQueueConsistentHash": "pyrmq_core.client.consumer.rebalance.strategies",
    "AllocateMessageQueueStrategy": "pyrmq_core.client.consumer.rebalance.strategies",
    "AnyQueue": "pyrmq_core.client.producer.send.send_options",
    "Batching": "pyrmq_core.client.producer.bulk.accumulator",
    "CheckForbiddenHook": "pyrmq_core.client.producer.send.hooks",
    "BodyColumn": "pyrmq_core.columnar.body_schema",
    "BodySchema": "pyrmq_core.columnar.body_schema",
    "Client": "pyrmq_core.client.client",
    "Command": "pyrmq_core.protocol.framing.command",
    "CommunicationMode": "pyrmq_core.client.producer.send.send_options",
    "ConsumeContext": "pyrmq_core.client.consumer.consume.hooks",
    "ConsumeLater": "pyrmq_core.client.consumer.consume.handler_exceptions",
    "ConsumeMessageHook": "pyrmq_core.client.consumer.consume.hooks",
    "Deliveries": "pyrmq_core.client.consumer.consume.delivery",
    "Delivery": "pyrmq_core.client.consumer.consume.delivery",
    "EndTransactionContext": "pyrmq_core.client.producer.send.hooks",
    "EndTransactionHook": "pyrmq_core.client.producer.send.hooks",
    "FaultLatencySettings": "pyrmq_core.client.producer.send.fault_latency",
    "KeyedQueue": "pyrmq_core.client.producer.send.send_options",
    "LitePullConsumer": "pyrmq_core.client.consumer.lite_pull_consumer",
    "MachineRoomResolver": "pyrmq_core.client.consumer.rebalance.strategies",
    "MessageType": "pyrmq_core.protocol.messages.properties",
    "Payload": "pyrmq_core.protocol.messages.payload",
    "PendingBatch": "pyrmq_core.client.producer.bulk.pending_sends",
    "PendingSend": "pyrmq_core.client.producer.bulk.pending_sends",
    "Producer": "pyrmq_core.client.producer.producer",
    "PullConsumer": "pyrmq_core.client.consumer.pull_consumer",
    "PushConsumer": "pyrmq_core.client.consumer.push_consumer",
    "RawPull": "pyrmq_core.protocol.messages.payload",
    "ReadWindow": "pyrmq_core.client.consumer.pull.puller",
    "RefusedMessage": "pyrmq_core.client.producer.bulk.send_window",
    "RequestCode": "pyrmq_core.protocol.framing.codes",
    "ResponseCode": "pyrmq_core.protocol.framing.codes",
    "RpcHook": "pyrmq_core.client.remoting.rpc_hooks",
    "SelectionRule": "pyrmq_core.client.producer.send.fault_latency",
    "SendContext": "pyrmq_core.client.producer.send.hooks",
    "MessageHook": "pyrmq_core.client.producer.send.hooks",
    "SendHook": "pyrmq_core.client.producer.send.hooks",
    "SendWindow": "pyrmq_core.client.producer.bulk.send_window",
    "ServiceState": "pyrmq_core.client.service_state",
    "SuspendCurrentQueue": "pyrmq_core.client.consumer.consume.handler_exceptions",
    "TagFilter": "pyrmq_core.filtering.tags",
    "ThisQueue": "pyrmq_core.client.producer.send.send_options",
    "TopicPublishInfo": "pyrmq_core.client.routing.publish_info",
    "Transaction": "pyrmq_core.client.producer.transactions",
    "TransactionListener": "pyrmq_core.client.producer.transactions",
    "WriteSummary": "pyrmq_core.client.producer.bulk.send_window",
    "check_topic": "pyrmq_core.protocol.messages.names",
    "decode": "pyrmq_core.protocol.messages.payload",
    "encode_batch": "pyrmq_core.protocol.messages.batch_payloads",
    "encode_one": "pyrmq_core.protocol.messages.payload",
    "infer_body_schema": "pyrmq_core.columnar.body_schema",
    "is_dead_letter_topic": "pyrmq_core.protocol.messages.names",
    "is_retry_topic": "pyrmq_core.protocol.messages.names",
    "is_system_topic": "pyrmq_core.protocol.messages.names",
    "parse_nameservers": "pyrmq_core.client.routing.name_server_choice",
    "readdressed": "pyrmq_core.protocol.messages.split_payload",
    "split_batch": "pyrmq_core.protocol.messages.batch_payloads",
    "unique_id_runs": "pyrmq_core.client.unique_ids",
    "unique_ids": "pyrmq_core.client.unique_ids",
    "visible_text": "pyrmq_core.client.visible_texts",
    "with_namespace": "pyrmq_core.protocol.messages.namespaces",
    "Commit": "pyrmq_core.committed.deciding",
    "CommitRecord": "pyrmq_core.committed.records",
    "Commits": "pyrmq_core.client.consumer.manifest_reader",
    "CommittedRange": "pyrmq_core.committed.ranges",
    "Decided": "pyrmq_core.committed.records",
    "ManifestEnd": "pyrmq_core.client.consumer.manifest_reader",
    "StoredRange": "pyrmq_core.committed.records",
    "check_id": "pyrmq_core.committed.ranges",
    "check_ids": "pyrmq_core.committed.ranges",
    "commit_messages": "pyrmq_core.committed.records",
    "line_logger": "pyrmq_core.client.visible_texts",
    "manifest_of": "pyrmq_core.committed.ranges",
    "next_record": "pyrmq_core.committed.deciding",
    "ranges_to_read": "pyrmq_core.committed.ranges",
}

if not TYPE_CHECKING:  # a type checker would otherwise accept any attribute name
    __getattr__, __dir__ = load_when_named(__name__, __all__, _LAZY)
