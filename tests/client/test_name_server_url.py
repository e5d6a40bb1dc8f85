"""NameServers from a URL: fetched at the start, after 10 s and then every 2 minutes; a failure changes nothing."""

import logging

import pytest

from pyrmq_core import Client, InvalidArgument, Message, NoNameServer, Producer
from pyrmq_core.client.routes import name_server_url as discovery
from pyrmq_core.client.routes.name_servers import NameServers
from tests.support.stage import Stage
from tests.support.waiting import until
from tests.support.web import Page, web_server


async def test_a_client_finds_its_nameservers(stage: Stage) -> None:
    page = Page(f" {stage.nameserver.address} \r\nthis line does not count".encode())
    async with web_server(page) as server, Client(nameserver_url=server.url) as client:
        assert client._session.nameservers.addresses == (stage.nameserver.address,)
        async with Producer("g", client=client) as producer:
            await producer.send(Message("orders", b"x"))
        assert server.url in repr(client)


async def test_the_list_changes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """In less time than the real 10 s and 2 min, which another test compares with Java's."""
    monkeypatch.setattr(discovery, "FIRST_SECONDS", 0.05)
    monkeypatch.setattr(discovery, "EVERY_SECONDS", 0.05)
    async with web_server(Page(b"127.0.0.1:1")) as server, Client(nameserver_url=server.url) as client:
        assert client._session.nameservers.addresses == ("127.0.0.1:1",)
        server.page = Page(f"127.0.0.1:1;{stage.nameserver.address}".encode())
        await until(lambda: len(client._session.nameservers.addresses) == 2)
        both = client._session.nameservers.addresses
        for broken in (Page(b"", status="500 Oops"), Page(b""), Page(b"nonsense"), Page(b"", raw=b"")):
            server.page = broken
            await server.asked_again(2)
            assert client._session.nameservers.addresses == both
        server.page = Page(stage.nameserver.address.encode())
        await until(lambda: len(client._session.nameservers.addresses) == 1)


def test_times_are_javas() -> None:
    assert (discovery.FIRST_SECONDS, discovery.EVERY_SECONDS, discovery.TIMEOUT_SECONDS) == (10, 120, 3)


async def test_a_list_that_cannot_be_fetched_yet(caplog: pytest.LogCaptureFixture) -> None:
    """The client starts; a send says that there is no NameServer."""
    with caplog.at_level(logging.INFO):
        async with (
            Client(nameserver_url="http://127.0.0.1:1/list") as client,
            Producer("g", client=client) as producer,
        ):
            with pytest.raises(NoNameServer):
                await producer.send(Message("orders", b"x"))
    assert (
        "fetching the list of NameServers from http://127.0.0.1:1/list failed, and is tried again: GET http://127.0.0.1:1/list"
        in caplog.text
    )


def test_addresses_and_url_exclude_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument, match="give one"):
        Client(nameserver="127.0.0.1:1", nameserver_url="http://host/list")
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    assert "http://host/list" in repr(Client(nameserver_url="http://host/list"))
    assert "127.0.0.1:1" in repr(Client())


def test_a_bad_url_is_refused_at_once() -> None:
    with pytest.raises(InvalidArgument, match="is no URL"):
        Client(nameserver_url="host/list")


class Recorder:
    """The addresses that a list of NameServers called and dropped."""

    def __init__(self) -> None:
        self.closed: list[str] = []

    async def call(self, *_: object, **__: object) -> None:
        raise AssertionError

    def close(self, address: str) -> None:
        self.closed.append(address)


def test_the_chosen_one_is_kept_while_it_is_in_the_list() -> None:
    recorder = Recorder()
    servers = NameServers(recorder, ("a:1", "b:1"), random_start=1)  # type: ignore[arg-type]
    servers.set_addresses(("b:1", "a:1"), random_start=0)
    assert servers.addresses == ("a:1", "b:1")  # another order alone changes nothing
    servers.set_addresses(("c:1", "b:1"), random_start=0)
    assert servers.addresses == ("c:1", "b:1")
    assert servers._choice.address == "b:1"
    assert recorder.closed == ["a:1"]
    servers.set_addresses(("d:1",), random_start=0)
    assert servers._choice.address == "d:1"
