"""Traffic after which a broker has something to report under each of its metrics, and the names on its page."""

from __future__ import annotations

from datetime import timedelta

from prometheus_client.parser import text_string_to_metric_families

from pyrmq_core import Admin, Client, ConsumeFromWhere, Message, Producer, PullConsumer, PushConsumer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.requests.broker.consumer_send_back import ConsumerSendMsgBack
from tests.support.transaction_jobs import COMMIT, ROLLBACK, Ledger, introduce

TIMEOUT = 20
# What prometheus_client adds to counters; RocketMQ's exporter does not.
CREATED = "_created"

Names = dict[str, set[str]]


async def exercise(nameserver: str) -> None:
    """Makes a topic and a group, and stores, delays, ends in transactions, reads and sends back messages."""
    async with (
        Client(nameserver=nameserver) as client,
        Admin(client=client, timeout=TIMEOUT) as admin,
        PullConsumer("readers", client=client, timeout=TIMEOUT) as reader,
        PushConsumer("pushed", client=client, consume_from_where=ConsumeFromWhere.FIRST_OFFSET) as pushed,
    ):
        await admin.create_topic("orders", queues=1)
        await admin.create_topic("prices", queues=1)
        (queue,) = await reader.message_queues("orders")
        address = client._session.routes.known_master(queue.broker_name)
        assert address is not None
        config = {"groupName": "readers", "consumeEnable": True, "consumeFromMinEnable": True, "retryMaxTimes": 16}
        reply = await client._session.call(
            address, Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=dumps(config)), timeout=TIMEOUT
        )
        assert reply.code == success().code, reply.remark
        await _send(client)
        pulled = await reader.pull(queue, 0)
        await reader.commit(queue, 1)
        sent = pulled.messages[0]
        back = ConsumerSendMsgBack(sent.commit_log_offset, "readers", -1, origin_topic="orders", max_reconsume_times=16)
        answer = await client._session.call(address, back.to_command(), timeout=TIMEOUT)
        assert answer.code == success().code, answer.remark
        await pushed.subscribe("orders")

        async def stop(_: object) -> None:
            await pushed.stop()

        await pushed.run(stop)


async def _send(client: Client) -> None:
    ledger = Ledger({b"committed": COMMIT, b"rolled back": ROLLBACK, b"left": ROLLBACK})
    async with Producer("ledgers", client=client, transaction_listener=ledger, send_timeout=TIMEOUT) as producer:
        await introduce(producer, "orders")
        for _ in range(3):
            await producer.send(Message("orders", b"x" * 2000))
        await producer.send(Message("prices", b"later", delay_level=1))
        await producer.send(Message("prices", b"timed", delay=timedelta(seconds=1)))
        for body, state in ((b"committed", COMMIT), (b"rolled back", ROLLBACK)):
            transaction = await producer.begin_transaction(Message("orders", body))
            await producer.end_transaction(transaction, state)
        await producer.begin_transaction(Message("orders", b"left"))


def names_on(text: str) -> Names:
    """Returns each metric of a page with its labels; of a histogram, without the ends of its names and `le`."""
    names: Names = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.endswith(CREATED):
                continue
            name = family.name if family.type == "histogram" else sample.name
            names.setdefault(name, set()).update(label for label in sample.labels if label != "le")
    return names


def bounds_on(text: str) -> dict[str, tuple[float, ...]]:
    """Returns the bounds of each histogram on a page."""
    bounds: dict[str, dict[float, None]] = {}
    for family in text_string_to_metric_families(text):
        if family.type == "histogram":
            edges = bounds.setdefault(family.name, {})
            edges.update((float(sample.labels["le"]), None) for sample in family.samples if "le" in sample.labels)
    return {name: tuple(sorted(edges)) for name, edges in bounds.items()}
