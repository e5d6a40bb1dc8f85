"""Several NameServers: the chosen one is kept while it answers; when it fails or sends garbage, another is used."""

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import Client, Message, NoNameServer, Producer, ResponseError
from pyrmq_core.client.routing.name_server_choice import NameServerChoice
from pyrmq_core.client.routing.publish_info import TopicPublishInfo
from pyrmq_core.protocol.framing.command import success
from tests.support.scripted import (
    ROUTE,
    SEND,
    ScriptedServer,
    answer,
    cut,
    raw_server,
    refuse,
    says,
    scripted_server,
    silence,
    topics_asked,
)
from tests.support.stage import Stage

GARBAGE = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"


async def info_of(client: Client, topic: str, *, nums: int = 4, timeout: float = 3.0) -> TopicPublishInfo:
    return await client._session.routes.publish_info(
        topic, create_topic_key="TBW102", default_topic_queue_nums=nums, timeout=timeout
    )


async def two_nameservers(stage: Stage, second: ScriptedServer) -> Client:
    return Client(nameserver=[stage.nameserver.address, second.address])


async def test_the_next_nameserver_answers_and_is_kept(stage: Stage) -> None:
    async with scripted_server(stage.table) as second, await two_nameservers(stage, second) as client:
        servers = [stage.nameserver, second]
        await client._session.routes.refresh("orders")
        chosen = next(server for server in servers if server.seen)
        other = next(server for server in servers if not server.seen)
        await client._session.routes.refresh("orders")
        assert (len(chosen.seen), len(other.seen)) == (2, 0)  # the chosen one is kept
        await chosen.stop()
        await client._session.routes.refresh("orders")
        assert len(other.seen) == 1
        await chosen.start()
        await client._session.routes.refresh("orders")
        assert (len(chosen.seen), len(other.seen)) == (2, 2)  # and so is the new one, when the old one is back


@pytest.mark.parametrize("garbage", [b"", b"[]", b'{"queueDatas":[1]}', b"\xff\xfe", b'{"orderTopicConf":"broker-a"}'])
async def test_a_nameserver_that_answers_garbage_is_passed_over(stage: Stage, garbage: bytes) -> None:
    bad = answer(success(body=garbage))
    async with scripted_server(bad) as second, await two_nameservers(stage, second) as client:
        for _ in range(4):
            await client._session.routes.refresh("orders")
        assert len((await info_of(client, "orders")).queues) == 8
        assert len(second.seen) <= 1


async def test_a_silent_nameserver_gets_its_share_alone(stage: Stage, jumping_clock: MockClock) -> None:
    async with scripted_server(silence) as second, await two_nameservers(stage, second) as client:
        began = trio.current_time()
        for _ in range(4):
            await client._session.routes.refresh("orders", timeout=3)
        assert trio.current_time() - began <= 1.6  # half of the three seconds, once at most


async def test_no_nameserver_is_asked_again_before_each_was_asked(stage: Stage, jumping_clock: MockClock) -> None:
    async with scripted_server(stage.table) as second, await two_nameservers(stage, second) as client:
        nameservers = client._session.nameservers
        nameservers._choice = NameServerChoice(nameservers.addresses, nameservers.addresses.index(second.address))
        second.always(ROUTE, silence)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client._session.routes.refresh, "orders")
            await second.wait_seen(ROUTE)
            nameservers._choice = replace(nameservers._choice)  # other calls have switched, and back
        assert (len(second.of(ROUTE)), len(stage.nameserver.of(ROUTE))) == (1, 1)


async def test_a_refusal_is_an_answer(stage: Stage, client: Client) -> None:
    stage.nameserver.always(ROUTE, refuse(1, "java.lang.Oops"))
    with pytest.raises(ResponseError, match="Oops") as caught:
        await client._session.routes.route("orders")
    assert stage.nameserver.address in str(caught.value)
    assert "topic orders" in str(caught.value)


async def test_a_nameserver_that_was_restarted_is_asked_again(stage: Stage, client: Client) -> None:
    await client._session.routes.refresh("orders")
    stage.nameserver.on(ROUTE, cut)
    await client._session.routes.refresh("orders")
    assert topics_asked(stage.nameserver) == ["orders"] * 3


async def test_all_failures_are_named(stage: Stage) -> None:
    await stage.nameserver.stop()
    async with (
        raw_server(says(GARBAGE)) as garbage,
        Client(nameserver=f"{stage.nameserver.address};{garbage}") as client,
    ):
        with pytest.raises(NoNameServer) as caught:
            await info_of(client, "orders")
    text = str(caught.value)
    for part in (stage.nameserver.address, garbage, "nothing listens there", "not RocketMQ's", "check the addresses"):
        assert part in text
    assert "\n" not in text


async def test_no_nameserver_at_all_says_what_to_do() -> None:
    async with Client() as client:
        with pytest.raises(NoNameServer, match=r'give nameserver="host:port" .*NAMESRV_ADDR'):
            await info_of(client, "orders")


async def test_the_environment_names_the_nameserver(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", stage.nameserver.address)
    async with Producer("g") as producer:
        await producer.send(Message("orders", b"x"))
    assert [broker for broker, _ in stage.sends()] != []
    assert len(stage.brokers["broker-a"].of(SEND) + stage.brokers["broker-b"].of(SEND)) == 1
