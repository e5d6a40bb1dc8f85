"""`Connection`: one wire between two ends, each of which may call and be called, many calls at once.

Tasks: one reads and answers, one writes what could not be written at once (started when first needed). Deadlines of
calls are entries in the connection's table, which the sweeper of its pool or server looks through.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import trio

from pyrmq_core.errors import ConnectionClosed, ProtocolError
from pyrmq_core.network.calls import Call, Calls, timed_out
from pyrmq_core.network.handling import CutConnection, Handler, Peer, failure_answer, refuse_unsupported
from pyrmq_core.network.outbox import Answer, Outbox, Outgoing
from pyrmq_core.network.sweeping import Sweeper
from pyrmq_core.network.wire import WIRE_ERRORS, Chunk, Wire
from pyrmq_core.protocol.codes import request_name
from pyrmq_core.protocol.command import Command
from pyrmq_core.protocol.frame import FrameDecoder, encode_frame, encode_frame_head

log = logging.getLogger(__name__)

# Bodies from this size on are not joined with their header: copying costs more than a second buffer in one write.
APART_FROM_BYTES: Final = 32 * 1024
# While more than this waits to be written, requests are not read and new calls wait.
OUTBOX_BYTES: Final = 16 * 1024 * 1024
FRAME_TIMEOUT_SECONDS: Final = 30.0
STALL_SECONDS: Final = 60.0
MAX_REQUESTS: Final = 10_000


class Connection:
    """One end of a wire.

    Works while `run` does. `call`, `send_oneway` and `answer` may be used from any task. Whoever runs it closes it
    (`aclose`, or `close` from plain functions); then every call under way fails at once with `ConnectionClosed`.
    """

    def __init__(
        self,
        wire: Wire,
        *,
        sweeper: Sweeper,
        handler: Handler | None = None,
        max_requests: int = MAX_REQUESTS,
        idle_timeout: float | None = None,
        frame_timeout: float = FRAME_TIMEOUT_SECONDS,
        on_close: Callable[[Connection], None] | None = None,
    ) -> None:
        self.address = wire.address
        self.peer = Peer(self, wire.address, wire.local_address)
        self._wire = wire
        self._sweeper = sweeper
        self._handler = handler or refuse_unsupported
        self._max_requests = max_requests
        self._on_close = on_close
        self._decoder = FrameDecoder()
        self._outbox = Outbox(wire, self._start_writer)
        self._calls = Calls(wire.address, self._outbox)
        self._requests = 0
        self._request_done = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._close_reason = ""
        self._closed = trio.Event()

    def __repr__(self) -> str:
        return f"<Connection {self.peer.local_address} to {self.address}{', closed' if self.is_closed else ''}>"

    @property
    def is_closed(self) -> bool:
        return bool(self._close_reason)

    @property
    def calls_under_way(self) -> int:
        return len(self._calls)

    async def call(self, command: Command, *, timeout: float) -> Command:
        """The answer to a request, whatever its code; `timeout` in seconds.

        Raises `CallTimeout` and `ConnectionClosed`; their `request_left` is False only when no byte of the request can
        have reached the peer. The request of a cancelled caller is withdrawn, or goes out whole. The body must not
        change before the answer.
        """
        call = await self._post(command, timeout)
        await call.wait()
        if call.answer is None:
            raise AssertionError("a call ended without an answer or an error")
        return call.answer

    async def send_oneway(self, command: Command, *, timeout: float) -> None:
        """Returns when the request is handed to the system whole; no answer is expected. Raises as `call` does."""
        call = await self._post(command.oneway(), timeout)
        if call.chunks is not None or call.error is not None:
            await call.wait()

    def answer(self, request: Command, answer: Command) -> None:
        """Sends the answer to a request, now or later; nothing for a one-way request or on a closed connection."""
        if request.is_oneway or self._close_reason:
            return
        frame = Answer()
        try:
            frame.load(_frame_chunks(request.answered(answer)))
        except ProtocolError as error:
            frame.load(_frame_chunks(request.answered(failure_answer(request, self.peer, error))))
        self._send(frame)

    def close(self, reason: str = "closed by this end") -> None:
        """Ends the connection without waiting; calls under way fail at once. Again: without effect."""
        if self._close_reason:
            return
        self._close_reason = reason
        self._calls.fail_all(reason)
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    async def aclose(self) -> None:
        """Ends the connection; returns when its tasks and its socket are gone."""
        self.close()
        await self._closed.wait()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reads, answers and writes until either end closes; never raises for what the peer did."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._sweeper.add(self)
                task_status.started()
                if not self._close_reason:
                    await self._read(nursery)
                nursery.cancel_scope.cancel()
        finally:
            self.close("this end stopped")
            self._sweeper.discard(self)
            with trio.CancelScope(shield=True):
                await self._wire.aclose()
            self._closed.set()
            if self._on_close is not None:
                self._on_close(self)

    def expire_calls(self, now: float) -> float:
        return self._calls.expire(now)

    def check_health(self, now: float) -> None:
        pass

    async def _post(self, command: Command, timeout: float) -> Call:
        """The call, its frame written or queued; a closed connection and lack of time raise."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._close_reason:
            text = f"the connection to {self.address} is closed: {self._close_reason}"
            raise ConnectionClosed(
                f"{text}; {request_name(command.code)} had not left", address=self.address, request_left=False
            )
        call = self._calls.open(command, timeout, trio.current_time())
        if timeout <= 0:
            self._calls.forget(call)
            raise timed_out(call, self.address)
        self._sweeper.look_at(call.deadline)
        try:
            call.load(_frame_chunks(replace(command, opaque=call.opaque)))
        except BaseException:
            self._calls.forget(call)
            raise
        self._send(call)
        return call

    def _send(self, frame: Outgoing) -> None:
        try:
            self._outbox.send(frame)
        except WIRE_ERRORS as error:
            self._broken(error)

    async def _read(self, nursery: trio.Nursery) -> None:
        try:
            while await self._wire.receive(self._decoder):
                await self._take_commands(nursery)
            self.close("the other end closed it")
        except ProtocolError as error:
            log.warning("closing the connection with %s, which sent what is not RocketMQ's: %s", self.address, error)
            self.close(f"the other end sent what is not RocketMQ's: {error}")
        except WIRE_ERRORS as error:
            self._broken(error)

    async def _take_commands(self, nursery: trio.Nursery) -> None:
        """All commands that have come whole; their answers are written together."""
        answered = 0
        self._outbox.hold()
        try:
            while (command := self._decoder.next_command()) is not None:
                if not command.is_response:
                    self._take_request(command, nursery)
                elif self._calls.answered(command):
                    answered += 1
                else:
                    log.debug("%s answered %d, which nobody waits for", self.address, command.opaque)
        finally:
            self._outbox.expect_many = answered > 1
            self._outbox.release()
        while self._requests >= self._max_requests:
            self._request_done = trio.Event()
            await self._request_done.wait()
        await self._outbox.wait_answers_below(OUTBOX_BYTES)

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
            self._request_done.set()
        if answer is not None:
            self.answer(request, answer)

    def _start_writer(self) -> None:
        if self._nursery is None:
            raise AssertionError("a connection is used before it runs")
        self._nursery.start_soon(self._write)

    async def _write(self) -> None:
        try:
            await self._outbox.run()
        except WIRE_ERRORS as error:
            self._broken(error)

    def _broken(self, error: BaseException) -> None:
        self.close(str(error) or type(error).__name__)


def _frame_chunks(command: Command) -> tuple[Chunk, ...]:
    if len(command.body) < APART_FROM_BYTES:
        return (encode_frame(command),)
    return (encode_frame_head(command), command.body)
