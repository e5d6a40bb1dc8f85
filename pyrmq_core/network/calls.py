"""`Calls`: the requests of one connection that wait for their answers, and the deadlines at which they stop waiting."""

from __future__ import annotations

import math
from typing import Final

import trio

from pyrmq_core.errors import CallTimeout, ConnectionClosed, NetworkError
from pyrmq_core.network.outbox import Outbox, Outgoing
from pyrmq_core.protocol.codes import request_name
from pyrmq_core.protocol.command import Command

MAX_OPAQUE: Final = 0x7FFF_FFFF


class Call(Outgoing):
    """A request under way and the task that waits for its answer (a one-way request's: until it is written)."""

    __slots__ = ("answer", "calls", "code", "deadline", "error", "oneway", "opaque", "task", "timeout")

    def __init__(self, calls: Calls, command: Command, opaque: int, timeout: float, deadline: float) -> None:
        super().__init__()
        self.calls = calls
        self.code = command.code
        self.oneway = command.is_oneway
        self.opaque = opaque
        self.timeout = timeout
        self.deadline = deadline
        self.task: trio.lowlevel.Task | None = None
        self.answer: Command | None = None
        self.error: NetworkError | None = None

    async def wait(self) -> None:
        """Returns when woken; raises the error the call ended with. Cancelled, the call is as if never made."""
        if self.error is None:
            self.task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abort)
        if self.error is not None:
            raise self.error

    def wake(self) -> None:
        if self.task is not None:
            task, self.task = self.task, None
            trio.lowlevel.reschedule(task)

    def fail(self, error: NetworkError) -> None:
        self.error = error
        self.wake()

    def written(self) -> None:
        if self.oneway:
            self.calls.forget(self)
            self.wake()

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self.task = None
        self.calls.forget(self)
        return trio.lowlevel.Abort.SUCCEEDED


class Calls:
    """The table of one connection's calls by opaque.

    A call leaves it in one of five ways: answered, written (one-way), cancelled, timed out, failed with the connection.
    """

    def __init__(self, address: str, outbox: Outbox) -> None:
        self._address = address
        self._outbox = outbox
        self._table: dict[int, Call] = {}
        self._opaque = 0

    def __len__(self) -> int:
        return len(self._table)

    def open(self, command: Command, timeout: float, now: float) -> Call:
        opaque = self._opaque = (self._opaque + 1) & MAX_OPAQUE
        while opaque in self._table:
            opaque = self._opaque = (self._opaque + 1) & MAX_OPAQUE
        call = self._table[opaque] = Call(self, command, opaque, timeout, now + timeout)
        return call

    def answered(self, answer: Command) -> bool:
        """Hands the answer to its caller; False when nobody waits for it (too late, or never asked)."""
        call = self._table.get(answer.opaque)
        if call is None or call.oneway:
            return False
        del self._table[answer.opaque]
        call.answer = answer
        call.wake()
        return True

    def forget(self, call: Call) -> None:
        """Nobody waits any more: a frame that is not begun is withdrawn, an answer will be dropped."""
        self._table.pop(call.opaque, None)
        self._outbox.withdraw(call)

    def expire(self, now: float) -> float:
        """Ends the calls whose time is up; the earliest deadline of those left, infinity without any."""
        earliest = math.inf
        overdue = []
        for call in self._table.values():
            if call.deadline <= now:
                overdue.append(call)
            elif call.deadline < earliest:
                earliest = call.deadline
        for call in overdue:
            self.forget(call)
            call.fail(timed_out(call, self._address))
        return earliest

    def fail_all(self, reason: str) -> None:
        calls, self._table = self._table, {}
        for call in calls.values():
            left = "the request had left" if call.started else "the request had not left"
            text = f"the connection to {self._address} ended before {request_name(call.code)} was answered: {reason}"
            call.fail(ConnectionClosed(f"{text} ({left})", address=self._address, request_left=call.started))


def timed_out(call: Call, address: str) -> CallTimeout:
    what = request_name(call.code)
    if call.started:
        text = f"{address} did not answer {what} within {call.timeout:g} s"
    else:
        text = f"{what} could not be written to {address} within {call.timeout:g} s: it does not read"
    return CallTimeout(
        f"{text}; look whether that server is alive, or allow more time", address=address, request_left=call.started
    )
