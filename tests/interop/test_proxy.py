"""Jobs of clients and of Spark through the proxy of Apache RocketMQ 5.4.0 (cluster mode, its remoting port)."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta

import pytest
import trio

from pyrmq_core import (
    Client,
    ConsumeLater,
    Message,
    NoNameServer,
    OffsetRange,
    PopConsumer,
    Producer,
    PullConsumer,
    ResponseError,
    SendFailed,
)
from pyrmq_core.blocking import Admin
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from tests.support.apache import ApacheCluster, boot_cluster
from tests.support.arrow_jobs import ArrowJobs, made_topic
from tests.support.client_jobs import ClientJobs, client, consumer, producer, readable, stored_in
from tests.support.consumer_jobs import ConsumerJobs, Seen, consuming, fresh, send
from tests.support.consumer_jobs import made_topic as topic_to_consume
from tests.support.lite_pull_jobs import LitePullJobs
from tests.support.maven import ApacheUnavailable
from tests.support.proxies import ApacheProxy, administered, boot_proxy, topic_attributes
from tests.support.spark import spark
from tests.support.spark_batches import BatchJobs
from tests.support.spark_streams import StreamJobs, sender, sent

__all__ = ["client", "consumer", "made_topic", "producer", "sender", "sent", "spark"]

pytestmark = pytest.mark.timeout(240)
RETRY_SECONDS = 150.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[ApacheCluster]:
    """Two brokers that permit topics for every type of message, so that jobs written for brokers can run."""
    with ExitStack() as stack:
        try:
            settings = {"enableMixedMessageType": "true"}
            cluster = stack.enter_context(boot_cluster("5.4.0", ("broker-a", "broker-b"), broker_settings=settings))
        except ApacheUnavailable as reason:
            pytest.skip(f"Apache RocketMQ 5.4.0: {reason}")
        yield cluster


@pytest.fixture(scope="module")
def proxy(cluster: ApacheCluster) -> Iterator[ApacheProxy]:
    with boot_proxy(cluster) as proxy:
        yield proxy


@pytest.fixture
def nameserver(proxy: ApacheProxy) -> str:
    return proxy.address


@pytest.fixture
def topic(nameserver: str) -> str:
    """A topic that exists: a proxy takes no message for another."""
    topic = f"t_{uuid.uuid4().hex[:12]}"
    make(nameserver, topic, topic_attributes(nameserver))
    return topic


@pytest.fixture
def nothing_committed() -> tuple[None]:
    return (None,)


def make(nameserver: str, topic: str, attributes: dict[str, str]) -> None:
    with Admin(nameserver=administered(nameserver), timeout=20) as admin:
        admin.create_topic(topic, queues=4, attributes=attributes)


class TestClient:
    """Jobs of a client; `make soak` has the others that a proxy can do."""

    test_one_message = ClientJobs.test_one_message_comes_back_as_it_went
    test_queues_keys_and_functions_choose = ClientJobs.test_queues_keys_and_functions_choose
    test_a_batch_of_1000_is_1000_messages = ClientJobs.test_a_batch_of_1000_is_1000_messages
    test_pulls_and_their_outcomes = ClientJobs.test_pulls_and_their_outcomes
    test_ranges_are_read_whole = ClientJobs.test_ranges_are_read_whole
    test_offsets_of_times = ClientJobs.test_offsets_of_times
    test_a_group_commits = ClientJobs.test_a_group_commits
    test_rows_come_back_as_they_were = ArrowJobs.test_rows_come_back_as_they_were

    async def test_delays(self, producer: Producer, consumer: PullConsumer, topic: str) -> None:
        await producer.send(Message(topic, b"level", delay_level=1))
        await producer.send(Message(topic, b"timer", delay=timedelta(seconds=1)))
        assert {message.body for message in await stored_in(consumer, topic, 2)} == {b"level", b"timer"}

    async def test_no_answer_of_a_read_is_dropped(self, nameserver: str, producer: Producer, topic: str) -> None:
        """A dropped answer would cost the read its time limit of 10 s, and another request."""
        calls = Counter[str]()

        class Counting:
            def do_before_request(self, address: str, request: Command) -> None:
                calls["requests"] += request.code == RequestCode.PULL_MESSAGE

            def do_after_response(self, address: str, request: Command, answer: Command) -> None:
                calls["answers"] += request.code == RequestCode.PULL_MESSAGE

        queues = await producer.message_queues(topic)
        for queue in queues:
            for _ in range(5):
                await producer.send_batch([Message(topic, b"x" * 1000) for _ in range(500)], queue=queue)
        ranges = [(queue, OffsetRange(0, 2500)) for queue in queues]
        async with (
            Client(nameserver=nameserver, rpc_hooks=[Counting()]) as client,
            PullConsumer("readers", client=client, timeout=15) as consumer,
        ):
            for queue in queues:
                await readable(consumer, queue, 2500)
            async with consumer.read_ranges(ranges) as lists:
                messages = [pull.next_offset - pull.start async for pulls in lists for pull in pulls]
        assert sum(messages) == 2500 * len(queues)
        assert calls["requests"] == calls["answers"] >= sum(messages) / 32


class TestConsumers:
    """Jobs of consumers in groups."""

    test_each_message_once = ConsumerJobs.test_each_message_is_consumed_once_and_its_offset_is_stored
    test_an_orderly_consumer = ConsumerJobs.test_an_orderly_consumer_keeps_the_order_through_failures
    test_a_broadcasting_consumer = ConsumerJobs.test_a_broadcasting_consumer_receives_everything
    test_lite_pull = LitePullJobs.test_each_message_is_returned_once_and_a_clean_end_commits_all

    @pytest.mark.soak
    async def test_a_message_that_fails_comes_again(self, nameserver: str) -> None:
        """The proxy looks for the retry topic, which the first message given back makes, every now and then."""
        topic, group, seen = await topic_to_consume(nameserver), fresh("group"), Seen()
        seen.orders = {"b": [ConsumeLater(1)]}
        async with consuming(nameserver, group, topic, seen):
            await send(nameserver, topic, ["a", "b", "c"])
            with trio.fail_after(RETRY_SECONDS):
                while len(seen.messages) < 4:  # noqa: ASYNC110 - a handler sets no event here
                    await trio.sleep(0.1)
        assert [message.reconsume_times for message in seen.messages if message.body == b"b"] == [0, 1]


class TestErrors:
    """The errors of a proxy's refusals and of its other port, which say what to do."""

    @pytest.mark.parametrize(
        ("kind", "message"),
        [("NORMAL", {"sharding_key": "k"}), ("FIFO", {}), ("NORMAL", {"delay_level": 1}), ("DELAY", {})],
    )
    async def test_a_message_of_another_type(
        self, nameserver: str, producer: Producer, kind: str, message: dict[str, object]
    ) -> None:
        topic = f"t_{uuid.uuid4().hex[:12]}"
        await trio.to_thread.run_sync(make, nameserver, topic, {"message.type": kind})
        with pytest.raises(SendFailed, match=rf"expected type is {kind}.*takes messages of another type: see its"):
            await producer.send(Message(topic, b"x", **message))  # type: ignore[arg-type]

    async def test_a_message_without_a_key_for_a_compacted_topic(self, nameserver: str, producer: Producer) -> None:
        topic = f"t_{uuid.uuid4().hex[:12]}"
        await trio.to_thread.run_sync(make, nameserver, topic, {"cleanup.policy": "COMPACTION"})
        with pytest.raises(SendFailed, match="give the message keys"):
            await producer.send(Message(topic, b"x"))

    async def test_the_port_of_grpc(self, proxy: ApacheProxy) -> None:
        async with Client(nameserver=proxy.grpc_address) as client:
            with pytest.raises(NoNameServer, match="a gRPC port, as a proxy's 8081; its remoting port is 8080"):
                await client._session.routes.route("orders")

    async def test_administration(self, consumer: PullConsumer) -> None:
        with pytest.raises(ResponseError, match="a broker or a proxy answers so: name a NameServer's address"):
            await consumer.topics()


@pytest.mark.soak
class TestClientJobs(ClientJobs):
    """The jobs of a client but those that need a list of topics, unknown topics, or routes of this moment."""

    test_an_unknown_topic_is_made_by_the_first_send = None  # type: ignore[assignment]
    test_brokers_that_make_a_topic_get_some_each = None  # type: ignore[assignment]
    test_a_topic_that_shrank_takes_what_is_sent_by_the_old_route = None  # type: ignore[assignment]
    test_the_nameserver_lists_the_topic = None  # type: ignore[assignment]


@pytest.mark.soak
class TestArrowJobs(ArrowJobs):
    """The jobs on columns but the one of unknown topics."""

    test_several_topics_of_a_frame = None  # type: ignore[assignment]


@pytest.mark.soak
class TestConsumerJobs(ConsumerJobs):
    """The jobs of push consumers but those that need a retry soon, or to hear of another member."""

    test_a_message_that_fails_comes_again_under_its_own_topic = None  # type: ignore[assignment]
    test_after_the_last_try_a_message_is_a_dead_letter = None  # type: ignore[assignment]
    test_a_batch_is_acknowledged_up_to_an_index = None  # type: ignore[assignment]
    test_deliveries_are_acknowledged_by_leaving_their_block = None  # type: ignore[assignment]
    test_two_members_share_the_queues_and_one_takes_all_when_the_other_leaves = None  # type: ignore[assignment]


@pytest.mark.soak
class TestLitePullJobs(LitePullJobs):
    """The jobs of lite pull consumers but the one that needs a filter to be read."""

    test_sql = None  # type: ignore[assignment]


@pytest.mark.soak
@pytest.mark.spark
class TestBatchJobs(BatchJobs):
    """Spark's batches, but to topics that do not exist."""

    test_topics_come_from_the_column = None  # type: ignore[assignment]


@pytest.mark.soak
@pytest.mark.spark
class TestStreamJobs(StreamJobs):
    """Spark's streams, but the end of one whose topic is deleted, and SQL that the proxy does not read."""

    test_a_deleted_topic_fails_the_query_by_name = None  # type: ignore[assignment]
    test_sql_over_properties = None  # type: ignore[assignment]


async def test_a_pop_is_refused_by_name(nameserver: str, topic: str) -> None:
    async with PopConsumer(fresh("workers"), nameserver=nameserver) as consumer:
        with pytest.raises(ResponseError, match=r"POP_MESSAGE.*a proxy's remoting port serves no pops"):
            await consumer.receive(topic)
