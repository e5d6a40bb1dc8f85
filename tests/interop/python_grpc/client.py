"""RocketMQ's own Python client over gRPC: sends in its forms, or receives, and prints a message per line as JSON.

send ENDPOINT TOPIC FIFO_TOPIC DELAY_TOPIC   {"form", "id", "offset"} of each message
receive ENDPOINT TOPIC GROUP COUNT           {"body", "tag", "keys", "id", "group", "due_ms", "properties"} of each
"""

import json
import sys
import time
from typing import Any

from rocketmq.v5.client import ClientConfiguration, Credentials
from rocketmq.v5.consumer import SimpleConsumer
from rocketmq.v5.exception import InternalErrorException
from rocketmq.v5.model import FilterExpression, Message
from rocketmq.v5.producer import Producer

REQUEST_SECONDS = 20
RECEIVE_SECONDS = 90
RETRY_SECONDS = 0.2


def message(topic: str, body: str, **fields: object) -> Any:
    created = Message()
    created.topic, created.body = topic, body.encode()
    for name, value in fields.items():
        setattr(created, name, value)
    return created


def say(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def send(configuration: Any, topic: str, fifo_topic: str, delay_topic: str) -> None:
    producer = Producer(configuration, (topic, fifo_topic, delay_topic))
    producer.startup()
    plain = message(topic, "plain 中", tag="paid", keys="order-1")
    plain.add_property("region", "são paulo")
    grouped = [message(fifo_topic, f"grouped {number}", message_group="order-1") for number in range(3)]
    later = message(delay_topic, "later", delivery_timestamp=int(time.time()) + 2)
    for form, sent in (("plain", plain), *(("grouped", each) for each in grouped), ("delayed", later)):
        receipt = producer.send(sent)
        say(form=form, id=receipt.message_id, offset=receipt.offset)
    producer.shutdown()


def receive(configuration: Any, topic: str, group: str, count: str) -> None:
    consumer = SimpleConsumer(configuration, group, {topic: FilterExpression()})
    consumer.startup()
    seen, ends_at = 0, time.monotonic() + RECEIVE_SECONDS
    while seen < int(count) and time.monotonic() < ends_at:
        try:
            messages = consumer.receive(32, 30) or ()
        except InternalErrorException:  # the proxy has not got the consumer's settings yet
            time.sleep(RETRY_SECONDS)
            continue
        for each in messages:
            consumer.ack(each)
            seen += 1
            say(
                body=each.body.decode(),
                tag=each.tag,
                keys=sorted(each.keys),
                id=each.message_id,
                group=each.message_group,
                due_ms=each.delivery_timestamp,
                properties=dict(each.properties),
            )
    consumer.shutdown()


if __name__ == "__main__":
    work, endpoint, *rest = sys.argv[1:]
    {"send": send, "receive": receive}[work](
        ClientConfiguration(endpoint, Credentials(), request_timeout=REQUEST_SECONDS), *rest
    )
