"""`Connection`: one wire between two ends, each of which may call and be called, many calls at once.

Tasks: one reads and answers, one writes what could not be written at once (started when first needed). Deadlines of
calls are entries in the connection's table, which the sweeper of its pool or server looks through.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

import trio

from pyrmq_core.errors import ProtocolError
from pyrmq_core.network.calls import Asked, Call, Calls, Done
from pyrmq_core.network.handling import CutConnection, Handler, Peer, failure_answer, refuse_unsupported
from pyrmq_core.network.outbox import FULL_BYTES, Answer, Outbox, Outgoing
from pyrmq_core.network.sweeping import Sweeper
from pyrmq_core.network.watch import Limits, Signs, Watch
from pyrmq_core.network.wire import WIRE_ERRORS, Wire
from pyrmq_core.protocol.command import RESPONSE_BIT, Command
from pyrmq_core.protocol.frame import FrameDecoder, Request, RequestForm, encode_answer_head

log = logging.getLogger(__name__)

MAX_REQUESTS: Final = 10_000
# So many requests of one connection are handled before others have their turn.
COMMANDS_AT_ONCE: Final = 64


class Connection:
    """One end of a wire.

    Works while `run` does. `call`, `send_oneway` and `answer` may be used from any task. Whoever runs it closes it
    (`aclose`, or `close` from plain functions); then every call under way fails at once with `ConnectionClosed`.
    `address` is what the wire was opened to; `opening`, if given, makes the wire that is used from the one given.
    What the other end does wrong is logged at `log_level`: a server's business, while a client's callers are told.
    """

    def __init__(
        self,
        wire: Wire,
        *,
        sweeper: Sweeper,
        address: str = "",
        handler: Handler | None = None,
        limits: Limits | None = None,
        max_requests: int = MAX_REQUESTS,
        opening: Callable[[], Awaitable[Wire]] | None = None,
        on_close: Callable[[Connection], None] | None = None,
        log_level: int = logging.INFO,
    ) -> None:
        self.address = address or wire.address
        self.peer = Peer(self, wire.address, wire.local_address)
        self._wire = wire
        self._opening = opening
        self._sweeper = sweeper
        self._handler = handler or refuse_unsupported
        self._max_requests = max_requests
        self._on_close = on_close
        self._log_level = log_level
        self._watch = Watch(limits or Limits())
        self._decoder = FrameDecoder()
        self._outbox = Outbox(wire, self._start_writer)
        self._calls = Calls(self.address, self._outbox)
        self._received = 0
        self._commands = 0
        self._requests = 0
        self._reading = True
        self._request_done: trio.Event | None = None
        self._nursery: trio.Nursery | None = None
        self._soon: Callable[[Callable[[], None]], None] = _not_running
        self.is_closed = False
        self._close_reason = ""
        self._closed = trio.Event()

    def __repr__(self) -> str:
        state = f"closed: {self._close_reason}" if self.is_closed else f"{self.calls_under_way} calls under way"
        return f"<Connection {self.peer.local_address} to {self.address}, {state}>"

    @property
    def calls_under_way(self) -> int:
        return len(self._calls.table)

    @property
    def is_full(self) -> bool:
        """So much waits to be written that calls wait before they queue."""
        return self._outbox.queued_bytes >= FULL_BYTES

    async def call(self, command: Command, *, timeout: float) -> Command:
        """The answer to a request, whatever its code; `timeout` in seconds.

        Raises `CallTimeout` and `ConnectionClosed`; their `request_left` is False only when no byte of the request can
        have reached the peer. The request of a cancelled caller is withdrawn, or goes out whole. The body must not
        change before the answer.
        """
        return await self.call_until(command, trio.current_time() + timeout, timeout)

    async def call_until(self, command: Command, deadline: float, timeout: float) -> Command:
        """`call` for one whose time runs already: `deadline` is on trio's clock, `timeout` is for the error's text."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._outbox.is_full:
            await self._wait_for_room(command, deadline, timeout)
        answer = await self.begin(command, deadline, timeout).wait()
        assert answer is not None, "a call ended without an answer"
        return answer

    def begin(self, command: Request, deadline: float, timeout: float, done: Done | None = None) -> Call:
        """`call_until` without its waits: not for room, and `wait` has to follow at once, or `done` is told the end.

        Raises `ConnectionClosed`, and `CallTimeout` when there is no time.
        """
        calls = self._calls
        if self.is_closed:
            raise calls.closed(command.code, self._close_reason, left=False)
        if timeout <= 0:
            raise calls.no_time(command.code)
        try:
            call = calls.open(command, timeout, deadline, done)
        except BaseException:
            self._outbox.tell_room()
            raise
        self._sweeper.look_at(deadline)
        try:
            self._outbox.send(call, alone=len(calls.table) == 1)
        except WIRE_ERRORS as error:
            self._broken(error)
        return call

    async def send_oneway(self, command: Command, *, timeout: float) -> None:
        """Returns when the request is handed to the system whole; no answer is expected. Raises as `call` does."""
        await self.send_oneway_until(command, trio.current_time() + timeout, timeout)

    async def send_oneway_until(self, command: Command, deadline: float, timeout: float) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        request = command if command.is_oneway else command.oneway()
        if self._outbox.is_full:
            await self._wait_for_room(request, deadline, timeout)
        await self.begin(request, deadline, timeout).wait()

    def post(self, command: Request, *, timeout: float, done: Done) -> Callable[[], None]:
        """`call` for one who does not wait: `done` is told the answer, or the error, once, on the loop.

        What is posted from within `done` goes out joined. It goes out also when much is queued already: whoever posts
        bounds what is under way. Raises `ConnectionClosed`. What it returns ends the interest in the answer.
        """
        return self.begin(command, trio.current_time() + timeout, timeout, done).forget

    def post_aside(self, command: Request, *, deadline: float, timeout: float, done: Done) -> Callable[[], None] | None:
        """`post` by another thread while the loop waits for I/O, where trio's own functions cannot be used.

        None, and nothing is sent, unless no other call is under way and the wire takes it at once.
        """
        if self.is_closed or self._calls.table or not self._outbox.is_idle or not self._sweeper.looks_before(deadline):
            return None
        call = self._calls.open(command, timeout, deadline, done)
        try:
            if self._outbox.send_aside(call, self._soon):
                return call.forget
            self._calls.forget(call)
            return None
        except WIRE_ERRORS as error:
            self._soon(partial(self._broken, error))
            return call.forget
        except BaseException:  # an interrupt: nobody knows how much of the frame is out
            self._soon(partial(self.close, "a thread was interrupted while it wrote"))
            raise

    def post_all(self, form: RequestForm, requests: Iterable[Asked], *, timeout: float) -> None:
        """`post` for requests of one form, which are written joined; those of a closed connection are told at once."""
        if self.is_closed:
            for asked in requests:
                asked.end(self._calls.closed(form.code, self._close_reason, left=False))
            return
        deadline = trio.current_time() + timeout
        frames = self._calls.open_all(form, requests, timeout, deadline)
        self._sweeper.look_at(deadline)
        self._send(frames, alone=True)

    def answer(self, request: Command, answer: Command) -> None:
        """Sends the answer to a request, now or later; nothing for a one-way request or on a closed connection."""
        if request.is_oneway or self.is_closed:
            return
        frame = Answer()
        try:
            frame.load(encode_answer_head(request, answer), answer.body)
        except ProtocolError as error:
            failure = failure_answer(request, self.peer, error)
            frame.load(encode_answer_head(request, failure), failure.body)
        self._send(frame, alone=False)

    def close(self, reason: str = "closed by this end") -> None:
        """Ends the connection without waiting; calls under way fail at once. Again: without effect."""
        if self.is_closed:
            return
        self.is_closed = True
        self._close_reason = reason
        self._calls.fail_all(reason)
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    async def wait_closed(self) -> None:
        """Returns when the connection has ended, its tasks and its socket are gone."""
        await self._closed.wait()

    async def aclose(self) -> None:
        """Ends the connection; returns when its tasks and its socket are gone."""
        self.close()
        await self._closed.wait()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reads, answers and writes until either end closes; raises nothing for what the peer did."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery, self._soon = nursery, trio.lowlevel.current_trio_token().run_sync_soon
                self._sweeper.add(self)
                if self._outbox.queued_bytes:
                    self._start_writer()
                task_status.started()
                if not self.is_closed:
                    await self._work(nursery)
                nursery.cancel_scope.cancel()
        finally:
            self.close("this end stopped")
            self._sweeper.discard(self)
            with trio.CancelScope(shield=True):
                await self._wire.aclose()
            self._closed.set()
            self._tell_closed()

    def expire_calls(self, now: float) -> float:
        """The sweeper's: ends calls whose time is up and tells the earliest deadline left."""
        return self._calls.expire(now)

    def check_health(self, now: float) -> None:
        """The sweeper's: closes the connection if it idles, stalls or is stuck in a frame; frees unused memory."""
        signs = Signs(
            received=self._received,
            commands=self._commands,
            written_bytes=self._outbox.written_bytes,
            frame_bytes=self._decoder.buffered_bytes,
            queued_bytes=self._outbox.queued_bytes,
            busy=bool(self._requests or self._calls.table),
            reading=self._reading,
        )
        if reason := self._watch.look(signs, now):
            log.info("closing the connection with %s: %s", self.address, reason)
            self.close(reason)
        elif self._watch.is_quiet(now):
            self._decoder.give_back()

    def _tell_closed(self) -> None:
        try:
            if self._on_close is not None:
                self._on_close(self)
        except Exception:
            log.exception("what was to be done when the connection with %s had closed failed", self.address)

    async def _wait_for_room(self, command: Request, deadline: float, timeout: float) -> None:
        if self.is_closed or timeout <= 0:
            return  # `begin` tells what is wrong
        call = self._calls.open_waiting(command, timeout, deadline)
        self._sweeper.look_at(deadline)
        try:
            while self._outbox.is_full:
                self._outbox.await_room(call)
                await call.wait()
        finally:
            call.forget()

    def _send(self, frame: Outgoing, *, alone: bool) -> None:
        try:
            self._outbox.send(frame, alone=alone)
        except WIRE_ERRORS as error:
            self._broken(error)

    async def _work(self, nursery: trio.Nursery) -> None:
        try:
            if self._opening is not None:
                self._wire = self._outbox.wire = await self._opening()
            while await self._wire.receive(self._decoder):
                self._received += 1
                await self._take_commands(nursery)
            self.close("the other end closed it")
        except ProtocolError as error:
            fault = f"sent what is not RocketMQ's: {error}"
            log.log(self._log_level, "closing the connection with %s, which %s", self.address, fault)
            self.close(f"the other end {fault}")
        except WIRE_ERRORS as error:
            self._broken(error)

    async def _take_commands(self, nursery: trio.Nursery) -> None:
        """All commands that have come whole; what they are answered at once is written together."""
        others_run_at = self._commands + COMMANDS_AT_ONCE
        self._outbox.hold()
        try:
            while (command := self._decoder.next_command()) is not None and not self.is_closed:
                self._commands += 1
                if not command.flag & RESPONSE_BIT:
                    self._take_request(command, nursery)
                    if self._requests >= self._max_requests or self._outbox.is_full:
                        await self._pause()
                    elif self._commands >= others_run_at:
                        others_run_at += COMMANDS_AT_ONCE
                        self._outbox.release()
                        await trio.lowlevel.checkpoint()
                        self._outbox.hold()
                elif not self._calls.answered(command):
                    log.debug("%s answered number %d, which nobody waits for", self.address, command.opaque)
        finally:
            self._outbox.release()

    async def _pause(self) -> None:
        """Reads no further while too much is under way: who asks faster than is answered waits."""
        self._reading = False
        self._outbox.release()
        while self._requests >= self._max_requests:
            self._request_done = trio.Event()
            await self._request_done.wait()
        await self._outbox.wait_answers_drained()
        self._outbox.hold()
        self._reading = True

    def _take_request(self, request: Command, nursery: trio.Nursery) -> None:
        try:
            answer = self._handler(request, self.peer)
        except CutConnection:
            self.close("cut by this end")
        except Exception as error:
            self.answer(request, failure_answer(request, self.peer, error))
        else:
            if isinstance(answer, Command):
                self.answer(request, answer)
            elif answer is not None:
                self._requests += 1
                nursery.start_soon(self._answer_later, request, answer)

    async def _answer_later(self, request: Command, waiting: Awaitable[Command | None]) -> None:
        answer: Command | None = None
        try:
            answer = await waiting
        except CutConnection:
            self.close("cut by this end")
        except Exception as error:
            answer = failure_answer(request, self.peer, error)
        finally:
            self._requests -= 1
            if self._request_done is not None:
                self._request_done.set()
        if answer is not None:
            self.answer(request, answer)

    def _start_writer(self) -> None:
        if self._nursery is not None:  # before `run` nothing is sent
            self._nursery.start_soon(self._write)

    async def _write(self) -> None:
        try:
            await self._outbox.run()
        except WIRE_ERRORS as error:
            self._broken(error)

    def _broken(self, error: BaseException) -> None:
        self.close(getattr(error, "strerror", None) or str(error) or type(error).__name__)


def _not_running(_: Callable[[], None]) -> None:
    raise AssertionError("a connection that does not run")
