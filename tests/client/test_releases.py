"""Requests that a server's release does not know: the table beside Apache's sources, and that none of them is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import CallTimeout, Client, Message, MessageQueue, Producer, PullConsumer
from pyrmq_core.network import Peer, ask
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import VERSION, Command
from pyrmq_core.protocol.framing.versions import (
    KNOWN_SINCE,
    NEW_AT_NAMESERVERS,
    too_old_for,
    version_name,
    version_number,
)
from tests.support import golden
from tests.support.scripted import BATCH, PULL, Step
from tests.support.stage import Stage

A0 = MessageQueue("orders", "broker-a", 0)
BEAT = RequestCode.HEART_BEAT
# What clients, and not servers, answer; and 902 and 903, which only controllers of a preview knew.
ELSEWHERE = {39, 40, 220, 221, 326, 902, 903, 200073}


def first_releases() -> dict[int, tuple[str, str, str]]:
    """Returns name and first release at brokers and at NameServers of every code that Apache's sources process."""
    rows = (line.split() for line in golden.text("request_codes.txt").splitlines())
    return {int(code): (name, at_broker, at_nameserver) for code, name, _, at_broker, _, at_nameserver in rows}


def test_the_table_is_that_of_the_sources() -> None:
    sources = first_releases()
    assert {code.value for code in RequestCode} - sources.keys() == ELSEWHERE
    for code in RequestCode:
        if code.value not in sources:
            continue
        name, at_broker, at_nameserver = sources[code]
        assert name == code.name
        release = at_nameserver if at_broker == "-" else at_broker
        since = version_name(KNOWN_SINCE[code]) if code in KNOWN_SINCE else "4.0.0"
        assert since == release, code
        if code in KNOWN_SINCE:
            assert (code in NEW_AT_NAMESERVERS) == (at_broker == "-"), code


@pytest.mark.parametrize("release", ["4.0.0", "4.9.1", "5.0.0", "5.4.0"])
def test_a_release_has_one_number(release: str) -> None:
    assert version_name(version_number(release)) == release


def test_a_version_without_an_order_is_asked() -> None:
    assert too_old_for(RequestCode.GET_TOPIC_CONFIG, version_number("4.9.8"))
    assert not too_old_for(RequestCode.GET_TOPIC_CONFIG, version_number("5.0.0"))
    assert not too_old_for(RequestCode.GET_TOPIC_CONFIG, 0)
    assert not too_old_for(RequestCode.SEND_MESSAGE_V2, version_number("4.0.0"))


def test_servers_of_this_library_are_asked() -> None:
    assert not too_old_for(RequestCode.GET_BROKER_LITE_INFO, VERSION)
    assert too_old_for(RequestCode.GET_BROKER_LITE_INFO, version_number("5.4.0"))


def of_release(release: str, inner: Step) -> Step:
    """Returns a server of a release: it answers nothing to a request that came later."""

    async def step(request: Command, peer: Peer) -> Command | None:
        if too_old_for(request.code, version_number(release)):
            return None
        answer = await ask(inner, request, peer)
        return None if answer is None else replace(answer, version=version_number(release))

    return step


@pytest.fixture(params=["4.3.2", "4.9.0", "5.0.0"])
async def old(request: pytest.FixtureRequest, stage: Stage) -> AsyncIterator[Stage]:
    """Brokers of an older release."""
    for name, server in stage.brokers.items():
        for code in RequestCode:
            server.always(code, of_release(request.param, stage.stores[name]))
    yield stage
    for server in stage.brokers.values():
        assert not [code for code in server.codes if too_old_for(code, version_number(request.param))]


async def test_a_batch_is_sent_without_a_wait(old: Stage, client: Client) -> None:
    async with Producer("g", client=client) as producer:
        results = await producer.send_batch([Message("orders", b"%d" % number) for number in range(5)], timeout=3)
    assert len(results) == 5
    assert sum(len(server.of(BATCH)) for server in old.brokers.values()) == 1


async def test_a_read_by_tag_is_made(old: Stage, client: Client) -> None:
    for number in range(6):
        old.stores["broker-a"].put("orders", 0, b"%d" % number, f"TAGS\x01{'odd' if number % 2 else 'even'}\x02")
    async with PullConsumer("readers", client=client) as consumer:
        await consumer.message_queues("orders")
        pulled = await consumer.pull(A0, 0, tags="odd")
    assert [message.body for message in pulled.messages] == [b"1", b"3", b"5"]
    assert len(old.brokers["broker-a"].of(PULL)) == 1


async def test_a_release_is_learned_by_one_question(old: Stage, client: Client) -> None:
    await client._session.routes.refresh("orders")
    address = old.brokers["broker-a"].address
    for _ in range(3):
        await client._session.call(address, Command(RequestCode.RECALL_MESSAGE))
    assert old.brokers["broker-a"].codes == [BEAT]


async def test_the_question_takes_of_the_requests_time(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    server = stage.brokers["broker-a"]

    async def late(request: Command, peer: Peer) -> Command | None:
        await trio.sleep(2)
        return await ask(stage.stores["broker-a"], request, peer)

    async def never(request: Command, peer: Peer) -> Command | None:
        await trio.sleep_forever()

    server.always(BEAT, late)
    server.always(RequestCode.RECALL_MESSAGE, never)
    began = trio.current_time()
    with pytest.raises(CallTimeout):
        await client._session.call(server.address, Command(RequestCode.RECALL_MESSAGE), timeout=3)
    assert trio.current_time() - began == pytest.approx(3, abs=0.5)


async def test_the_refusal_names_both_releases(old: Stage, client: Client) -> None:
    address = old.brokers["broker-a"].address
    answer = await client._session.call(address, Command(RequestCode.RECALL_MESSAGE))
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    release = version_name(answer.version)
    assert answer.remark == f"not sent, since the server is of release {release} and 5.3.2 is the first that knows it"
