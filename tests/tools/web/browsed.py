"""A shop for the browser: its topics, groups and clients, and a life of two minutes for pictures."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Thread

import httpx

from pyrmq_core import ConsumeFromWhere, ConsumeLater, Message, MessageExt, MessageQueue
from pyrmq_core.blocking import Admin, Client, Producer, PullConsumer, PushConsumer
from tests.tools.web.serving import HOSTILE, ORDERS

LARGE = 4_000_000
JSON_ITEMS = 20_000
LONG_KEYS = (f"ORDER-{'0' * 30}1", f"TRACE-{'a' * 200}")
# Each page, with a part of its text: the path is what stands behind the page's address.
PAGES = {
    "cluster": ("", "broker-b"),
    "topics": ("topics", "invoices"),
    "topic": ("topic?topic=orders", "queues on 2 brokers"),
    "groups": ("groups?sort=lag", "shipping"),
    "group": ("group?group=billing", "messages behind"),
    "messages": ("messages?topic=orders", "broker-a/"),
    "message": ("message?topic=orders&brokerName=broker-a&queueId=0&offset=0", "billing"),
    "producers": ("producers", "shop"),
    "dead-letters": ("dead-letters?group=shipping", "no such address"),
    "send": ("send?topic=orders", "Send a test message"),
    "reset": ("reset?group=billing", "Reset the offsets of billing"),
    "error": ("topic?topic=nowhere", "Not there"),
}


@contextmanager
def filled(nameserver: str) -> Iterator[None]:
    """Sends orders, some of them hostile, to a topic whose queues are not alike; keeps clients connected."""
    with Client(nameserver=nameserver, instance_name="shop") as client, Producer("shop", client=client) as producer:
        with Admin(client=client) as admin:
            for topic in ("orders", "invoices", "payments", "renewed", "large", "parcels"):
                admin.create_topic(topic, queues=4)
        for number in range(ORDERS):
            body = HOSTILE if number % 2 else f'{{"order": {number}, "amount": "{number * 7 % 90}.00"}}'
            producer.send(Message("orders", body.encode(), keys=f"k{number}", tags="paid"))
        for number, times in enumerate((9, 4, 6, 2)):
            for _ in range(times):
                producer.send(Message("orders", b"skewed"), queue=MessageQueue("orders", "broker-b", number))
        items = ",".join(f'{{"item":{number}}}' for number in range(JSON_ITEMS))
        producer.send(Message("large", f'{{"items":[{items}]}}'.encode(), keys="json"))
        producer.send(Message("large", b"x" * LARGE))
        producer.send(
            Message("invoices", b'{"invoice": "%s"}' % (b"long " * 40), keys=" ".join(LONG_KEYS), tags="paid")
        )
        with PullConsumer("billing", client=client) as consumer:
            for queue in consumer.message_queues("orders"):
                consumer.commit(queue, 1)
        with PushConsumer("shipping", client=client, consume_from_where=ConsumeFromWhere.FIRST_OFFSET) as shipping:
            shipping.subscribe("parcels")
            shipping.subscribe("orders")
            running = Thread(target=shipping.run, args=(ship,))
            running.start()
            producer.send(Message("parcels", b'{"parcel": 7, "error": "no such address"}', keys="p7"))
            dead_letter(client)
            yield
            shipping.stop()
            running.join(30)


def ship(messages: Sequence[MessageExt]) -> None:
    if b"error" in messages[0].body:
        raise ConsumeLater(-1)


def dead_letter(client: Client) -> None:
    """Waits for the parcel that cannot be sent."""
    until = time.monotonic() + 60
    with Admin(client=client) as admin:
        while not admin.messages.dead_letters("shipping").messages:
            assert time.monotonic() < until
            time.sleep(0.05)


def living(nameserver: str, page: str, seconds: int) -> None:
    """Sends and consumes orders, now more and now fewer, while the page is looked at."""
    with (
        Producer("shop", nameserver=nameserver) as producer,
        PullConsumer("billing", nameserver=nameserver) as consumer,
        httpx.Client(base_url=page, timeout=30) as viewer,
    ):
        for path in ("/", "/topic?topic=orders", "/group?group=billing"):
            viewer.get(path)
        queues = consumer.message_queues("orders")
        for number in range(5 * seconds):
            for _ in range(round(6 + 5 * math.sin(number / 40))):
                producer.send(
                    Message("orders", f'{{"order": {100 + number}}}'.encode(), keys=f"k{100 + number}", tags="paid")
                )
            if number % 2:
                producer.send(
                    Message("orders", b"one more here"), queue=MessageQueue("orders", "broker-b", number // 2 % 3)
                )
            if number % 70 == 69:
                for queue in queues:
                    consumer.commit(queue, max(1, consumer.max_offset(queue) - 3))
            time.sleep(0.2)
