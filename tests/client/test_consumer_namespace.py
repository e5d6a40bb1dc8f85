"""A consumer and an `Admin` with a namespace: servers see it in front of names, the caller never does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

import pyrmq_core
from pyrmq_core import (
    Admin,
    Client,
    InvalidArgument,
    LitePullConsumer,
    Message,
    MessageQueue,
    NoRoute,
    OffsetRange,
    Producer,
    PullConsumer,
    PushConsumer,
    ResponseError,
    blocking,
    decode,
)
from pyrmq_core.embedded import EmbeddedCluster
from pyrmq_core.protocol.framing.codes import RequestCode
from tests.support.scripted import PULL, refuse, topics_asked
from tests.support.stage import Stage

QUEUE = MessageQueue("bills", "broker-b", 1)
ON_WIRE = MessageQueue("NS%bills", "broker-b", 1)


@pytest.fixture
def tenant(stage: Stage) -> Stage:
    stage.topic("NS%bills")
    for number in range(100):
        stage.stores["broker-b"].put("NS%bills", 1, b"%d" % number, "TAGS\x01a\x02")
    return stage


async def test_pulls_carry_it_and_results_do_not(tenant: Stage, client: Client) -> None:
    async with PullConsumer("audit", client=client, namespace="NS") as consumer:
        assert QUEUE in await consumer.message_queues("bills")
        pulled = await consumer.pull(QUEUE, 0)
    assert [message.body for message in pulled.messages] == [b"%d" % number for number in range(32)]
    assert {message.topic for message in pulled.messages} == {"bills"}
    (request,) = tenant.brokers["broker-b"].of(PULL)
    assert (request.ext["topic"], request.ext["consumerGroup"]) == ("NS%bills", "NS%audit")
    assert set(topics_asked(tenant.nameserver)) == {"NS%bills"}


async def test_reads_of_a_range(tenant: Stage, client: Client) -> None:
    async with PullConsumer("audit", client=client, namespace="NS") as consumer:
        async with consumer.read(QUEUE, 0, 100) as pulls:
            read = [decode(pull, OffsetRange(pull.start, pull.next_offset)) async for pull in pulls]
        async with consumer.read_arrow(QUEUE, 0, 100, columns=["topic", "body"]) as batches:
            columns = [batch async for batch in batches]
    seen = [message for messages in read for message in messages]
    assert [message.body for message in seen] == [b"%d" % number for number in range(100)]
    assert {message.topic for message in seen} == {"bills"}
    assert [topic for batch in columns for topic in batch.column("topic").to_pylist()] == ["bills"] * 100
    assert {pull.ext["topic"] for pull in tenant.brokers["broker-b"].of(PULL)} == {"NS%bills"}


async def test_offsets_of_the_group(tenant: Stage, client: Client) -> None:
    async with PullConsumer("audit", client=client, namespace="NS") as consumer:
        assert await consumer.committed(QUEUE) is None
        await consumer.commit(QUEUE, 7)
        await consumer.commit_offsets({replace(QUEUE, queue_id=0): 3})
        assert await consumer.committed_offsets([QUEUE]) == {QUEUE: 7}
        assert (await consumer.offset_bounds([QUEUE]))[QUEUE] == OffsetRange(0, 100)
        assert await consumer.offset_at(QUEUE, datetime(2000, 1, 1, tzinfo=UTC)) == 0
        assert (await consumer.mean_sizes({QUEUE: 0}))[QUEUE] > 0
    assert tenant.stores["broker-b"].committed == {("NS%audit", "NS%bills", 1): 7, ("NS%audit", "NS%bills", 0): 3}


async def test_a_groups_retry_topic_has_it_behind_the_prefix(tenant: Stage, client: Client) -> None:
    tenant.topic("%RETRY%NS%audit", queues=1)
    tenant.stores["broker-a"].put("%RETRY%NS%audit", 0, b"again")
    async with PullConsumer("audit", client=client, namespace="NS") as consumer:
        queue, *_ = await consumer.message_queues("%RETRY%audit")
        assert queue == MessageQueue("%RETRY%audit", "broker-a", 0)
        assert (await consumer.pull(queue, 0)).messages[0].topic == "%RETRY%audit"


async def test_errors_name_the_tenants_topic(tenant: Stage, client: Client) -> None:
    broker = tenant.brokers["broker-b"]
    async with PullConsumer("audit", client=client, namespace="NS") as consumer:
        with pytest.raises(NoRoute, match="topic: missing") as missing:
            await consumer.message_queues("missing")
        await consumer.message_queues("bills")
        broker.always(PULL, refuse(16, "no permission"))
        broker.always(RequestCode.GET_MAX_OFFSET, refuse(16, "no permission"))
        calls: list[Callable[[], Any]] = [lambda: consumer.pull(QUEUE, 0), lambda: consumer.max_offset(QUEUE)]
        for call in calls:
            with pytest.raises(ResponseError, match="queue bills/broker-b/1"):
                await call()
    assert missing.value.topic == "missing"


async def test_topics_are_those_that_the_tenant_can_name(tenant: Stage, client: Client) -> None:
    for name in ("OTHER%bills", "%RETRY%NS%audit", "%RETRY%audit", "RMQ_SYS_TRACE_TOPIC"):
        tenant.topic(name)
    mine = {"bills", "%RETRY%audit", "RMQ_SYS_TRACE_TOPIC"}
    async with (
        PullConsumer("audit", client=client, namespace="NS") as consumer,
        Admin(client=client, namespace="NS") as admin,
    ):
        assert sorted(await consumer.topics()) == sorted(mine)
        assert await admin.topics.list() == tuple(sorted(mine))
    async with PullConsumer("audit", client=client) as plain:
        assert {"orders", "NS%bills", "OTHER%bills"} < set(await plain.topics())


async def test_an_endpoint_names_the_namespace_of_consumers_too() -> None:
    client = Client(nameserver="http://MQ_INST_123_abc.host:80")
    assert PullConsumer("audit", client=client)._namespace == "MQ_INST_123_abc"
    assert PullConsumer("audit", client=client, namespace="NS")._namespace == "NS"
    assert PullConsumer("audit", client=client, namespace="")._namespace is None
    assert Admin(client=client)._servers.namespace == "MQ_INST_123_abc"
    for member in (LitePullConsumer("audit", client=client), PushConsumer("audit", client=client)):
        assert member._wrapped_group == "MQ_INST_123_abc%audit"


@pytest.mark.parametrize("face", [pyrmq_core, blocking], ids=["async", "blocking"])
def test_a_bad_namespace_is_refused(face: Any) -> None:
    with pytest.raises(InvalidArgument, match="a b"):
        face.PullConsumer("audit", nameserver="127.0.0.1:1", namespace="a b")
    with pytest.raises(InvalidArgument, match="a b"):
        face.Admin(nameserver="127.0.0.1:1", namespace="a b")


def test_two_tenants_of_one_cluster() -> None:
    """Topics, messages, offsets and settings of one are not those of the other, over the blocking face."""
    with blocking.EmbeddedCluster() as cluster, blocking.Client(nameserver=cluster.nameserver) as client:
        for tenant, count in (("one", 3), ("two", 5)):
            with blocking.Admin(client=client, namespace=tenant) as admin:
                admin.create_topic("bills", queues=1)
                (config,) = admin.topic_config("bills").values()
                assert (config.topic, config.read_queue_nums) == ("bills", 1)
                assert len(admin.route("bills").queue_datas) == 1
            with blocking.Producer("payers", client=client, namespace=tenant) as producer:
                producer.send_batch([Message("bills", b"%d" % number) for number in range(count)])
            with blocking.PullConsumer("audit", client=client, namespace=tenant) as consumer:
                (queue,) = consumer.message_queues("bills")
                assert consumer.max_offset(queue) == count
                consumer.commit(queue, count)
        with blocking.PullConsumer("audit", client=client, namespace="one") as consumer:
            assert consumer.committed(queue) == 3
        with blocking.Admin(client=client, namespace="one") as admin:
            admin.delete_topic("bills")
            assert "bills" not in admin.topics.list()
        with blocking.Admin(client=client) as admin:
            assert "two%bills" in admin.topics.list()
            assert "one%bills" not in admin.topics.list()


async def test_the_second_form_reaches_consumers(stage: Stage) -> None:
    """`namespace_v2` goes with every request of a consumer, and names stay as they are."""
    stage.stores["broker-b"].put("orders", 1, b"x")
    queue = MessageQueue("orders", "broker-b", 1)
    async with (
        Client(nameserver=stage.nameserver.address, namespace_v2="tenant") as client,
        PullConsumer("audit", client=client) as consumer,
    ):
        await consumer.message_queues("orders")
        await consumer.pull(queue, 0)
        async with consumer.read(queue, 0, 1) as pulls:
            assert len([pull async for pull in pulls]) == 1
        await consumer.commit(queue, 1)
        await consumer.committed(queue)
    seen = [*stage.brokers["broker-b"].seen, *stage.nameserver.seen]
    assert {RequestCode.PULL_MESSAGE, RequestCode.UPDATE_CONSUMER_OFFSET} < {request.command.code for request in seen}
    assert {(request.command.ext.get("nsd"), request.command.ext.get("ns")) for request in seen} == {("true", "tenant")}
    assert {request.command.ext["topic"] for request in seen if request.command.code == PULL} == {"orders"}


async def test_replies_of_our_broker(tenant: Stage) -> None:
    """The embedded broker keeps both forms of names apart: a tenant's topic is another topic."""
    async with EmbeddedCluster() as cluster, Client(nameserver=cluster.nameserver) as client:
        async with Admin(client=client) as admin:
            await admin.create_topic("bills", queues=1)
        async with Producer("payers", client=client) as producer:
            await producer.send(Message("bills", b"x"))
        async with PullConsumer("audit", client=client, namespace="NS") as consumer:
            with pytest.raises(NoRoute):
                await consumer.message_queues("bills")
