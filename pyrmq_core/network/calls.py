"""`Calls`: the requests of one connection that wait for their answers, and the deadlines at which they stop waiting."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import trio

from pyrmq_core.errors import CallTimeout, ConnectionClosed, NetworkError, RocketMQError
from pyrmq_core.network.outbox import Outbox, Outgoing
from pyrmq_core.protocol.codes import request_name
from pyrmq_core.protocol.command import ONEWAY_BIT, Command
from pyrmq_core.protocol.frame import Request, RequestForm

MAX_OPAQUE: Final = 0x7FFF_FFFF

# Told the answer to a request, or why there is none; it must not raise.
Done: TypeAlias = Callable[[Command | NetworkError], None]


class Call(Outgoing):
    """A request under way and the task that waits for its answer (a one-way request's: until it is written)."""

    __slots__ = ("_calls", "_task", "code", "deadline", "oneway", "opaque", "result", "timeout")

    def __init__(self, calls: Calls, command: Request, opaque: int, timeout: float, deadline: float) -> None:
        self.chunks = None
        self.size_bytes = 0
        self.started = False
        self._calls = calls
        self._task: trio.lowlevel.Task | None = None
        self.code = command.code
        self.oneway = bool(command.flag & ONEWAY_BIT)
        self.opaque = opaque
        self.timeout = timeout
        self.deadline = deadline
        self.result: Command | NetworkError | None = None

    async def wait(self) -> Command | None:
        """The answer, also when it has come already; None when woken for room, or a one-way request is out.

        Raises what the call failed with. Cancelled, it is as if never made.
        """
        if self.result is None and not (self.oneway and self.started and self.chunks is None):
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abort)
        result = self.result
        if isinstance(result, NetworkError):
            raise result
        return result

    def end(self, result: Command | NetworkError) -> None:
        self.result = result
        self.wake()

    def forget(self) -> None:
        """Nobody waits for its answer any more."""
        self._calls.forget(self)

    def wake(self) -> bool:
        if self._task is None:
            return False
        task, self._task = self._task, None
        trio.lowlevel.reschedule(task)
        return True

    def written(self) -> None:
        if self.oneway:
            self._calls.forget(self)
            self.wake()

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        self._calls.forget(self)
        return trio.lowlevel.Abort.SUCCEEDED


class PostedCall(Call):
    """A request under way that no task waits for: `done` is told the end of it."""

    __slots__ = ("_done",)

    def __init__(
        self, calls: Calls, command: Request, opaque: int, timeout: float, deadline: float, done: Done
    ) -> None:
        self.chunks = None  # what `Call.__init__` does, without the call of it
        self.size_bytes = 0
        self.started = self.oneway = False
        self._calls = calls
        self._task = None
        self.code = command.code
        self.opaque = opaque
        self.timeout = timeout
        self.deadline = deadline
        self.result = None
        self._done = done

    def end(self, result: Command | NetworkError) -> None:
        self._done(result)


class Asked:
    """One of many requests that are posted, and leave, together: subclassed by who asks, to be told what comes of it.

    It is the call itself, since a great many short-lived objects keep the garbage collector busy. It cannot be taken
    back: who has no interest any more drops what `end` is told.
    """

    __slots__ = ("code", "deadline", "frames", "opaque", "timeout")

    oneway = False

    code: int
    deadline: float
    frames: Outgoing
    opaque: int
    timeout: float

    @property
    def started(self) -> bool:
        return self.frames.started

    def numbers(self) -> tuple[int, ...]:
        """What goes into the form that it is posted with."""
        raise NotImplementedError

    def end(self, result: Command | RocketMQError) -> None:
        """Told the answer, or why there is none; must not raise."""
        raise NotImplementedError


class Calls:
    """The table of one connection's calls by opaque.

    A call leaves it in one of five ways: answered, written (one-way), cancelled, timed out, failed with the connection.
    """

    def __init__(self, address: str, outbox: Outbox) -> None:
        self._address = address
        self._outbox = outbox
        self._table: dict[int, Call | Asked] = {}
        self._opaque = 0

    def __len__(self) -> int:
        return len(self._table)

    def open(self, command: Request, timeout: float, deadline: float, done: Done | None = None) -> Call:
        """A new call under a number that no other call has; with `done` one that is only posted."""
        opaque = self._free_opaque()
        if done is None:
            call = Call(self, command, opaque, timeout, deadline)
        else:
            call = PostedCall(self, command, opaque, timeout, deadline, done)
        self._table[opaque] = call
        return call

    def open_all(self, form: RequestForm, requests: Iterable[Asked], timeout: float, deadline: float) -> Outgoing:
        """Enters them all; what is to be written for them."""
        table, frames, code = self._table, Outgoing(), form.code
        parts = []
        for asked in requests:
            opaque = self._free_opaque()
            asked.code, asked.opaque, asked.timeout, asked.deadline = code, opaque, timeout, deadline
            asked.frames = frames
            table[opaque] = asked
            parts.append(form.frame(opaque, asked.numbers()))
        frames.load(b"".join(parts), b"")
        return frames

    def _free_opaque(self) -> int:
        opaque = self._opaque = (self._opaque + 1) & MAX_OPAQUE
        while opaque in self._table:
            opaque = self._opaque = (self._opaque + 1) & MAX_OPAQUE
        return opaque

    def answered(self, answer: Command) -> bool:
        """Hands the answer to its caller; False when nobody waits for it (too late, or never asked)."""
        call = self._table.get(answer.opaque)
        if call is None or call.oneway or not call.started:
            return False
        del self._table[answer.opaque]
        call.end(answer)
        return True

    def forget(self, call: Call | Asked) -> None:
        """Nobody waits any more: a frame that is not begun is withdrawn, an answer will be dropped."""
        self._table.pop(call.opaque, None)
        if isinstance(call, Call):
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
            call.end(self.timed_out(call))
        return earliest

    def fail_all(self, reason: str) -> None:
        """Ends all calls, because the connection has ended."""
        calls, self._table = self._table, {}
        for call in calls.values():
            call.end(self.closed(call.code, reason, left=call.started))

    def timed_out(self, call: Call | Asked) -> CallTimeout:
        what = request_name(call.code)
        if call.timeout <= 0:
            text = f"no time was left to ask {self._address} for {what}"
        elif call.started:
            text = f"{self._address} did not answer {what} within {call.timeout:g} s"
        else:
            text = f"{what} could not be written to {self._address} within {call.timeout:g} s, it reads too slowly"
        remedy = "look whether that server is alive and not overloaded, or allow more time"
        return CallTimeout(f"{text}; {remedy}", address=self._address, request_left=call.started)

    def closed(self, code: int, reason: str, *, left: bool) -> ConnectionClosed:
        state = "had left" if left else "had not left"
        text = f"connection to {self._address} ended: {reason}; {request_name(code)} {state} and is not answered"
        return ConnectionClosed(f"{text}, retry or look at that server", address=self._address, request_left=left)
