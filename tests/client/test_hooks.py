"""Hooks around sends and requests: their contexts, and that one which raises, hangs or is async harms nothing."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pyrmq_core import (
    Client,
    Command,
    CommunicationMode,
    InvalidArgument,
    Message,
    MessageQueue,
    MessageType,
    NoRoute,
    Outcome,
    Producer,
    ResponseError,
    SendContext,
    SendFailed,
    SendForbidden,
)
from pyrmq_core.client.consumer.pull.puller import Puller
from pyrmq_core.client.producer.send.send_options import KeyedQueue
from pyrmq_core.protocol.acl import signature
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.requests.broker.end_transaction import EndTransaction
from tests.client.reading import fill, read_all
from tests.client.transacting import COMMIT, END, HALF, Listener
from tests.support.scripted import BATCH, PULL, ROUTE, SEND, answer, refuse
from tests.support.stage import Stage, settled

A0 = MessageQueue("orders", "broker-a", 0)


class Recorder:
    """A send hook that keeps its contexts."""

    def __init__(self) -> None:
        self.before: list[SendContext] = []
        self.after: list[SendContext] = []

    def send_message_before(self, context: SendContext) -> None:
        self.before.append(context)

    def send_message_after(self, context: SendContext) -> None:
        self.after.append(context)


class Raising:
    """A hook whose every method raises."""

    def send_message_before(self, context: SendContext) -> None:
        raise RuntimeError("before")

    def send_message_after(self, context: SendContext) -> None:
        raise RuntimeError("after")

    def do_before_request(self, address: str, request: Command) -> Command | None:
        raise RuntimeError("request")

    def do_after_response(self, address: str, request: Command, answer: Command) -> None:
        raise RuntimeError("response")


class Gate:
    """A check-forbidden hook that lets nothing with these words through."""

    def __init__(self, word: bytes) -> None:
        self.word = word

    def check_forbidden(self, context: SendContext) -> None:
        if self.word in bytes(context.payload.body):
            raise ValueError(f"{self.word.decode()} is not for sending")


class SlowGate:
    def check_forbidden(self, context: SendContext) -> None:
        time.sleep(0.15)


class AsyncHook:
    async def send_message_before(self, context: SendContext) -> None: ...

    async def send_message_after(self, context: SendContext) -> None: ...


async def test_hooks_are_called_before_and_after_a_send(stage: Stage, client: Client) -> None:
    hook = Recorder()
    async with Producer("g", client=client, hooks=[hook]) as producer:
        result = await producer.send(Message("orders", b"x", tags="paid", keys="k"), queue=A0)
    (before,), (after,) = hook.before, hook.after
    assert before.producer_group == "g"
    assert before.namespace is None
    assert (before.topic, before.queue, before.mode) == ("orders", A0, CommunicationMode.SYNC)
    assert before.broker_address == stage.brokers["broker-a"].address
    assert before.properties["TAGS"] == "paid"
    assert before.message_type is MessageType.NORMAL
    assert before.results == ()
    assert after.results == (result,)
    assert after.error is None
    assert after.seconds > 0


async def test_hooks_are_called_for_every_try(stage: Stage, client: Client) -> None:
    """Java does the same: hooks stand around each request and not around the whole send."""
    hook = Recorder()
    for server in stage.brokers.values():
        server.on(SEND, refuse(14))
    async with Producer("g", client=client, hooks=[hook]) as producer:
        result = await producer.send(Message("orders", b"x"))
    assert len(hook.before) == len(hook.after) == 3
    assert [type(context.error) for context in hook.after] == [ResponseError, ResponseError, type(None)]
    assert hook.after[-1].results == (result,)


async def test_hooks_get_each_mode(stage: Stage, client: Client) -> None:
    hook = Recorder()
    async with Producer("g", client=client, hooks=[hook]) as producer:
        await producer.send_oneway(Message("orders", b"x"))
        await (await producer.send_soon(Message("orders", b"x"))).wait()
        await producer.send_batch([Message("orders", b"1"), Message("orders", b"2")])
    assert [context.mode.value for context in hook.after] == ["ONEWAY", "ASYNC", "SYNC"]
    assert [len(context.results) for context in hook.after] == [0, 1, 2]
    assert hook.after[0].error is None


class Keying:
    """A hook that moves each message to the topic "bills" and gives it a key."""

    def message_created(self, message: Message) -> Message:
        return replace(message, topic="bills", sharding_key="k")


async def test_the_message_of_a_hook_chooses_the_queue(stage: Stage, client: Client) -> None:
    stage.topic("bills")
    for server in stage.brokers.values():
        server.always(SEND, answer(HALF.to_command()))
    selected: list[Message] = []

    def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        selected.append(message)
        return queues[0]

    settings: dict[str, Any] = {"hooks": [Keying()], "transaction_listener": Listener()}
    async with Producer("g", client=client, **settings) as producer:
        of_key = (await producer.publish_info("bills")).queue_of_key("k")
        for _ in range(2):
            assert (await producer.send(Message("orders", b"x"))).message_queue.broker_name == of_key.broker_name
            await producer.send_oneway(Message("orders", b"x"))
            await (await producer.send_soon(Message("orders", b"x"))).wait()
            assert producer._draft(Message("orders", b"x"), None, None).to == KeyedQueue("k")
            await producer.send_in_transaction(Message("orders", b"x"), lambda *_: COMMIT)
        await settled()
        assert {(sent.topic, sent.queue_id) for _, sent in stage.sends()} == {("bills", of_key.queue_id)}
        await producer.send(Message("orders", b"x"), select=select)
    assert [(message.topic, message.sharding_key) for message in selected] == [("bills", "k")]
    ends = [command for server in stage.brokers.values() for command in server.of(END)]
    assert [EndTransaction.from_command(end).topic for end in ends] == ["bills", "bills"]


async def test_without_a_route_there_is_no_try_to_report(client: Client) -> None:
    hook = Recorder()
    async with Producer("g", client=client, hooks=[hook]) as producer:
        with pytest.raises(NoRoute):
            await producer.send(Message("unheard", b"x"))
    assert hook.before == hook.after == []


async def test_hooks_that_raise_change_nothing(stage: Stage, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    hook = Recorder()
    with caplog.at_level(logging.INFO):
        async with Producer("g", client=client, hooks=[Raising(), hook]) as producer:
            await producer.send(Message("orders", b"x"))
    assert len(hook.before) == len(hook.after) == 1
    assert "the hook Raising.send_message_before failed and is passed over: RuntimeError: before" in caplog.text
    assert "the hook Raising.send_message_after failed and is passed over: RuntimeError: after" in caplog.text


async def test_a_check_refuses_the_send(stage: Stage, client: Client) -> None:
    hook = Recorder()
    async with Producer("g", client=client, hooks=[hook, Gate(b"secret")]) as producer:
        for send in (producer.send, producer.send_oneway):
            with pytest.raises(SendForbidden, match=r"Gate.check_forbidden refuses .*ValueError: secret is not"):
                await send(Message("orders", b"a secret"))
        pending = await producer.send_soon(Message("orders", b"a secret"))
        with pytest.raises(SendForbidden) as caught:
            await pending.wait()
        assert caught.value.outcome is Outcome.NOT_STORED
        await producer.send(Message("orders", b"for all"))
    assert len(stage.sends()) == 1
    assert len(hook.before) == len(hook.after) == 1  # a refused message has no try


async def test_a_check_may_raise_an_error_of_the_library(stage: Stage, client: Client) -> None:
    class Own:
        def check_forbidden(self, context: SendContext) -> None:
            raise SendForbidden(f"{context.topic}: closed on Sundays")

    async with Producer("g", client=client, hooks=[Own()]) as producer:
        with pytest.raises(SendForbidden, match="closed on Sundays"):
            await producer.send(Message("orders", b"x"))


async def test_a_slow_hook_is_named(stage: Stage, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        async with Producer("g", client=client, hooks=[SlowGate()]) as producer:
            await producer.send(Message("orders", b"x"))
    assert re.search(r"the hook SlowGate\.check_forbidden took \d+\.", caplog.text)


@pytest.mark.parametrize(
    ("hook", "text"),
    [
        (object(), "object is no hook: it has no send_message_before and send_message_after, or check_forbidden"),
        (AsyncHook(), "AsyncHook.send_message_before is async; a hook is a plain function"),
        ("text", "str is no hook"),
    ],
)
def test_what_is_no_hook_is_refused_at_once(hook: object, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        Producer("g", nameserver="127.0.0.1:1", hooks=[hook])  # type: ignore[list-item]


# --- Around requests


class Signposts:
    """An RPC hook that adds a field, and records its calls."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int | None]] = []

    def do_before_request(self, address: str, request: Command) -> Command | None:
        self.seen.append((address, request.code, None))
        return replace(request, ext={**request.ext, "__ZONE_NAME": "zone-1"})

    def do_after_response(self, address: str, request: Command, answer: Command) -> None:
        assert request.ext["__ZONE_NAME"] == "zone-1"
        self.seen.append((address, request.code, answer.code))


async def test_every_request_passes_the_rpc_hooks(stage: Stage) -> None:
    hook = Signposts()
    async with (
        Client(nameserver=stage.nameserver.address, rpc_hooks=[hook]) as client,
        Producer("g", client=client) as producer,
    ):
        await producer.send(Message("orders", b"x"), queue=A0)
        await producer.send_batch([Message("orders", b"x")], queue=A0)
        await producer.send_oneway(Message("orders", b"x"), queue=A0)
        await stage.heard_of("broker-a")
    broker = stage.brokers["broker-a"]
    assert {command.code for command in broker.of(SEND, BATCH, RequestCode.HEART_BEAT)} == {SEND, BATCH, 34}
    for server in (broker, stage.nameserver):
        assert all(seen.command.ext["__ZONE_NAME"] == "zone-1" for seen in server.seen)
    assert (stage.nameserver.address, ROUTE, None) in hook.seen
    assert (stage.nameserver.address, ROUTE, 0) in hook.seen
    assert (broker.address, SEND, 0) in hook.seen


async def test_what_hooks_add_is_signed_too(stage: Stage) -> None:
    """Signed last: a signature covers every field, so one that a hook added afterwards would break it."""
    async with (
        Client(
            nameserver=stage.nameserver.address, access_key="ak", secret_key="sk-secret", rpc_hooks=[Signposts()]
        ) as client,
        Producer("g", client=client) as producer,
    ):
        await producer.send(Message("orders", b"x"), queue=A0)
        await producer.send_oneway(Message("orders", b"x"), queue=A0)
    for server in (stage.nameserver, stage.brokers["broker-a"]):
        for seen in server.seen:
            ext = seen.command.ext
            assert ext["__ZONE_NAME"] == "zone-1"
            assert ext["Signature"] == signature(ext, seen.command.body, "sk-secret")


async def test_pulls_of_a_range_are_hooked_and_signed(stage: Stage) -> None:
    """Pulls posted over a fixed connection are, too."""
    hook = Signposts()
    fill(stage, 200)
    async with Client(
        nameserver=stage.nameserver.address, access_key="ak", secret_key="sk-secret", rpc_hooks=[hook]
    ) as client:
        await client._session.routes.refresh("orders")
        offsets, _ = await read_all(Puller(client._session, "g"), 0, 200)
    assert offsets == list(range(200))
    pulls = stage.brokers["broker-a"].of(PULL)
    assert len(pulls) == 7
    for pull in pulls:
        assert pull.ext["__ZONE_NAME"] == "zone-1"
        assert pull.ext["Signature"] == signature(pull.ext, pull.body, "sk-secret")
    assert hook.seen.count((stage.brokers["broker-a"].address, PULL, 0)) == 7


async def test_rpc_hooks_that_raise_change_nothing(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        async with (
            Client(nameserver=stage.nameserver.address, rpc_hooks=[Raising()]) as client,
            Producer("g", client=client) as producer,
        ):
            await producer.send(Message("orders", b"x"))
    assert "Raising.do_before_request failed and is passed over" in caplog.text
    assert "Raising.do_after_response failed and is passed over" in caplog.text


def test_what_is_no_rpc_hook_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="Recorder is no hook: it has no do_before_request and do_after_response"):
        Client(nameserver="127.0.0.1:1", rpc_hooks=[Recorder()])  # type: ignore[list-item]


async def test_a_send_that_fails_reports_its_last_error(stage: Stage, client: Client) -> None:
    hook = Recorder()
    for server in stage.brokers.values():
        server.always(SEND, refuse(13, "too large"))
    async with Producer("g", client=client, hooks=[hook]) as producer:
        with pytest.raises(SendFailed):
            await producer.send(Message("orders", b"x"))
    assert isinstance(hook.after[-1].error, ResponseError)
    assert hook.after[-1].error.code == 13
