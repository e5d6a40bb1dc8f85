"""Stored messages, administered on our own cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime

import pytest

from pyrmq_core import (
    BrokerNotFound,
    ConsumeLater,
    InvalidArgument,
    Message,
    NoRoute,
    Producer,
    PullConsumer,
    blocking,
)
from pyrmq_core.client.admin.message_tracks import TrackType
from pyrmq_core.testing import Command, CutConnection, EmbeddedCluster, Peer, RequestCode
from tests.support.consumer_jobs import Seen, consuming, fresh, made_topic, send
from tests.support.group_admin_jobs import administering
from tests.support.message_admin_jobs import MessageAdminJobs, dead, eventually, found, sent


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


class TestOurs(MessageAdminJobs):
    @pytest.fixture
    async def nameserver(self, cluster: EmbeddedCluster) -> str:
        return cluster.nameserver


async def cut(_request: Command, _peer: Peer) -> Command:
    raise CutConnection


async def test_a_broker_that_is_down_is_named_and_its_neighbours_messages_are_there(cluster: EmbeddedCluster) -> None:
    topic = await made_topic(cluster.nameserver, 1)
    unique = await sent(cluster.nameserver, topic, keys="k1")
    async with administering(cluster.nameserver) as admin:
        await found(admin, topic, unique)
        cluster.control(RequestCode.QUERY_MESSAGE, cut, server="broker-b")
        listed = [await admin.messages.by_key(topic, "k1"), await admin.messages.by_unique_key(topic, unique)]
    for listing in listed:
        assert [message.msg_id for message in listing.messages] == [unique]
        assert list(listing.failures) == ["broker-b"]


async def test_a_tenants_dead_letter_goes_back_to_its_group(cluster: EmbeddedCluster) -> None:
    space, group, seen = "NS", fresh("group"), Seen()
    seen.orders = {"poison": [ConsumeLater(-1)]}
    async with administering(cluster.nameserver, space) as admin:
        await admin.create_topic("orders", queues=1)
        async with consuming(cluster.nameserver, group, "orders", seen, namespace=space):
            async with Producer("p", nameserver=cluster.nameserver, namespace=space) as producer:
                await producer.send(Message("orders", b"poison"))
            await seen.wait(1)
            (letter,) = (
                await eventually(lambda: admin.messages.dead_letters(group), lambda letters: bool(letters.messages))
            ).messages
            assert letter.topic == f"%DLQ%{group}"
            await admin.messages.resend(group, letter)
            await seen.wait(2)
        async with Producer("p", nameserver=cluster.nameserver, namespace=space) as producer:
            result = await producer.send(Message("orders", b"seen by two groups"))
        async with PullConsumer("outside", nameserver=cluster.nameserver) as consumer:
            await consumer.commit(replace(result.message_queue, topic=f"{space}%orders"), 0)
        message = await found(admin, "orders", result.msg_id)
        assert {track.group for track in await admin.messages.track(message)} == {group}
    assert {message.topic for message in seen.messages} == {"orders"}


async def test_a_dead_letter_that_names_its_first_topic_in_one_way_only_is_resent(cluster: EmbeddedCluster) -> None:
    topic, group, seen = await made_topic(cluster.nameserver, 1), fresh("group"), Seen()
    async with administering(cluster.nameserver) as admin:
        letter = await dead(cluster.nameserver, admin, group, topic)
        both = ("DLQ_ORIGIN_TOPIC", "RETRY_TOPIC")
        others = {name: value for name, value in letter.properties.items() if name not in both}
        async with consuming(cluster.nameserver, group, topic, seen):
            for name in both:
                await admin.messages.resend(group, replace(letter, properties={**others, name: topic}))
            await seen.wait(2)
        with pytest.raises(InvalidArgument, match="does not name the topic that it was first sent to"):
            await admin.messages.resend(group, replace(letter, properties=others))
    assert {message.topic for message in seen.messages} == {topic}


async def test_a_trace_has_the_events_of_its_message_alone(cluster: EmbeddedCluster) -> None:
    records = ["\x01".join(("Recall", str(at), "R", "G", "T", msg_id, "true")) for at, msg_id in ((2, "A"), (1, "B"))]
    body = "\x02".join([*records, "Recall\x01many\x01\x01", records[0].replace("2", "1")]).encode() + b"\x02\xff"
    async with administering(cluster.nameserver) as admin:
        async with Producer("p", nameserver=cluster.nameserver) as producer:
            await producer.send(Message("RMQ_SYS_TRACE_TOPIC", body, keys="A B"))
        trace = await eventually(lambda: admin.messages.trace("A"), lambda answer: bool(answer.events))
        with pytest.raises(NoRoute):
            await admin.messages.trace("A", trace_topic="absent")
    assert [(event.msg_id, event.timestamp_ms) for event in trace.events] == [("A", 1), ("A", 2)]


async def test_wrong_arguments_are_named(cluster: EmbeddedCluster) -> None:
    topic, group = await made_topic(cluster.nameserver, 1), fresh("group")
    async with administering(cluster.nameserver) as admin:
        letter = await dead(cluster.nameserver, admin, group, topic)
        with pytest.raises(InvalidArgument, match="'retry' or 'origin'"):
            await admin.messages.resend(group, letter, to="elsewhere")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="has no time zone"):
            await admin.messages.by_key(topic, "k", begin=datetime(2026, 1, 1))
        with pytest.raises(InvalidArgument, match="has no time zone"):
            await admin.messages.dead_letters(group, begin=datetime(2026, 1, 1))
        with pytest.raises(NoRoute):
            await admin.messages.by_key("absent", "k")
        with pytest.raises(BrokerNotFound, match="knows no broker 'broker-z'"):
            await admin.messages.consume_directly(group, replace(letter, broker_name="broker-z"))


async def test_a_group_that_cannot_be_queried_is_unknown(cluster: EmbeddedCluster) -> None:
    topic, group = await made_topic(cluster.nameserver, 1), fresh("group")
    async with administering(cluster.nameserver) as admin:
        letter = await dead(cluster.nameserver, admin, group, topic)
        message = await found(admin, topic, letter.msg_id)
        cluster.control(RequestCode.GET_CONSUME_STATS, cut)
        (track,) = await admin.messages.track(message)
    assert track.track_type is TrackType.UNKNOWN
    assert "GET_CONSUME_STATS" in str(track.error)


async def test_only_the_newest_dead_letters_are_read(cluster: EmbeddedCluster) -> None:
    topic = "%DLQ%audit"
    async with administering(cluster.nameserver) as admin:
        await admin.create_topic(topic, queues=1)
        await send(cluster.nameserver, topic, [str(number) for number in range(40)])
        newest = (await admin.messages.dead_letters("audit", max_num=3)).messages
        every = (await admin.messages.dead_letters("audit")).messages
        late = (await admin.messages.dead_letters("audit", begin=every[-1].store_timestamp)).messages
    assert len(every) == 40
    by_queue = {(letter.broker_name, letter.queue_offset) for letter in newest}
    assert len(newest) == 6
    for name in ("broker-a", "broker-b"):
        offsets = sorted(letter.queue_offset for letter in every if letter.broker_name == name)
        assert {place for broker, place in by_queue if broker == name} == set(offsets[-3:])
    assert every[-1] in late
    assert len(late) < 40


def test_the_blocking_family_does_the_same() -> None:
    with (
        blocking.EmbeddedCluster(brokers=1, topics={"orders": 1}) as cluster,
        blocking.Admin(nameserver=cluster.nameserver) as admin,
    ):
        assert admin.messages.by_key("orders", "k").messages == ()
        assert admin.messages.dead_letters("audit").messages == ()
