"""Units and the second form of namespaces: what they put into ids, URLs and header fields."""

from __future__ import annotations

import pytest

from pyrmq_core import Client, InvalidArgument, Message, MessageQueue, Producer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from tests.support.stage import Stage
from tests.support.web import Page, web_server


def test_the_id_ends_with_the_unit() -> None:
    plain, of_unit = (Client(nameserver="127.0.0.1:1", unit_name=unit) for unit in (None, "east-2"))
    assert of_unit.client_id.endswith("@east-2")
    assert plain.client_id.count("@") == 1


@pytest.mark.parametrize("unit_name", ["a b", "a/b", "a@b", "é", "x" * 65, "a?b"])
def test_a_unit_that_does_not_survive_in_a_url_is_refused(unit_name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"unit_name=.*: letters, digits, _ and - only"):
        Client(nameserver="127.0.0.1:1", unit_name=unit_name)


async def test_each_unit_has_its_own_page_of_nameservers(stage: Stage) -> None:
    """common/namesrv/DefaultTopAddressing.java: the URL, a hyphen, the unit, and `?nofix=1`."""
    async with (
        web_server(Page(stage.nameserver.address.encode())) as server,
        Client(nameserver_url=server.url, unit_name="east") as client,
    ):
        assert client._session.nameservers.addresses == (stage.nameserver.address,)
        assert f"{server.url}-east?nofix=1" in repr(client)


@pytest.mark.parametrize("unit_mode", [False, True])
async def test_unit_mode_is_sent_with_every_message(stage: Stage, unit_mode: bool) -> None:
    client = Client(nameserver=stage.nameserver.address, unit_mode=unit_mode)
    async with client, Producer("g", client=client) as producer:
        await producer.send(Message("orders", b"1"))
        await producer.send_batch([Message("orders", b"2"), Message("orders", b"3")])
    assert [sent.unit_mode for _, sent in stage.sends()] == [unit_mode] * 2


async def test_the_second_namespace_goes_with_every_request_and_changes_no_name(stage: Stage) -> None:
    seen: list[Command] = []

    class Sees:
        def do_before_request(self, address: str, request: Command) -> None:
            seen.append(request)

        def do_after_response(self, address: str, request: Command, answer: Command) -> None: ...

    async with (
        Client(nameserver=stage.nameserver.address, namespace_v2="tenant", rpc_hooks=[Sees()]) as client,
        Producer("g", client=client) as producer,
    ):
        queue = (await producer.send(Message("orders", b"1"))).message_queue
        await (await producer.send_soon(Message("orders", b"2"))).wait()
        await producer.send_oneway(Message("orders", b"3"))
        await stage.heard_of()
    assert queue == MessageQueue("orders", queue.broker_name, queue.queue_id)
    assert {sent.topic for _, sent in stage.sends()} == {"orders"}
    arrived = [observed.command for server in (stage.nameserver, *stage.brokers.values()) for observed in server.seen]
    assert {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.SEND_MESSAGE_V2, RequestCode.HEART_BEAT} <= {
        request.code for request in arrived
    }
    assert all((request.ext["nsd"], request.ext["ns"]) == ("true", "tenant") for request in (*arrived, *seen))


def test_the_second_namespace_is_checked() -> None:
    with pytest.raises(InvalidArgument):
        Client(nameserver="127.0.0.1:1", namespace_v2="no spaces")
    assert "nsd" not in repr(Client(nameserver="127.0.0.1:1", namespace_v2=""))
