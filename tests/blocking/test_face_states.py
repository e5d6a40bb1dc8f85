"""A producer of each face in any state that callers bring it to: one caller's failure loses no other's result.

Steps are drawn at random: good sends in every form, wrong arguments, callbacks that raise, cancellations, interrupts,
refusals, silence and cut connections of brokers. At the end of each run every future has ended, every message that was
acknowledged is stored, no room is kept and leaving takes no longer than the sends under way.
"""

import random
import time
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import hypothesis
import pytest
import trio
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import pyrmq_core
from pyrmq_core import InvalidArgument, Message, PendingSend, RocketMQError, SendResult, WindowFull
from pyrmq_core.blocking import Producer
from pyrmq_core.client.producer.bulk.accumulator import Batching
from tests.blocking.test_interrupts import interrupted_at
from tests.support.scripted import SEND, ScriptedServer, cut, refuse, silence
from tests.support.stage import Stage, staged
from tests.support.wrong_sends import WRONG_SENDS

CLOSE_SECONDS = 60.0
SEND_SECONDS = 0.5
SHORT = hypothesis.settings(max_examples=15, stateful_step_count=25, deadline=None, print_blob=True)
LONG = hypothesis.settings(max_examples=1500, stateful_step_count=60, deadline=None, print_blob=True)
TROUBLES = {"refuses": refuse(1, "no"), "is silent": silence, "cuts": cut}
wrong_names = st.sampled_from(sorted(WRONG_SENDS))


class BlockingFace(RuleBasedStateMachine):
    """One producer for threads; `stage` is set by the test."""

    stage: Stage

    def __init__(self) -> None:
        super().__init__()
        self.futures: list[tuple[bytes, Future[SendResult]]] = []
        self.acknowledged: list[bytes] = []
        self.numbers = 0
        self.producer: Producer | None = None

    @initialize(batching=st.booleans(), max_in_flight=st.sampled_from([1, 3, 10_000]))
    def opens(self, batching: bool, max_in_flight: int) -> None:
        self.producer = Producer(
            f"g{random.getrandbits(40)}",
            nameserver=self.stage.nameserver.address,
            send_timeout=SEND_SECONDS,
            batching=Batching(max_delay=0.001) if batching else None,
            max_in_flight=max_in_flight,
        ).open()
        self.parts = self.producer._async()._parts

    def message(self) -> Message:
        self.numbers += 1
        return Message("orders", b"%d %d" % (id(self), self.numbers))

    def given(self) -> Producer:
        assert self.producer is not None
        return self.producer

    @rule()
    def sends(self) -> None:
        message = self.message()
        try:
            self.given().send(message)
        except RocketMQError:  # also NoNameServer, where the machine stalls
            return
        self.acknowledged.append(message.body)

    @rule(times=st.integers(1, 5))
    def sends_soon(self, times: int) -> None:
        for _ in range(times):
            message = self.message()
            self.futures.append((message.body, self.given().send_soon(message)))

    @rule()
    def sends_soon_without_waiting(self) -> None:
        message = self.message()
        with suppress(WindowFull):
            self.futures.append((message.body, self.given().send_soon(message, wait=False)))

    @rule()
    def cancels(self) -> None:
        message = self.message()
        self.given().send_soon(message).cancel()

    @rule(kind=st.sampled_from([KeyError, SystemExit, KeyboardInterrupt]))
    def adds_a_callback_that_raises(self, kind: type[BaseException]) -> None:
        def fail(_: Future[SendResult]) -> None:
            raise kind("planted")

        message = self.message()
        future = self.given().send_soon(message)
        self.futures.append((message.body, future))
        with suppress(SystemExit, KeyboardInterrupt):  # called at once, by concurrent.futures, when it has ended
            future.add_done_callback(fail)

    @rule(name=wrong_names, soon=st.booleans())
    def gives_a_wrong_argument(self, name: str, soon: bool) -> None:
        message, keywords, words = WRONG_SENDS[name]
        send: Any = self.given().send_soon if soon else self.given().send
        with pytest.raises(InvalidArgument, match=words):
            send(message, **keywords)

    @rule(step=st.integers(1, 120), soon=st.booleans())
    def is_interrupted(self, step: int, soon: bool) -> None:
        message = self.message()
        send: Any = self.given().send_soon if soon else self.given().send
        with suppress(RocketMQError):
            interrupted_at(step, lambda: send(message))

    @rule(broker=st.sampled_from(["broker-a", "broker-b"]), trouble=st.sampled_from(sorted(TROUBLES)))
    def has_trouble_with_a_broker(self, broker: str, trouble: str) -> None:
        self.stage.brokers[broker].on(SEND, TROUBLES[trouble])

    def teardown(self) -> None:
        if self.producer is None:
            return
        began = time.monotonic()
        self.producer.close()
        assert time.monotonic() - began < CLOSE_SECONDS, "closing took longer than what was under way"
        stored = self.stage.stored_bodies()
        for body, future in self.futures:
            assert future.done(), "a future was left without an end"
            if future.exception() is None:
                self.acknowledged.append(body)
        assert set(self.acknowledged) <= stored, "an acknowledged message is not stored"
        assert self.parts is not None
        assert not self.parts.in_flight._entered
        assert self.parts.in_flight._bytes == 0


@pytest.fixture
def machine(stage: Stage) -> type[BlockingFace]:
    class OnThisStage(BlockingFace):
        pass

    OnThisStage.stage = stage
    return OnThisStage


def test_the_blocking_face_in_any_state(machine: type[BlockingFace]) -> None:
    run_state_machine_as_test(machine, settings=SHORT)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_blocking_face_in_any_state_for_long(machine: type[BlockingFace]) -> None:
    run_state_machine_as_test(machine, settings=LONG)


# --- The same for trio: steps are a list, since a loop runs them.

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.none()),
        st.tuples(st.just("soon"), st.integers(1, 5)),
        st.tuples(st.just("cancelled"), st.sampled_from([0.0, 0.001, 0.01])),
        st.tuples(st.just("callback"), st.none()),
        st.tuples(st.just("wrong"), wrong_names),
        st.tuples(st.just("trouble"), st.sampled_from(sorted(TROUBLES))),
        st.tuples(st.just("checkpoint"), st.none()),
    ),
    max_size=25,
)


class AsyncFace:
    """One producer for trio, and the messages it acknowledged."""

    def __init__(self, producer: pyrmq_core.Producer, brokers: list[ScriptedServer]) -> None:
        self.producer = producer
        self.brokers = brokers
        self.acknowledged: list[bytes] = []
        self.pending: list[tuple[bytes, PendingSend]] = []
        self.numbers = 0

    async def step(self, kind: str, detail: Any) -> None:
        self.numbers += 1
        message = Message("orders", b"%d %d" % (id(self), self.numbers))
        match kind:
            case "send":
                try:
                    await self.producer.send(message)
                    self.acknowledged.append(message.body)
                except RocketMQError:
                    pass
            case "soon":
                for number in range(detail):
                    body = message.body + b" %d" % number
                    self.pending.append((body, await self.producer.send_soon(Message("orders", body))))
            case "cancelled":
                with trio.move_on_after(detail):
                    await self.producer.send(message)
                with trio.move_on_after(detail):
                    await self.producer.send_soon(message)
            case "callback":
                pending = await self.producer.send_soon(message)
                pending.add_done_callback(_fail)
                self.pending.append((message.body, pending))
            case "wrong":
                wrong, keywords, words = WRONG_SENDS[detail]
                with pytest.raises(InvalidArgument, match=words):
                    await self.producer.send_soon(wrong, **keywords)
            case "trouble":
                self.brokers[self.numbers % 2].on(SEND, TROUBLES[detail])
            case _:
                await trio.lowlevel.checkpoint()


def _fail(_: PendingSend) -> None:
    raise KeyError("planted")


async def run_steps(steps: list[tuple[str, Any]], batching: bool, max_in_flight: int) -> None:
    async with staged("broker-a", "broker-b") as stage:
        stage.topic("orders")
        with trio.fail_after(CLOSE_SECONDS + len(steps) * 5 * SEND_SECONDS):
            async with pyrmq_core.Producer(
                "g",
                nameserver=stage.nameserver.address,
                send_timeout=SEND_SECONDS,
                batching=Batching(max_delay=0.001) if batching else None,
                max_in_flight=max_in_flight,
            ) as producer:
                face = AsyncFace(producer, list(stage.brokers.values()))
                parts = producer._parts
                for kind, detail in steps:
                    try:
                        await face.step(kind, detail)
                    except RocketMQError:
                        assert kind == "cancelled"
        for body, pending in face.pending:
            assert pending.is_done
            try:
                pending.result  # noqa: B018 - it raises what the send failed with
            except RocketMQError:
                continue
            face.acknowledged.append(body)
        assert set(face.acknowledged) <= stage.stored_bodies()
        assert parts is not None
        assert not parts.in_flight._entered


@hypothesis.settings(max_examples=25, deadline=None, print_blob=True)
@hypothesis.given(steps=STEPS, batching=st.booleans(), max_in_flight=st.sampled_from([1, 3, 10_000]))
def test_the_async_face_in_any_state(steps: list[tuple[str, Any]], batching: bool, max_in_flight: int) -> None:
    trio.run(run_steps, steps, batching, max_in_flight)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@hypothesis.settings(max_examples=2000, deadline=None, print_blob=True)
@hypothesis.given(steps=STEPS, batching=st.booleans(), max_in_flight=st.sampled_from([1, 3, 10_000]))
def test_the_async_face_in_any_state_for_long(steps: list[tuple[str, Any]], batching: bool, max_in_flight: int) -> None:
    trio.run(run_steps, steps, batching, max_in_flight)
