"""Consumer groups and producers, administered on our own cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime

import pytest
import trio

from pyrmq_core import Admin, CallTimeout, InvalidArgument, MessageExt, PushConsumer, ResponseError, blocking
from pyrmq_core.client import query_many
from pyrmq_core.client.admin.values import WaitKind
from pyrmq_core.testing import Command, CutConnection, EmbeddedCluster, Peer, RequestCode, ResponseCode, refusal
from tests.support.consumer_jobs import Seen, committed, consuming, fresh, made_topic
from tests.support.group_admin_jobs import GroupAdminJobs, administering, behind, described
from tests.support.waiting import POLL_SECONDS


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


class TestOurs(GroupAdminJobs):
    @pytest.fixture
    async def nameserver(self, cluster: EmbeddedCluster) -> str:
        return cluster.nameserver


async def cut(_request: Command, _peer: Peer) -> None:
    raise CutConnection


async def test_a_broker_that_is_down_is_named_and_the_rest_is_there(cluster: EmbeddedCluster) -> None:
    topic, group = await behind(cluster.nameserver)
    async with administering(cluster.nameserver) as admin:
        await admin.groups.create(group)
        for code in RequestCode:
            cluster.control(code, cut, server="broker-b")
        listed, progress = await admin.groups.list(), await admin.groups.progress(group)
        description = await admin.groups.describe(group)
        producers = await admin.producers.list()
    (row,) = [row for row in listed.groups if row.group == group]
    assert (row.lag, row.brokers) == (2, ("broker-a",))
    assert {queue.queue.broker_name for queue in progress.queues} == {"broker-a"}
    assert list(description.configs) == ["broker-a"]
    for result in (listed, progress, description, producers):
        assert list(result.failures) == ["broker-b"]
        assert cluster.brokers["broker-b"] in str(result.failures["broker-b"])
    assert topic in row.topics


async def test_with_no_answer_at_all_the_error_is_raised(cluster: EmbeddedCluster) -> None:
    async def refuse(_request: Command, _peer: Peer) -> Command:
        return refusal(ResponseCode.NO_PERMISSION, "not yours")

    cluster.control(RequestCode.GET_CONSUME_STATS, refuse)
    async with administering(cluster.nameserver) as admin:
        with pytest.raises(ResponseError, match="not yours"):
            await admin.groups.progress("audit")


async def test_a_reset_without_a_zone_or_of_another_kind_is_refused(cluster: EmbeddedCluster) -> None:
    async with administering(cluster.nameserver) as admin:
        with pytest.raises(InvalidArgument, match="has no time zone"):
            await admin.groups.reset("audit", "orders", datetime(2026, 1, 1))
        with pytest.raises(InvalidArgument, match="'earliest', 'latest' or a datetime"):
            await admin.groups.reset("audit", "orders", "now")  # type: ignore[arg-type]


async def test_brokers_that_leave_a_reset_to_members_get_commits_instead() -> None:
    async with EmbeddedCluster(brokers=2, settings={"useServerSideResetOffset": "false"}) as cluster:
        topic, group = await behind(cluster.nameserver)
        async with administering(cluster.nameserver) as admin:
            changes = await admin.groups.reset(group, topic, "latest")
            assert [(change.before, change.after) for change in changes] == [(1, 2)] * 4
        assert set((await committed(cluster.nameserver, group, topic)).values()) == {2}


async def test_a_member_that_does_not_report_has_an_error(cluster: EmbeddedCluster) -> None:
    topic, group = await made_topic(cluster.nameserver), fresh("group")

    async def refuse(_request: Command, _peer: Peer) -> Command:
        return refusal(ResponseCode.CONSUMER_NOT_ONLINE, "gone at this moment")

    cluster.control(RequestCode.GET_CONSUMER_RUNNING_INFO, refuse)
    async with consuming(cluster.nameserver, group, topic, Seen()), administering(cluster.nameserver) as admin:
        await admin.groups.create(group)
        with trio.fail_after(60):
            while not (members := (await admin.groups.describe(group)).members):  # noqa: ASYNC110
                await trio.sleep(POLL_SECONDS)
    (member,) = members
    assert member.running_info is None
    assert "gone at this moment" in str(member.error)
    assert member.queues == ()


async def test_dead_members_delay_no_table(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries members one after the other: the second has no time left, and no time of its own."""
    monkeypatch.setattr(query_many, "QUERIES_AT_ONCE", 1)
    topic, group = await behind(cluster.nameserver)
    never = trio.Event()

    async def hold(_request: Command, _peer: Peer) -> None:
        await never.wait()

    async with (
        consuming(cluster.nameserver, group, topic, Seen(), instance_name="one"),
        consuming(cluster.nameserver, group, topic, Seen(), instance_name="two"),
        Admin(nameserver=cluster.nameserver, timeout=20) as patient,
    ):
        await described(patient, group, 4, members=2)
        cluster.control(RequestCode.GET_CONSUMER_RUNNING_INFO, hold)
        async with Admin(nameserver=cluster.nameserver, timeout=3) as admin:
            with trio.fail_after(60):
                progress = await admin.groups.progress(group, members=True)
    assert progress.description is not None
    errors = [member.error for member in progress.description.members]
    assert [isinstance(error, CallTimeout) for error in errors] == [True, True]
    assert any("did not report within 3 s" in str(error) for error in errors)
    assert {row.queue.topic for row in progress.queues} >= {topic}


async def test_progress_says_why_messages_wait(cluster: EmbeddedCluster) -> None:
    topic, group = await behind(cluster.nameserver, messages=5)
    go_on = trio.Event()

    async def handle(_messages: Sequence[MessageExt]) -> None:
        await go_on.wait()

    async with administering(cluster.nameserver) as admin:
        await admin.groups.create(group)
        (nobody,) = (await admin.groups.progress(group, members=True)).reasons
        assert (nobody.kind, nobody.lag, len(nobody.queues)) == (WaitKind.NO_MEMBER, 16, 4)
        await admin.topics.update_perm(topic, 2, broker="broker-b")
        kinds = {reason.kind: reason.lag for reason in (await admin.groups.progress(group, members=True)).reasons}
        assert kinds == {WaitKind.NO_MEMBER: 8, WaitKind.NO_RIGHT: 8}
        await admin.topics.update_perm(topic, 6, broker="broker-b")
        async with (
            PushConsumer(group, nameserver=cluster.nameserver) as consumer,
            trio.open_nursery() as nursery,
        ):
            await consumer.subscribe(topic)
            nursery.start_soon(consumer.run, handle)
            with trio.fail_after(60):
                while True:
                    reasons = (await admin.groups.progress(group, members=True)).reasons
                    if [(reason.kind, reason.lag) for reason in reasons] == [(WaitKind.IN_MEMORY, 16)]:
                        break
                    await trio.sleep(POLL_SECONDS)
            (slow,) = reasons
            assert slow.text.startswith(f"16 in the memory of {slow.client_id}")
            assert slow.client_id is not None
            assert "thread" in await admin.groups.stack(group, slow.client_id)
            go_on.set()
            await consumer.stop(5)


async def test_members_that_may_not_be_listed_leave_the_offsets(cluster: EmbeddedCluster) -> None:
    _, group = await behind(cluster.nameserver)

    async def refuse(_request: Command, _peer: Peer) -> Command:
        return refusal(ResponseCode.NO_PERMISSION, "not yours")

    cluster.control(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, refuse)
    async with administering(cluster.nameserver) as admin:
        progress = await admin.groups.progress(group, members=True)
    assert (progress.lag, progress.description, progress.reasons) == (4, None, ())
    assert "not yours" in str(progress.members_error)


def test_the_blocking_families_do_the_same() -> None:
    with (
        blocking.EmbeddedCluster(brokers=2) as cluster,
        blocking.Admin(nameserver=cluster.nameserver) as admin,
    ):
        admin.groups.create("audit", retry_max_times=2)
        assert admin.groups.config("audit")["broker-a"].retry_max_times == 2
        assert "audit" in {row.group for row in admin.groups.list().groups}
        assert admin.producers.list().producers == ()
