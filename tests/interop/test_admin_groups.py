"""Consumer groups and producers of Apache RocketMQ, administered by us."""

from __future__ import annotations

import re

import pytest
import trio

from tests.support.apache import ApacheCluster
from tests.support.consumer_jobs import Seen, consuming
from tests.support.group_admin_jobs import GroupAdminJobs, administering, behind, described


class TestNewest(GroupAdminJobs):
    @pytest.fixture
    async def nameserver(self, apache_5: ApacheCluster) -> str:
        return apache_5.nameserver.address


@pytest.mark.soak
class TestOlder(GroupAdminJobs):
    is_old = True

    @pytest.fixture
    async def nameserver(self, apache_4: ApacheCluster) -> str:
        return apache_4.nameserver.address


async def test_tables_are_those_of_mqadmin(apache: ApacheCluster) -> None:
    """A member is connected, since 4.9's tool shows no progress of a group without a retry topic."""
    nameserver = apache.nameserver.address
    topic, group = await behind(nameserver)
    async with consuming(nameserver, group, topic, seen := Seen()), administering(nameserver) as admin:
        description = await described(admin, group, 4)
        await seen.wait(4)
        connections = await trio.to_thread.run_sync(apache.mqadmin, "consumerConnection", "-g", group)
    async with administering(nameserver) as admin:
        progress = await admin.groups.progress(group, topic=topic)
        every = {row.group: row for row in (await admin.groups.list()).groups}
    printed = await trio.to_thread.run_sync(apache.mqadmin, "consumerProgress", "-g", group)
    table = [line.split() for line in printed.splitlines() if line.startswith(topic)]
    assert sorted(tuple(row[1:5]) for row in table) == [
        (row.queue.broker_name, str(row.queue.queue_id), str(row.broker_offset), str(row.consumer_offset))
        for row in progress.queues
    ]
    assert int(re.findall(r"Diff Total: (\d+)", printed)[0]) == every[group].lag
    assert connections.count("PYTHON") == len(description.members)
    for member in description.members:
        assert re.search(rf"{member.client_id}\s+127\.0\.0\.1:\d+\s+PYTHON", connections), connections
    assert f"ConsumeType: {description.consume_type}" in connections
    assert f"MessageModel: {description.message_model}" in connections
