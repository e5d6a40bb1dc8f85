"""`LiveSettings`: the settings of a running broker, some of which change while it runs (request 25)."""

from __future__ import annotations

from dataclasses import dataclass

from pyrmq_core.protocol.routes.topic_config import NO_VERSION, DataVersion
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig


@dataclass(slots=True)
class LiveSettings:
    """The settings in force. A part that must see a change holds this object, and not its `config`."""

    config: BrokerConfig
    version: DataVersion = NO_VERSION

    def replace(self, config: BrokerConfig, now_ms: int) -> None:
        self.config = config
        self.version = self.version.next(now_ms)
