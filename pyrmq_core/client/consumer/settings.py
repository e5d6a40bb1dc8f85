"""The parameters that all consumers have. A `PullConsumer` has no others.

A Spark worker imports this module, but not the larger `member_settings`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyrmq_core.client.arguments import seconds_of
from pyrmq_core.client.client_session import CALL_TIMEOUT_SECONDS
from pyrmq_core.client.client_settings import AnyClient, ClientChoice
from pyrmq_core.protocol.messages.names import check_group


@dataclass(frozen=True, kw_only=True)
class ConsumerSettings(ClientChoice[AnyClient]):
    """The parameters of a consumer. `AnyClient` is the trio, blocking or asyncio `Client`."""

    group: str = field(kw_only=False)
    timeout: float = CALL_TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        check_group(self.group)
        ClientChoice.__post_init__(self)
        seconds_of("timeout", self.timeout)
