"""`Guard`: the check of requests before a server's handler.

A request that is denied reaches no handler and changes nothing. A `Verdict` is the function that decides, from the
request and its sender's address only. It decodes a body only if the needed rights depend on it, and only with a valid
signature, unless requests of this code need none. The size of such a body is limited (`READ_BODIES`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from pyrmq_core.network import Peer
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.network.rare_lines import RareLine
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode, request_name
from pyrmq_core.protocol.framing.command import Command, refusal

log = line_logger(__name__)

# Returns the refusal of a request from a peer's address, or None if the request is allowed.
Verdict: TypeAlias = Callable[[Command, str], "Command | None"]

# Not LITE_SUBSCRIPTION_CTL (200071): a renewal lists up to maxLiteSubscriptionCount names of a client, some MiB.
READ_BODIES: Final = frozenset(
    {
        RequestCode.HEART_BEAT,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.BATCH_ACK_MESSAGE,
    }
)
MAX_BODY_BYTES: Final = 1 << 20
LOG_SECONDS: Final = 10.0


class Guard:
    """The check of a server's requests by the function `verdict`. Denials are logged at most every 10 s."""

    def __init__(self, verdict: Verdict, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self.max_body_bytes = max_body_bytes
        self._verdict = verdict
        self._line = RareLine(LOG_SECONDS)

    def denied(self, request: Command, peer: Peer) -> Command | None:
        """Returns the error response for a request that is denied, or None if the request is allowed."""
        if request.code in READ_BODIES and len(request.body) > self.max_body_bytes:
            remark = f"the body has {len(request.body)} bytes, and {self.max_body_bytes} are read for access control"
            return refusal(ResponseCode.INVALID_PARAMETER, f"{remark} (maxHeartbeatBytes)")
        answer = self._verdict(request, peer.ip)
        if answer is not None and self._line.is_due():
            name, reason = request_name(request.code), answer.remark
            log.warning("%s from %s is denied: %s%s", name, peer.address, reason, self._line.left_out())
        return answer
