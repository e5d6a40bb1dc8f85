"""Tables of groups joined from several brokers' answers, as plain values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest
import trio
import trio.testing

from pyrmq_core import MessageQueue
from pyrmq_core.client.admin.group_tables import (
    BrokerGroups,
    BrokerProgress,
    groups_of,
    members_of,
    queue_progress,
    subscriptions_of,
    summaries,
)
from pyrmq_core.client.admin.servers import AdminServers, Server
from pyrmq_core.client.query_many import query_many
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.requests.broker.heartbeat import SubscriptionData
from pyrmq_core.protocol.requests.groups.connections import Connection, ConsumerConnections
from pyrmq_core.protocol.requests.groups.consume_stats import ConsumeStats, OffsetWrapper, QueueTimeSpan
from pyrmq_core.protocol.requests.groups.subscription_groups import SubscriptionGroupConfig
from tests.support.worked_lines import lines_of

QUEUE = MessageQueue("NS%orders", "broker-a", 0)
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SINCE_1970_MS = int(NOW.timestamp() * 1000)
FIRST_MS = SINCE_1970_MS - 60_000


@pytest.mark.parametrize(
    ("offset", "delay_ms", "first_ms", "waits"),
    [
        (3, 5000, FIRST_MS, NOW - timedelta(seconds=5)),
        (5, 0, FIRST_MS, None),  # nothing waits
        (5, 5000, FIRST_MS, None),
        (0, SINCE_1970_MS + 1, FIRST_MS, NOW - timedelta(seconds=60)),  # no store time is found: the first message
        (0, 0, FIRST_MS, NOW - timedelta(seconds=60)),
        (0, SINCE_1970_MS + 1, -1, None),
        (0, -7, FIRST_MS, NOW - timedelta(seconds=60)),
    ],
)
def test_the_oldest_message_that_waits(offset: int, delay_ms: int, first_ms: int, waits: datetime | None) -> None:
    stats = ConsumeStats(0.0, {QUEUE: OffsetWrapper(5, offset, None, 0)})
    answer = BrokerProgress(413, stats, {QUEUE: QueueTimeSpan(QUEUE, first_ms, delay_ms)})
    (row,) = queue_progress(answer, {MessageQueue("orders", "broker-a", 0): "c1"}, "NS", NOW)
    assert row.waiting_since == waits
    assert (row.queue.topic, row.client_id, row.last_consumed) == ("orders", "c1", None)


def test_a_broker_that_knows_no_times_leaves_them_out() -> None:
    stats = ConsumeStats(0.0, {QUEUE: OffsetWrapper(5, 3, 4, SINCE_1970_MS)})
    (row,) = queue_progress(BrokerProgress(413, stats, {}), {}, None, NOW)
    assert (row.waiting_since, row.last_consumed, row.lag, row.inflight) == (None, NOW, 2, 1)


def test_a_client_of_two_brokers_is_one_member() -> None:
    first, second = (ConsumerConnections((Connection("c1", place, "JAVA", 493),)) for place in ("h:1", "h:2"))
    (member,) = members_of([first, second])
    assert (member.client_id, member.address, member.version) == ("c1", "h:1", "5.4.0")


def test_the_latest_subscription_counts() -> None:
    old, new = (SubscriptionData("NS%orders", text, sub_version=at) for text, at in (("a", 1), ("b", 2)))
    for order in ((old, new), (new, old)):
        answers = [ConsumerConnections((), subscriptions={"NS%orders": data}) for data in order]
        (subscription,) = subscriptions_of(answers, "NS")
        assert (subscription.topic, subscription.sub_string) == ("orders", "b")


def test_a_tenant_sees_no_other_groups() -> None:
    configs = {name: SubscriptionGroupConfig(name) for name in ("NS%audit", "audit", "OTHER%audit", "TOOLS_CONSUMER")}
    stats = {"NS%audit": (ConsumeStats(0.0, {QUEUE: OffsetWrapper(5, 3)}),)}
    answers = {"broker-a": BrokerGroups(configs, stats, {}), "broker-b": BrokerGroups({}, stats, {})}
    (row,) = summaries(answers, "NS")
    assert (row.group, row.lag, row.topics, row.brokers) == ("audit", 4, ("orders",), ("broker-a",))
    assert len(summaries(answers, None)) == 4


def test_the_work_of_a_list_grows_with_the_groups_and_not_with_the_brokers_beside_them() -> None:
    """10,000 groups on 1,000 brokers, each at 8, are 80,000 rows and not 10,000,000."""

    def lines(count: int) -> int:
        groups = [f"g{number}" for number in range(count)]
        answers = {name: BrokerGroups({name: SubscriptionGroupConfig(name)}, {}, {}) for name in groups}
        assert len(summaries(answers, None)) == count
        return lines_of(lambda: summaries(answers, None))

    assert lines(400) < 12 * lines(40)


async def test_the_queries_for_members_at_all_brokers_share_one_bound() -> None:
    """With a thousand brokers of many groups the last query would else wait in the client for longer than it may."""
    under_way, most, groups = 0, 0, [f"g{number}" for number in range(20)]

    async def ask(server: Server, command: Command, about: str = "") -> Command:
        nonlocal under_way, most
        if command.code == RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
            return success(body=dumps({"subscriptionGroupTable": {group: {"groupName": group} for group in groups}}))
        if command.code == RequestCode.GET_BROKER_CONSUME_STATS:
            return success(body=b'{"consumeStatsList":[]}')
        under_way += 1
        most = max(most, under_way)
        await trio.testing.wait_all_tasks_blocked()
        under_way -= 1
        return success(body=b'{"connectionSet":[]}')

    limit = trio.CapacityLimiter(6)
    servers = cast(AdminServers, SimpleNamespace(ask=ask))
    brokers = [Server(f"broker-{number}", f"10.0.0.{number}:10911") for number in range(5)]
    answers = await query_many(brokers, lambda server: groups_of(servers, server, limit))
    assert most == 6
    assert [len(answer.connections) for answer in answers.values()] == [20] * 5
