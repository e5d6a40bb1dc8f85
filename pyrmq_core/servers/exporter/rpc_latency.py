"""`RpcLatency`: a histogram of a server's request times, as in RocketMQ (RemotingMetricsManager, 5.4.0).

The time of a pull includes its wait for messages, and its label `is_long_polling` is then true. A request that gets no
answer because its connection or its server ended is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final

from pyrmq_core.network import Handler, LateAnswer, Peer
from pyrmq_core.protocol.framing.codes import REQUEST_NAMES, RESPONSE_NAMES, RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import NO_FIELDS, Command
from pyrmq_core.servers.exporter.families import Family, Kind
from pyrmq_core.servers.exporter.series import Histogram

NAME: Final = "rocketmq_rpc_latency_milliseconds"
LABELS: Final = ("protocol_type", "request_code", "response_code", "is_long_polling", "result")
# The bounds of the histogram, in milliseconds (RemotingMetricsManager.getMetricsView, 5.4.0).
BOUNDS: Final = (1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 1_000.0, 2_000.0, 3_000.0)
HELD: Final = frozenset((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE))
UNKNOWN: Final = "unknown"
NANOSECONDS: Final = 1_000_000


class RpcLatency:
    """The histogram of a server's request times.

    `on_ended` is called with each request, its response code and its time in ms.
    """

    def __init__(self, on_ended: Callable[[Command, int, float], None] = lambda request, code, took_ms: None) -> None:
        self._on_ended = on_ended
        self._times = Histogram(BOUNDS)

    def measured(self, handler: Handler) -> Handler:
        def measure(request: Command, peer: Peer) -> Command | Awaitable[Command | None] | None:
            began = time.perf_counter_ns()
            try:
                answer = handler(request, peer)
            except Exception:
                self._failed(request, began)
                raise
            if answer is None or isinstance(answer, Command):
                self._ended(request, answer, began, is_held=False)
                return answer
            if isinstance(answer, LateAnswer):
                return _Timed(answer, partial(self._wait, replace(request, ext=NO_FIELDS, body=b""), began))
            return self._wait(request, began, answer)

        return measure

    async def _wait(self, request: Command, began: int, waiting: Awaitable[Command | None]) -> Command | None:
        try:
            answer = await waiting
        except Exception:
            self._failed(request, began)
            raise
        self._ended(request, answer, began, is_held=request.code in HELD)
        return answer

    def _ended(self, request: Command, answer: Command | None, began: int, *, is_held: bool) -> None:
        if request.is_oneway:
            self._note(request, ResponseCode.SUCCESS if answer is None else answer.code, began, "oneway", is_held)
        elif answer is not None:
            self._note(request, answer.code, began, "success", is_held)

    def _failed(self, request: Command, began: int) -> None:
        self._note(request, ResponseCode.SYSTEM_ERROR, began, "process_request_failed", False)

    def _note(self, request: Command, code: int, began: int, result: str, is_held: bool) -> None:
        labels = (
            "remoting",
            REQUEST_NAMES.get(request.code, UNKNOWN).lower(),
            RESPONSE_NAMES.get(code, UNKNOWN).lower(),
            "true" if is_held else "false",
            result,
        )
        took_ms = (time.perf_counter_ns() - began) / NANOSECONDS
        self._times.observe(labels, took_ms)
        self._on_ended(request, code, took_ms)

    def family(self) -> Family:
        return Family(NAME, Kind.HISTOGRAM, "Times of requests.", LABELS, self._times.samples(), BOUNDS)


class _Timed(LateAnswer):
    __slots__ = ("_answer", "_timed")

    def __init__(
        self, answer: LateAnswer, timed: Callable[[Awaitable[Command | None]], Awaitable[Command | None]]
    ) -> None:
        self._answer = answer
        self._timed = timed

    def wait(self, ready: Callable[[LateAnswer], None]) -> None:
        self._answer.wait(lambda _: ready(self))

    async def make(self) -> Command | None:
        return await self._timed(self._answer.make())

    def drop(self) -> None:
        self._answer.drop()
