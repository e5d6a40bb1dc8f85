"""The attributes of spans and metrics, by OpenTelemetry's conventions for messaging and for RocketMQ.

Source: opentelemetry.io, semantic conventions, messaging spans, messaging metrics and RocketMQ, 1.27 and later.
"""

from __future__ import annotations

from typing import Final

from pyrmq_core.client.consumer.consume.hooks import ConsumeContext
from pyrmq_core.client.producer.send.hooks import SendContext
from pyrmq_core.errors import ResponseError, RocketMQError
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode

Attributes = dict[str, str | int]

SYSTEM: Final = "messaging.system"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
GROUP: Final = "messaging.consumer.group.name"
BATCH_COUNT: Final = "messaging.batch.message_count"
BODY_SIZE: Final = "messaging.message.body.size"
MESSAGE_ID: Final = "messaging.message.id"
NAMESPACE: Final = "messaging.rocketmq.namespace"
TAG: Final = "messaging.rocketmq.message.tag"
KEYS: Final = "messaging.rocketmq.message.keys"
SERVER: Final = "server.address"
PORT: Final = "server.port"
ERROR: Final = "error.type"


def of_send(context: SendContext) -> Attributes:
    attributes: Attributes = {SYSTEM: "rocketmq", OPERATION: "send", DESTINATION: context.topic}
    add_server(attributes, context.broker_address)
    if context.error is not None:
        attributes[ERROR] = error_type(context.error)
    return attributes


def of_process(context: ConsumeContext) -> Attributes:
    attributes: Attributes = {
        SYSTEM: "rocketmq",
        OPERATION: "process",
        DESTINATION: context.queue.topic,
        GROUP: context.consumer_group,
    }
    if context.error is not None:
        attributes[ERROR] = type(context.error).__qualname__
    elif context.status is not None and not context.success:
        attributes[ERROR] = context.status.name
    return attributes


def add_server(attributes: Attributes, address: str) -> None:
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and len(port) <= 5:
        attributes[SERVER], attributes[PORT] = host, int(port)


def error_type(error: RocketMQError) -> str:
    cause = error if isinstance(error, ResponseError) else error.__cause__
    return code_name(cause.code) if isinstance(cause, ResponseError) else type(error).__qualname__


def code_name(code: int) -> str:
    try:
        return ResponseCode(code).name
    except ValueError:
        return str(code)


def request_name(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return str(code)
