"""`HaTimes`: the times of connections between master and slave, which both ends keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyrmq_core.broker.settings import BrokerConfig

MILLISECONDS: Final = 1000


@dataclass(frozen=True, slots=True)
class HaTimes:
    """Settings of connections between master and slave, in seconds and bytes.

    A heartbeat follows after `heartbeat` without other bytes; a peer that is silent, or takes nothing, for
    `housekeeping` is gone. A block has at most `block_bytes`.
    """

    heartbeat: float
    housekeeping: float
    block_bytes: int

    @classmethod
    def of(cls, config: BrokerConfig) -> HaTimes:
        return cls(
            config.ha_send_heartbeat_interval / MILLISECONDS,
            config.ha_housekeeping_interval / MILLISECONDS,
            config.ha_transfer_batch_size,
        )
