"""Calls between two ends joined in memory: answers found by their numbers, deadlines, ends of connections, one-way."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from functools import partial
from itertools import count

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core.errors import CallTimeout, ConnectionClosed, HeaderError
from pyrmq_core.network import CutConnection, Peer, ask
from pyrmq_core.network.connection import calls as calls_module
from pyrmq_core.protocol.framing.command import Command, Serialization, refusal, success
from tests.network.ends import KINDS, Recorder, echo, joined, until

pytestmark = pytest.mark.parametrize("kind", KINDS)


async def test_a_call_is_answered(kind: str) -> None:
    async with joined(kind, there=echo) as (here, _):
        answer = await here.call(Command(105, {"topic": "T"}, b"body"), timeout=60)
    assert (answer.code, dict(answer.ext), answer.body, answer.is_response) == (0, {"topic": "T"}, b"body", True)


async def test_answers_out_of_order_find_their_callers(kind: str) -> None:
    gates = {str(number): trio.Event() for number in range(50)}

    async def held(request: Command, _: Peer) -> Command:
        await gates[request.ext["n"]].wait()
        return success(request.ext)

    answers: list[str] = []

    async def call(number: str) -> None:
        answer = await here.call(Command(11, {"n": number}), timeout=60)
        assert answer.ext["n"] == number
        answers.append(number)

    async with joined(kind, there=held) as (here, there), trio.open_nursery() as nursery:
        for number in gates:
            nursery.start_soon(call, number)
        for expected, (number, gate) in enumerate(reversed(gates.items()), 1):
            gate.set()
            await until(lambda expected=expected: len(answers) == expected)  # type: ignore[misc]
            assert answers[-1] == number
    assert there.is_closed


async def test_both_ends_call_over_one_wire(kind: str) -> None:
    async def ask_back(request: Command, peer: Peer) -> Command:
        answer = await peer.connection.call(Command(39, {"asked": request.ext["n"]}), timeout=60)
        return success({"n": request.ext["n"], "back": answer.ext["asked"]})

    async with joined(kind, here=echo, there=ask_back) as (here, _), trio.open_nursery() as nursery:
        for number in map(str, range(20)):

            async def one(number: str = number) -> None:
                answer = await here.call(Command(10, {"n": number}), timeout=60)
                assert dict(answer.ext) == {"n": number, "back": number}

            nursery.start_soon(one)


async def test_a_call_ends_at_its_deadline(kind: str, autojump_clock: MockClock) -> None:
    recorder = Recorder()
    async with joined(kind, there=recorder.held) as (here, _):
        started = trio.current_time()
        with pytest.raises(CallTimeout, match=r"did not answer PULL_MESSAGE \(11\) within 3 s") as caught:
            await here.call(Command(11), timeout=3)
        assert trio.current_time() - started == pytest.approx(3, abs=0.05)
        assert caught.value.request_left
        assert caught.value.address == here.address
        assert here.calls_under_way == 0
        recorder.gate.set()
        assert (await here.call(Command(11), timeout=3)).code == 0


async def test_each_call_has_a_deadline_of_its_own(kind: str, autojump_clock: MockClock) -> None:
    ended: dict[float, float] = {}

    async def call(timeout: float) -> None:
        started = trio.current_time()
        with pytest.raises(CallTimeout):
            await here.call(Command(11), timeout=timeout)
        ended[timeout] = trio.current_time() - started

    async with joined(kind, there=Recorder().held) as (here, _), trio.open_nursery() as nursery:
        for timeout in (30.0, 3.0, 0.5, 7.25, 3.001, 12.0):
            nursery.start_soon(call, timeout)
            await trio.testing.wait_all_tasks_blocked()
    assert len(ended) == 6
    for timeout, seconds in ended.items():
        assert timeout <= seconds <= timeout + 0.05


async def test_no_time_left_is_a_timeout_and_sends_nothing(kind: str) -> None:
    recorder = Recorder()
    async with joined(kind, there=recorder.at_once) as (here, _):
        for timeout in (0, -1):
            with pytest.raises(CallTimeout) as caught:
                await here.call(Command(10), timeout=timeout)
            assert not caught.value.request_left
        await here.call(Command(11), timeout=60)
    assert [request.code for request in recorder.requests] == [11]


async def test_a_late_answer_is_dropped_and_disturbs_no_call(
    kind: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    async with joined(kind, there=recorder.held) as (here, _):
        with pytest.raises(CallTimeout):
            await here.call(Command(11, {"n": "late"}), timeout=1)
        recorder.gate.set()
        with caplog.at_level(logging.DEBUG, "pyrmq_core.network"):
            assert dict((await here.call(Command(11, {"n": "next"}), timeout=1)).ext) == {"n": "next"}
    assert "which no call waits for" in caplog.text


async def test_numbers_that_are_taken_are_skipped(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_module, "MAX_OPAQUE", 7)
    recorder = Recorder()
    numbers: list[int] = []

    def pulls_wait(request: Command, peer: Peer) -> Awaitable[Command | None] | Command:
        numbers.append(request.opaque)
        return recorder.held(request, peer) if request.code == 11 else echo(request, peer)

    async def pull(mark: str) -> None:
        assert (await here.call(Command(11, {"n": mark}), timeout=60)).ext["n"] == mark

    async with joined(kind, there=pulls_wait) as (here, _), trio.open_nursery() as nursery:
        for mark in ("a", "b"):
            nursery.start_soon(pull, mark)
        await until(lambda: recorder.running == 2)
        for mark in map(str, range(30)):
            assert (await here.call(Command(10, {"n": mark}), timeout=60)).ext["n"] == mark
        recorder.gate.set()
    assert set(numbers) == set(range(8))
    assert all(numbers.count(number) == 1 for number in numbers[:2])


async def test_one_way_requests_are_written_and_not_answered(kind: str) -> None:
    recorder = Recorder()
    async with joined(kind, there=recorder.at_once) as (here, _):
        for number in range(20):
            await here.send_oneway(Command(15, {"n": str(number)}), timeout=60)
        assert here.calls_under_way == 0
        await here.call(Command(11), timeout=60)
    assert [request.is_oneway for request in recorder.requests] == [True] * 20 + [False]
    assert [request.ext["n"] for request in recorder.requests[:-1]] == [str(number) for number in range(20)]


async def test_a_one_way_request_that_fails_is_not_answered_either(kind: str) -> None:
    def fail(request: Command, _: Peer) -> Command:
        if request.is_oneway:
            raise RuntimeError("broken")
        return success()

    async with joined(kind, there=fail) as (here, _):
        await here.send_oneway(Command(15), timeout=60)
        assert (await here.call(Command(11), timeout=60)).code == 0


@pytest.mark.parametrize("waits", [False, True])
async def test_a_handler_that_raises_is_answered_as_an_error_and_the_connection_lives(
    kind: str, waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    calls = count()

    def fail_at_once(request: Command, _: Peer) -> Command:
        if next(calls) == 0:
            raise ValueError("no such thing")
        return success()

    async def fail_later(request: Command, peer: Peer) -> Command:
        await trio.lowlevel.checkpoint()
        return fail_at_once(request, peer)

    async with joined(kind, there=fail_later if waits else fail_at_once) as (here, _):
        with caplog.at_level(logging.CRITICAL):
            answer = await here.call(Command(105), timeout=60)
        assert (answer.code, answer.remark) == (1, "ValueError, no such thing")
        assert (await here.call(Command(105), timeout=60)).code == 0


async def test_an_answer_that_cannot_be_written_is_answered_as_an_error(kind: str) -> None:
    def too_large(request: Command, _: Peer) -> Command:
        return success({"i": "x" * (1 << 24)}) if request.code == 1 else success()

    async with joined(kind, there=too_large) as (here, _):
        answer = await here.call(Command(1), timeout=60)
        assert answer.code == 1
        assert answer.remark is not None
        assert "does not fit into a frame" in answer.remark
        assert (await here.call(Command(2), timeout=60)).code == 0


async def test_a_request_that_cannot_be_written_is_reported_and_leaves_nothing(kind: str) -> None:
    async with joined(kind, there=echo) as (here, _):
        with pytest.raises(HeaderError, match="does not fit into a frame"):
            await here.call(Command(10, {"i": "x" * (1 << 24)}), timeout=60)
        assert here.calls_under_way == 0
        assert (await here.call(Command(2), timeout=60)).code == 0


async def test_a_binary_request_is_answered_in_binary(kind: str) -> None:
    async with joined(kind, there=echo) as (here, _):
        answer = await here.call(Command(105, {"topic": "T"}, serialization=Serialization.ROCKETMQ), timeout=60)
    assert answer.serialization is Serialization.ROCKETMQ
    assert answer.ext == {"topic": "T"}


async def test_without_a_handler_requests_are_refused_as_java_refuses(kind: str) -> None:
    async with joined(kind) as (here, _):
        answer = await here.call(Command(307), timeout=60)
    assert (answer.code, answer.remark) == (3, " request type 307 not supported")


async def test_none_answers_nothing_and_later_is_not_too_late(kind: str) -> None:
    held: list[tuple[Command, Peer]] = []

    def hold(request: Command, peer: Peer) -> None:
        held.append((request, peer))

    async with joined(kind, there=hold) as (here, _), trio.open_nursery() as nursery:
        answers: list[Command] = []

        async def call() -> None:
            answers.append(await here.call(Command(11), timeout=60))

        nursery.start_soon(call)
        await until(lambda: bool(held))
        assert not answers
        request, peer = held.pop()
        peer.connection.answer(request, refusal(19, "nothing yet"))
        await until(lambda: bool(answers))
        assert answers[0].remark == "nothing yet"
    peer.connection.answer(request, success())  # on a closed connection: without effect


async def test_a_held_request_does_not_hold_up_others(kind: str) -> None:
    recorder = Recorder()

    def pulls_wait(request: Command, peer: Peer) -> Awaitable[Command | None] | Command:
        return recorder.held(request, peer) if request.code == 11 else echo(request, peer)

    async with joined(kind, there=pulls_wait) as (here, _), trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(partial(here.call, Command(11), timeout=60))
        await until(lambda: recorder.running == 20)
        assert (await here.call(Command(34), timeout=60)).code == 0
        assert recorder.running == 20
        recorder.gate.set()


async def test_a_closed_connection_fails_all_its_calls_at_once(kind: str) -> None:
    recorder = Recorder()
    errors: list[ConnectionClosed] = []

    async def call() -> None:
        with pytest.raises(ConnectionClosed) as caught:
            await here.call(Command(11), timeout=500)
        errors.append(caught.value)

    async with joined(kind, there=recorder.held) as (here, there), trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(call)
        await until(lambda: recorder.running == 100)
        there.close()
    assert len(errors) == 100
    assert all(error.request_left and error.address == here.address for error in errors)
    assert "the other end closed it" in str(errors[0])
    with pytest.raises(ConnectionClosed, match="had not left") as caught:
        await here.call(Command(11), timeout=60)
    assert not caught.value.request_left
    with pytest.raises(ConnectionClosed):
        await here.send_oneway(Command(11), timeout=60)


async def test_a_handler_can_cut_the_connection(kind: str) -> None:
    async def cut_later(request: Command, _: Peer) -> Command:
        await trio.lowlevel.checkpoint()
        raise CutConnection

    def cut(request: Command, peer: Peer) -> Awaitable[Command]:
        if request.code == 1:
            raise CutConnection
        return cut_later(request, peer)

    for code in (1, 2):
        async with joined(kind, there=cut) as (here, there):
            with pytest.raises(ConnectionClosed) as caught:
                await here.call(Command(code), timeout=60)
            assert caught.value.request_left
            await there.wait_closed()


async def test_a_connection_that_ends_ends_its_handlers(kind: str) -> None:
    recorder = Recorder()
    async with joined(kind, there=recorder.held) as (here, there):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(here.send_oneway, Command(11), timeout=60))
            await until(lambda: recorder.running == 1)
        await there.aclose()
        assert recorder.running == 0


async def test_closing_twice_and_from_both_sides_is_harmless(kind: str) -> None:
    async with joined(kind, there=echo) as (here, there):
        here.close("first")
        here.close("second")
        there.close()
        await here.aclose()
        await there.aclose()
        await here.aclose()
        assert "first" in repr(here)


async def test_ask_takes_both_forms_of_handler(kind: str) -> None:
    async def later(request: Command, peer: Peer) -> Command:
        await trio.lowlevel.checkpoint()
        return echo(request, peer)

    async def through(handler: object, request: Command, peer: Peer) -> Command | None:
        return await ask(handler, request, peer)  # type: ignore[arg-type]

    for handler in (echo, later):
        async with joined(kind, there=partial(through, handler)) as (here, _):
            assert (await here.call(Command(1, {"a": "b"}), timeout=60)).ext == {"a": "b"}


async def test_a_thousand_calls_at_once(kind: str) -> None:
    async with joined(kind, there=echo) as (here, _), trio.open_nursery() as nursery:

        async def call(number: int) -> None:
            for step in range(3):
                mark = f"{number}.{step}"
                answer = await here.call(Command(10, {"n": mark}, mark.encode()), timeout=30)
                assert (answer.ext["n"], answer.body) == (mark, mark.encode())

        for number in range(1000):
            nursery.start_soon(call, number)
