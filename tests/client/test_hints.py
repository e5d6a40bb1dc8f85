"""Each wrong way to reach a server or to use a face, made for real, and the hint that its error ends with."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import h2.config
import h2.connection
import h2.exceptions
import pytest
import trio

import pyrmq_core
from pyrmq_core import (
    Admin,
    Client,
    InvalidArgument,
    InvalidState,
    Message,
    NoNameServer,
    NoRoute,
    Producer,
    ResponseError,
    RocketMQError,
    aio,
    blocking,
)
from pyrmq_core.client.routing.publish_info import TopicPublishInfo
from pyrmq_core.embedded import EmbeddedCluster
from pyrmq_core.network import TlsMode
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import refusal
from pyrmq_core.protocol.framing.header_requests import response_error
from tests.client.transacting import COMMIT, Listener
from tests.network.ends import echo, serving
from tests.support.certificates import Certificates
from tests.support.guarded import AUTH_5, KEY, SECRET
from tests.support.scripted import ROUTE, raw_server, refuse, says
from tests.support.stage import Stage
from tests.support.terminal import Terminal
from tests.support.web import Page, web_server

BROKER_AS_NAMESERVER = "a broker or a proxy answers so: name a NameServer's address, whose port is 9876 by default"


async def error_of(call: Callable[[], Awaitable[object]]) -> str:
    """Returns the text of the error that a call raises, which is one line."""
    with pytest.raises(RocketMQError) as caught:
        await call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def route_error(nameserver: str, tls: ssl.SSLContext | None = None) -> str:
    """Returns the error of a client's first query to this NameServer."""
    async with Client(nameserver=nameserver, tls=tls) as client:
        return await error_of(partial(client._session.routes.route, "orders"))


# --- Another server in the place of a NameServer


@pytest.fixture
async def broker() -> AsyncIterator[str]:
    async with EmbeddedCluster() as cluster:
        yield cluster.brokers["broker-a"]


async def test_a_broker_in_the_place_of_a_nameserver(broker: str) -> None:
    async with (
        Client(nameserver=broker) as client,
        Admin(client=client) as admin,
        Producer("g", client=client) as producer,
    ):
        for call in (
            partial(producer.send, Message("orders", b"x")),
            partial(admin.route, "orders"),
            admin.cluster_info,
            admin.topics.list,
            partial(admin.topics.list, cluster="C"),
            admin.brokers.list,
            admin.groups.list,
            partial(admin.create_topic, "orders"),
            partial(admin.delete_topic, "orders"),
            partial(admin.kv_value, "space", "key"),
            partial(admin.kv_values, "space"),
            partial(admin.put_kv, "space", "key", "value"),
            partial(admin.delete_kv, "space", "key"),
            partial(admin.brokers.wipe_write_perm, "broker-a"),
        ):
            assert BROKER_AS_NAMESERVER in await error_of(call)


async def http2(stream: trio.SocketStream) -> None:
    """Answers as a gRPC server does, before and after bytes that are no HTTP/2."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    connection.initiate_connection()
    await stream.send_all(connection.data_to_send())
    with suppress(h2.exceptions.ProtocolError):  # it needs more bytes, if the client has left before
        connection.receive_data(bytes(await stream.receive_some(65536)))
    await stream.send_all(connection.data_to_send())


def tls_port(certificates: Certificates) -> Callable[[trio.SocketStream], Awaitable[None]]:
    """Returns a handler that begins a handshake, and writes OpenSSL's alert when the peer does not."""

    async def handler(stream: trio.SocketStream) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.cert, certificates.key)
        received, written = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(received, written, server_side=True)
        received.write(bytes(await stream.receive_some(65536)))
        with pytest.raises(ssl.SSLError):
            tls.do_handshake()
        await stream.send_all(written.read() or b"\x15\x03\x01\x00\x02\x02\x46")

    return handler


@pytest.mark.parametrize(
    ("handler", "hint"),
    [
        (says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "the port of a web server or an HTTP proxy"),
        (says(b"SSH-2.0-OpenSSH_9.6\r\n"), "the port of another service"),
        (http2, "a gRPC port, as a proxy's 8081; its remoting port is 8080"),
    ],
)
async def test_another_service(handler: Callable[[trio.SocketStream], Awaitable[None]], hint: str) -> None:
    async with raw_server(handler) as address:
        text = await route_error(address)
    assert hint in text
    assert "declares" not in text
    assert re.search(r"no NameServer answered GET_ROUTEINFO_BY_TOPIC \(105\) in 0\.\d+ s ", text)


async def test_a_port_that_speaks_tls(tmp_path: Path) -> None:
    async with raw_server(tls_port(Certificates(tmp_path))) as address:
        assert "TLS: switch TLS on at the end that speaks plain" in await route_error(address)


async def test_other_clients_at_our_port(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with EmbeddedCluster() as cluster:
        host, port = cluster.nameserver.split(":")
        for first in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            bytes.fromhex("16030100ff010000"),
        ):
            async with await trio.open_tcp_stream(host, int(port)) as stream:
                await stream.send_all(first)
                assert await stream.receive_some() == b""
    for hint in ("an HTTP request", "HTTP/2, as gRPC clients begin", "TLS: switch TLS on"):
        assert hint in caplog.text


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (Page(b"", status="404 Not Found"), "it answered 404 Not Found"),
        (Page(b"<!DOCTYPE html>\n<html></html>"), "the NameServer address '<!DOCTYPE html>' is not host:port"),
        (Page(b""), "the page is empty"),
    ],
)
async def test_a_page_without_a_list(page: Page, reason: str) -> None:
    async with web_server(page) as server, Client(nameserver_url=server.url) as client:
        text = await error_of(partial(client._session.routes.route, "orders"))
    assert text.startswith(f"nameserver_url {server.url} names no NameServer: ")
    assert reason in text
    assert text.endswith("its first line has to be host:port;host:port")


# --- TLS


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_server_that_wants_a_certificate(tmp_path: Path, version: ssl.TLSVersion) -> None:
    certificates = Certificates(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates.cert, certificates.key)
    server.verify_mode = ssl.CERT_REQUIRED
    certificates.authority.configure_trust(server)
    client = certificates.trusting()
    client.maximum_version = version
    async with serving(echo, tls=server, tls_mode=TlsMode.ENFORCING) as listening:
        text = await route_error(listening.address, client)
    assert "want a certificate of this client: context.load_cert_chain" in text.replace("wants", "want")
    assert "--tls-cert" in text
    assert "BrokenResourceError" not in text


async def test_a_server_of_another_authority(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates.cert, certificates.key)
    async with serving(echo, tls=server, tls_mode=TlsMode.ENFORCING) as listening:
        text = await route_error(listening.address, ssl.create_default_context())
        assert "trust its authority: cafile= of ssl.create_default_context (Spark: tlsCaFile; pyrmq: --tls-ca)" in text
        other_name = ssl.create_default_context()
        certificates.authority.configure_trust(other_name)
        certificates.authority.issue_cert("elsewhere.example").configure_cert(server)
        text = await route_error(listening.address, other_name)
    assert "connect by a name in it, or set check_hostname=False (Spark: tlsVerify; pyrmq: --tls-verify ca)" in text


# --- Refusals


@pytest.mark.parametrize(
    ("code", "remark", "hint"),
    [
        (ResponseCode.MESSAGE_ILLEGAL, "message body size exceeded", "make the message smaller"),
        (ResponseCode.MESSAGE_ILLEGAL, "maybe msg body or properties length not matched", "make the message smaller"),
        (ResponseCode.MESSAGE_ILLEGAL, "the topic's message type does not match: FIFO", "see its message.type"),
        (ResponseCode.MESSAGE_ILLEGAL, "the compaction topic needs a message key", "give the message keys"),
        (ResponseCode.MESSAGE_ILLEGAL, "queueId[7] is illegal", "correct the message as the remark says"),
        (ResponseCode.NO_PERMISSION, "Can not update config in black list.", "configBlackList"),
        (ResponseCode.NO_PERMISSION, "User:bob has no permission", "check the topic's permission"),
    ],
)
def test_a_remark_decides(code: ResponseCode, remark: str, hint: str) -> None:
    error = response_error(refusal(code, remark), RequestCode.SEND_MESSAGE_V2, "broker-a")
    assert hint in str(error).removeprefix("broker-a answered SEND_MESSAGE_V2 (310) with ")


async def test_a_broker_without_transactions() -> None:
    async with (
        EmbeddedCluster(topics={"T": 1}, settings={"rejectTransactionMessage": "true"}) as cluster,
        Producer("g", nameserver=cluster.nameserver, transaction_listener=Listener()) as producer,
    ):
        send = partial(producer.send_in_transaction, Message("T", b"x"), lambda *_: COMMIT)
        assert "rejectTransactionMessage is on at this broker" in await error_of(send)


async def test_a_policy_with_a_wrong_address() -> None:
    async with (
        EmbeddedCluster(settings=AUTH_5) as cluster,
        Client(nameserver=cluster.nameserver, access_key=KEY, secret_key=SECRET) as client,
        Admin(client=client) as admin,
    ):
        await admin.users.create("bob", "a-secret")
        text = await error_of(
            partial(admin.policies.create, "User:bob", ["Topic:*"], ["Pub"], source_ips=["300.1.1.1"])
        )
    assert text.endswith("The source ip is invalid.; correct the named value")


def test_one_broker_has_and_several_have_no_master() -> None:
    for names, verb in ((("a",), "has"), (("a", "b"), "have")):
        with pytest.raises(NoRoute, match=f"{names[-1]} {verb} no master now"):
            TopicPublishInfo("T", (), counter_start=0, without_master=names).select_one_message_queue()


# --- The wrong face


def test_trio_names_under_asyncio_and_without_a_loop() -> None:
    async def main() -> None:
        async with Producer("g", nameserver="127.0.0.1:1"):
            pass

    with pytest.raises(InvalidState, match=r"under asyncio, .* use those of pyrmq_core\.aio, which are the same"):
        asyncio.run(main())
    with pytest.raises(InvalidState, match=r"trio\.run.*use those of pyrmq_core\.blocking"):
        main().send(None)


def test_an_async_handler_of_the_blocking_consumer() -> None:
    async def handle(_: object) -> None: ...

    with (
        blocking.PushConsumer("g", nameserver="127.0.0.1:1") as consumer,
        pytest.raises(InvalidArgument, match=r"it is an async function.* pyrmq_core\.aio takes it under asyncio"),
    ):
        consumer.run(handle)


FACES = ("Client", "Producer", "PushConsumer", "PullConsumer", "LitePullConsumer", "Admin")


@pytest.mark.parametrize("name", FACES)
def test_with_where_async_with_belongs(name: str) -> None:
    group = () if name in ("Client", "Admin") else ("g",)
    for package in (pyrmq_core, aio):
        face = getattr(package, name)(*group, nameserver="127.0.0.1:1")
        with pytest.raises(InvalidState, match=f"this {name} is opened by `async with`.*pyrmq_core.blocking"), face:
            pass

    async def main() -> None:
        async with getattr(blocking, name)(*group, nameserver="127.0.0.1:1"):
            pass

    with pytest.raises(InvalidState, match=f"this {name} of pyrmq_core.blocking is opened by `with`"):
        asyncio.run(main())


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "list"),
        ("send", "T", "body"),
        ("tail", "T"),
        ("consume", "T", "-g", "G"),
        ("group", "progress", "G"),
        ("query", "T", "--key", "K"),
        ("kv", "put", "space", "key", "value"),
        ("health",),
        ("nameserver", "config"),
    ],
)
def test_a_command_without_an_address(words: tuple[str, ...]) -> None:
    assert "pyrmq: -n host:port" in Terminal("").refused(1, *words)


# --- A NameServer that refuses


async def test_a_refusal_names_the_nameserver(stage: Stage) -> None:
    stage.nameserver.always(ROUTE, refuse(ResponseCode.SYSTEM_ERROR, "no"))
    async with Client(nameserver=stage.nameserver.address) as client:
        with pytest.raises(ResponseError, match=f"NameServer {stage.nameserver.address} answered"):
            await client._session.routes.route("orders")


async def test_the_time_in_an_error_is_the_time_that_passed() -> None:
    async with Client(nameserver="127.0.0.1:1") as client:
        with pytest.raises(NoNameServer, match=r"answered GET_ROUTEINFO_BY_TOPIC \(105\) in 0(\.\d+)? s "):
            await client._session.routes.route("orders")
