"""Requests and replies on our broker: pushed to the client that asked, and stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from pyrmq_core import Admin, Client, Message, MessageExt, Producer, PullConsumer, SendFailed
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.requests.broker.heartbeat import HeartBeat
from pyrmq_core.servers.broker.clients.consumer_calls import CallLimits
from pyrmq_core.testing import EmbeddedCluster
from tests.servers.broker.serving import message, serving, until
from tests.support.raw_replies import NOT_THERE, REPLY_TOPIC, check_answers, reply, stored_reply

SECONDS = 30


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: EmbeddedCluster) -> AsyncIterator[Client]:
    async with Client(nameserver=cluster.nameserver) as client:
        yield client


async def test_the_answers_to_replies(client: Client) -> None:
    async with Admin(client=client) as admin, PullConsumer("readers", client=client) as consumer:
        await admin.create_topic("prices", queues=1)
        await check_answers(client, consumer, "prices", 29)


async def test_a_reply_reaches_who_asked(cluster: EmbeddedCluster, client: Client) -> None:
    """Each of many at once gets its own, also a large one."""
    replies: dict[int, MessageExt] = {}
    async with (
        Client(nameserver=cluster.nameserver) as other,
        Admin(client=client) as admin,
        Producer("askers", client=client) as asker,
        Producer("repliers", client=other) as replier,
        PullConsumer("pricing", client=other) as consumer,
        trio.open_nursery() as nursery,
    ):
        await admin.create_topic("prices", queues=1)
        (queue,) = await consumer.message_queues("prices")

        async def serve() -> None:
            offset = 0
            while offset < 20:
                pulled = await consumer.pull(queue, offset, wait=10)
                offset = pulled.next_offset
                for message in pulled.messages:
                    await replier.reply(message, message.body * (100_000 if message.body == b"7" else 1))

        async def ask(number: int) -> None:
            replies[number] = await asker.request(Message("prices", b"%d" % number), timeout=SECONDS)

        nursery.start_soon(serve)
        for number in range(20):
            nursery.start_soon(ask, number)
    assert {number: message.body for number, message in replies.items()} == {
        number: b"7" * 100_000 if number == 7 else b"%d" % number for number in range(20)
    }
    properties = replies[3].properties
    assert int(properties["PUSH_REPLY_TIME"]) <= int(properties["ARRIVE_TIME"])
    assert (replies[3].topic, replies[3].born_host.split(":")[0]) == (REPLY_TOPIC, "127.0.0.1")


async def test_who_has_left_is_not_found(cluster: EmbeddedCluster, client: Client) -> None:
    async with Admin(client=client) as admin, PullConsumer("readers", client=client) as consumer:
        await admin.create_topic("prices", queues=1)
        await consumer.message_queues(REPLY_TOPIC)
        async with (
            Client(nameserver=cluster.nameserver) as asking,
            Producer("askers", client=asking) as asker,
            trio.open_nursery() as nursery,
        ):
            asker_id = asking._session.client_id

            async def ask() -> None:
                await asker.request(Message("prices", b"?"), timeout=SECONDS)

            nursery.start_soon(ask)
            (queue,) = await consumer.message_queues("prices")
            (request,) = (await consumer.pull(queue, 0, wait=10)).messages
            assert request.properties["REPLY_TO_CLIENT"] == asker_id
            nursery.cancel_scope.cancel()

        async def answer() -> Command:
            return await reply(client, REPLY_TOPIC, 0, f"REPLY_TO_CLIENT\x01{asker_id}\x02")

        with trio.fail_after(SECONDS):  # the broker notices the end of the connection a moment later
            while (last := await answer()).code == 0:
                pass
        assert last.remark == NOT_THERE.replace("nobody", asker_id)
        async with Producer("repliers", client=client) as replier:
            with pytest.raises(SendFailed, match="not found"):
                await replier.reply(request, b"too late")


async def test_an_asker_that_does_not_acknowledge_costs_the_reply_alone(
    cluster: EmbeddedCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyrmq_core.servers.broker.processors.reply_message.PUSH_SECONDS", 0.2)
    pushed = trio.Event()

    async def silent(request: Command, peer: Any) -> Command:
        pushed.set()
        await trio.sleep_forever()
        raise AssertionError

    async with Admin(client=client) as admin, PullConsumer("readers", client=client) as consumer:
        await admin.create_topic("prices", queues=1)
        await consumer.message_queues(REPLY_TOPIC)
        async with Producer("askers", client=client) as producer:
            await producer.send(Message("prices", b"x"))
            for broker in client._session.routes.brokers:
                assert broker.master is not None
                await client._session.heartbeats.send_now(broker.master)
            client._session.serve(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, silent)
            own = f"REPLY_TO_CLIENT\x01{client._session.client_id}\x02"
            answer = await reply(client, REPLY_TOPIC, 0, own)
            assert pushed.is_set()
            assert answer.code == 1
            assert "did not answer" in str(answer.remark)
            assert (await stored_reply(consumer, REPLY_TOPIC, answer)).body == b"x"


@pytest.mark.parametrize("topic", ["prices", "never-made", "%RETRY%g", "RMQ_SYS_TRANS_HALF_TOPIC", "c_REPLY_TOPIC"])
async def test_a_reply_goes_to_the_reply_topic_alone(client: Client, topic: str) -> None:
    """Access control asks for no permission on a topic that a reply names."""
    async with Admin(client=client) as admin, PullConsumer("readers", client=client) as consumer:
        await admin.create_topic("prices", queues=1)
        (queue,) = await consumer.message_queues("prices")
        answer = await reply(client, topic, 0, "REPLY_TO_CLIENT\x01nobody\x02")
        assert answer.code == 16
        assert answer.remark == f"replies are not stored in topic[{topic}], but in {REPLY_TOPIC}"
        assert await consumer.max_offset(queue) == 0


@pytest.mark.parametrize("size", [1, 400])
async def test_an_asker_that_does_not_acknowledge_delays_no_other(tmp_path: Path, size: int) -> None:
    """Beyond a limit its own further replies are stored, and not pushed."""

    async def answer(client_id: str) -> Command:
        named = f"REPLY_TO_CLIENT\x01{client_id}\x02"
        return await served.ask(replace(message(REPLY_TOPIC, b"x" * size), properties=named).to_reply_command())

    async with serving(tmp_path) as served, trio.open_nursery() as nursery:
        replies = served.running.broker.clients.replies
        replies.limits = CallLimits(
            calls=100, request_bytes=1 << 20, calls_each=2 if size == 1 else 100, request_bytes_each=1000
        )
        for client_id, answers in (("silent", None), ("live", success())):
            other = served.another(lambda _request, _peer, answers=answers: answers)  # type: ignore[misc]
            assert (await other.ask(HeartBeat(client_id, ("askers",), ()).to_command())).code == 0
        for _ in range(2):
            nursery.start_soon(answer, "silent")
        await until(lambda: [len(sizes) for sizes in replies.waiting.values()] == [2])
        further = await answer("silent")
        assert (further.code, further.ext["queueOffset"]) == (1, "2")
        assert "2 requests to this client wait for its answers already; try again later" in str(further.remark)
        assert (await answer("live")).code == 0
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("body", [b"", b"x" * 5_000_000], ids=["empty", "too large"])
async def test_a_reply_that_cannot_be_stored_is_not_pushed(client: Client, body: bytes) -> None:
    async with PullConsumer("readers", client=client) as consumer:
        await consumer.message_queues(REPLY_TOPIC)
        answer = await reply(client, REPLY_TOPIC, 0, "REPLY_TO_CLIENT\x01nobody\x02", body)
        assert (answer.code, str(answer.remark)[:8]) == ((1, "the body") if not body else (13, "the mess"))


async def test_replies_are_not_stored_on_request() -> None:
    async with (
        EmbeddedCluster(settings={"storeReplyMessageEnable": "false"}) as cluster,
        Client(nameserver=cluster.nameserver) as client,
        PullConsumer("readers", client=client) as consumer,
    ):
        (queue,) = await consumer.message_queues(REPLY_TOPIC)
        answer = await reply(client, REPLY_TOPIC, 0, "REPLY_TO_CLIENT\x01nobody\x02")
        assert (answer.code, answer.ext["msgId"], answer.ext["queueOffset"]) == (1, "0", "0")
        assert await consumer.max_offset(queue) == 0
