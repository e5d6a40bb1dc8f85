"""The answers to a peer's requests: handlers' results and failures, and the number of unanswered requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import trio

from pyrmq_core.network.connection.failures import describe
from pyrmq_core.network.connection.outbox import Answer
from pyrmq_core.network.connection.peer import Handler, LateAnswer, Peer
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.framing.codes import ResponseCode, request_name
from pyrmq_core.protocol.framing.command import NO_FIELDS, Command, refusal
from pyrmq_core.protocol.framing.frame import encode_answer_head

log = line_logger(__name__)

# The assumed memory of an unanswered request without its body: a task, its stack frames, the request's fields.
REQUEST_BYTES: Final = 4096
# The number of `LateAnswer`s that an ended connection drops before it lets other tasks run.
DROPPED_AT_ONCE: Final = 128


async def ask(handler: Handler, request: Command, peer: Peer) -> Command | None:
    answer = handler(request, peer)
    return answer if answer is None or isinstance(answer, Command) else await answer


def refuse_unsupported(request: Command, _: Peer) -> Command:
    """Returns REQUEST_CODE_NOT_SUPPORTED for any request. It is the handler of connections that were given none.

    Source: NettyRemotingAbstract.processRequestCommand.
    """
    return refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported")


def answer_frame(request: Command, answer: Command, peer: Peer) -> Answer:
    frame = Answer()
    try:
        frame.set_frame(encode_answer_head(request, answer), answer.body)
    except Exception as error:
        failure = failure_answer(request, peer, error)
        frame.set_frame(encode_answer_head(request, failure), failure.body)
    return frame


def failure_answer(request: Command, peer: Peer, error: Exception) -> Command:
    """Returns SYSTEM_ERROR for a request whose handler raised `error`, and logs the error at a limited rate."""
    failure = describe(error)
    if peer.failure_line.is_due():
        left_out = peer.failure_line.left_out()
        log.error("%s from %s failed: %s%s", request_name(request.code), peer.address, failure, left_out)
    log.debug("where it failed", exc_info=error)
    return refusal(ResponseCode.SYSTEM_ERROR, failure)


class OpenRequests:
    """The number and the bytes of one connection's unanswered requests. At most `most` should be open at once."""

    __slots__ = ("_done", "_late", "bytes", "count", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.count = self.bytes = 0
        self._done: trio.Event | None = None
        self._late: dict[LateAnswer, Command] = {}

    def begin_late(self, request: Command, answer: LateAnswer, ready: Callable[[LateAnswer], None]) -> None:
        """Adds a request whose handler returned a `LateAnswer`, an answer that can be made only later.

        Calls `ready` with that object as soon as the answer can be made. Drops the request's fields and body, to save
        memory.
        """
        self._late[answer] = bare = replace(request, ext=NO_FIELDS, body=b"")
        self.begin(bare)
        answer.wait(ready)

    def request_of(self, answer: LateAnswer) -> Command:
        return self._late.pop(answer)

    async def drop_late(self) -> None:
        """Calls `drop` of each `LateAnswer` that is not ready, after the connection has ended."""
        while self._late:
            for _ in range(DROPPED_AT_ONCE):
                if self._late:  # dropping an answer may make another one ready, and so remove that one
                    self._late.popitem()[0].drop()
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()

    def begin(self, request: Command) -> None:
        self.count += 1
        self.bytes += REQUEST_BYTES + len(request.body)

    def end(self, request: Command) -> None:
        self.count -= 1
        self.bytes -= REQUEST_BYTES + len(request.body)
        if self._done is not None:
            self._done.set()

    async def wait_for_room(self) -> None:
        while self.count >= self.most:
            self._done = trio.Event()
            await self._done.wait()
