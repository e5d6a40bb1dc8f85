"""Slaves of a cluster: they follow at once, are ended and started by their names, and one becomes the master."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from pyrmq_core import (
    Admin,
    Client,
    InvalidArgument,
    InvalidState,
    Message,
    Producer,
    PullConsumer,
    ResponseError,
    SendStatus,
    blocking,
)
from pyrmq_core.testing import Command, EmbeddedCluster, Peer, RequestCode, ResponseCode, refusal
from tests.support.apache import ask

MASTER = {"brokerRole": "ASYNC_MASTER", "brokerId": "0"}
SLAVE_1 = {"brokerRole": "SLAVE", "brokerId": "1"}
READABLE = {"slaveReadEnable": "true"}
ORDERS = {"orders": 1}
SMALL = {"mappedFileSizeCommitLog": str(1 << 20)}  # power cuts copy the files
# Between two flushes of the log is more time than a test takes, also on a busy machine.
UNFLUSHED = {**SMALL, "flushIntervalCommitLog": "600000"}


async def bodies(cluster: EmbeddedCluster, group: str = "audit") -> list[bytes]:
    """Returns what the one queue of `orders` holds, wherever it is read."""
    async with PullConsumer(group, nameserver=cluster.nameserver) as consumer:
        (queue,) = await consumer.message_queues("orders")
        return [message.body for message in (await consumer.pull(queue, 0)).messages]


async def log_of(cluster: EmbeddedCluster, name: str) -> bytes:
    (file,) = (cluster.directory / name / "commitlog").iterdir()
    return await trio.Path(file).read_bytes()


async def followers(cluster: EmbeddedCluster, name: str) -> int:
    """Returns the number of slaves that follow a master and have its whole log."""
    status = Command(RequestCode.GET_BROKER_HA_STATUS)
    answer = await trio.to_thread.run_sync(ask, cluster.brokers[name], status)
    return sum([connection["diff"] == 0 for connection in json.loads(bytes(answer.body))["haConnectionInfo"]])


async def test_each_broker_has_its_slaves_with_ids_behind_its_name() -> None:
    async with (
        EmbeddedCluster(2, slaves=2, topics=ORDERS) as cluster,
        Admin(nameserver=cluster.nameserver) as admin,
    ):
        assert list(cluster.brokers) == ["broker-a", "broker-b"]
        assert list(cluster.slaves) == ["broker-a-1", "broker-a-2", "broker-b-1", "broker-b-2"]
        table = (await admin.cluster_info()).broker_addr_table
        for name, address in cluster.brokers.items():
            addresses = {0: address, 1: cluster.slaves[f"{name}-1"], 2: cluster.slaves[f"{name}-2"]}
            assert table[name].broker_addrs == addresses
            assert await followers(cluster, name) == 2


async def test_with_sync_the_first_send_and_those_after_a_kill_are_on_the_slave() -> None:
    async with (
        EmbeddedCluster(slaves=1, sync=True, topics=ORDERS, settings=READABLE) as cluster,
        Producer("shop", nameserver=cluster.nameserver) as producer,
    ):
        for number, end in enumerate((None, cluster.kill, cluster.stop)):
            if end is not None:
                await end("broker-a")
                await cluster.start("broker-a")
            assert await followers(cluster, "broker-a") == 1
            assert (await producer.send(Message("orders", b"%d" % number))).status is SendStatus.SEND_OK
            assert await log_of(cluster, "broker-a-1") == await log_of(cluster, "broker-a")
        await cluster.kill("broker-a")
        assert cluster.brokers == {}
        with trio.fail_after(60):
            while await bodies(cluster) != [b"0", b"1", b"2"]:  # readable in steps behind the log
                pass


async def test_without_its_slave_a_sync_master_answers_12_and_recovers() -> None:
    settings = {"slaveTimeout": "50"}
    async with (
        EmbeddedCluster(slaves=1, sync=True, topics=ORDERS, settings=settings) as cluster,
        Producer("shop", nameserver=cluster.nameserver) as producer,
    ):
        await cluster.stop("broker-a-1")
        assert (await producer.send(Message("orders", b"one"))).status is SendStatus.FLUSH_SLAVE_TIMEOUT
        await cluster.start("broker-a-1")
        assert await followers(cluster, "broker-a") == 1
        assert (await producer.send(Message("orders", b"two"))).status is SendStatus.SEND_OK
        assert await log_of(cluster, "broker-a-1") == await log_of(cluster, "broker-a")


@pytest.mark.parametrize("end", ["stop", "kill", "power_cut"])
async def test_a_slave_becomes_the_master_and_the_old_one_its_slave(end: str) -> None:
    async with (
        EmbeddedCluster(slaves=1, sync=True, topics=ORDERS, settings=SMALL, forgetful=end == "power_cut") as cluster,
        Producer("shop", nameserver=cluster.nameserver) as producer,
    ):
        await producer.send(Message("orders", b"one"))
        await getattr(cluster, end)("broker-a")
        await cluster.stop("broker-a-1")
        await cluster.start("broker-a-1", settings=MASTER)
        assert list(cluster.brokers) == ["broker-a-1"]
        assert (await producer.send(Message("orders", b"two"))).queue_offset == 1
        await cluster.start("broker-a", settings=SLAVE_1)
        assert list(cluster.slaves) == ["broker-a"]
        await cluster.wait_for_slaves()
        assert await log_of(cluster, "broker-a") == await log_of(cluster, "broker-a-1")
        await cluster.kill("broker-a-1")  # the settings stay
        await cluster.start("broker-a-1")
        assert await bodies(cluster) == [b"one", b"two"]


async def test_two_brokers_of_one_name_and_id_do_not_run() -> None:
    async with EmbeddedCluster(slaves=1, topics=ORDERS) as cluster:
        await cluster.stop("broker-a-1")
        with pytest.raises(InvalidState, match="broker-a runs with brokerId=0 of broker-a; end it before broker-a-1"):
            await cluster.start("broker-a-1", settings=MASTER)
        with pytest.raises(InvalidState, match="broker-a is running"):
            await cluster.start("broker-a", settings=SLAVE_1)
        await cluster.start("broker-a-1", settings=SLAVE_1)
        assert list(cluster.slaves) == ["broker-a-1"]


async def test_wrong_settings_of_a_start_are_named_and_change_nothing() -> None:
    async with EmbeddedCluster(slaves=1) as cluster:
        await cluster.stop("broker-a-1")
        for settings, text in (
            ({"brokerRole": "MASTER"}, "brokerRole is 'MASTER'"),
            ({"brokerRole": "ASYNC_MASTER"}, "a master has brokerId=0"),
            ({"brokerName": "x"}, "brokerName is set by the cluster"),
            ({"brokerRol": "SLAVE"}, "no such setting: brokerRol .did you mean brokerRole"),
            ({"brokerId": 1}, "brokerId=1; a text is wanted"),
        ):
            with pytest.raises(InvalidArgument, match=text):
                await cluster.start("broker-a-1", settings=settings)  # type: ignore[arg-type]
        await cluster.stop("nameserver")
        with pytest.raises(InvalidArgument, match="broker-a, broker-a-1 are the brokers; settings are a broker's"):
            await cluster.start("nameserver", settings={})
        await cluster.start("nameserver")
        await cluster.start("broker-a-1")
        assert list(cluster.slaves) == ["broker-a-1"]


async def test_a_wait_for_slaves_covers_messages_topics_and_offsets() -> None:
    async with (
        EmbeddedCluster(slaves=1, settings=READABLE) as cluster,
        Producer("shop", nameserver=cluster.nameserver) as producer,
        PullConsumer("audit", nameserver=cluster.nameserver) as consumer,
    ):
        queue = (await producer.send(Message("new-topic", b"one"))).message_queue
        await consumer.commit(queue, 1)
        await cluster.wait_for_slaves()
        await cluster.kill("broker-a")
        async with PullConsumer("audit", nameserver=cluster.nameserver) as later:
            assert [message.body for message in (await later.pull(queue, 0)).messages] == [b"one"]
            assert await later.committed(queue) == 1


async def test_a_wait_for_a_slave_that_cannot_follow_ends_with_its_reason() -> None:
    async with (
        EmbeddedCluster(slaves=1, topics=ORDERS, settings=UNFLUSHED, forgetful=True) as cluster,
        Producer("shop", nameserver=cluster.nameserver) as producer,
    ):
        await producer.send(Message("orders", b"one"))
        await cluster.wait_for_slaves()
        await cluster.power_cut("broker-a")
        await cluster.start("broker-a")  # it does not wait for the slave, which has more than this master
        for timeout in (0, -1, "1", float("nan")):
            with pytest.raises(InvalidArgument, match="timeout="):
                await cluster.wait_for_slaves(timeout)  # type: ignore[arg-type]
        await producer.send(Message("orders", b"a longer one, which takes more bytes than the log of the slave has"))
        with pytest.raises(InvalidState, match=r"broker-a-1 has the log up to \d+ after 0.2 s, .*make .*the master"):
            await cluster.wait_for_slaves(0.2)


async def test_the_requests_of_one_slave_are_controlled() -> None:
    async def busy(request: Command, peer: Peer) -> Command:
        return refusal(ResponseCode.SYSTEM_BUSY, "busy, by order of the test")

    async with EmbeddedCluster(slaves=1, topics=ORDERS, settings=READABLE) as cluster:
        async with Producer("shop", nameserver=cluster.nameserver) as producer:
            await producer.send(Message("orders", b"one"))
        await cluster.wait_for_slaves()
        await cluster.kill("broker-a")
        rule = cluster.control(RequestCode.PULL_MESSAGE, busy, server="broker-a-1", times=1)
        with pytest.raises(ResponseError, match="busy, by order of the test"):
            await bodies(cluster)
        assert await bodies(cluster) == [b"one"]
        assert len(rule.seen) == 1


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_nameserver_that_is_started_again_knows_the_slaves(end: str) -> None:
    async with EmbeddedCluster(slaves=1, topics=ORDERS) as cluster:
        await getattr(cluster, end)("nameserver")
        await cluster.start("nameserver")
        async with Admin(nameserver=cluster.nameserver) as admin:
            assert (await admin.cluster_info()).broker_addr_table["broker-a"].broker_addrs.keys() == {0, 1}


async def test_slaves_follow_masters_with_access_control() -> None:
    credentials = '{"accessKey":"root","secretKey":"12345678"}'
    user = '{"username":"root","password":"12345678"}'
    guarded = {"authenticationEnabled": "true", "initAuthenticationUser": user}
    settings = {**guarded, "innerClientAuthenticationCredentials": credentials}
    async with EmbeddedCluster(
        slaves=1, sync=True, topics=ORDERS, settings=settings, nameserver_settings=guarded
    ) as cluster:
        for _ in range(2):
            async with (
                Client(nameserver=cluster.nameserver, access_key="root", secret_key="12345678") as client,
                Producer("shop", client=client) as producer,
            ):
                assert (await producer.send(Message("orders", b"one"))).status is SendStatus.SEND_OK
            await cluster.wait_for_slaves()
            await cluster.kill("broker-a")
            await cluster.start("broker-a")


def test_blocking_clusters_do_the_same_and_keep_their_slaves(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        with (
            blocking.EmbeddedCluster(
                slaves=1, sync=True, topics=ORDERS, directory=tmp_path, host="127.0.0.2"
            ) as cluster,
            blocking.Producer("shop", nameserver=cluster.nameserver) as producer,
        ):
            assert producer.send(Message("orders", b"one")).status is SendStatus.SEND_OK
            cluster.kill("broker-a")
            cluster.stop("broker-a-1")
            cluster.start("broker-a-1", settings=MASTER)
            cluster.start("broker-a", settings=SLAVE_1)
            seen.append({**cluster.brokers, **cluster.slaves})
            producer.send(Message("orders", b"two"))
            cluster.wait_for_slaves()
    assert seen[0] == seen[1]
    with (
        blocking.EmbeddedCluster(directory=tmp_path) as cluster,
        blocking.PullConsumer("audit", nameserver=cluster.nameserver) as consumer,
    ):
        (queue,) = consumer.message_queues("orders")
        assert [message.body for message in consumer.pull(queue, 0).messages] == [b"one", b"two"] * 2
