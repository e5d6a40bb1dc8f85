"""Helpers for tests of sending: payloads, targets, and the brokers of a send's attempts."""

from pyrmq_core import AnyQueue, Message, MessageQueue, Payload, SendFailed
from pyrmq_core.client.producer.send.receipt import Receipt
from pyrmq_core.client.unique_ids import unique_ids
from pyrmq_core.protocol.messages.payload import encode_one

GARBAGE = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
A0 = MessageQueue("orders", "broker-a", 0)
FROM_A = AnyQueue(first=A0)


def payload(body: bytes = b"hello") -> Payload:
    return encode_one(Message("orders", body), unique_ids(1)[0])


def brokers_of(attempts: SendFailed | Receipt) -> list[str]:
    return [attempt.broker_name for attempt in attempts.attempts]
