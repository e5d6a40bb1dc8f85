"""RocketMQ for Python on trio: a client, a NameServer and a broker.

All names here are public. Each is loaded at its first use. `blocking` has the same client for threads without a loop,
and `aio` has it for asyncio. `columnar` has messages as Arrow columns, `embedded` runs a cluster in this process, and
`testing` has the names that tests need. `servers` has the NameServer and the broker, `tools` the command `pyrmq` and
the web page.

Imports inside the package run in one direction: `client` and `servers` import `network` (connections) and `protocol`
(bytes and values, without sockets or clocks), and all of them import the values of `model`, `errors` and `filtering`.
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
    from pyrmq_core.client.consumer.pop.delivery import PopDelivery
    from pyrmq_core.client.consumer.pop_consumer import PopConsumer
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
    from pyrmq_core.client.producer.selectors import select_like_go, select_like_proxy
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
    "PopConsumer",
    "PopDelivery",
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
    "select_like_go",
    "select_like_proxy",
    "split_batch",
    "unique_id_runs",
    "unique_ids",
    "visible_text",
    "with_namespace",
]

# Loaded at first use: a process that needs only options or errors does not load trio.
_LAZY: Final = {
    "pyrmq_core.client.admin.admin": "Admin",
    "pyrmq_core.client.client": "Client",
    "pyrmq_core.client.consumer.consume.delivery": "Deliveries Delivery",
    "pyrmq_core.client.consumer.consume.handler_exceptions": "ConsumeLater SuspendCurrentQueue",
    "pyrmq_core.client.consumer.consume.hooks": "ConsumeContext ConsumeMessageHook",
    "pyrmq_core.client.consumer.lite_pull_consumer": "LitePullConsumer",
    "pyrmq_core.client.consumer.manifest_reader": "Commits ManifestEnd",
    "pyrmq_core.client.consumer.pull.puller": "ReadWindow",
    "pyrmq_core.client.consumer.pull_consumer": "PullConsumer",
    "pyrmq_core.client.consumer.pop.delivery": "PopDelivery",
    "pyrmq_core.client.consumer.pop_consumer": "PopConsumer",
    "pyrmq_core.client.consumer.push_consumer": "PushConsumer",
    "pyrmq_core.client.consumer.rebalance.strategies": (
        "AllocateMachineRoomNearby AllocateMessageQueueAveragely AllocateMessageQueueAveragelyByCircle "
        "AllocateMessageQueueByConfig AllocateMessageQueueByMachineRoom AllocateMessageQueueConsistentHash "
        "AllocateMessageQueueStrategy MachineRoomResolver"
    ),
    "pyrmq_core.client.producer.bulk.accumulator": "Batching",
    "pyrmq_core.client.producer.bulk.pending_sends": "PendingBatch PendingSend",
    "pyrmq_core.client.producer.bulk.send_window": "RefusedMessage SendWindow WriteSummary",
    "pyrmq_core.client.producer.producer": "Producer",
    "pyrmq_core.client.producer.selectors": "select_like_go select_like_proxy",
    "pyrmq_core.client.producer.send.fault_latency": "FaultLatencySettings SelectionRule",
    "pyrmq_core.client.producer.send.hooks": (
        "CheckForbiddenHook EndTransactionContext EndTransactionHook SendContext MessageHook SendHook"
    ),
    "pyrmq_core.client.producer.send.send_options": "AnyQueue CommunicationMode KeyedQueue ThisQueue",
    "pyrmq_core.client.producer.transactions": "Transaction TransactionListener",
    "pyrmq_core.client.remoting.rpc_hooks": "RpcHook",
    "pyrmq_core.client.routing.name_server_choice": "parse_nameservers",
    "pyrmq_core.client.routing.publish_info": "TopicPublishInfo",
    "pyrmq_core.client.service_state": "ServiceState",
    "pyrmq_core.client.unique_ids": "unique_id_runs unique_ids",
    "pyrmq_core.client.visible_texts": "visible_text line_logger",
    "pyrmq_core.columnar.body_schema": "BodyColumn BodySchema infer_body_schema",
    "pyrmq_core.committed.deciding": "Commit next_record",
    "pyrmq_core.committed.ranges": "CommittedRange check_id check_ids manifest_of ranges_to_read",
    "pyrmq_core.committed.records": "CommitRecord Decided StoredRange commit_messages",
    "pyrmq_core.filtering.tags": "TagFilter",
    "pyrmq_core.protocol.framing.codes": "PASSING_CODES RequestCode ResponseCode",
    "pyrmq_core.protocol.framing.command": "Command",
    "pyrmq_core.protocol.messages.batch_payloads": "encode_batch split_batch",
    "pyrmq_core.protocol.messages.names": "check_topic is_dead_letter_topic is_retry_topic is_system_topic",
    "pyrmq_core.protocol.messages.namespaces": "with_namespace",
    "pyrmq_core.protocol.messages.payload": "Payload RawPull decode encode_one",
    "pyrmq_core.protocol.messages.properties": "MessageType",
    "pyrmq_core.protocol.messages.split_payload": "readdressed",
}

if not TYPE_CHECKING:  # without this, a type checker would accept any attribute name
    __getattr__, __dir__ = load_when_named(__name__, __all__, _LAZY)
