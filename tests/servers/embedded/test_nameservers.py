"""Several NameServers: each is stopped, killed and started again, and clients go on with the others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from pyrmq_core import (
    Admin,
    Client,
    InvalidState,
    Message,
    MessageExt,
    NoNameServer,
    NoRoute,
    Producer,
    PushConsumer,
    blocking,
)
from pyrmq_core.testing import (
    PASS,
    Command,
    Control,
    ControlFunction,
    CutConnection,
    EmbeddedCluster,
    Pass,
    Peer,
    RequestCode,
    ResponseCode,
    refusal,
)

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


async def passing(request: Command, peer: Peer) -> Pass:
    return PASS


async def cut(request: Command, peer: Peer) -> Pass:
    raise CutConnection


async def silent(request: Command, peer: Peer) -> None:
    return None


def counted(cluster: EmbeddedCluster | blocking.EmbeddedCluster) -> dict[str, Control]:
    """Returns, by NameServer, the rule that records the queries for routes."""
    return {name: cluster.control(ROUTE, passing, server=name) for name in cluster.nameservers}


def chosen(rules: dict[str, Control]) -> tuple[str, str]:
    """Returns the NameServer that a client uses, and the other one, which receives only what the first one lacks."""
    used, other = sorted(rules, key=lambda name: len(rules[name].seen), reverse=True)
    topics = {name: [request.ext["topic"] for request in rule.seen] for name, rule in rules.items()}
    assert len(topics[used]) > len(topics[other])
    assert set(topics[other]) <= set(topics[used]) - {"TBW102"}
    return used, other


async def topic_known_at(address: str, topic: str) -> bool:
    async with Admin(nameserver=address) as admin:
        return topic in await admin.topics.list()


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_clients_go_on_with_the_other_nameserver(end: str) -> None:
    received: list[bytes] = []
    more = trio.Event()

    async def handle(messages: Sequence[MessageExt]) -> None:
        received.extend(message.body for message in messages)
        more.set()

    async def send_and_receive(topic: str, body: bytes) -> None:
        nonlocal more
        more = trio.Event()
        await producer.send(Message(topic, body))
        with trio.fail_after(60):
            await more.wait()

    async with EmbeddedCluster(2, nameservers=2, topics={"orders": 1}) as cluster:
        rules = counted(cluster)
        async with (
            Client(nameserver=cluster.nameserver) as client,
            Producer("shop", client=client) as producer,
            PushConsumer("audit", client=client, consume_message_batch_max_size=1) as consumer,
            trio.open_nursery() as nursery,
        ):
            await consumer.subscribe("orders")
            nursery.start_soon(consumer.run, handle)
            await send_and_receive("orders", b"before")
            used, other = chosen(rules)
            await getattr(cluster, end)(used)
            assert list(cluster.nameservers) == [other]
            await send_and_receive("orders", b"during")
            await producer.send(Message("payments", b"a topic that is not known yet"))
            assert rules[other].seen

            await cluster.start(used)
            assert await topic_known_at(cluster.nameservers[used], "payments")
            await getattr(cluster, end)(other)
            await send_and_receive("orders", b"after")
            await producer.send(Message("refunds", b"another"))
            nursery.cancel_scope.cancel()
    assert received == [b"before", b"during", b"after"]


async def test_without_any_nameserver_known_topics_go_on_and_others_fail_by_name() -> None:
    async with EmbeddedCluster(nameservers=2) as cluster:
        addresses = list(cluster.nameservers.values())
        async with Producer("shop", nameserver=cluster.nameserver) as producer:
            await producer.send(Message("orders", b"one"))
            await cluster.kill("nameserver-a")
            await cluster.kill("nameserver-b")
            assert cluster.nameservers == {}
            assert cluster.nameserver == ";".join(addresses)
            await producer.send(Message("orders", b"two"))
            with trio.fail_after(60), pytest.raises(NoNameServer) as caught:
                await producer.send(Message("payments", b"three"), timeout=1)
            assert all(address in str(caught.value) for address in addresses)
            await cluster.start("nameserver-b")
            await producer.send(Message("payments", b"three"), timeout=5)


def test_the_blocking_face_does_the_same() -> None:
    with blocking.EmbeddedCluster(nameservers=["left", "right"], topics={"orders": 2}) as cluster:
        rules = counted(cluster)
        with (
            blocking.Producer("shop", nameserver=cluster.nameserver) as producer,
            blocking.PullConsumer("audit", nameserver=cluster.nameserver) as consumer,
        ):
            queue = producer.send(Message("orders", b"one")).message_queue
            used, other = chosen(rules)
            cluster.kill(used)
            assert [message.body for message in consumer.pull(queue, 0).messages] == [b"one"]
            producer.send(Message("payments", b"two"))
            cluster.stop(other)
            assert cluster.nameservers == {}
            with pytest.raises(NoNameServer):
                producer.send(Message("refunds", b"three"), timeout=1)
            producer.send(Message("orders", b"four"))
            cluster.start(used)
            producer.send(Message("refunds", b"three"))
        with blocking.Admin(nameserver=cluster.nameservers[used]) as admin:
            assert {"orders", "payments", "refunds"} <= set(admin.topics.list())


async def test_brokers_register_with_every_nameserver_and_leave_all() -> None:
    async with EmbeddedCluster(2, nameservers=3) as cluster:
        assert list(cluster.nameservers) == ["nameserver-a", "nameserver-b", "nameserver-c"]
        assert cluster.nameserver == ";".join(cluster.nameservers.values())
        for end, left in ((cluster.stop, {"broker-b"}), (cluster.start, {"broker-a", "broker-b"})):
            await end("broker-a")
            for address in cluster.nameservers.values():
                async with Admin(nameserver=address) as admin:
                    assert set((await admin.cluster_info()).broker_addr_table) == left


async def test_a_broker_starts_with_the_nameservers_that_run() -> None:
    async with EmbeddedCluster(nameservers=2, topics={"orders": 1}) as cluster:
        address = cluster.brokers["broker-a"]
        for name in ("broker-a", "nameserver-a", "nameserver-b"):
            await cluster.kill(name)
        with pytest.raises(
            InvalidState, match=r"broker-a has no NameServer .* start nameserver-a or nameserver-b first"
        ):
            await cluster.start("broker-a")
        await cluster.start("nameserver-b")
        await cluster.start("broker-a")
        assert cluster.brokers == {"broker-a": address}
        await cluster.start("nameserver-a")  # the broker has never reached it
        assert await topic_known_at(cluster.nameservers["nameserver-a"], "orders")


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_nameserver_keeps_its_address_and_kv_configuration(end: str) -> None:
    async with EmbeddedCluster(nameservers=2) as cluster:
        first = dict(cluster.nameservers)
        async with Admin(nameserver=first["nameserver-a"]) as admin:
            await admin.put_kv("shop", "open", "yes")
            await getattr(cluster, end)("nameserver-a")
            await cluster.start("nameserver-a")
            assert cluster.nameservers == first
            assert await admin.kv_value("shop", "open") == "yes"


def test_all_files_of_a_nameserver_are_in_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    guarded = {
        "authenticationEnabled": "true",
        "initAuthenticationUser": '{"username":"root","password":"12345678"}',
    }
    broker = {"innerClientAuthenticationCredentials": '{"accessKey":"root","secretKey":"12345678"}'}
    with blocking.EmbeddedCluster(nameserver_settings=guarded, settings=broker) as cluster:
        cluster.kill("nameserver")
        cluster.start("nameserver")  # its port is not 0 now, and files without a path have their name from the port
        with (
            blocking.Client(nameserver=cluster.nameserver, access_key="root", secret_key="12345678") as client,
            blocking.Admin(client=client) as admin,
        ):
            admin.put_kv("shop", "open", "yes")
        assert {path.name for path in (cluster.directory / "nameserver").iterdir()} == {"kvConfig.json", "auth"}
    assert list(tmp_path.iterdir()) == []


async def test_a_kept_directory_keeps_the_ports_of_all_nameservers(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        # Ports of outgoing connections are those of 127.0.0.1: none of them takes one of these meanwhile.
        async with EmbeddedCluster(nameservers=2, directory=tmp_path, host="127.0.0.2") as cluster:
            seen.append((cluster.nameservers, cluster.brokers))
    assert seen[0] == seen[1]


class TestControl:
    """One mechanism for all servers: rules at one NameServer, at all, and over restarts."""

    async def test_a_refusal_at_one_nameserver_is_its_alone(self) -> None:
        async def unknown(request: Command, peer: Peer) -> Command:
            return refusal(ResponseCode.TOPIC_NOT_EXIST, "by order of the test")

        async with EmbeddedCluster(nameservers=2, topics={"orders": 1}) as cluster:
            rule = cluster.control(ROUTE, unknown, server="nameserver-a")
            for ended in (False, True):
                if ended:
                    await cluster.kill("nameserver-a")
                    await cluster.start("nameserver-a")  # the rule stays
                async with Admin(nameserver=cluster.nameservers["nameserver-a"]) as admin:
                    with pytest.raises(NoRoute):
                        await admin.route("orders")
                async with Admin(nameserver=cluster.nameservers["nameserver-b"]) as admin:
                    assert (await admin.route("orders")).queue_datas
            assert len(rule.seen) == 2
            rule.remove()
            async with Admin(nameserver=cluster.nameservers["nameserver-a"]) as admin:
                assert (await admin.route("orders")).queue_datas

    @pytest.mark.parametrize("function", [cut, silent])
    async def test_a_client_goes_on_from_a_nameserver_that_cuts_or_is_silent(self, function: ControlFunction) -> None:
        async with (
            EmbeddedCluster(nameservers=2) as cluster,
            Producer("shop", nameserver=cluster.nameserver) as producer,
        ):
            rules = counted(cluster)
            await producer.send(Message("orders", b"one"))
            used, other = chosen(rules)
            rules[used].remove()
            away = cluster.control(ROUTE, function, server=used)
            assert (await producer.send(Message("payments", b"two"), timeout=6)).queue_offset == 0
            assert away.seen
            assert rules[other].seen

    async def test_a_held_registration_leaves_the_other_nameserver_its_routes(self) -> None:
        release = trio.Event()

        async def held(request: Command, peer: Peer) -> Pass:
            await release.wait()
            return PASS

        async with EmbeddedCluster(nameservers=2, topics={"orders": 1}) as cluster, trio.open_nursery() as nursery:
            await cluster.kill("nameserver-a")
            rule = cluster.control(RequestCode.REGISTER_BROKER, held, server="nameserver-a")
            started = trio.Event()

            async def start() -> None:
                await cluster.start("nameserver-a")
                started.set()

            nursery.start_soon(start)
            with trio.fail_after(60):
                while not rule.seen:  # noqa: ASYNC110 - a rule sets no event
                    await trio.sleep(0.01)
            assert not await topic_known_at(cluster.nameservers["nameserver-a"], "orders")
            assert await topic_known_at(cluster.nameservers["nameserver-b"], "orders")
            assert not started.is_set()
            release.set()
            with trio.fail_after(60):
                await started.wait()
            assert await topic_known_at(cluster.nameservers["nameserver-a"], "orders")

    async def test_a_rule_without_a_server_counts_at_all_of_them_together(self) -> None:
        async with EmbeddedCluster(nameservers=2) as cluster:
            rule = cluster.control(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, passing, times=3)
            for address in (*cluster.nameservers.values(), *cluster.nameservers.values()):
                await topic_known_at(address, "orders")
            assert len(rule.seen) == 3
