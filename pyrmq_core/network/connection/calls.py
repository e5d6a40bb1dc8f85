"""The calls of one connection: requests that wait for their answers, each until its deadline.

`DeadlineSweeper` is a single task that checks the deadlines of many connections, instead of a timer for each call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import trio

from pyrmq_core.errors import CallTimeout, ConnectionClosed, HeaderError, NetworkError, ProtocolError, RocketMQError
from pyrmq_core.network.connection.failures import describe
from pyrmq_core.network.connection.outbox import Outbox, Outgoing
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.framing.codes import request_name
from pyrmq_core.protocol.framing.command import ONEWAY_BIT, Command
from pyrmq_core.protocol.framing.frame import Request, RequestForm, encode_request_head
from pyrmq_core.protocol.framing.lent_answer import AnswerRow, row_command

log = line_logger(__name__)

MAX_OPAQUE: Final = 0x7FFF_FFFF
REMEDY: Final = "look whether that server is alive and not overloaded, or allow more time"
HEALTH_SECONDS: Final = 5.0
# The time between two checks of deadlines, and its increase for each call, since checking a call takes 0.05 us.
SWEEP_SECONDS: Final = 0.005
SWEEP_SECONDS_PER_CALL: Final = 1e-6
# The number of connections checked before other tasks run: 10,000 at once would delay them by a tenth of a second.
CHECKED_AT_ONCE: Final = 200

# A callback that receives the answer to a request, or the error. It must not raise.
Done: TypeAlias = Callable[[Command | NetworkError], None]
_Error = TypeVar("_Error", bound=RocketMQError)


class Call(Outgoing):
    """A request under way, and the task that waits for its answer or, if it is one-way, until it is written.

    The class has no `__init__`, which would take a quarter of the instructions of a send. Call `set_frame` and
    `register` on a new object instead.
    """

    __slots__ = ("_calls", "_task", "code", "deadline", "oneway", "opaque", "result", "timeout")

    borrows = False

    code: int
    deadline: float
    oneway: bool
    opaque: int
    result: Command | NetworkError | None
    timeout: float
    _calls: Calls
    _task: trio.lowlevel.Task | None

    def register(self, calls: Calls, command: Request, opaque: int, timeout: float, deadline: float) -> None:
        """Sets the call's attributes, and enters it in the table of `calls` under its opaque.

        `deadline` is on trio's clock. `timeout` (seconds) is only for the text of an error.
        """
        self._calls = calls
        self._task = self.result = None
        self.code = command.code
        self.oneway = command.flag & ONEWAY_BIT != 0
        self.opaque = opaque
        self.timeout = timeout
        self.deadline = deadline
        calls.table[opaque] = self

    async def wait(self) -> Command | None:
        """Returns the answer when it arrives, or raises the call's error.

        Returns None when a one-way request is written. `Calls.wait_for_room` uses a call without a request, for which
        it returns None when the outbox has room. If the waiting task is cancelled, the call is withdrawn.
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
    """A request for which no task waits. `done` receives its answer or error."""

    __slots__ = ("done",)

    done: Done

    def end(self, result: Command | NetworkError) -> None:
        self.done(result)


class BulkFrames(Outgoing):
    """The frames of requests that are sent together, with their common code, deadline and timeout."""

    __slots__ = ("code", "deadline", "timeout")

    code: int
    deadline: float
    timeout: float


class BulkCall:
    """One of many requests that are sent together. A subclass overrides `end` to receive the answer or error.

    The object itself is the entry in the call table, which saves an allocation for each request. The request cannot be
    withdrawn: a caller that no longer needs the result ignores it. With `borrows` the answer's body may be a view of
    the receive buffer, which then stays in memory (a MiB or more).
    """

    __slots__ = ("frames", "numbers", "opaque")

    oneway = False
    borrows = False

    frames: BulkFrames
    numbers: tuple[int, ...]  # values of the template's varying fields, set by the caller
    opaque: int

    @property
    def code(self) -> int:
        return self.frames.code

    @property
    def deadline(self) -> float:
        return self.frames.deadline

    @property
    def timeout(self) -> float:
        return self.frames.timeout

    @property
    def started(self) -> bool:
        return self.frames.started

    def end(self, result: Command | RocketMQError) -> None:
        """Receives the answer or the error. It must not raise."""
        raise NotImplementedError


class RowReader(Protocol):
    """A receiver of answers in lists, for callers that send many requests together."""

    def answered_rows(self, answers: list[tuple[Any, AnswerRow]]) -> None:
        """Receives answers, each with its call, in the order of their arrival. It must not raise."""
        ...


class RowCall(BulkCall):
    """A bulk call whose `reader` receives the answer in a list, with other answers that arrived together.

    The answer's header stays unparsed if it matches the connection's `AnswerForm`, a regular expression. Otherwise
    `end` receives the answer. `end` also receives an error.
    """

    __slots__ = ("reader",)

    borrows = True

    reader: RowReader


class Calls:
    """The table of one connection's calls by opaque.

    A call leaves the table when it is answered, written (one-way), cancelled or expired, or when the connection fails.
    """

    def __init__(self, address: str, outbox: Outbox) -> None:
        self._address = address
        self._outbox = outbox
        self.table: dict[int, Call | BulkCall] = {}
        self._numbers = count(1)

    def open(self, command: Request, timeout: float, deadline: float, done: Done | None = None) -> Call:
        """Returns a new call with an unused opaque, ready to be written. With `done` it is a `PostedCall`.

        `deadline` is on trio's clock. `timeout` (seconds) is only for the text of an error. Raises `HeaderError` if the
        request cannot be encoded.
        """
        while (opaque := next(self._numbers) & MAX_OPAQUE) in self.table:
            pass
        try:
            head = encode_request_head(command, opaque)
        except ProtocolError:
            raise
        except Exception as error:
            raise _not_encoded(command.code, error) from error
        if done is None:
            call = Call()
        else:
            call = PostedCall()
            call.done = done
        call.set_frame(head, command.body)
        call.register(self, command, opaque, timeout, deadline)
        return call

    def open_waiting(self, command: Request, timeout: float, deadline: float) -> Call:
        while (opaque := next(self._numbers) & MAX_OPAQUE) in self.table:
            pass
        call = Call()
        call.set_frame(b"", b"")
        call.register(self, command, opaque, timeout, deadline)
        return call

    async def wait_for_room(self, command: Request, timeout: float, deadline: float) -> None:
        call = self.open_waiting(command, timeout, deadline)
        try:
            while self._outbox.is_full:
                self._outbox.await_room(call)
                await call.wait()
        finally:
            call.forget()

    def open_all(self, form: RequestForm, requests: Iterable[BulkCall], timeout: float, deadline: float) -> Outgoing:
        """Enters many requests in the call table, and returns their frames, which the template `form` encodes.

        A request that cannot be encoded ends at once with its error. The frames of the others are still returned.
        """
        table, opaques, frames = self.table, self._numbers, BulkFrames()
        frames.code, frames.timeout, frames.deadline = form.code, timeout, deadline
        frame, parts = form.frame, list[bytes]()
        for bulk_call in requests:
            while (opaque := next(opaques) & MAX_OPAQUE) in table:
                pass
            bulk_call.opaque = opaque
            bulk_call.frames = frames
            try:
                parts.append(frame(opaque, bulk_call.numbers))
            except Exception as error:
                _end(bulk_call.end, _not_encoded(form.code, error), form.code)
            else:
                table[opaque] = bulk_call
        frames.set_frame(b"".join(parts), b"")
        return frames

    def answered(self, answer: Command) -> bool:
        """Passes an answer to its call. Returns False if no call has its opaque, perhaps since it arrived too late."""
        table, opaque = self.table, answer.opaque
        call = table.get(opaque)
        if call is None or call.oneway or not call.started:
            return False
        del table[opaque]
        if answer.body.__class__ is memoryview and not call.borrows:
            answer = answer.with_own_body()
        try:  # the same as `_end`, inlined for speed
            call.end(answer)
        except Exception:
            _log_end(call.code)
        return True

    def answered_rows(self, rows: Iterable[AnswerRow]) -> None:
        """Passes answers to their calls: to a `RowCall`'s reader as a list, to any other call as a command."""
        table = self.table
        rows_by_reader: dict[RowReader, list[tuple[RowCall, AnswerRow]]] = {}
        reader, answers = None, list[tuple[RowCall, AnswerRow]]()
        for row in rows:
            opaque = row[0]
            call = table.get(opaque)
            if isinstance(call, RowCall) and call.frames.started:
                del table[opaque]
                if call.reader is not reader:
                    reader = call.reader
                    answers = rows_by_reader.setdefault(reader, [])
                answers.append((call, row))
            elif not self.answered(row_command(row)):
                log.debug("%s answered number %d, which no call waits for", self._address, opaque)
        for reader, answers in rows_by_reader.items():
            try:
                reader.answered_rows(answers)
            except Exception:
                _log_end(answers[0][0].code)

    def forget(self, call: Call | BulkCall) -> None:
        self.table.pop(call.opaque, None)
        if isinstance(call, Call):
            self._outbox.withdraw(call)

    def expire(self, now: float) -> float:
        """Ends the calls with deadlines up to `now` with `CallTimeout`. Returns the next deadline, or infinity."""
        earliest = math.inf
        overdue = []
        for call in self.table.values():
            if call.deadline <= now:
                overdue.append(call)
            elif call.deadline < earliest:
                earliest = call.deadline
        for call in overdue:
            if self.table.get(call.opaque) is call:  # the callback of another call may have ended this one
                self.forget(call)
                _end(call.end, self.timed_out(call), call.code)
        return earliest

    def fail_all(self, reason: str) -> None:
        for call in list(self.table.values()):
            if self.table.pop(call.opaque, None) is not None:  # the end of another call may have abandoned this one
                _end(call.end, self.closed(call.code, reason, left=call.started), call.code)

    def timed_out(self, call: Call | BulkCall) -> CallTimeout:
        what = request_name(call.code)
        if call.started:
            text = f"{self._address} did not answer {what} within {call.timeout:g} s"
        else:
            text = f"{what} could not be written to {self._address} within {call.timeout:g} s, it reads too slowly"
        return CallTimeout(f"{text}; {REMEDY}", address=self._address, request_left=call.started)

    def no_time(self, code: int) -> CallTimeout:
        text = f"no time was left to ask {self._address} for {request_name(code)}"
        return CallTimeout(f"{text}; {REMEDY}", address=self._address, request_left=False)

    def closed(self, code: int, reason: str, *, left: bool) -> ConnectionClosed:
        state = "had left" if left else "had not left"
        text = f"connection to {self._address} ended: {reason}; {request_name(code)} {state} and is not answered"
        return ConnectionClosed(f"{text}, retry or look at that server", address=self._address, request_left=left)


class SweptConnection(Protocol):
    @property
    def calls_under_way(self) -> int: ...

    def expire_calls(self, now: float) -> float: ...

    def check_health(self, now: float) -> None: ...


class DeadlineSweeper:
    """A task that ends calls at their deadlines, and closes connections that hang (see `StallDetector`)."""

    def __init__(self, health_seconds: float = HEALTH_SECONDS) -> None:
        self._health_seconds = health_seconds
        self._connections: dict[SweptConnection, None] = {}
        self._wakes_at = math.inf
        self._woken = trio.Event()

    def add(self, connection: SweptConnection) -> None:
        self._connections[connection] = None
        now = trio.current_time()
        connection.check_health(now)
        self.look_at(min(now + self._health_seconds, connection.expire_calls(now)))

    def discard(self, connection: SweptConnection) -> None:
        self._connections.pop(connection, None)

    def look_at(self, deadline: float) -> None:
        if deadline < self._wakes_at:
            self._wakes_at = deadline
            self._woken.set()

    def looks_before(self, deadline: float) -> bool:
        """Returns whether the sweeper will wake by `deadline` even without a call of `look_at`."""
        return self._wakes_at <= deadline

    async def run(self) -> None:
        health_at = trio.current_time() + self._health_seconds
        while True:
            now = trio.current_time()
            self._woken = trio.Event()
            calls = self._expire_calls(now)
            if now >= health_at:
                await self._check_health(now)
                health_at = now + self._health_seconds
            if self._connections:
                self._wakes_at = min(self._wakes_at, health_at)
            with trio.move_on_at(self._wakes_at):
                await self._woken.wait()
            await trio.sleep_until(now + SWEEP_SECONDS + calls * SWEEP_SECONDS_PER_CALL)

    async def _check_health(self, now: float) -> None:
        for number, connection in enumerate(list(self._connections), 1):
            connection.check_health(now)
            if number % CHECKED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()

    def _expire_calls(self, now: float) -> int:
        calls = 0
        earliest = self._wakes_at = math.inf
        for connection in list(self._connections):
            if connection.calls_under_way:
                calls += connection.calls_under_way
                earliest = min(earliest, connection.expire_calls(now))
        self._wakes_at = min(self._wakes_at, earliest)  # a call that ended may have posted one that ends earlier
        return calls


def _end(end: Callable[[_Error], None], error: _Error, code: int) -> None:
    try:
        end(error)
    except Exception:
        _log_end(code)


def _log_end(code: int) -> None:
    log.exception("what was to be done with the end of %s failed", request_name(code))


def _not_encoded(code: int, error: Exception) -> HeaderError:
    return HeaderError(f"{request_name(code)} cannot be written: {describe(error)}; correct its fields")
