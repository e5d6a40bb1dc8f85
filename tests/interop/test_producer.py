"""The producer's work beside plain sends, with Java's programs as judges.

What 4.9.7 refuses, and how it answers without a slave, is tried at each landing, and the other work on it in the long
tests.
"""

from __future__ import annotations

import re
import time
import uuid
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
import trio

from pyrmq_core import (
    Admin,
    Client,
    InvalidMessage,
    LocalTransactionState,
    Message,
    MessageExt,
    MessageQueue,
    NoRoute,
    Producer,
    PullConsumer,
    RequestTimeout,
    ResponseError,
    SendStatus,
)
from pyrmq_core.protocol.requests.broker.recall_message import RecallHandle
from tests.support.apache import NEWEST_AND_LONG_OLDER, ApacheCluster, boot_cluster
from tests.support.client_jobs import stored_in
from tests.support.java_programs import start_java
from tests.support.maven import ApacheUnavailable
from tests.support.transaction_jobs import wait_visible
from tests.support.waiting import until

JAVA = Path(__file__).parent / "java"
COMMIT, ROLLBACK, UNKNOW = (
    LocalTransactionState.COMMIT_MESSAGE,
    LocalTransactionState.ROLLBACK_MESSAGE,
    LocalTransactionState.UNKNOW,
)


@pytest.fixture(scope="module", params=NEWEST_AND_LONG_OLDER)
def cluster(request: pytest.FixtureRequest) -> Iterator[ApacheCluster]:
    """Two brokers with recall, traces and ordered topics, as far as their release has them."""
    try:
        with boot_cluster(
            request.param,
            ("broker-a", "broker-b"),
            broker_settings={"recallMessageEnable": "true", "traceTopicEnable": "true"},
            nameserver_settings={"orderMessageEnable": "true"},
        ) as cluster:
            yield cluster
    except ApacheUnavailable as reason:
        pytest.skip(f"Apache RocketMQ {request.param}: {reason}")


@pytest.fixture
def topic() -> str:
    return f"t_{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def client(cluster: ApacheCluster) -> AsyncIterator[Client]:
    async with Client(nameserver=cluster.nameserver.address) as client:
        yield client


@pytest.fixture
async def consumer(client: Client) -> AsyncIterator[PullConsumer]:
    async with PullConsumer("readers", client=client, timeout=15) as consumer:
        yield consumer


async def java(cluster: ApacheCluster, program: str, *arguments: str) -> str:
    """Returns the output of a program of ours, run with the release's client."""
    run = partial(cluster.run_java, JAVA / program, cluster.nameserver.address, *arguments)
    return await trio.to_thread.run_sync(run)


async def mqadmin(cluster: ApacheCluster, *arguments: str) -> str:
    return await trio.to_thread.run_sync(partial(cluster.mqadmin, *arguments))


async def read_by_java(cluster: ApacheCluster, topic: str, count: int, namespace: str = "") -> list[list[str]]:
    """Returns BROKER QUEUE OFFSET MSGID KEYS TAGS LENGTH CRC TOPIC of each message."""
    printed = await java(cluster, "ReadTopic.java", topic, str(count), namespace)
    return [line.split()[1:] for line in printed.splitlines() if line.startswith("read ")]


async def make_topic(client: Client, topic: str, *, queues: int = 4) -> None:
    """Creates a topic on every broker, and waits until the NameServer has its route."""
    async with Admin(client=client, timeout=20) as admin:
        await admin.create_topic(topic, queues=queues)
    async with PullConsumer("readers", client=client, timeout=20) as consumer:
        with trio.fail_after(30):
            while True:
                with suppress(NoRoute):
                    if len({queue.broker_name for queue in await consumer.message_queues(topic)}) == 2:
                        return
                await client._session.routes.refresh(topic)
                await trio.sleep(0.05)


class Listener:
    """Commits checked transactions, except those rolled back: a busy broker may check before it records the end."""

    def __init__(self) -> None:
        self.checked: list[MessageExt] = []

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        self.checked.append(message)
        return ROLLBACK if message.body == ROLLBACK.name.encode() else COMMIT


# --- Transactions


async def test_transactions(cluster: ApacheCluster, client: Client, consumer: PullConsumer, topic: str) -> None:
    """Committed at once, rolled back, and left open: the broker checks, and then delivers."""
    listener = Listener()
    group = f"tx_{uuid.uuid4().hex[:8]}"
    async with Producer(group, client=client, transaction_listener=listener, send_timeout=15) as producer:
        sent = {}
        for state in (COMMIT, ROLLBACK, UNKNOW):
            message = Message(topic, state.name.encode(), tags="t", keys=state.name)
            ended = await producer.send_in_transaction(message, lambda *_, state=state: state)
            assert ended.local_transaction_state is state
            sent[state] = ended.result
        await until(lambda: any(message.body == b"UNKNOW" for message in listener.checked), seconds=60)
        messages = await wait_visible(consumer, topic, {b"COMMIT_MESSAGE", b"UNKNOW"})
    by_body = {message.body: message for message in messages}
    assert set(by_body) == {b"COMMIT_MESSAGE", b"UNKNOW"}
    assert by_body[b"COMMIT_MESSAGE"].msg_id == sent[COMMIT].msg_id
    assert by_body[b"UNKNOW"].msg_id == sent[UNKNOW].msg_id
    checked = next(message for message in listener.checked if message.body == b"UNKNOW")
    assert (checked.topic, checked.tags, checked.keys) == (topic, "t", "UNKNOW")
    assert (checked.msg_id, checked.queue_id) == (sent[UNKNOW].msg_id, sent[UNKNOW].message_queue.queue_id)


async def test_another_producer_of_the_group_is_asked(cluster: ApacheCluster, topic: str) -> None:
    """The sender is gone: another producer of its group answers."""
    group = f"tx_{uuid.uuid4().hex[:8]}"
    heir = Listener()
    async with (
        Client(nameserver=cluster.nameserver.address) as client,
        Producer(group, client=client, transaction_listener=heir, send_timeout=20) as left,
        PullConsumer("readers", client=client, timeout=20) as consumer,
    ):
        async with Producer(
            group, nameserver=cluster.nameserver.address, transaction_listener=Listener(), send_timeout=15
        ) as sender:
            transaction = await sender.begin_transaction(Message(topic, b"inherited"))
        await left.publish_info(topic)
        for broker in cluster.brokers.values():
            await client._session.heartbeats.send_now(broker.address)
        await until(lambda: heir.checked, seconds=60)
        (message,) = await stored_in(consumer, topic, 1)
    assert message.msg_id == transaction.result.msg_id


# --- Requests and replies


async def answer_requests(producer: Producer, consumer: PullConsumer, topic: str) -> None:
    """Replies to every message of the topic, until cancelled."""
    at: dict[MessageQueue, int] = {}
    while True:
        try:
            queues = await consumer.message_queues(topic)
        except NoRoute:
            queues = ()
        for queue in queues:
            pulled = await consumer.pull(queue, at.get(queue, 0))
            at[queue] = pulled.next_offset
            for message in pulled.messages:
                await producer.reply(message, b"python: " + message.body)
        await trio.sleep(0.05)


async def test_we_ask_and_we_reply(client: Client, consumer: PullConsumer, topic: str) -> None:
    async with (
        Producer("askers", client=client, send_timeout=15) as asker,
        Producer("repliers", client=client, send_timeout=15) as replier,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(answer_requests, replier, consumer, topic)
        for number in range(3):
            reply = await asker.request(Message(topic, b"%d" % number), timeout=30)
            assert reply.body == b"python: %d" % number
        big = await asker.request(Message(topic, b"x" * 9000), timeout=30)
        assert big.body == b"python: " + b"x" * 9000
        nursery.cancel_scope.cancel()


async def test_no_consumer_replies(client: Client, topic: str) -> None:
    async with Producer("askers", client=client, send_timeout=20) as asker:
        await asker.send(Message(topic, b"makes the topic: the request has its time to itself"))
        with pytest.raises(RequestTimeout):
            await asker.request(Message(topic, b"?"), timeout=5)


async def test_java_replies_to_us(cluster: ApacheCluster, client: Client, topic: str) -> None:
    await make_topic(client, topic, queues=2)
    with start_java(cluster.version, JAVA / "Replier.java", cluster.nameserver.address, topic) as replier:
        await until(lambda: "ready" in replier.log.read_text(), seconds=60)
        async with Producer("askers", client=client, send_timeout=15) as asker:
            reply = await asker.request(Message(topic, b"how much?"), timeout=100)
    assert reply.body == b"java: how much?"


async def test_we_reply_to_java(cluster: ApacheCluster, client: Client, consumer: PullConsumer, topic: str) -> None:
    await make_topic(client, topic, queues=2)
    async with Producer("repliers", client=client, send_timeout=15) as replier, trio.open_nursery() as nursery:
        nursery.start_soon(answer_requests, replier, consumer, topic)
        printed = await java(cluster, "Asker.java", topic, "how much?")
        nursery.cancel_scope.cancel()
    assert "reply python: how much?" in printed


# --- Delays and recall


async def arrival(consumer: PullConsumer, topic: str) -> float:
    """Returns the time by the clock at which the topic's first message became readable."""
    await stored_in(consumer, topic, 1)
    return time.time()


async def test_a_delay_level(client: Client, consumer: PullConsumer, topic: str) -> None:
    async with Producer("g", client=client, send_timeout=15) as producer:
        began = time.time()
        await producer.send(Message(topic, b"x", delay_level=1))
        assert await arrival(consumer, topic) - began >= 0.95


async def test_priorities_choose_the_queue(
    cluster: ApacheCluster, client: Client, consumer: PullConsumer, topic: str
) -> None:
    """From 5.4 on; older brokers keep the property and leave the message in the queue that the client chose."""
    priorities = (0, 2, 3, 9)
    async with Admin(client=client) as admin:
        await admin.create_topic(topic, queues=4)
    async with Producer("g", client=client, send_timeout=15) as producer:
        sent = [await producer.send(Message(topic, b"x", priority=number)) for number in priorities]
        pending = [await producer.send_soon(Message(topic, b"y", priority=number)) for number in priorities]
        sent += [await send.wait() for send in pending]
    wanted = [min(number, 3) for number in priorities] * 2
    assert cluster.version.startswith("4") or [result.message_queue.queue_id for result in sent] == wanted
    stored = await stored_in(consumer, topic, len(wanted))
    assert sorted(message.properties["_SYS_MSG_PRIORITY_"] for message in stored) == sorted(map(str, priorities * 2))


def due_in(seconds: float, form: str, topic: str) -> Message:
    span = timedelta(seconds=seconds)
    if form == "delay":
        return Message(topic, b"x", delay=span)
    return Message(topic, b"x", deliver_at=datetime.now(UTC) + span)


@pytest.mark.parametrize("form", ["deliver_at", "delay"])
async def test_a_delivery_time(
    cluster: ApacheCluster, client: Client, consumer: PullConsumer, topic: str, form: str
) -> None:
    """Delivers not before its time."""
    if cluster.version.startswith("4"):
        pytest.skip("4.9.7 has no delivery times")
    began = time.time()
    async with Producer("g", client=client, send_timeout=15) as producer:
        result = await producer.send(due_in(3, form, topic))
        assert result.recall_handle is not None
        assert await arrival(consumer, topic) - began >= 1.9  # brokers cut to whole seconds


async def test_recall(cluster: ApacheCluster, client: Client, consumer: PullConsumer, topic: str) -> None:
    if cluster.version.startswith("4"):
        pytest.skip("4.9.7 recalls nothing")
    async with Producer("g", client=client, send_timeout=15) as producer:
        plain = await producer.send(Message(topic, b"stays"))
        gone = await producer.send(Message(topic, b"goes", delay=timedelta(seconds=9)))
        last = await producer.send(Message(topic, b"comes", delay=timedelta(seconds=10)))
        assert gone.recall_handle is not None
        assert await producer.recall(topic, gone.recall_handle) == gone.msg_id
        messages = await stored_in(consumer, topic, 2)
        assert {message.msg_id for message in messages} == {plain.msg_id, last.msg_id}


# --- Messages read by Java


async def test_java_reads_what_was_compressed(cluster: ApacheCluster, client: Client, topic: str) -> None:
    """4.9.7's client knows zlib alone."""
    kinds = ["zlib", "none", *(("lz4", "zstd") if cluster.version.startswith("5") else ())]
    body = b"".join(b"%d," % number for number in range(3000))
    for number, kind in enumerate(kinds):
        async with Producer(f"g{number}", client=client, compression=kind, send_timeout=15) as producer:
            await producer.send(Message(topic, body, keys=kind))
    read = await read_by_java(cluster, topic, len(kinds))
    assert {row[4]: (row[6], row[7]) for row in read} == dict.fromkeys(kinds, (str(len(body)), str(zlib.crc32(body))))


async def test_java_reads_what_was_batched(cluster: ApacheCluster, client: Client, topic: str) -> None:
    """Automatic batches are single messages for every reader, each with its own id."""
    async with Producer("g", client=client, batching=True, send_timeout=15) as producer:
        await producer.send(Message(topic, b"first"))
        pendings = [await producer.send_soon(Message(topic, b"%d" % n, keys=f"k{n}", tags="t")) for n in range(200)]
        results = [await pending.wait() for pending in pendings]
    read = await read_by_java(cluster, topic, 201)
    assert {row[3] for row in read} >= {result.msg_id for result in results}
    assert len(read) == 201
    where = {row[3]: (row[0], int(row[1]), int(row[2])) for row in read}
    for result in results:
        queue = result.message_queue
        assert where[result.msg_id] == (queue.broker_name, queue.queue_id, result.queue_offset)
    assert len({result.message_queue for result in results}) < 20  # they did travel together


async def test_java_and_we_choose_the_same_queue(cluster: ApacheCluster, client: Client, topic: str) -> None:
    """By a sharding key, on a plain topic and on one with an ordered configuration."""
    keys = ["order-1", "order-2", "1001", "客户", "a" * 50, "-", "Ωmega"]
    await make_topic(client, topic, queues=4)
    async with Producer("g", client=client, send_timeout=15) as producer:
        for ordered in (False, True):
            if ordered:
                await mqadmin(cluster, "updateOrderConf", "-t", topic, "-m", "put", "-v", "broker-b:3;broker-a:2")
                await client._session.routes.refresh(topic)
                assert len(await producer.message_queues(topic)) == 5
            printed = await java(cluster, "SendKeyed.java", topic, "", *keys)
            theirs = dict(re.findall(r"^sent (\S+) (\S+ \d+)$", printed, re.MULTILINE))
            for key in keys:
                queue = (await producer.send(Message(topic, b"x", sharding_key=key))).message_queue
                assert theirs[key] == f"{queue.broker_name} {queue.queue_id}", (key, ordered)


async def test_a_namespace_is_shared_with_java(cluster: ApacheCluster, client: Client, topic: str) -> None:
    async with Producer("payers", client=client, namespace="tenant", send_timeout=15) as producer:
        result = await producer.send(Message(topic, b"x", keys="ours"))
        await java(cluster, "SendKeyed.java", topic, "tenant", "theirs")
    read = await read_by_java(cluster, topic, 2, "tenant")
    assert len(read) == 2
    assert {row[8] for row in read} == {topic}  # Java takes the namespace off again
    assert result.msg_id in {row[3] for row in read}
    async with PullConsumer("readers", client=client, timeout=20) as consumer:
        assert {message.topic for message in await stored_in(consumer, f"tenant%{topic}", 2)} == {f"tenant%{topic}"}


# --- Output of Java's tools


async def test_mqadmin_finds_our_trace(cluster: ApacheCluster, client: Client, topic: str) -> None:
    async with Producer("traced", client=client, trace=True, send_timeout=15) as producer:
        result = await producer.send(Message(topic, b"hello", tags="t", keys="k"))
    printed = ""
    with trio.fail_after(60):
        while "Pub" not in printed:  # indexed some time after it is stored
            printed = await mqadmin(cluster, "queryMsgTraceById", "-i", result.msg_id)
    assert re.search(r"Pub\s+traced", printed), printed
    assert "success" in printed


async def test_mqadmin_shows_our_producer(cluster: ApacheCluster, client: Client, topic: str) -> None:
    group = f"g_{uuid.uuid4().hex[:8]}"
    await make_topic(client, topic)  # the tool looks for its route
    async with Producer(group, client=client, send_timeout=15) as producer:
        await producer.send(Message(topic, b"x"))
        for broker in cluster.brokers.values():
            await client._session.heartbeats.send_now(broker.address)
        printed = await mqadmin(cluster, "producerConnection", "-g", group, "-t", topic)
    assert client.client_id in printed
    assert "PYTHON" in printed


# --- Statuses


@pytest.fixture(scope="module")
def lonely_master() -> Iterator[ApacheCluster]:
    """4.9.7's synchronous master without a slave: every message is stored, and SLAVE_NOT_AVAILABLE."""
    try:
        with boot_cluster("4.9.7", ("broker-a", "broker-b"), broker_settings={"brokerRole": "SYNC_MASTER"}) as cluster:
            yield cluster
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("form", ["deliver_at", "delay"])
async def test_4_9_7_gets_no_message_with_a_delivery_time(lonely_master: ApacheCluster, topic: str, form: str) -> None:
    """It would deliver at once."""
    async with (
        Client(nameserver=lonely_master.nameserver.address) as client,
        Producer("g", client=client, send_timeout=15) as producer,
        PullConsumer("readers", client=client, timeout=20) as consumer,
    ):
        with pytest.raises(InvalidMessage, match=r"need brokers of 5.0 or later; broker-\w .* \(version 407\)"):
            await producer.send(due_in(3, form, topic))
        with pytest.raises(NoRoute):
            await consumer.message_queues(topic)


async def test_4_9_7_recalls_nothing(lonely_master: ApacheCluster, topic: str) -> None:
    async with Producer("g", nameserver=lonely_master.nameserver.address, send_timeout=15) as producer:
        plain = await producer.send(Message(topic, b"stays"))
        handle = RecallHandle(topic, plain.message_queue.broker_name, 1, "A").encode()
        with pytest.raises(ResponseError, match=r"REQUEST_CODE_NOT_SUPPORTED \(3\)"):
            await producer.recall(topic, handle)


async def test_a_status_other_than_ok_is_a_result(lonely_master: ApacheCluster, topic: str) -> None:
    async with Producer("g", nameserver=lonely_master.nameserver.address, send_timeout=15) as producer:
        result = await producer.send(Message(topic, b"x"))
    assert result.status is SendStatus.SLAVE_NOT_AVAILABLE


async def test_with_the_setting_another_broker_is_tried(lonely_master: ApacheCluster, topic: str) -> None:
    """All of them are stored in the end, which is why it is off by default."""
    async with (
        Client(nameserver=lonely_master.nameserver.address) as client,
        Producer("g", client=client, retry_another_broker_when_not_store_ok=True, send_timeout=15) as producer,
        PullConsumer("readers", client=client, timeout=20) as consumer,
    ):
        await make_topic(client, topic)
        result = await producer.send(Message(topic, b"x"))
        assert result.status is SendStatus.SLAVE_NOT_AVAILABLE
        messages = await stored_in(consumer, topic, 3)
    assert {message.msg_id for message in messages} == {result.msg_id}
    assert {message.broker_name for message in messages} == {"broker-a", "broker-b"}
