"""Requests of one form that are posted together: one write, an answer for each, and one end for each."""

from __future__ import annotations

import re

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core.errors import CallTimeout, ConnectionClosed, RocketMQError
from pyrmq_core.network import BulkCall, Peer, RowCall
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.frame import RequestForm
from pyrmq_core.protocol.framing.lent_answer import AnswerRow
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


class Reader:
    """A reader that records the numbers of its calls and the opaque and body of each answer, list by list."""

    def __init__(self) -> None:
        self.lists: list[list[tuple[int, int, bytes]]] = []

    def answered_rows(self, answers: list[tuple[RowTold, AnswerRow]]) -> None:
        self.lists.append([(call.number, opaque, bytes(body)) for call, (opaque, _, _, body) in answers])
        if len(self.lists) == 1:
            raise ValueError("a list whose reader fails takes no other call with it")


class RowTold(RowCall):
    """A call of a reader, which records what it does not get as a row."""

    __slots__ = ("number", "results")

    def __init__(self, number: int, reader: Reader) -> None:
        self.number, self.reader = number, reader
        self.numbers = number, 32
        self.results: list[Command | RocketMQError] = []

    def end(self, result: Command | RocketMQError) -> None:
        self.results.append(result)


async def test_a_reader_gets_the_answers_of_the_form_in_lists(kind: str) -> None:
    """Each call has one end: a row of its own reader, a command, or an error."""
    body = bytes(range(256)) * 40

    def answer(request: Command, _: Peer) -> Command:
        number = int(request.ext["offset"])
        return success({"offset": str(number)}, body if number % 3 else b"short")

    form = re.compile(rb'\{"code":0,"extFields":\{"offset":"(\d+)"\}[^{}]*"opaque":(\d+)[^{}]*\}')
    readers = Reader(), Reader()
    calls = [RowTold(number, readers[number % 2]) for number in range(60)]
    plain = [Told(number) for number in (1, 2)]
    async with joined(kind, there=answer) as (here, _):
        here.lend_answers(form)
        here.post_all(FORM, [*calls[:30], *plain, *calls[30:]], timeout=60)
        await until(lambda: not here.calls_under_way)
    rows = [[row for rows in reader.lists for row in rows] for reader in readers]
    for number, reader_rows in enumerate(rows):
        assert [row[0] for row in reader_rows] == [call for call in range(60) if call % 2 == number and call % 3]
        assert {row[2] for row in reader_rows} == {body}
    assert [[type(result) for result in call.results] for call in calls] == [
        [] if call.number % 3 else [Command] for call in calls
    ]
    for told in plain:
        (result,) = told.results
        assert isinstance(result, Command)
        assert (type(result.body), result.body) == (bytes, body)


async def test_row_calls_end_with_their_connection(kind: str) -> None:
    recorder, reader = Recorder(), Reader()
    calls = [RowTold(number, reader) for number in range(5)]
    async with joined(kind, there=recorder.held) as (here, there):
        here.lend_answers(re.compile(rb"(nothing)"))
        here.post_all(FORM, calls, timeout=60)
        await until(lambda: len(recorder.requests) == 5)
        there.close()
        await here.wait_closed()
    assert [[type(result) for result in call.results] for call in calls] == [[ConnectionClosed]] * 5
    assert reader.lists == []


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
