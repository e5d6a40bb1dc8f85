"""The values of `Admin.brokers`: one row for each registered address, whether it answers or not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyrmq_core.errors import ResponseError, RocketMQError
from pyrmq_core.protocol.requests.figures.runtime_info import RuntimeInfo
from pyrmq_core.protocol.routes.route import MASTER_ID

# Beyond so much a broker stores nothing (diskSpaceWarningLevelRatio of store/DefaultMessageStore.java).
FULL_DISK_RATIO: Final = 0.9


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """One registered address of a broker; `runtime_info` is None with the `error` of the query for it.

    Rates are messages a second of the last 10 s, and None while the broker has not run so long.
    """

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    runtime_info: RuntimeInfo | None
    error: RocketMQError | None = None

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID

    @property
    def reachable(self) -> bool:
        """True if the broker answered, also if it refused its figures to these keys."""
        return self.runtime_info is not None or isinstance(self.error, ResponseError)

    @property
    def version(self) -> str | None:
        """The release, as `5.4.0`."""
        return None if self.runtime_info is None else self.runtime_info.version

    @property
    def put_tps(self) -> float | None:
        return None if self.runtime_info is None else self.runtime_info.put_tps

    @property
    def get_tps(self) -> float | None:
        return None if self.runtime_info is None else self.runtime_info.get_tps

    @property
    def messages_put_today(self) -> int | None:
        return None if self.runtime_info is None else self.runtime_info.messages_put_today

    @property
    def messages_got_today(self) -> int | None:
        return None if self.runtime_info is None else self.runtime_info.messages_got_today

    @property
    def disk_ratio(self) -> float | None:
        """The part of the commit log's disk that is used, 0 to 1."""
        return None if self.runtime_info is None else self.runtime_info.disk_ratio

    @property
    def disk_full(self) -> bool:
        """True if more of it is used than RocketMQ's brokers take messages with, unless they are set otherwise."""
        return self.disk_ratio is not None and self.disk_ratio > FULL_DISK_RATIO

    @property
    def booted(self) -> datetime | None:
        """The time of its start, by the broker's clock."""
        at_ms = None if self.runtime_info is None else self.runtime_info.boot_timestamp_ms
        return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC)
