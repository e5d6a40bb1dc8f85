"""A single caller writes its request itself, while the loop waits; with other callers the loop writes."""

import threading
import time
from collections.abc import Sequence

import pytest
import trio

from pyrmq_core import Message, MessageQueue
from pyrmq_core.blocking import Client, Producer
from pyrmq_core.client.producer.send.hooks import SendContext
from pyrmq_core.loop_thread.portal import LoopLock, portal
from pyrmq_core.network.connection.wire import Chunk, SocketWire
from pyrmq_core.protocol.framing.command import Command
from tests.support.scripted import SEND, silence
from tests.support.stage import Stage

A0 = MessageQueue("orders", "broker-a", 0)
BODY = b"told apart by this body"


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads that wrote requests of such a body."""
    threads: list[threading.Thread] = []
    write = SocketWire.send_nowait

    def send_nowait(wire: SocketWire, chunks: Sequence[Chunk]) -> int:
        if any(BODY in bytes(chunk) and b'"opaque"' in bytes(chunk) for chunk in chunks):
            threads.append(threading.current_thread())
        return write(wire, chunks)

    monkeypatch.setattr(SocketWire, "send_nowait", send_nowait)
    return threads


def test_one_caller_writes_for_itself(stage: Stage, writers: list[threading.Thread]) -> None:
    """A send that comes while the loop is still at work is written by the loop: sends are repeated until one is not."""
    offsets: list[int] = []
    deadline = time.monotonic() + 60
    with Producer("g", nameserver=stage.nameserver.address) as producer:
        producer.send(Message("orders", b"x"), queue=A0)
        while len(offsets) < 20 or threading.current_thread() not in writers:
            assert time.monotonic() < deadline, "the loop wrote every request"
            offsets.append(producer.send(Message("orders", BODY), queue=A0).queue_offset)
    assert offsets == list(range(1, len(offsets) + 1))
    assert len(writers) == len(offsets)


def test_beside_another_the_loop_writes(stage: Stage, writers: list[threading.Thread]) -> None:
    with Producer("g", nameserver=stage.nameserver.address) as producer:
        producer.send(Message("orders", b"x"), queue=A0)
        stage.brokers["broker-a"].on(SEND, silence)
        waiting = producer.send_soon(Message("orders", b"y"), queue=A0, timeout=600)  # is not overtaken
        producer.send(Message("orders", BODY), queue=A0)
        assert not waiting.done()
        assert threading.current_thread() not in writers
        portal().soon(producer._async()._open().in_flight.abandon)
        assert waiting.exception(10) is not None


def test_with_hooks_the_loop_writes(stage: Stage, writers: list[threading.Thread]) -> None:
    """Hooks may use what belongs to trio; the same holds for those of the client, and TLS has a writer of its own."""

    class Hook:
        def send_message_before(self, context: SendContext) -> None:
            pass

        def send_message_after(self, context: SendContext) -> None:
            pass

    class RpcHook:
        def do_before_request(self, address: str, request: Command) -> None:
            pass

        def do_after_response(self, address: str, request: Command, answer: Command) -> None:
            pass

    with Client(nameserver=stage.nameserver.address, rpc_hooks=[RpcHook()]) as hooked:
        for producer in (
            Producer("g", nameserver=stage.nameserver.address, hooks=[Hook()]),
            Producer("h", client=hooked),
        ):
            with producer:
                for _ in range(5):
                    producer.send(Message("orders", BODY), queue=A0)
    assert len(writers) == 10
    assert threading.current_thread() not in writers


def test_what_is_lent_comes_back() -> None:
    """The loop waits while another thread holds its state, and lends it to no thread while it runs."""
    lending, wake = LoopLock(), threading.Event()
    seen: list[str] = []
    token: trio.lowlevel.TrioToken | None = None

    def work() -> bool:
        assert token is not None
        token.run_sync_soon(lambda: seen.append("loop"))
        wake.wait(0.05)
        seen.append("thread")
        return True

    async def main() -> None:
        nonlocal token
        token = trio.lowlevel.current_trio_token()
        assert not lending.try_run(lambda: True)

        def ask() -> None:
            while not lending.try_run(work):
                pass

        await trio.to_thread.run_sync(ask)

    trio.run(main, instruments=[lending])
    assert seen == ["thread", "loop"]
    assert not lending.try_run(lambda: True)


def test_a_call_too_late_for_a_wait_is_not_lent() -> None:
    """The loop may begin to run between the check and the lock: then nothing is called."""
    lending = LoopLock()
    called = []

    def call() -> bool:
        called.append("called")
        return True

    class LockTakenLate:
        def __enter__(self) -> None:
            lending._loop_waits = False

        def __exit__(self, *_: object) -> None:
            pass

    lending.before_run()
    lending.before_io_wait(1)
    lending._lock = LockTakenLate()  # type: ignore[assignment]  # a lock that is had at the worst moment
    assert not lending.try_run(call)
    assert called == []
