"""A connection between two programs, each of which may send requests to the other, many at once.

One task reads requests and answers. Another one, started when first needed, writes the frames that the kernel did not
accept at once. The `DeadlineSweeper` of the pool or server ends calls at their deadlines, since a cancel scope for each
call would double its cost.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Final, TypeAlias

import trio

from pyrmq_core.network.connection.answers import OpenRequests, answer_frame, failure_answer, refuse_unsupported
from pyrmq_core.network.connection.calls import BulkCall, Call, Calls, DeadlineSweeper, Done
from pyrmq_core.network.connection.failures import not_running, reason_to_close
from pyrmq_core.network.connection.outbox import Outbox
from pyrmq_core.network.connection.peer import CutConnection, Handler, LateAnswer, Peer
from pyrmq_core.network.connection.read_slice import ReadSlice, ReadTurns
from pyrmq_core.network.connection.shared_bytes import Memory
from pyrmq_core.network.connection.stall_detector import ConnectionActivity, ConnectionTimeouts, StallDetector
from pyrmq_core.network.connection.wire import Wire, close_wire
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.network.loop_access import ON_LOOP, LoopAccess
from pyrmq_core.protocol.framing.command import RESPONSE_BIT, Command
from pyrmq_core.protocol.framing.frame import MAX_HEADER_BYTES, FrameDecoder, Request, RequestForm
from pyrmq_core.protocol.framing.lent_answer import AnswerForm

log = line_logger(__name__)

MAX_REQUESTS: Final = 10_000

# A lock, or an async context manager that lets in all tasks at once.
OneByOne: TypeAlias = AbstractAsyncContextManager[object]
ALL_AT_ONCE: Final[OneByOne] = nullcontext()


class Connection:
    """One end of a connection between two programs, each of which may send requests to the other.

    Its owner runs it by `run`, and closes it by `aclose`, or by `close` without waiting. Every call under way then
    fails with `ConnectionClosed`. Any task may use it while it runs. `wire` is its byte stream, and `address` the
    address to which it was opened. `opening`, if set, does a server's TLS handshake and returns the encrypted stream.
    Faults of the other end are logged at `log_level`.
    """

    def __init__(
        self,
        wire: Wire,
        *,
        sweeper: DeadlineSweeper,
        address: str = "",
        handler: Handler | None = None,
        limits: ConnectionTimeouts | None = None,
        max_requests: int = MAX_REQUESTS,
        max_header_bytes: int = MAX_HEADER_BYTES,
        memory: Memory[Connection] | None = None,
        opening: Callable[[], Awaitable[Wire]] | None = None,
        endings: OneByOne = ALL_AT_ONCE,
        turns: ReadTurns | None = None,
        on_close: Callable[[Connection], None] | None = None,
        log_level: int = logging.INFO,
    ) -> None:
        self.address = address or wire.address
        self._peer = Peer(self, wire.address, wire.local_address)  # deleted when the connection has ended
        self._wire = wire
        self._opening = opening
        self._endings = endings
        self._read_slice = ReadSlice(turns or ReadTurns())
        self._sweeper = sweeper
        self._memory = memory
        self._handler = handler or refuse_unsupported
        self._under_way = OpenRequests(max_requests)
        self._on_close = on_close
        self._log_level = log_level
        self._watch = StallDetector(limits or ConnectionTimeouts())
        self._decoder = FrameDecoder(max_header_bytes=max_header_bytes)
        self._outbox = Outbox(wire, self._start_writer, None if memory is None else partial(memory.note_waiting, self))
        self._calls = Calls(self.address, self._outbox)
        self._received = 0
        self._commands = 0
        self._held_bytes = 0
        self._reading = True
        self._nursery: trio.Nursery | None = None
        self._soon: Callable[[Callable[[], None]], None] = not_running
        self.is_closed = False
        self._close_reason = ""
        self._closed = trio.Event()

    def __repr__(self) -> str:
        state = f"closed: {self._close_reason}" if self.is_closed else f"{self.calls_under_way} calls under way"
        return f"<Connection {self._wire.local_address} to {self.address}, {state}>"

    @property
    def peer(self) -> Peer:
        return getattr(self, "_peer", None) or Peer(self, self._wire.address, self._wire.local_address)

    @property
    def calls_under_way(self) -> int:
        return len(self._calls.table)

    @property
    def is_full(self) -> bool:
        return self._outbox.is_full

    async def call(self, command: Command, *, timeout: float) -> Command:
        """Sends a request and returns its answer, whatever the code. `timeout` is in seconds.

        Raises `CallTimeout` or `ConnectionClosed`. Their `request_left` is False only if no byte of the request can
        have reached the peer. If the caller is cancelled, the request is withdrawn unless its writing has begun. The
        body must not change before the answer.
        """
        return await self.call_until(command, trio.current_time() + timeout, timeout)

    async def call_until(self, command: Command, deadline: float, timeout: float) -> Command:
        """Sends a request and returns its answer by a deadline on trio's clock, with the errors of `call`.

        `timeout` (seconds) is only for the text of an error.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._outbox.is_full:
            await self.wait_for_room(command, deadline, timeout)
        answer = await self.begin(command, deadline, timeout).wait()
        assert answer is not None, "a call ended without an answer"
        return answer

    def begin(self, command: Request, deadline: float, timeout: float, done: Done | None = None) -> Call:
        """Sends a request at once, or queues it even if the outbox is full. Returns the call, for its method `wait`.

        The caller has to await `wait` at once. With `done` it must not: `done` receives the answer or error. `deadline`
        is on trio's clock, and `timeout` (seconds) is only for the text of an error. Raises `ConnectionClosed`,
        `CallTimeout` if `timeout` is not positive, and `HeaderError` if the request cannot be encoded.
        """
        calls = self._calls
        if self.is_closed:
            raise calls.closed(command.code, self._close_reason, left=False)
        if timeout <= 0:
            raise calls.no_time(command.code)
        try:
            call = calls.open(command, timeout, deadline, done)
        except BaseException:
            self._outbox.wake_senders()
            raise
        self._sweeper.look_at(deadline)
        try:
            self._outbox.send(call, alone=len(calls.table) == 1)
        except Exception as error:
            self._broken(error)
        return call

    async def send_oneway(self, command: Command, *, timeout: float) -> None:
        await self.send_oneway_until(command, trio.current_time() + timeout, timeout)

    async def send_oneway_until(self, command: Command, deadline: float, timeout: float) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        request = command if command.is_oneway else command.oneway()
        if self._outbox.is_full:
            await self.wait_for_room(request, deadline, timeout)
        await self.begin(request, deadline, timeout).wait()

    def post(self, command: Request, *, timeout: float, done: Done) -> Callable[[], None]:
        """Sends a request without waiting. `done` receives the answer or the error, once, on the loop.

        Returns a function that abandons the call. Requests that `done` itself posts are written together. A full outbox
        does not stop a post, so the caller has to limit the number of its posts. Raises `ConnectionClosed`.
        """
        return self.begin(command, trio.current_time() + timeout, timeout, done).forget

    def post_until(
        self, command: Request, deadline: float, timeout: float, done: Done, loop: LoopAccess = ON_LOOP
    ) -> Callable[[], None] | None:
        """Sends a request without waiting. `done` receives its answer, or an error at the latest at `deadline`.

        Returns a function that abandons the call. `deadline` is on trio's clock, `timeout` is only for the text of an
        error. With `loop.writes_here`, which means another thread than the loop's, it sends the request only if no
        other call is under way and the socket accepts it at once. Otherwise it sends nothing and returns None.
        """
        if loop.writes_here:
            return self._post_from_thread(command, deadline, timeout, done)
        return self.begin(command, deadline, timeout, done).forget

    def _post_from_thread(
        self, command: Request, deadline: float, timeout: float, done: Done
    ) -> Callable[[], None] | None:
        if self.is_closed or self._calls.table or not self._outbox.is_idle or not self._sweeper.looks_before(deadline):
            return None
        call = self._calls.open(command, timeout, deadline, done)
        try:
            if self._outbox.write_from_thread(call, self._soon):
                return call.forget
            self._calls.forget(call)
            return None
        except Exception as error:
            self._soon(partial(self._broken, error))
            return call.forget
        except BaseException:  # such as an interrupt: it is unknown how much was written
            self._soon(partial(self.close, "a thread was interrupted while it wrote"))
            raise

    def post_all(self, form: RequestForm, requests: Iterable[BulkCall], *, timeout: float) -> None:
        """Sends many requests together, encoded by the template `form`. On a closed connection all fail at once."""
        if self.is_closed:
            for bulk_call in requests:
                bulk_call.end(self._calls.closed(form.code, self._close_reason, left=False))
            return
        deadline = trio.current_time() + timeout
        frames = self._calls.open_all(form, requests, timeout, deadline)
        self._sweeper.look_at(deadline)
        try:
            self._outbox.send(frames, alone=True)
        except Exception as error:
            self._broken(error)

    def lend_answers(self, form: AnswerForm) -> None:
        """Makes the bodies of answers to bulk calls views of the receive buffer, which saves copying them.

        A header that matches the regular expression `form` is not parsed until another of its fields is used.
        """
        self._decoder.lends, self._decoder.answer_form = True, form

    def answer(self, request: Command, answer: Command) -> None:
        """Sends the answer to a request, at once or queued, unless the request is one-way or the connection closed."""
        if request.is_oneway or self.is_closed:
            return
        try:
            self._outbox.send(answer_frame(request, answer, self._peer), alone=False)
        except Exception as error:
            self._broken(error)

    async def wait_answer_turn(self) -> None:
        """Waits until few bytes are queued for writing. A handler calls it just before it makes a large answer.

        The answers to a peer that does not read then take little memory, even if many of its requests are open.
        """
        await self._outbox.wait_turn()

    def close(self, reason: str = "closed by this end") -> None:
        """Ends the connection without waiting. Calls under way fail at once. A second call does nothing."""
        if self.is_closed:
            return
        self.is_closed = True
        self._close_reason = reason
        self._calls.fail_all(reason)
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    async def wait_closed(self) -> None:
        await self._closed.wait()

    async def aclose(self) -> None:
        self.close()
        await self.wait_closed()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reads, answers and writes until either end closes. An exception ends only this connection."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._soon = trio.lowlevel.current_trio_token().run_sync_soon
                self._sweeper.add(self)
                if self._outbox.queued_bytes:
                    self._start_writer()
                task_status.started()
                try:
                    if not self.is_closed:
                        await self._work(nursery)
                finally:
                    self.close("this end stopped")  # before the nursery ends, since `close` stops new tasks in it
        except* Exception as failures:
            self._broken(failures)
        finally:
            await self._end()

    def expire_calls(self, now: float) -> float:
        return self._calls.expire(now)

    def check_health(self, now: float) -> None:
        """Closes the connection if it exceeds its `ConnectionTimeouts`. Frees the receive buffer of an idle one.

        `now` is on trio's clock.
        """
        signs = ConnectionActivity(
            received=self._received,
            commands=self._commands,
            written_bytes=self._outbox.written_bytes,
            frame_bytes=self._decoder.buffered_bytes,
            queued_bytes=self._outbox.queued_bytes,
            busy=bool(self._under_way.count or self._calls.table),
            reading=self._reading,
        )
        if reason := self._watch.check(signs, now):
            log.info("closing the connection with %s: %s", self.address, reason)
            self.close(reason)
        elif self._watch.is_quiet(now):
            self._decoder.give_back()
        self._note_held()

    def free_received(self) -> int:
        """Frees an empty receive buffer. Returns the bytes that incomplete frames and unanswered requests take."""
        self._decoder.give_back()
        return self._decoder.held_bytes + self._under_way.bytes

    def _note_held(self) -> None:
        self._held_bytes = self._decoder.held_bytes + self._under_way.bytes
        if self._memory is not None:
            self._memory.received.note(self, self._held_bytes)

    async def _end(self) -> None:
        self.close("this end stopped")
        self._sweeper.discard(self)
        await close_wire(self._wire)
        await self._under_way.drop_late()
        self._closed.set()
        try:
            if self._on_close is not None:
                self._on_close(self)
        except Exception:
            log.exception("the callback for the end of the connection with %s failed", self.address)
        self._decoder = FrameDecoder()
        self._outbox.drop()
        if self._memory is not None:
            self._memory.forget(self)
        self._handler = refuse_unsupported
        self._soon = not_running
        self._nursery = self._opening = self._on_close = None
        del self._peer

    async def wait_for_room(self, command: Request, deadline: float, timeout: float) -> None:
        if not self.is_closed and timeout > 0:  # in the other cases the caller's `begin` raises
            self._sweeper.look_at(deadline)
            await self._calls.wait_for_room(command, timeout, deadline)

    async def _work(self, nursery: trio.Nursery) -> None:
        try:
            if self._opening is not None:
                self._wire = self._outbox.wire = await self._opening()
            while await self._wire.receive(self._decoder):
                self._received += 1
                if self._memory and self._decoder.held_bytes + self._under_way.bytes != self._held_bytes:
                    self._note_held()
                await self._take_commands(nursery)
            async with self._endings:  # ending takes 0.3 ms, and thousands may end at once
                self.close("the other end closed it")
        except Exception as error:
            self._broken(error)

    async def _take_commands(self, nursery: trio.Nursery) -> None:
        read_slice = self._read_slice
        read_slice.begin()
        self._outbox.hold()
        next_command = self._decoder.next_command if self._decoder.answer_form is None else self._after_rows
        try:
            while (command := next_command()) is not None:
                if read_slice.is_over:
                    await self._wait_for_turn(read_slice)
                if self.is_closed:
                    break
                self._commands += 1
                if not command.flag & RESPONSE_BIT:
                    self._take_request(command, nursery)
                    if self._under_way.count >= self._under_way.most or self._outbox.is_full:
                        read_slice.end()
                        try:
                            await self._pause()
                        finally:
                            read_slice.begin()
                elif self._calls.answered(command):
                    continue
                else:
                    log.debug("%s answered number %d, which no call waits for", self.address, command.opaque)
                read_slice.count()
        finally:
            read_slice.end()
            self._outbox.release()

    def _after_rows(self) -> Command | None:
        while not self.is_closed and (rows := self._decoder.next_rows()):
            self._commands += len(rows)
            self._calls.answered_rows(rows)
        return self._decoder.next_command()

    async def _wait_for_turn(self, read_slice: ReadSlice) -> None:
        self._reading = False
        self._outbox.release()
        await read_slice.wait_for_next()
        self._outbox.hold()
        self._reading = True

    async def _pause(self) -> None:
        """Waits while too many requests are unanswered, or too many answers unread. Nothing is read meanwhile."""
        self._reading = False
        self._outbox.release()
        await self._under_way.wait_for_room()
        await self._outbox.wait_answers_drained()
        self._outbox.hold()
        self._reading = True

    def _take_request(self, request: Command, nursery: trio.Nursery) -> None:
        try:
            answer = self._handler(request.with_own_body(), self._peer)
        except CutConnection:
            self.close("cut by this end")
        except Exception as error:
            self.answer(request, failure_answer(request, self._peer, error))
        else:
            if isinstance(answer, Command):
                self.answer(request, answer)
            elif isinstance(answer, LateAnswer):
                self._under_way.begin_late(request, answer, self._answer_ready)
            elif answer is not None:
                self._under_way.begin(request)
                nursery.start_soon(self._answer_later, request, answer)

    def _answer_ready(self, answer: LateAnswer) -> None:
        request = self._under_way.request_of(answer)
        if self._nursery is not None and not self.is_closed:
            self._nursery.start_soon(self._answer_later, request, answer.make())

    async def _answer_later(self, request: Command, waiting: Awaitable[Command | None]) -> None:
        answer: Command | None = None
        try:
            answer = await waiting
        except CutConnection:
            self.close("cut by this end")
        except Exception as error:
            answer = failure_answer(request, self._peer, error)
        finally:
            self._under_way.end(request)
        if answer is not None:
            self.answer(request, answer)

    def _start_writer(self) -> None:
        if self._nursery is not None:  # nothing is sent before `run`
            self._nursery.start_soon(self._write)

    async def _write(self) -> None:
        try:
            await self._outbox.run()
        except Exception as error:
            self._broken(error)

    def _broken(self, error: Exception) -> None:
        self.close(reason_to_close(error, self.address, self._log_level))
