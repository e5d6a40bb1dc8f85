"""TLS on our servers under RocketMQ's names: the modes, client certificates, files that cannot be used, secrets."""

from __future__ import annotations

import logging
import os
import ssl
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import trio

from pyrmq_core import Client, Message, NoNameServer, Producer, PullConsumer
from pyrmq_core.embedded import EmbeddedCluster
from pyrmq_core.errors import InvalidArgument, NetworkError
from pyrmq_core.network import ConnectionPool, TlsMode, TlsSettings, tls_settings
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.properties_text import format_java_properties, parse_java_properties
from pyrmq_core.protocol.requests.nameserver.namesrv_config import UpdateNamesrvConfig
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.nameserver import NameServerConfig, RunningNameServer
from tests.servers.nameserver.desk import Desk
from tests.servers.nameserver.serving import TIMEOUT, Caller, nameserver
from tests.support.certificates import Certificates
from tests.support.waiting import until

QUESTION = Command(RequestCode.GET_BROKER_CLUSTER_INFO)
PASSWORD = "the-k3ys-own"
Configured = Callable[[dict[str, str]], TlsSettings]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


def serving(
    *settings: Mapping[str, Any],
) -> AbstractAsyncContextManager[tuple[RunningNameServer, Callable[[], Caller]]]:
    return nameserver(**{name: value for mapping in settings for name, value in mapping.items()})


async def is_answered(address: str, tls: ssl.SSLContext | None) -> bool:
    async with trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery, tls=tls)
        try:
            return (await pool.call(address, QUESTION, timeout=TIMEOUT)).code == 0
        except NetworkError:
            return False
        finally:
            await pool.aclose()
            nursery.cancel_scope.cancel()


async def is_reached(address: str, tls: ssl.SSLContext) -> bool:
    """Returns whether the handshake succeeds."""
    host, _, port = address.rpartition(":")
    stream = trio.SSLStream(await trio.open_tcp_stream(host, int(port)), tls, server_hostname=host)
    try:
        await stream.do_handshake()
    except trio.BrokenResourceError:
        return False
    finally:
        await trio.aclose_forcefully(stream)
    return True


@pytest.mark.parametrize(
    ("mode", "plain", "encrypted"),
    [("permissive", True, True), ("enforcing", False, True), ("disabled", True, False), ("PERMISSIVE", True, True)],
)
async def test_the_modes(certificates: Certificates, mode: str, plain: bool, encrypted: bool) -> None:
    async with serving(certificates.server(mode)) as (running, _):
        assert await is_answered(running.address, None) is plain
        assert await is_answered(running.address, certificates.trusting()) is encrypted


@pytest.mark.parametrize(
    ("auth", "without", "with_one"), [("none", True, True), ("optional", True, True), ("require", False, True)]
)
async def test_a_client_shows_its_certificate(
    certificates: Certificates, auth: str, without: bool, with_one: bool
) -> None:
    trust = {"tls.server.need.client.auth": auth, "tls.server.trustCertPath": str(certificates.trust)}
    async with serving(certificates.server(), trust) as (running, _):
        assert await is_answered(running.address, certificates.trusting()) is without
        assert await is_answered(running.address, certificates.trusting(with_certificate=True)) is with_one


async def test_without_a_certificate_the_port_is_plain() -> None:
    assert TlsSettings().mode is TlsMode.PERMISSIVE
    async with serving() as (running, _):
        assert await is_answered(running.address, None)


async def test_a_whole_cluster_over_tls(certificates: Certificates) -> None:
    """Brokers register over TLS, clients send and read over it; peers without trust or TLS are refused."""
    settings = {**certificates.server(), **certificates.calls()}
    async with EmbeddedCluster(settings=settings, nameserver_settings=certificates.server()) as cluster:
        async with (
            Client(nameserver=cluster.nameserver, tls=certificates.trusting()) as client,
            Producer("g", client=client) as producer,
            PullConsumer("g", client=client) as consumer,
        ):
            sent = await producer.send(Message("T", b"x" * 100_000))
            pulled = await consumer.pull(sent.message_queue, sent.queue_offset, wait=5)
            assert [message.body for message in pulled.messages] == [b"x" * 100_000]
        for address in (cluster.nameserver, *cluster.brokers.values()):
            assert not await is_answered(address, None)
        async with Client(nameserver=cluster.nameserver, tls=ssl.create_default_context()) as stranger:
            with pytest.raises(NoNameServer, match="its certificate is not accepted"):
                await stranger._session.routes.refresh("T")


async def test_a_broker_that_trusts_another_authority_does_not_register(
    certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = Certificates(tmp_path)

    async def boot() -> None:
        async with EmbeddedCluster(settings=foreign.calls(), nameserver_settings=certificates.server()):
            pytest.fail("it registered")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(boot)
        await until(lambda: "its certificate is not accepted" in caplog.text)
        nursery.cancel_scope.cancel()


def settings_of(kind: str) -> Configured:
    return lambda settings: (NameServerConfig() if kind == "nameserver" else BrokerConfig()).with_settings(settings).tls


@pytest.mark.parametrize("configured", [settings_of("nameserver"), settings_of("broker")])
@pytest.mark.parametrize(
    ("name", "value"),
    [("tls.server.mode", "maybe"), ("tls.server.need.client.auth", "please"), ("tls.enable", "yes")],
)
def test_a_value_that_is_none_is_named(configured: Configured, name: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{name}={value}: .*(exist|wanted)"):
        configured({name: value})


def test_files_that_cannot_be_used_are_named(certificates: Certificates, tmp_path: Path) -> None:
    def context(**settings: str) -> None:
        TlsSettings().with_settings(
            {name.replace("_", "."): value for name, value in settings.items()}
        ).server_context()

    cert, key, none = (str(path) for path in (certificates.cert, certificates.key, tmp_path / "none.pem"))
    with pytest.raises(InvalidArgument, match=r"enforcing needs tls\.server\.certPath"):
        context(tls_server_mode="enforcing")
    with pytest.raises(InvalidArgument, match=r"none\.pem.* cannot be used: No such file"):
        context(tls_server_certPath=none, tls_server_keyPath=key)
    with pytest.raises(InvalidArgument, match="give a PEM certificate and its key"):
        context(tls_server_certPath=str(certificates.trust), tls_server_keyPath=key)
    with pytest.raises(InvalidArgument, match=r"tls\.server\.trustCertPath is missing"):
        context(tls_server_certPath=cert, tls_server_keyPath=key, tls_server_need_client_auth="require")
    with pytest.raises(InvalidArgument, match=r"cannot read tls\.config\.file .*none\.pem"):
        context(tls_config_file=none)
    with pytest.raises(InvalidArgument, match=r"tls\.client\.trustCertPath is missing"):
        TlsSettings(enable=True, client_auth_server=True).client_context()


@pytest.mark.parametrize("server", ["nameserver", "broker"])
async def test_a_renewed_certificate_is_taken_over(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tls_settings, "WATCH_SECONDS", 0.02)
    caplog.set_level(logging.INFO)
    old = Certificates(tmp_path)
    settings = old.server()
    calls = {"tls.enable": "true"} if server == "nameserver" else settings
    of_nameserver = settings if server == "nameserver" else {}
    async with EmbeddedCluster(settings=calls, nameserver_settings=of_nameserver) as cluster:
        address = cluster.brokers["broker-a"] if server == "broker" else cluster.nameserver
        assert await is_reached(address, old.trusting())
        new = Certificates(tmp_path)
        with trio.fail_after(TIMEOUT):
            while not await is_reached(address, new.trusting()):
                pass
        assert not await is_reached(address, old.trusting())
        (tmp_path / "foreign").mkdir()
        new.cert.write_bytes(Certificates(tmp_path / "foreign").cert.read_bytes())  # and not its key
        with trio.fail_after(TIMEOUT):
            while "the certificate stays as it was" not in caplog.text:
                await trio.lowlevel.checkpoint()
        assert await is_reached(address, new.trusting())


async def test_a_certificates_path_that_cannot_be_followed_ends_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tls_settings, "WATCH_SECONDS", 0.02)
    live, next_link = tmp_path / "live", tmp_path / "next"
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    live.symlink_to("first")
    old, new = Certificates(live), Certificates(tmp_path / "second")
    async with serving(old.server()) as (running, _):
        assert await is_answered(running.address, old.trusting())
        next_link.symlink_to("x" * 300)  # too long for the name of a file
        next_link.rename(live)
        await until(lambda: "the certificate stays as it was" in caplog.text)
        assert await is_answered(running.address, old.trusting())
        next_link.symlink_to("second")
        next_link.rename(live)
        with trio.fail_after(TIMEOUT):
            while not await is_reached(running.address, new.trusting()):
                pass


async def test_a_keys_password_is_never_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    locked = Certificates(tmp_path, password=PASSWORD)
    given = {**locked.server(), "tls.server.keyPassword": PASSWORD}
    config = NameServerConfig().with_settings(given)
    broker = BrokerConfig().with_settings(given)
    for shown in (repr(config), repr(broker), str(config.to_settings()), str(broker.to_properties())):
        assert PASSWORD not in shown
    with pytest.raises(InvalidArgument) as wrong:
        TlsSettings().with_settings({**given, "tls.server.keyPassword": f"not-{PASSWORD}"}).server_context()
    assert PASSWORD not in str(wrong.value)
    async with serving(given) as (running, _):
        assert await is_answered(running.address, locked.trusting())
        async with trio.open_nursery() as nursery:
            pool = ConnectionPool(nursery, tls=locked.trusting())
            answer = await pool.call(running.address, Command(RequestCode.GET_NAMESRV_CONFIG), timeout=TIMEOUT)
            await pool.aclose()
            nursery.cancel_scope.cancel()
    assert b"tls.server.keyPassword=***" in bytes(answer.body)
    assert PASSWORD.encode() not in bytes(answer.body)
    assert PASSWORD not in caplog.text


async def test_stored_settings_keep_the_password_where_it_was(tmp_path: Path) -> None:
    """Stored settings keep it with the file's permissions; from a file of its own it is not copied."""
    own, store = tmp_path / "tls.properties", tmp_path / "namesrv.conf"
    store.write_text("")
    store.chmod(0o600)
    own.write_text(format_java_properties({"tls.server.keyPassword": PASSWORD, "tls.server.mode": "disabled"}))
    for given, kept in (({"tls.server.keyPassword": PASSWORD}, True), ({"tls.config.file": str(own)}, False)):
        desk = Desk(configStorePath=store, **given)
        assert desk.server.config.tls.server_key_password == PASSWORD
        assert (await desk.ask(UpdateNamesrvConfig({"orderMessageEnable": "true"}).to_command())).code == 0
        stored = parse_java_properties(store.read_text())
        assert ("tls.server.keyPassword" in stored) is kept
        assert NameServerConfig().with_settings(stored).tls == desk.server.config.tls
        assert store.stat().st_mode & 0o777 == 0o600


async def test_tls_cannot_be_changed_over_the_network(certificates: Certificates) -> None:
    answer = await Desk().ask(UpdateNamesrvConfig({"tls.server.mode": "disabled"}).to_command())
    assert (answer.code, answer.remark) == (16, "Can not update config in black list.")


async def test_the_two_programs_take_the_settings_from_their_files(certificates: Certificates, tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path)}

    def spawn(program: str, *arguments: str, **settings: str) -> subprocess.Popen[str]:
        path = tmp_path / f"{program}.conf"
        path.write_text(format_java_properties({"listenPort": "0", **certificates.server(), **settings}))
        command = [sys.executable, "-m", f"pyrmq_core.servers.{program}", "-c", str(path), *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)

    def booted(started: subprocess.Popen[str]) -> str:
        assert started.stdout is not None
        return next(line for line in started.stdout if "boot success" in line)

    with spawn("nameserver") as server:
        address = (await trio.to_thread.run_sync(booted, server)).rpartition(" ")[2].strip()
        store = {"storePathRootDir": str(tmp_path / "store"), "mappedFileSizeCommitLog": "1000000"}
        with spawn("broker", "-n", address, **certificates.calls(), **store) as broker:
            await trio.to_thread.run_sync(booted, broker)
            client = Client(nameserver=address, tls=certificates.trusting())
            async with client, Producer("g", client=client) as producer:
                await producer.send(Message("T", b"1"), timeout=10)
            broker.kill()
        assert not await is_answered(address, None)
        server.kill()
