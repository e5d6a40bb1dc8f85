"""Parts of consumers by themselves: what a pull brings, changes that share a heartbeat, locks that are not renewed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from pyrmq_core import ConsumeFromWhere, InvalidState, MessageModel, MessageQueue, PullStatus, RawPull, TagFilter
from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.consumer.consume.received import Receiver
from pyrmq_core.client.consumer.group.membership import MOST_REPORTS, PASSIVELY, Membership
from pyrmq_core.client.consumer.pull.puller import Puller
from pyrmq_core.client.consumer.rebalance import rebalancer
from pyrmq_core.errors import HeaderError
from pyrmq_core.protocol.messages import payload
from pyrmq_core.protocol.messages.compression import CompressionType, compress
from pyrmq_core.protocol.messages.record import encode_record
from pyrmq_core.protocol.requests.broker.heartbeat import SubscriptionData
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer
from pyrmq_core.protocol.routes.route import BrokerData
from pyrmq_core.testing import Command, EmbeddedCluster, RequestCode
from tests.consuming.test_failures import passing
from tests.support.consumer_jobs import SECONDS, Seen, consuming, fresh, made_topic, send
from tests.support.waiting import until

QUEUE = MessageQueue("orders", "broker-a", 0)


def pull_of(bodies: list[bytes]) -> RawPull:
    records = b"".join(
        encode_record(
            topic="orders",
            queue_id=0,
            queue_offset=offset,
            commit_log_offset=offset,
            body=compress(body, CompressionType.ZLIB),
            properties="",
            born_timestamp_ms=1,
            born_host="127.0.0.1:1",
            store_timestamp_ms=1,
            store_host="127.0.0.1:1",
            sys_flag=CompressionType.ZLIB.sys_flag,
        )
        for offset, body in enumerate(bodies)
    )
    return RawPull(QUEUE, 0, len(bodies), 0, len(bodies), PullStatus.FOUND, records, is_unfiltered=True)


def test_bodies_that_grow_too_much_together_come_in_several_pulls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "MAX_DECOMPRESSED_BYTES", 2500)
    messages, following = Receiver(TagFilter()).messages(pull_of([b"x" * 1000] * 5))
    assert ([message.queue_offset for message in messages], following) == ([0, 1], 2)
    messages, following = Receiver(TagFilter()).messages(pull_of([b"x" * 9000]))
    assert (len(messages), following) == (1, 1)  # one alone is never too much


async def test_they_are_all_consumed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "MAX_DECOMPRESSED_BYTES", 25_000)
    async with EmbeddedCluster() as cluster:
        topic, group, seen = await made_topic(cluster.nameserver, queues=1), fresh("group"), Seen()
        bodies = [f"{number:04}" * 1500 for number in range(200)]  # compressed, and enough to read ahead
        await send(cluster.nameserver, topic, bodies)
        async with consuming(cluster.nameserver, group, topic, seen, consume_threads=1):
            await seen.wait(200)
    assert seen.bodies == bodies


def membership(client: object) -> Membership:
    session = cast(ClientSession, client)
    return Membership(session, "group", PASSIVELY, MessageModel.CLUSTERING, ConsumeFromWhere.LAST_OFFSET)


async def joined(rounds: list[float]) -> Membership:
    """Returns a member that has joined; each round of its heartbeats adds its time to `rounds`."""

    async def send_round() -> None:
        rounds.append(trio.current_time())

    heartbeats = SimpleNamespace(send_round=send_round, add_consumer=lambda group, data: None)
    member = membership(SimpleNamespace(heartbeats=heartbeats, callbacks=lambda kind: kind(), unit_mode=False))
    await member.join(cast(Any, None))
    return member


async def test_changes_in_one_moment_share_a_round_of_heartbeats() -> None:
    rounds: list[float] = []
    member = await joined(rounds)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(member.run)
        for _ in range(100):
            member.announce_soon()
        await trio.testing.wait_all_tasks_blocked()
        assert len(rounds) == 2  # one of joining, one of the changes
        nursery.cancel_scope.cancel()


def test_a_topic_that_is_no_longer_subscribed_is_named() -> None:
    with pytest.raises(InvalidState, match="no longer subscribes to orders"):
        membership(SimpleNamespace()).filter_of("orders")


def test_a_broker_that_answers_another_subscription_each_time_fills_no_memory() -> None:
    member = membership(SimpleNamespace())
    own = member.subscribe("orders", TagFilter())
    for number in range(MOST_REPORTS * 2):
        member._report("orders", own, SubscriptionData("orders", f"t{number}"), "broker-a")
    assert len(member._reported) == MOST_REPORTS


async def test_differing_subscriptions_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with EmbeddedCluster() as cluster:
        topic, group = await made_topic(cluster.nameserver), fresh("group")
        async with (
            consuming(cluster.nameserver, group, topic, Seen(), tags="paid") as first,
            consuming(cluster.nameserver, group, topic, Seen(), tags="sent") as second,
        ):
            await until(lambda: first.assigned_queues and second.assigned_queues, SECONDS)
            for _ in range(3):
                for consumer in (first, second):  # the broker keeps the newer of the two, so the other one reports it
                    assert consumer._running is not None
                    await consumer._running.membership.report_differences()
    records = [record for record in caplog.records if "have different subscriptions to" in record.getMessage()]
    lines = [record.getMessage() for record in records]
    assert lines
    assert {record.levelname for record in records} == {"WARNING"}
    assert len(lines) == len(set(lines))
    for line in lines:
        assert group in line
        assert "'paid'" in line
        assert "'sent'" in line


async def test_more_members_than_a_group_can_have_are_not_divided_among(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalancer, "MOST_MEMBERS", 0)
    async with EmbeddedCluster() as cluster:
        topic, group = await made_topic(cluster.nameserver), fresh("group")
        rule = cluster.control(RequestCode.GET_CONSUMER_LIST_BY_GROUP, passing)
        async with consuming(cluster.nameserver, group, topic, Seen()) as consumer:
            await until(lambda: len(rule.seen) > 1, SECONDS)
            assert consumer.assigned_queues == ()


async def test_a_topic_that_is_unsubscribed_while_its_offsets_are_read_harms_nothing() -> None:
    async with EmbeddedCluster() as cluster:
        topic, other, group = await made_topic(cluster.nameserver), await made_topic(cluster.nameserver), fresh("group")
        seen, reached, go_on = Seen(), trio.Event(), trio.Event()

        async def slowly(request: Any, peer: Any) -> Any:
            if request.ext["topic"] == topic:
                reached.set()
                await go_on.wait()
            return await passing(request, peer)

        cluster.control(RequestCode.QUERY_CONSUMER_OFFSET, slowly)
        async with consuming(cluster.nameserver, group, topic, seen) as consumer:
            with trio.fail_after(SECONDS):
                await reached.wait()
            await consumer.unsubscribe(topic)
            await consumer.subscribe(other)
            go_on.set()
            await send(cluster.nameserver, other, ["a"])
            await seen.wait(1)
            assert {queue.topic for queue in consumer.assigned_queues} <= {other, f"%RETRY%{group}"}


async def test_the_lock_of_a_lost_queue_is_not_renewed_for_a_handler_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyrmq_core.client.consumer.consume.orderly.FIRST_RENEWAL_SECONDS", 0.05)
    monkeypatch.setattr("pyrmq_core.client.consumer.consume.orderly.RENEW_SECONDS", 0.05)
    async with EmbeddedCluster() as cluster:
        topic, group, began = await made_topic(cluster.nameserver, queues=1), fresh("group"), trio.Event()

        class Hangs(Seen):
            async def __call__(self, messages: Any) -> None:
                began.set()
                await trio.sleep_forever()

        await send(cluster.nameserver, topic, ["a"])
        async with consuming(cluster.nameserver, group, topic, Hangs(), orderly=True) as consumer:
            with trio.fail_after(SECONDS):
                await began.wait()
            assert consumer._running is not None
            for assigned in consumer._running.assigned.of_topic(topic):
                assigned.drop()
            rule = cluster.control(RequestCode.LOCK_BATCH_MQ, passing)
            await until(lambda: len(rule.seen) >= 4, SECONDS)  # the retry topic's queue is still renewed
            # One request may have been on its way when the queue was dropped.
            assert [request for request in rule.seen[1:] if topic.encode() in bytes(request.body)] == []


async def test_the_slave_that_a_broker_suggests_is_pulled_until_it_fails_or_another_is_suggested() -> None:
    broker = BrokerData("cluster", "broker-a", {0: "master:1", 2: "slave:2"})
    addresses: list[str] = []
    suggested = iter(["2", "2", "0", "7", "nonsense", "1" * 5000])

    async def answer(address: str, command: Command, *, timeout: float) -> Command:
        addresses.append(address)
        plain = PullAnswer(19, "").to_command()
        return replace(plain, ext={**plain.ext, "suggestWhichBrokerId": next(suggested)})

    client = cast(ClientSession, SimpleNamespace(call=answer, routes=SimpleNamespace(broker=lambda name: broker)))
    puller = Puller(client, "group", is_member=True)
    for _ in range(6):
        with suppress(HeaderError):  # an id that is no number of 64 bits
            await puller.pull(QUEUE, 0)
    assert addresses == ["master:1", "slave:2", "slave:2", "master:1", "master:1", "master:1"]
    puller._suggested[QUEUE] = 2
    puller.forget(QUEUE)
    assert await puller.address(QUEUE) == "master:1"
