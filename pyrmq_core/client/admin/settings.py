"""The settings of an `Admin`: the parameters of both faces, written once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyrmq_core.client.arguments import seconds_of
from pyrmq_core.client.client_settings import AnyClient, ClientChoice
from pyrmq_core.client.remoting.identity import namespace_of

TIMEOUT_SECONDS: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class AdminSettings(ClientChoice[AnyClient]):
    """The parameters of an `Admin`; `AnyClient` is the `Client` of its face."""

    timeout: float = TIMEOUT_SECONDS
    namespace: str | None = None

    def __post_init__(self) -> None:
        ClientChoice.__post_init__(self)
        seconds_of("timeout", self.timeout)
        namespace_of(self.namespace)
