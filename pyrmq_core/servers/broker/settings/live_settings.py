"""`LiveSettings`: the settings of a running broker, some of which UPDATE_BROKER_CONFIG (25) can change."""

from __future__ import annotations

from dataclasses import dataclass

from pyrmq_core.protocol.routes.topic_config import NO_VERSION, DataVersion
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig


@dataclass(slots=True)
class LiveSettings:
    """The current settings. Parts of the broker that must notice changes keep this object, and not its `config`."""

    config: BrokerConfig
    version: DataVersion = NO_VERSION

    def replace(self, config: BrokerConfig, now_ms: int) -> None:
        self.config = config
        self.version = self.version.next(now_ms)
