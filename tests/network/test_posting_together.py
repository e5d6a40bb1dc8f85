"""Requests of one form that are posted together: one write, an answer for each, and one end for each."""

from __future__ import annotations

import re

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core.errors import CallTimeout, ConnectionClosed, RocketMQError
from pyrmq_core.network import BulkCall, Peer
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.frame import RequestForm
from tests.network.ends import KINDS, Recorder, echo, joined, until

pytestmark = pytest.mark.parametrize("kind", KINDS)

FORM = RequestForm(Command(11, {"topic": "T", "offset": "", "count": ""}), ("offset", "count"))


class Told(BulkCall):
    """A request that records its result and its time."""

    __slots__ = ("at", "number", "results")

    def __init__(self, number: int) -> None:
        self.number = number
        self.numbers = number, 32
        self.results: list[Command | RocketMQError] = []
        self.at = 0.0

    def end(self, result: Command | RocketMQError) -> None:
        self.results.append(result)
        self.at = trio.current_time()


async def test_each_gets_its_answer(kind: str) -> None:
    requests = [Told(number) for number in range(100)]
    async with joined(kind, there=echo) as (here, _):
        here.post_all(FORM, requests, timeout=60)
        await until(lambda: all(request.results for request in requests))
        assert here.calls_under_way == 0
    for request in requests:
        (answer,) = request.results
        assert isinstance(answer, Command)
        assert dict(answer.ext) == {"topic": "T", "offset": str(request.number), "count": "32"}


async def test_all_end_at_their_deadline(kind: str, autojump_clock: MockClock) -> None:
    requests = [Told(number) for number in range(10)]
    async with joined(kind, there=Recorder().held) as (here, _):
        await trio.testing.wait_all_tasks_blocked()  # the sweeper sleeps until it looks at the connection's health
        began = trio.current_time()
        here.post_all(FORM, requests, timeout=0.2)
        await until(lambda: not here.calls_under_way)
    for request in requests:
        (error,) = request.results
        assert isinstance(error, CallTimeout)
        assert "did not answer PULL_MESSAGE (11) within 0.2 s" in str(error)
        assert error.request_left
        assert request.at - began == pytest.approx(0.2, abs=0.05)


async def test_all_end_with_their_connection(kind: str) -> None:
    recorder = Recorder()
    requests = [Told(number) for number in range(10)]
    late = [Told(number) for number in range(3)]
    async with joined(kind, there=recorder.held) as (here, there):
        here.post_all(FORM, requests, timeout=60)
        await until(lambda: len(recorder.requests) == 10)
        there.close()
        await here.wait_closed()
        here.post_all(FORM, late, timeout=60)
    for request in (*requests, *late):
        (error,) = request.results
        assert isinstance(error, ConnectionClosed)
        assert error.request_left == (request in requests)


class Borrowing(Told):
    __slots__ = ()

    borrows = True


async def test_only_a_call_that_borrows_gets_a_view_of_received_bytes(kind: str) -> None:
    body = bytes(range(256)) * 40
    received = []

    def answer_large(request: Command, _: Peer) -> Command:
        return success(dict(request.ext), body)

    def record(request: Command, _: Peer) -> None:
        received.append(request.body)

    async with joined(kind, here=record, there=answer_large) as (here, there):
        here.lend_answers(re.compile(rb"(nothing)"))
        borrowing, plain = Borrowing(1), Told(2)
        here.post_all(FORM, [borrowing, plain], timeout=60)
        answered = await here.call(Command(11), timeout=60)
        await there.send_oneway(Command(11, body=body), timeout=60)
        await until(lambda: bool(borrowing.results and plain.results and received))
    bodies = [answer.body for answer in (*borrowing.results, *plain.results, answered) if isinstance(answer, Command)]
    assert [type(answer) for answer in (*bodies, *received)] == [memoryview, bytes, bytes, bytes]
    assert {bytes(answer) for answer in (*bodies, *received)} == {body}
