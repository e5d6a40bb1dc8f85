"""Our slave has the tables of a Java master of each release, and gives it back the offsets committed meanwhile."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.json_text import load_object
from pyrmq_core.protocol.requests.broker.consumer_offsets import UpdateConsumerOffset
from pyrmq_core.protocol.requests.broker.group_config import GetSubscriptionGroupConfig
from pyrmq_core.protocol.routes.topic_config import TopicConfigTable
from tests.servers.broker.serving import Served, serving
from tests.support.apache import BROKER_SETTINGS, NEWEST_AND_LONG_OLDER, ApacheBroker, ApacheCluster, ask, boot_cluster
from tests.support.maven import ApacheUnavailable
from tests.support.store_jobs import message, wait_end

SECONDS = 60.0
LENGTHS = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
FOLLOWS = {name: BROKER_SETTINGS[name] for name in LENGTHS} | {"brokerRole": "SLAVE", "brokerId": "1"}


@pytest.fixture(params=NEWEST_AND_LONG_OLDER)
def cluster(request: pytest.FixtureRequest) -> Iterator[ApacheCluster]:
    try:
        with boot_cluster(request.param) as cluster:
            fill(cluster.brokers["broker-a"])
            yield cluster
    except ApacheUnavailable as reason:
        pytest.skip(f"Apache RocketMQ {request.param}: {reason}")


def fill(master: ApacheBroker) -> None:
    """Makes topics, groups and offsets, and delivers a delayed message."""
    for number in range(3):
        assert ask(master.address, message(f"T{number}", 0, b"x").to_command()).code == 0
        body = b'{"groupName":"g%d","retryMaxTimes":%d}' % (number, number)
        assert ask(master.address, Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)).code == 0
        assert ask(master.address, UpdateConsumerOffset(f"g{number}", f"T{number}", 0, 10).to_command()).code == 0
    assert ask(master.address, message("T0", 0, b"late", "DELAY\x011\x02").to_command()).code == 0
    wait_end(master.address, "T0", 0, 2)


async def wait_for(slave: Served, path: Path, log_end: int) -> None:
    """Returns when the slave has the log, and its tables are in its files."""
    broker = slave.running.broker
    with trio.fail_after(SECONDS):
        while broker.store.readable_end < log_end or broker.tables.topics.file.is_behind:  # noqa: ASYNC110
            await trio.sleep(0.1)
        while broker.tables.offsets.committed("g2", "T2", 0) != 10 or not broker.deliveries.delays.progress():  # noqa: ASYNC110
            await trio.sleep(0.1)


def members(address: str, code: RequestCode) -> dict[str, object]:
    return load_object(ask(address, Command(code)).body, code.name)


async def test_the_tables_of_a_java_master_arrive(cluster: ApacheCluster, tmp_path: Path) -> None:
    master = cluster.brokers["broker-a"]
    table = await trio.to_thread.run_sync(members, master.address, RequestCode.GET_BROKER_RUNTIME_INFO)
    figures = table["table"]
    assert isinstance(figures, dict)
    async with serving(tmp_path, namesrvAddr=cluster.nameserver.address, **FOLLOWS) as slave:
        broker = slave.running.broker
        await wait_for(slave, tmp_path, int(figures["commitLogMaxOffset"]))
        with trio.fail_after(SECONDS):  # the master may make a topic of its own between the fetch and this look
            while True:
                answer = await trio.to_thread.run_sync(ask, master.address, Command(RequestCode.GET_ALL_TOPIC_CONFIG))
                if broker.tables.topics.table() == TopicConfigTable.from_json(answer.body):
                    break
                await trio.sleep(0.2)
        groups = await trio.to_thread.run_sync(members, master.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        configs = groups["subscriptionGroupTable"]
        assert isinstance(configs, dict)
        assert set(broker.tables.groups.names()) == set(configs)
        for name, settings in configs.items():
            assert settings.items() <= (broker.tables.groups.known(name) or {}).items()
        assert broker.deliveries.delays.progress() == [(1, 1, 1)]
        assert (
            TopicConfigTable.from_json((tmp_path / "config" / "topics.json").read_bytes())
            == broker.tables.topics.table()
        )

        await trio.to_thread.run_sync(master.terminate)
        assert (await slave.ask(GetSubscriptionGroupConfig("began-here").to_command())).code == 0
        for group, offset in (("g1", 17), ("began-here", 18)):
            assert (await slave.ask(UpdateConsumerOffset(group, "T1", 0, offset).to_command())).code == 0
        await trio.to_thread.run_sync(master.restart)

        def offsets_on_master() -> list[object]:
            table = members(master.address, RequestCode.GET_ALL_CONSUMER_OFFSET)["offsetTable"]
            assert isinstance(table, dict)
            return [table.get(f"T1@{group}") for group in ("g1", "began-here")]

        with trio.fail_after(SECONDS):
            while await trio.to_thread.run_sync(offsets_on_master) != [{"0": 17}, {"0": 18}]:  # noqa: ASYNC110
                await trio.sleep(0.2)
        assert broker.tables.offsets.committed("g1", "T1", 0) == 17
