"""Requests from the broker to its clients, sent for an administrator or for a client that replies to a message."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pyrmq_core.errors import CallTimeout, NetworkError
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal

MAX_ANSWER_BYTES: Final = 4 << 20
MAX_REMARK_CHARS: Final = 4096


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits on the broker's unanswered requests to clients.

    `calls` and `request_bytes` limit their number and bytes for all clients together, `calls_each` and
    `request_bytes_each` for each client.
    """

    calls: int
    request_bytes: int
    calls_each: int
    request_bytes_each: int


ADMINISTRATION: Final = CallLimits(32, 64 << 20, 32, 64 << 20)
REPLIES: Final = CallLimits(1024, 256 << 20, 64, 32 << 20)


@dataclass(slots=True)
class ConsumerCalls:
    """The broker's requests to clients, within limits on the number and bytes of the unanswered ones.

    `waiting` has, by client, the sizes in bytes of its unanswered requests.
    """

    limits: CallLimits = ADMINISTRATION
    waiting: dict[Peer, list[int]] = field(default_factory=dict)

    async def call(self, peer: Peer, request: Command, name: str, *, seconds: float) -> Command:
        """Sends a request to a client and returns its answer.

        Returns an error response, with the client's `name` in its text, if no answer arrives within `seconds`, the
        limits are reached, or the answer is too large.
        """
        size = len(request.body)
        if busy := self._busy(peer, size):
            return refusal(ResponseCode.SYSTEM_BUSY, f"{busy}; try again later")
        sizes = self.waiting.setdefault(peer, [])
        sizes.append(size)
        try:
            answer = await peer.connection.call(request, timeout=seconds)
        except CallTimeout as error:
            return refusal(ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer {name} Timeout: {error}")
        except NetworkError as error:
            return refusal(ResponseCode.SYSTEM_ERROR, f"invoke consumer {name} Exception: {error}")
        finally:
            sizes.remove(size)
            if not sizes:
                del self.waiting[peer]
        if len(answer.body) > MAX_ANSWER_BYTES:
            remark = f"consumer {name} answered {len(answer.body)} bytes; {MAX_ANSWER_BYTES} at most are passed on"
            return refusal(ResponseCode.SYSTEM_ERROR, remark)
        shortened = None if answer.remark is None else answer.remark[:MAX_REMARK_CHARS]
        return Command(answer.code, body=bytes(answer.body), remark=shortened)

    def _busy(self, peer: Peer, size: int) -> str:
        limits, to_client = self.limits, self.waiting.get(peer, [])
        calls = sum(map(len, self.waiting.values()))
        if calls >= limits.calls or sum(map(sum, self.waiting.values())) + size > limits.request_bytes:
            return f"{calls} requests to clients wait for their answers already"
        if len(to_client) >= limits.calls_each or sum(to_client) + size > limits.request_bytes_each:
            return f"{len(to_client)} requests to this client wait for its answers already"
        return ""
