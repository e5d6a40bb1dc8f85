"""A producer with a namespace: brokers and NameServers see it in front of names, the caller never does."""

from collections.abc import Sequence

import pytest

from pyrmq_core import (
    AnyQueue,
    Client,
    InvalidArgument,
    Message,
    MessageQueue,
    Producer,
    SendContext,
    SendFailed,
    ThisQueue,
)
from pyrmq_core.client.unique_ids import unique_ids
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.messages.payload import encode_one
from pyrmq_core.protocol.messages.properties import decode_properties
from pyrmq_core.protocol.requests.broker.end_transaction import EndTransaction
from pyrmq_core.protocol.requests.broker.heartbeat import HeartBeat
from tests.client.transacting import COMMIT, END, HALF, Listener
from tests.support.scripted import SEND, answer, refuse, topics_asked
from tests.support.stage import Stage, settled

QUEUE = MessageQueue("bills", "broker-b", 1)


@pytest.fixture
def tenant(stage: Stage) -> Stage:
    stage.topic("NS%bills")
    return stage


async def test_the_wire_carries_it(tenant: Stage, client: Client) -> None:
    async with Producer("payers", client=client, namespace="NS") as producer:
        result = await producer.send(Message("bills", b"x"))
        await tenant.heard_of()
    assert result.message_queue.topic == "bills"
    ((_, sent),) = tenant.sends()
    assert (sent.topic, sent.producer_group) == ("NS%bills", "NS%payers")
    assert decode_properties(sent.properties or "")["INSTANCE_ID"] == "NS"
    assert topics_asked(tenant.nameserver) == ["NS%bills"]
    beats = tenant.brokers["broker-a"].of(RequestCode.HEART_BEAT)
    assert HeartBeat.from_command(beats[0]).producer_groups == ("NS%payers",)


async def test_queues_are_without_it(tenant: Stage, client: Client) -> None:
    given: list[MessageQueue] = []

    def first(queues: Sequence[MessageQueue], _: Message) -> MessageQueue:
        given.extend(queues)
        return queues[0]

    async with Producer("payers", client=client, namespace="NS") as producer:
        queues = await producer.message_queues("bills")
        assert queues[0] == MessageQueue("bills", "broker-a", 0)
        assert len(queues) == 8
        assert (await producer.send(Message("bills", b"x"), queue=QUEUE)).message_queue == QUEUE
        await producer.send(Message("bills", b"x"), select=first)
        await producer.send(Message("bills", b"x", sharding_key="order-1"))
        await producer.send_batch([Message("bills", b"1"), Message("bills", b"2")], queue=QUEUE)
        await producer.send_oneway(Message("bills", b"x"), queue=QUEUE)
        with pytest.raises(InvalidArgument, match="belongs to another topic"):
            await producer.send(Message("bills", b"x"), queue=MessageQueue("NS%bills", "broker-b", 1))
    assert {queue.topic for queue in given} == {"bills"}
    assert {sent.topic for _, sent in tenant.sends()} == {"NS%bills"}


async def test_turns_are_taken(tenant: Stage, client: Client) -> None:
    """All sends share one counter, however often the queues are listed."""
    async with Producer("payers", client=client, namespace="NS") as producer:
        info = await producer.publish_info("bills")
        assert await producer.publish_info("bills") is info
        sent_to = [(await producer.send(Message("bills", b"x"))).message_queue for _ in range(8)]
    assert len(set(sent_to)) == 8


async def test_a_changed_route_changes_the_queues(tenant: Stage, client: Client) -> None:
    async with Producer("payers", client=client, namespace="NS") as producer:
        assert len(await producer.message_queues("bills")) == 8
        tenant.topic("NS%bills", queues=2)
        await client._session.routes.refresh("NS%bills")
        assert len(await producer.message_queues("bills")) == 4


async def test_bulk_writers_have_it_too(tenant: Stage, client: Client) -> None:
    """Payloads of a window name the topic as the caller does."""
    async with (
        Producer("payers", client=client, namespace="NS") as producer,
        producer.open_window() as window,
    ):
        for to in (AnyQueue(), ThisQueue(QUEUE)):
            await window.put(encode_one(Message("bills", b"x"), unique_ids(1)[0]), to)
        summary = await window.drain()
    assert {queue.topic for queue in summary.messages_by_queue} == {"bills"}
    assert {sent.topic for _, sent in tenant.sends()} == {"NS%bills"}


async def test_system_topics_stay_as_they_are(tenant: Stage, client: Client) -> None:
    tenant.topic("RMQ_SYS_TRACE_TOPIC")
    async with Producer("payers", client=client, namespace="NS") as producer:
        await producer.send(Message("RMQ_SYS_TRACE_TOPIC", b"x"))
    assert tenant.sends()[0][1].topic == "RMQ_SYS_TRACE_TOPIC"


async def test_the_end_of_a_transaction_carries_it(tenant: Stage, client: Client) -> None:
    for server in tenant.brokers.values():
        server.always(SEND, answer(HALF.to_command()))
    async with Producer("payers", client=client, namespace="NS", transaction_listener=Listener()) as producer:
        await producer.send_in_transaction(Message("bills", b"x"), lambda *_: COMMIT)
        await settled()
    (end,) = [command for server in tenant.brokers.values() for command in server.of(END)]
    ended = EndTransaction.from_command(end)
    assert (ended.topic, ended.producer_group) == ("NS%bills", "NS%payers")


async def test_hooks_and_errors_name_the_tenants_topic(tenant: Stage, client: Client) -> None:
    seen: list[SendContext] = []

    class Note:
        def send_message_before(self, context: SendContext) -> None:
            seen.append(context)

        def send_message_after(self, context: SendContext) -> None: ...

    for server in tenant.brokers.values():
        server.always(SEND, refuse(13))
    async with Producer("payers", client=client, namespace="NS", hooks=[Note()]) as producer:
        with pytest.raises(SendFailed, match="Topic: bills,"):
            await producer.send(Message("bills", b"x"))
    assert (seen[0].topic, seen[0].queue.topic, seen[0].producer_group, seen[0].namespace) == (
        "bills",
        "bills",
        "payers",
        "NS",
    )


async def test_two_tenants_share_a_client(tenant: Stage, client: Client) -> None:
    tenant.topic("OTHER%bills")
    async with (
        Producer("payers", client=client, namespace="NS") as payers,
        Producer("payers", client=client, namespace="OTHER") as other,
        Producer("payers", client=client) as plain,
    ):
        await payers.send(Message("bills", b"x"))
        await other.send(Message("bills", b"x"))
        await plain.send(Message("orders", b"x"))
    assert [sent.topic for _, sent in tenant.sends()] == ["NS%bills", "OTHER%bills", "orders"]


def test_an_endpoint_names_the_namespace() -> None:
    client = Client(nameserver="http://MQ_INST_123_abc.host:80")
    assert client._session.namespace == "MQ_INST_123_abc"
    assert Client(nameserver="http://host:80")._session.namespace is None
    assert Producer("g", client=client)._settings.producer_group == "MQ_INST_123_abc%g"
    assert Producer("g", client=client, namespace="NS")._settings.producer_group == "NS%g"


@pytest.mark.parametrize("namespace", ["a b", "a.b", "中", "n" * 256])
def test_a_bad_namespace_is_refused(namespace: str) -> None:
    with pytest.raises(InvalidArgument):
        Producer("g", nameserver="127.0.0.1:1", namespace=namespace)
