"""Wrong arguments are their caller's error, by name; other sends, and leaving `async with`, are untouched."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

import pyrmq_core
from pyrmq_core import (
    Admin,
    Client,
    InvalidArgument,
    InvalidState,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    aio,
    blocking,
)
from pyrmq_core.client.producer.bulk.accumulator import Batching
from pyrmq_core.client.producer.bulk.pending_sends import DRAIN_GRACE_SECONDS, PendingSend
from pyrmq_core.protocol.framing.command import Command
from tests.support.stage import Stage
from tests.support.wrong_sends import WRONG_SENDS

A0 = MessageQueue("orders", "broker-a", 0)


@pytest.mark.parametrize("batching", [None, Batching(max_delay=0.001)])
@pytest.mark.parametrize("name", WRONG_SENDS)
async def test_a_wrong_send_is_named_and_others_go_on(
    stage: Stage, client: Client, name: str, batching: Batching | None
) -> None:
    message, keywords, words = WRONG_SENDS[name]
    async with (
        Producer("wrong", client=client, batching=batching) as producer,
        Producer("right", client=client) as other,
    ):
        pending = [await other.send_soon(Message("orders", b"%d" % number)) for number in range(20)]
        for send in (producer.send, producer.send_soon, producer.send_oneway):
            with pytest.raises(InvalidArgument, match=words):
                await send(message, **keywords)
        assert (await producer.send(Message("orders", b"good"))).queue_offset >= 0
        pending += [await other.send_soon(Message("orders", b"%d" % number)) for number in range(20)]
        with trio.fail_after(60):
            for pending_send in pending:
                await pending_send.wait()


async def test_a_callback_that_raises_is_logged_and_nothing_else(
    stage: Stage, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(_: PendingSend) -> None:
        raise KeyError("mine")

    async with Producer("g", client=client, max_in_flight=2) as producer:
        for number in range(10):
            pending = await producer.send_soon(Message("orders", b"%d" % number), queue=A0)
            pending.add_done_callback(failing)
        result = await pending.wait()
        pending.add_done_callback(failing)  # at once
        assert (await producer.send(Message("orders", b"after"), queue=A0)).queue_offset == result.queue_offset + 1
    assert caplog.text.count("done callback of a send raised") == 11


async def test_what_should_not_raise_ends_its_own_send(
    stage: Stage, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A defect planted where a send begins: the send ends by name, its room is free, its producer goes on."""
    async with Producer("g", client=client, max_in_flight=1) as producer:
        parts = producer._parts
        assert parts is not None
        with monkeypatch.context() as patched:

            def planted(*_: Any, **__: Any) -> None:
                raise ZeroDivisionError("planted")

            patched.setattr(parts.sender, "post", planted)
            for _ in range(3):
                pending = await producer.send_soon(Message("orders", b"x"))
                with pytest.raises(Exception, match="unexpected ZeroDivisionError: planted"):
                    await pending.wait()
        assert (await producer.send(Message("orders", b"y"))).queue_offset == 0
    assert caplog.text.count("met an unexpected ZeroDivisionError") == 3


async def test_a_batch_that_cannot_be_joined_ends_its_messages(
    stage: Stage, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planted(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("planted")

    async with Producer("g", client=client, batching=Batching(max_delay=0.001), max_in_flight=3) as producer:
        with monkeypatch.context() as patched:
            patched.setattr("pyrmq_core.client.producer.bulk.accumulator.join_members", planted)
            pending = [await producer.send_soon(Message("orders", b"x")) for _ in range(3)]
            for send in pending:
                with pytest.raises(Exception, match="unexpected ZeroDivisionError"):
                    await send.wait()
        assert (await producer.send(Message("orders", b"y"))).queue_offset == 0


async def test_leaving_waits_no_longer_than_what_is_under_way(
    stage: Stage, client: Client, jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Room that no send frees, as after an interrupt, is given up and named."""
    began = trio.current_time()
    async with Producer("g", client=client) as producer:
        parts = producer._parts
        assert parts is not None
        await parts.in_flight.enter(PendingSend(), 10)
    assert trio.current_time() - began < DRAIN_GRACE_SECONDS + 5
    assert "gave up 1 messages that are perhaps stored" in caplog.text


@pytest.mark.parametrize(
    ("kind", "keywords", "words"),
    [
        (Client, {"tls": True}, "tls=True.*SSLContext"),
        (Client, {"nameserver": 9876}, "nameserver=9876"),
        (Client, {"nameserver": [1]}, r"nameserver=\[1\]"),
        (Client, {"poll_nameserver_interval": 0}, "poll_nameserver_interval=0"),
        (Client, {"heartbeat_broker_interval": "30"}, "heartbeat_broker_interval='30'"),
        (Client, {"access_key": b"a", "secret_key": "b"}, "access_key is a bytes"),
        (Client, {"unit_name": 3}, "unit_name=3"),
        (Producer, {"group": "g", "send_timeout": "3"}, "send_timeout='3'"),
        (Producer, {"group": "g", "retry_times_when_send_failed": -1}, "retry_times_when_send_failed=-1"),
        (Producer, {"group": "g", "retry_times_when_send_async_failed": 1.5}, "when_send_async_failed=1.5"),
        (Producer, {"group": "g", "timeout_per_attempt": 0}, "timeout_per_attempt=0"),
        (Producer, {"group": "g", "default_topic_queue_nums": 0}, "default_topic_queue_nums=0"),
        (Producer, {"group": "g", "create_topic_key": "a b"}, "topic 'a b'"),
        (Producer, {"group": "g", "max_in_flight": 1.5}, "max_in_flight=1.5"),
        (Producer, {"group": "g", "max_in_flight_bytes": 0}, "max_in_flight_bytes=0"),
        (PullConsumer, {"group": "g", "timeout": -1}, "timeout=-1"),
        (Admin, {"timeout": "5"}, "timeout='5'"),
    ],
)
def test_a_wrong_setting_is_named_when_it_is_given(kind: Any, keywords: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        kind(**keywords)


async def test_wrong_arguments_of_a_consumer_are_named(stage: Stage, client: Client) -> None:
    async with PullConsumer("g", client=client) as consumer:
        wrong: Any = ("orders", "broker-a", 0)
        text: Any = "1"
        number: Any = 3
        calls: list[tuple[Callable[[], Awaitable[object]], str]] = [
            (lambda: consumer.pull(wrong, 0), "queue="),
            (lambda: consumer.pull(A0, text), "offset='1'"),
            (lambda: consumer.pull(A0, 0, max_messages=text), "max_messages='1'"),
            (lambda: consumer.pull(A0, 0, wait=text), "wait='1'"),
            (lambda: consumer.pull(A0, 0, tags=number), "tags=3"),
            (lambda: consumer.min_offset(wrong), "queue="),
            (lambda: consumer.max_offsets([wrong]), "queue="),
            (lambda: consumer.offset_at(A0, number), "no time zone"),
            (lambda: consumer.commit(A0, text), "offset to commit"),
            (lambda: consumer.commit(wrong, 1), "queue="),
            (lambda: consumer.committed(wrong), "queue="),
            (lambda: consumer.check_sql(A0, number), "SQL expression"),
        ]
        for call, words in calls:
            with pytest.raises(InvalidArgument, match=words):
                await call()
        reads: list[Callable[..., object]] = [consumer.read, consumer.read_joined, consumer.read_arrow]
        for read in reads:
            with pytest.raises(InvalidArgument, match="queue="):
                read(wrong, 0, 1)
            with pytest.raises(InvalidArgument, match="start="):
                read(A0, -1, 1)


def test_the_async_names_say_where_they_run() -> None:
    async def main() -> None:
        async with Producer("g", nameserver="127.0.0.1:1"):
            pass

    with pytest.raises(InvalidState, match=r"pyrmq_core\.aio, which are the same"):
        asyncio.run(main())


class NoListener:
    """An object without the function that brokers' checks need."""


WRONG_SETTINGS = {
    "batching": (7, "batching=7: it is a Batching, or True or False"),
    "fault_latency": (1, "fault_latency=1: it is a FaultLatencySettings"),
    "trace": (3, "trace=3: it is True, False, or the topic for traces"),
    "hooks": (5, "hooks=5: it is a list of hooks"),
    "transaction_listener": (NoListener(), "transaction_listener=.*: it has a function check_local_transaction"),
}


@pytest.mark.parametrize("face", [pyrmq_core, blocking], ids=["async", "blocking"])
@pytest.mark.parametrize("name", WRONG_SETTINGS)
def test_a_wrong_setting_is_named_when_the_producer_is_made(face: Any, name: str) -> None:
    value, words = WRONG_SETTINGS[name]
    with pytest.raises(InvalidArgument, match=words):
        face.Producer("g", nameserver="127.0.0.1:9876", **{name: value})


@pytest.mark.parametrize("make", ["Producer", "PullConsumer", "Admin"])
def test_a_client_of_the_other_face_is_named(make: str) -> None:
    group = () if make == "Admin" else ("g",)
    with pytest.raises(InvalidArgument, match=r"it is a pyrmq_core\.Client"):
        getattr(pyrmq_core, make)(*group, client=blocking.Client(nameserver="127.0.0.1:9876"))
    with pytest.raises(InvalidArgument, match=r"it is a pyrmq_core\.blocking\.Client"):
        getattr(blocking, make)(*group, client=Client(nameserver="127.0.0.1:9876"))


@pytest.mark.parametrize("face", [pyrmq_core, blocking], ids=["async", "blocking"])
def test_a_parameter_that_does_not_exist_names_the_class_of_the_caller(face: Any) -> None:
    for make, group in ((face.Producer, ("g",)), (face.PullConsumer, ("g",)), (face.Client, ())):
        with pytest.raises(TypeError, match=rf"{make.__name__}: got an unexpected keyword argument 'bogus'"):
            make(*group, bogus=1)
        with pytest.raises(TypeError, match=f"{make.__name__}: too many positional arguments"):
            make(*group, "127.0.0.1:9876")


class Counting:
    """A hook around requests, which counts them."""

    def __init__(self) -> None:
        self.count = 0

    def do_before_request(self, address: str, request: Command) -> None:
        self.count += 1

    def do_after_response(self, address: str, request: Command, answer: Command) -> None:
        pass


async def test_hooks_may_come_from_an_iterator_and_stay_as_they_were(stage: Stage) -> None:
    hook = Counting()
    hooks: list[Any] = [hook]
    once: Any = iter(hooks)
    async with (
        Client(nameserver=stage.nameserver.address, rpc_hooks=once) as client,
        Producer("g", client=client) as producer,
    ):
        hooks.clear()
        await producer.send(Message("orders", b"x"))
    assert hook.count > 0


@pytest.mark.parametrize("package", [pyrmq_core, aio, blocking])
@pytest.mark.parametrize("name", ["Producer", "PushConsumer", "PullConsumer", "LitePullConsumer", "Admin"])
def test_what_belongs_to_the_client(package: Any, name: str) -> None:
    group = () if name == "Admin" else ("g",)
    for arguments, words in (
        ({"tls": None}, "tls belongs to the Client"),
        ({"access_key": "k", "secret_key": "s"}, "access_key, secret_key belongs to the Client"),
    ):
        with pytest.raises(TypeError, match=rf"{name}: .*; {words}.* client=Client\(nameserver=\.\.\., "):
            getattr(package, name)(*group, nameserver="127.0.0.1:1", **arguments)
    with pytest.raises(TypeError) as caught:
        getattr(package, name)(*group, nonsense=1)
    assert "Client" not in str(caught.value)
