"""Arguments of sends that break a rule, each with the words of its error; for the async and the blocking face."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyrmq_core import Message, MessageQueue


def _message(**fields: Any) -> Message:
    return Message(**{"topic": "orders", "body": b"x", **fields})


def _queue(*members: Any) -> MessageQueue:
    return MessageQueue(*members)


# Name: the message, the keywords beside it, and the error's text.
WRONG_SENDS: Mapping[str, tuple[Any, Mapping[str, Any], str]] = {
    "a tuple for a queue": (_message(), {"queue": ("orders", "broker-a", 0)}, "queue=.*MessageQueue"),
    "a queue id that is text": (_message(), {"queue": _queue("orders", "broker-a", "0")}, "queue_id='0'"),
    "a queue id beyond 32 bits": (_message(), {"queue": _queue("orders", "broker-a", 2**31)}, "queue_id=2147483648"),
    "a queue without a broker": (_message(), {"queue": _queue("orders", None, 0)}, "broker_name=None"),
    "a timeout that is text": (_message(), {"timeout": "3"}, "timeout='3'"),
    "no time at all": (_message(), {"timeout": 0}, "timeout=0"),
    "a time without end": (_message(), {"timeout": float("inf")}, "timeout=inf"),
    "a time that is no number": (_message(), {"timeout": float("nan")}, "timeout=nan"),
    "a select that is no function": (_message(), {"select": 3}, "select=3"),
    "a select that gives no queue": (_message(), {"select": lambda queues, message: 0}, "queue=0"),
    "no message": ("x", {}, "no Message"),
    "a topic in a list": (_message(topic=["orders"]), {}, "topic"),
    "a body that is text": (_message(body="x"), {}, "body is str"),
    "a flag that is text": (_message(flag="x"), {}, "flag is 'x'"),
    "a flag beyond 32 bits": (_message(flag=2**31), {}, "flag is 2147483648"),
    "a number as keys": (_message(keys=42), {}, "keys is 42"),
    "bytes as keys": (_message(keys=b"k"), {}, "keys is bytes of length 1"),
    "tags in a list": (_message(tags=["t"]), {}, "TAGS is"),
    "a number as sharding key": (_message(sharding_key=7), {}, "SHARDINGKEY is 7"),
    "a delay level that is text": (_message(delay_level="3"), {}, "delay_level is '3'"),
    "a time of delivery that is text": (_message(deliver_at="now"), {}, "deliver_at is 'now'"),
    "a delay that is a number": (_message(delay=3), {}, "delay is 3"),
    "properties in a list": (_message(properties=[("a", "b")]), {}, "properties is"),
    "a property that is a number": (_message(properties={"a": 1}), {}, "property 'a' is 1"),
    "a wait that is a list": (_message(wait_store_msg_ok=[]), {}, "wait_store_msg_ok is list of length 0"),
}
