"""Signatures and TLS against real brokers that require them, and the errors for a wrong key."""

from __future__ import annotations

import json
import ssl
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from pyrmq_core import (
    Client,
    Command,
    ConnectFailed,
    LocalTransactionState,
    Message,
    MessageExt,
    NoNameServer,
    Producer,
    PullConsumer,
    ResponseError,
    SendFailed,
)
from tests.support.apache import VERSIONS, boot_cluster
from tests.support.client_jobs import stored_in
from tests.support.guarded import KEY, READER, READER_SECRET, SECRET, Guarded, consume_all
from tests.support.maven import ApacheUnavailable


@pytest.fixture
def topic() -> str:
    return f"t_{uuid.uuid4().hex[:12]}"


class Listener:
    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE


async def test_every_request_is_accepted_when_signed(guarded: Guarded, topic: str) -> None:
    """Sends of each kind, the one-way end of a transaction, heartbeats, reads and offsets."""
    async with (
        guarded.client() as client,
        Producer("signers", client=client, transaction_listener=Listener(), send_timeout=15) as producer,
        PullConsumer("readers", client=client, timeout=15) as consumer,
    ):
        await producer.send(Message(topic, b"one", keys="ключ", tags="t"))
        await producer.send_batch([Message(topic, b"b1"), Message(topic, b"b2")])
        await producer.send_oneway(Message(topic, b"w"))
        await (await producer.send_soon(Message(topic, b"x" * 9000))).wait()
        await producer.send_in_transaction(Message(topic, b"tx"), lambda *_: LocalTransactionState.COMMIT_MESSAGE)
        bodies = {message.body for message in await stored_in(consumer, topic, 6)}
        assert bodies == {b"one", b"b1", b"b2", b"w", b"x" * 9000, b"tx"}
        for broker in client._session.routes.brokers:
            assert broker.master is not None
            await client._session.heartbeats.send_now(broker.master)
            assert client._session.heartbeats.was_reached(broker.master)
        queue = (await consumer.message_queues(topic))[0]
        await consumer.commit(queue, 0)
        assert await consumer.committed(queue) == 0


@pytest.mark.parametrize(
    ("key", "secret", "remark_5", "remark_4"),
    [
        (KEY, "wr0ng-secret", "check signature failed", "Check signature failed for accessKey=administrator"),
        ("stranger", SECRET, "User:stranger is not found", "No acl config for stranger"),
        (None, None, "username cannot be null", "No accessKey is configured"),
    ],
)
async def test_a_wrong_key_is_one_clear_line(
    guarded: Guarded, topic: str, key: str | None, secret: str | None, remark_5: str, remark_4: str
) -> None:
    async with guarded.client(key, secret) as client, Producer("g", client=client, send_timeout=15) as producer:
        with pytest.raises(SendFailed) as caught:
            await producer.send(Message(topic, b"x"))
    text = str(caught.value)
    assert "\n" not in text
    assert (remark_5 if guarded.users else remark_4) in text
    assert "check the topic's permission and, with ACL on, the access key" in text
    assert SECRET not in text
    assert "wr0ng-secret" not in text
    assert isinstance(caught.value.__cause__, ResponseError)


async def test_a_user_without_the_right_is_refused_with_the_reason(guarded: Guarded, topic: str) -> None:
    if guarded.users:
        async with guarded.client() as admin:
            await admin._session.routes.refresh("TBW102")
            (broker,) = admin._session.routes.brokers
            assert broker.master is not None
            user = {
                "username": READER,
                "password": READER_SECRET,
                "userType": "Normal",
                "userStatus": "enable",
            }
            created = await admin._session.call(
                broker.master, Command(3001, {"username": READER}, json.dumps(user).encode())
            )
            assert created.code == 0 or "existed" in (created.remark or "")
    async with (
        guarded.client(READER, READER_SECRET) as client,
        Producer("g", client=client, send_timeout=20) as producer,
    ):
        with pytest.raises(SendFailed, match=r"NO_PERMISSION \(16\)|no permission|No default permission") as caught:
            await producer.send(Message(topic, b"x"), timeout=15)
    assert "\n" not in str(caught.value)


# --- TLS


@dataclass(frozen=True)
class Encrypted:
    """A cluster that closes plain connections; `trusting` accepts its certificate, `strict` no test's certificate."""

    nameserver: str
    trusting: ssl.SSLContext
    strict: ssl.SSLContext


def unverified() -> ssl.SSLContext:
    """Returns a context for the certificates that RocketMQ's servers make themselves by default."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@contextmanager
def with_a_certificate_of_its_own(version: str) -> Iterator[Encrypted]:
    options = ("-Dtls.server.mode=enforcing", "-Dtls.enable=true")
    with boot_cluster(version, java_options=options, tls=unverified()) as cluster:
        yield Encrypted(cluster.nameserver.address, unverified(), ssl.create_default_context())


@contextmanager
def with_our_certificate(version: str, directory: Path) -> Iterator[Encrypted]:
    """Yields a cluster whose certificate is verified, name and all, as in production."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    (directory / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    issued.cert_chain_pems[0].write_to_path(str(directory / "cert.pem"))
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    options = (
        "-Dtls.server.mode=enforcing",
        "-Dtls.enable=true",
        "-Dtls.test.mode.enable=false",
        f"-Dtls.server.keyPath={directory / 'key.pem'}",
        f"-Dtls.server.certPath={directory / 'cert.pem'}",
    )
    with boot_cluster(version, java_options=options, tls=trusting) as cluster:
        yield Encrypted(cluster.nameserver.address, trusting, ssl.create_default_context())


@pytest.fixture(
    scope="module", params=[*(pytest.param(version, marks=pytest.mark.soak) for version in VERSIONS), "5.4.0 verified"]
)
def encrypted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    version, _, verified = request.param.partition(" ")
    try:
        with (
            with_our_certificate(version, tmp_path_factory.mktemp("tls"))
            if verified
            else with_a_certificate_of_its_own(version)
        ) as cluster:
            yield cluster
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))


async def test_over_tls_everything_works(encrypted: Encrypted, topic: str) -> None:
    async with (
        Client(nameserver=encrypted.nameserver, tls=encrypted.trusting) as client,
        Producer("g", client=client, transaction_listener=Listener(), send_timeout=15) as producer,
        PullConsumer("readers", client=client, timeout=15) as consumer,
    ):
        await producer.send(Message(topic, b"one"))
        await producer.send(Message(topic, bytes(range(256)) * 8000))  # 2 MB in many TLS records
        pendings = [await producer.send_soon(Message(topic, b"%d" % number)) for number in range(200)]
        for pending in pendings:
            await pending.wait()
        await producer.send_in_transaction(Message(topic, b"tx"), lambda *_: LocalTransactionState.COMMIT_MESSAGE)
        messages = await stored_in(consumer, topic, 203)
    assert bytes(range(256)) * 8000 in {message.body for message in messages}


async def test_consumers_speak_tls(encrypted: Encrypted) -> None:
    async with Client(nameserver=encrypted.nameserver, tls=encrypted.trusting) as client:
        await consume_all(client, client)


async def test_a_certificate_that_is_not_trusted_is_reported(encrypted: Encrypted) -> None:
    async with Client(nameserver=encrypted.nameserver, tls=encrypted.strict) as client:
        with pytest.raises(NoNameServer, match="its certificate is not accepted"):
            await client._session.routes.refresh("TBW102")
        with pytest.raises(ConnectFailed, match="trust its authority"):
            await client._session.call(encrypted.nameserver, Command(106))


async def test_plain_is_refused_and_reported(encrypted: Encrypted) -> None:
    async with Client(nameserver=encrypted.nameserver) as client:
        with pytest.raises(NoNameServer, match=f"{encrypted.nameserver}"):
            await client._session.routes.refresh("TBW102", timeout=3)


async def test_cancelled_over_tls_the_connection_lives_on(encrypted: Encrypted, topic: str) -> None:
    """A frame is never torn, even when its sender is cancelled in the middle of a large one."""
    async with (
        Client(nameserver=encrypted.nameserver, tls=encrypted.trusting) as client,
        Producer("g", client=client, send_timeout=15) as producer,
    ):
        await producer.send(Message(topic, b"first"))
        for _ in range(20):
            with trio.move_on_after(0.002):
                await producer.send(Message(topic, b"x" * 500_000))
        await producer.send(Message(topic, b"last"))
