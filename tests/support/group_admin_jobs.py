"""Tests of `Admin.groups` and `Admin.producers` that run alike on our servers and on each release of RocketMQ."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
import trio

from pyrmq_core import Admin, InvalidArgument, InvalidState, Message, MessageQueue, Producer, PullConsumer
from pyrmq_core.client.admin.values import GroupDescription, GroupProgress
from tests.support.consumer_jobs import Seen, committed, consuming, fresh, made_topic, send
from tests.support.waiting import POLL_SECONDS, until_readable

SECONDS = 60.0
# Java's brokers count a second as up to two of ours on a busy machine.
SKEW = timedelta(seconds=60)


@asynccontextmanager
async def administering(nameserver: str, namespace: str | None = None) -> AsyncIterator[Admin]:
    async with Admin(nameserver=nameserver, timeout=20, namespace=namespace) as admin:
        yield admin


async def described(admin: Admin, group: str, queues: int, members: int = 1) -> GroupDescription:
    """Returns the description of the group when its members are so many, and share the queues evenly."""
    await admin.groups.create(group)
    with trio.fail_after(SECONDS):
        while True:
            description = await admin.groups.describe(group)
            held = [sum(not queue.topic.startswith("%") for queue in member.queues) for member in description.members]
            if held == [queues // members] * members:
                return description
            await trio.sleep(POLL_SECONDS)


async def progressed(admin: Admin, group: str, topic: str, lag: int) -> GroupProgress:
    """Returns the progress of the group in the topic when it is so far behind."""
    with trio.fail_after(SECONDS):
        while True:
            progress = await admin.groups.progress(group, topic=topic)
            if progress.lag == lag:
                return progress
            await trio.sleep(POLL_SECONDS)


async def behind(nameserver: str, messages: int = 2) -> tuple[str, str]:
    """Makes a topic of four queues with so many messages each, and a group that consumed the first of each queue."""
    topic, group = await made_topic(nameserver), fresh("group")
    async with Producer(fresh("senders"), nameserver=nameserver, send_timeout=20) as producer:
        for queue in [MessageQueue(topic, name, place) for name in ("broker-a", "broker-b") for place in (0, 1)]:
            for number in range(messages):
                await producer.send(Message(topic, str(number).encode()), queue=queue)
    await until_readable(nameserver, topic, 4 * messages)
    async with PullConsumer(group, nameserver=nameserver, timeout=20) as consumer:
        await consumer.commit_offsets(dict.fromkeys(await consumer.message_queues(topic), 1))
    return topic, group


class GroupAdminJobs:
    """One test a promise; `nameserver` is a fixture of the class that inherits these."""

    is_old = False  # the brokers are of 4.9

    async def test_the_list_has_each_group_with_its_lag(self, nameserver: str) -> None:
        topic, group = await behind(nameserver)
        async with administering(nameserver) as admin:
            await admin.groups.create(group)  # 4.9 keeps offsets of groups that it does not list
            listing = await admin.groups.list()
        (row,) = [row for row in listing.groups if row.group == group]
        assert (row.members, row.consume_type, row.message_model) == (0, None, None)
        assert (row.lag, row.topics, row.brokers) == (4, (topic,), ("broker-a", "broker-b"))
        assert [row.group for row in listing.groups] == sorted(row.group for row in listing.groups)
        assert not listing.failures

    async def test_members_are_described_with_their_queues(self, nameserver: str) -> None:
        topic, group, seen = await made_topic(nameserver), fresh("group"), Seen()
        async with (
            consuming(nameserver, group, topic, seen, tags="a || b", instance_name="one"),
            consuming(nameserver, group, topic, seen, tags="a || b", instance_name="two"),
            administering(nameserver) as admin,
        ):
            description = await described(admin, group, 4, members=2)
            listed = [row for row in (await admin.groups.list()).groups if row.group == group]
            with pytest.raises(InvalidState, match=f"members of group {group}"):
                await admin.groups.delete(group)
            with pytest.raises(InvalidState, match=f"members of group {group}"):
                await admin.groups.clone("nobody", group)
            with pytest.raises(InvalidState, match=f"members of group {group}"):
                await admin.groups.reset(group, topic, "latest", offline=True)
            progress = await admin.groups.progress(group, topic=topic, members=True)
        assert len(description.members) == 2
        assert {member.language for member in description.members} == {"PYTHON"}
        assert {member.version for member in description.members} == {"5.3.3"}
        assert all(member.address.startswith("127.0.0.1:") for member in description.members)
        held = [[queue for queue in member.queues if queue.topic == topic] for member in description.members]
        assert [len(queues) for queues in held] == [2, 2]
        assert len({queue for queues in held for queue in queues}) == 4
        (subscription,) = [subscription for subscription in description.subscriptions if subscription.topic == topic]
        assert subscription.sub_string == "a || b"
        assert (description.consume_type, description.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
        assert description.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
        assert not description.failures
        assert [(row.members, row.consume_type) for row in listed] == [(2, "CONSUME_PASSIVELY")]
        holders = {queue: member.client_id for member in description.members for queue in member.queues}
        assert {row.queue: row.client_id for row in progress.queues} == {
            row.queue: holders.get(row.queue) for row in progress.queues
        }

    async def test_progress_has_the_oldest_message_that_waits(self, nameserver: str) -> None:
        topic, group = await behind(nameserver)
        async with administering(nameserver) as admin:
            progress = await admin.groups.progress(group)
            async with PullConsumer(group, nameserver=nameserver, timeout=20) as consumer:
                stored = {}
                for queue in await consumer.message_queues(topic):
                    pulled = (await consumer.pull(queue, 0, wait=5)).messages
                    stored[queue] = [message.store_timestamp for message in pulled]
        assert [row.queue for row in progress.queues] == sorted(stored)
        for row in progress.queues:
            assert (row.broker_offset, row.consumer_offset, row.lag) == (2, 1, 1)
            assert row.inflight in ((None,) if self.is_old else (0, None))
            assert row.last_consumed == stored[row.queue][0]
            assert row.waiting_since is not None
            assert abs(row.waiting_since - stored[row.queue][1]) < SKEW
        assert progress.lag == 4
        assert progress.waiting_since == min(row.waiting_since for row in progress.queues if row.waiting_since)

    async def test_a_group_that_consumed_all_waits_for_nothing(self, nameserver: str) -> None:
        topic, group = await behind(nameserver, messages=1)
        async with administering(nameserver) as admin:
            progress = await admin.groups.progress(group, topic=topic)
            never = await admin.groups.progress(fresh("never"))
        assert (progress.lag, progress.waiting_since, len(progress.queues)) == (0, None, 4)
        assert (never.queues, never.lag, never.waiting_since) == ((), None, None)

    async def test_an_offline_group_is_reset(self, nameserver: str) -> None:
        topic, group = await behind(nameserver)
        async with administering(nameserver) as admin:
            preview = await admin.groups.preview_reset(group, topic, "latest")
            latest = await admin.groups.reset(group, topic, "latest")
            assert preview == latest
            assert [(change.before, change.after) for change in latest] == [(1, 2)] * 4
            assert (await admin.groups.progress(group, topic=topic)).lag == 0
            earliest = await admin.groups.reset(group, topic, "earliest", offline=True)
            assert [(change.before, change.after) for change in earliest] == [(2, 0)] * 4
            assert (await admin.groups.progress(group, topic=topic)).lag == 8
            await admin.groups.reset(group, topic, datetime.now(UTC) + timedelta(hours=1), offline=True)
            assert set((await committed(nameserver, group, topic)).values()) == {2}
            long_ago = datetime(2001, 1, 1, tzinfo=UTC)
            preview = await admin.groups.preview_reset(group, topic, long_ago)
            assert preview == await admin.groups.reset(group, topic, long_ago)
            assert set((await committed(nameserver, group, topic)).values()) == {0}

    async def test_an_online_group_follows_a_reset(self, nameserver: str) -> None:
        topic, group, seen = await made_topic(nameserver, 1), fresh("group"), Seen()
        async with consuming(nameserver, group, topic, seen), administering(nameserver) as admin:
            await send(nameserver, topic, ["a", "b", "c"])
            await seen.wait(3)
            await progressed(admin, group, topic, 0)
            changes = await admin.groups.reset(group, topic, "earliest")
            assert sum(change.before or 0 for change in changes) == 3
            assert sum(change.after for change in changes) == 0
            await seen.wait(6)
        assert sorted(seen.bodies) == ["a", "a", "b", "b", "c", "c"]

    async def test_one_queue_is_sought(self, nameserver: str) -> None:
        topic, group = await behind(nameserver)
        queue = MessageQueue(topic, "broker-b", 1)
        async with administering(nameserver) as admin:
            change = await admin.groups.seek(group, queue, 2)
            assert (change.queue, change.before, change.after) == (queue, 1, 2)
            with pytest.raises(InvalidArgument, match="3 is none of them"):
                await admin.groups.seek(group, queue, 3)
        offsets = await committed(nameserver, group, topic)
        assert offsets.pop(queue) == 2
        assert set(offsets.values()) == {1}

    async def test_one_queue_of_an_online_group_is_sought_where_brokers_can(self, nameserver: str) -> None:
        topic, group, seen = await made_topic(nameserver, 1), fresh("group"), Seen()
        async with consuming(nameserver, group, topic, seen), administering(nameserver) as admin:
            queue = MessageQueue(topic, "broker-a", 0)
            async with Producer(fresh("senders"), nameserver=nameserver, send_timeout=20) as producer:
                for body in (b"a", b"b", b"c"):
                    await producer.send(Message(topic, body), queue=queue)
            await seen.wait(3)
            await progressed(admin, group, topic, 0)
            if self.is_old:
                with pytest.raises(InvalidState, match=r"broker-a .* is of 4\.9\.7, which resets all queues"):
                    await admin.groups.seek(group, queue, 1)
                return
            await admin.groups.seek(group, queue, 1)
            await seen.wait(5)
        assert [message.queue_offset for message in seen.messages] == [0, 1, 2, 1, 2]

    async def test_offsets_are_cloned(self, nameserver: str) -> None:
        topic, group = await behind(nameserver)
        clone, other = fresh("clone"), fresh("clone")
        async with administering(nameserver) as admin:
            await admin.groups.create(clone)
            await admin.groups.create(other)
            assert await admin.groups.clone(group, clone) == (topic,)
            assert await admin.groups.clone(group, other, topic=topic) == (topic,)
            with pytest.raises(InvalidArgument, match="no offsets in topic other"):
                await admin.groups.clone(group, other, topic="other")
        assert set((await committed(nameserver, clone, topic)).values()) == {1}
        assert set((await committed(nameserver, other, topic)).values()) == {1}

    async def test_settings_are_made_changed_and_deleted(self, nameserver: str) -> None:
        group, absent = fresh("made"), fresh("absent")
        async with administering(nameserver) as admin:
            await admin.groups.create(group, retry_max_times=3)
            await admin.groups.create(group, consume_enable=False)
            configs = await admin.groups.config(group)
            assert sorted(configs) == ["broker-a", "broker-b"]
            assert {(config.retry_max_times, config.consume_enable) for config in configs.values()} == {(3, False)}
            assert (await admin.groups.describe(group)).configs == configs
            await admin.groups.delete(group)
            await admin.groups.delete(absent)
            assert await admin.groups.config(group) == {}
            with pytest.raises(InvalidArgument, match=f"no broker knows a group {group}"):
                await admin.groups.describe(group)

    async def test_a_deleted_group_has_no_offsets(self, nameserver: str) -> None:
        topic, group = await behind(nameserver)
        async with administering(nameserver) as admin:
            await admin.groups.create(group)
            await admin.groups.delete(group)
            assert (await admin.groups.progress(group)).queues == ()
        assert not any((await committed(nameserver, group, topic)).values())

    async def test_a_tenant_sees_its_own_groups(self, nameserver: str) -> None:
        space, topic = fresh("NS"), fresh("orders")
        async with administering(nameserver, space) as admin, administering(nameserver) as everyone:
            await admin.create_topic(topic, queues=1)
            await admin.groups.create("audit")
            async with Producer("p", nameserver=nameserver, namespace=space, send_timeout=20) as producer:
                await producer.send(Message(topic, b"x"), queue=MessageQueue(topic, "broker-a", 0))
            await until_readable(nameserver, f"{space}%{topic}", 1)
            changes = await admin.groups.reset("audit", topic, "earliest", offline=True)
            assert {change.queue.topic for change in changes} == {topic}
            rows = {row.group: row for row in (await admin.groups.list()).groups}
            assert rows["audit"].topics == (topic,)
            assert not any(space in name for name in rows)
            assert f"{space}%audit" in {row.group for row in (await everyone.groups.list()).groups}
            progress = await admin.groups.progress("audit")
            assert {(row.queue.topic, row.lag) for row in progress.queues} == {(topic, 1), (topic, 0)}
            assert (await admin.groups.config("audit"))["broker-a"].group_name == "audit"

    async def test_producers_are_listed(self, nameserver: str) -> None:
        topic, group = await made_topic(nameserver, 1), fresh("senders")
        async with (
            Producer(group, nameserver=nameserver, send_timeout=20) as producer,
            administering(nameserver) as admin,
        ):
            await producer.send(Message(topic, b"x"))
            with trio.fail_after(SECONDS):
                while not (producers := (await admin.producers.members(group)).producers):  # noqa: ASYNC110
                    await trio.sleep(POLL_SECONDS)
            every = await admin.producers.list()
            none = await admin.producers.members(fresh("absent"))
        (member,) = producers
        assert (member.group, member.language, member.version) == (group, "PYTHON", "5.3.3")
        assert member.address.startswith("127.0.0.1:")
        (same,) = [row for row in every.producers if row.group == group]
        assert (same.client_id, same.address) == (member.client_id, member.address)
        assert same.seen is not None
        assert abs(same.seen - datetime.now(UTC)) < SKEW
        assert (none.producers, none.failures) == ((), {})
