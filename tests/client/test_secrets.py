"""No secret is ever shown: not in a repr, a log, an error, nor on the wire except as a signature."""

from __future__ import annotations

import base64
import logging
import traceback
from collections.abc import Iterator

import pytest

from pyrmq_core import Client, Message, MessageQueue, Producer, RocketMQError, blocking
from pyrmq_core.protocol.framing.frame import encode_frame
from tests.support.scripted import SEND, cut, refuse, silence
from tests.support.stage import Stage

SECRET, TOKEN = "s3cret-k3y-of-mine", "t0ken-of-mine"
A0 = MessageQueue("orders", "broker-a", 0)


def forms(secret: str) -> Iterator[str]:
    yield secret
    yield secret.encode().hex()
    yield base64.b64encode(secret.encode()).decode().rstrip("=")[:-1]


def assert_silent(text: str) -> None:
    for form in (*forms(SECRET), *forms(TOKEN)):
        assert form not in text


def shown(thing: object) -> str:
    """Returns what a person or a program would see of it: repr, str, and the repr of each of its attributes."""
    held = vars(thing) if hasattr(thing, "__dict__") else {}
    return "\n".join([repr(thing), str(thing), *(repr(value) for value in held.values())])


def keyed(stage: Stage, **settings: float) -> Client:
    return Client(
        nameserver=stage.nameserver.address,
        access_key="reader",
        secret_key=SECRET,
        security_token=TOKEN,
        **settings,  # type: ignore[arg-type]
    )


async def test_texts_of_a_client_and_its_producer(stage: Stage) -> None:
    client = keyed(stage)
    producer = Producer("g", client=client)
    assert_silent(shown(client) + shown(producer))
    session = client._session
    async with client, producer:
        await producer.send(Message("orders", b"x"))
        for part in (
            client,
            producer,
            session,
            session._caller,
            session._heartbeats,
            session.nameservers,
            session.routes,
        ):
            assert_silent(shown(part))


def test_texts_of_the_blocking_face() -> None:
    client = blocking.Client(nameserver="127.0.0.1:1", access_key="reader", secret_key=SECRET, security_token=TOKEN)
    assert_silent(shown(client))
    assert_silent(shown(blocking.Producer("g", client=client)))


async def test_logs_and_errors(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Every failure there is, at the most talkative level."""
    with caplog.at_level(logging.DEBUG):
        async with keyed(stage) as client, Producer("g", client=client) as producer:
            for step in (refuse(16, "check signature failed."), refuse(1), cut, silence):
                stage.brokers["broker-a"].always(SEND, step)
                with pytest.raises(RocketMQError) as caught:
                    await producer.send(Message("orders", b"x"), queue=A0, timeout=0.3)
                assert_silent("".join(traceback.format_exception(caught.value)))
                assert_silent(repr(caught.value.__dict__))
            await stage.brokers["broker-a"].stop()
            with pytest.raises(RocketMQError) as caught:
                await producer.send(Message("orders", b"x"), queue=A0, timeout=0.3)
            assert_silent("".join(traceback.format_exception(caught.value)))
    assert_silent(caplog.text)


async def test_a_wrong_key_is_one_clear_line(stage: Stage) -> None:
    for server in stage.brokers.values():
        server.always(SEND, refuse(16, "check signature failed."))
    async with keyed(stage) as client, Producer("g", client=client) as producer:
        with pytest.raises(RocketMQError) as caught:
            await producer.send(Message("orders", b"x"), queue=A0)
    text = str(caught.value)
    assert "\n" not in text
    assert "NO_PERMISSION (16): check signature failed." in text
    assert "check the topic's permission and, with ACL on, the access key" in text


async def test_the_wire_carries_a_signature_and_the_token_alone(stage: Stage) -> None:
    """The token is part of the protocol; the secret must never be sent."""
    async with keyed(stage) as client, Producer("g", client=client) as producer:
        await producer.send(Message("orders", b"x"), queue=A0)
        await stage.heard_of("broker-a")
    for server in (stage.nameserver, *stage.brokers.values()):
        for seen in server.seen:
            assert seen.command.ext["SecurityToken"] == TOKEN
            frame = encode_frame(seen.command).decode("latin-1")
            assert not any(form in frame for form in forms(SECRET))
