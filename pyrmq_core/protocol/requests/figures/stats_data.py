"""VIEW_BROKER_STATS_DATA (315): one figure of a broker over the last minute, hour and day.

A figure has a name of store/stats/BrokerStatsManager.java (`TOPIC_PUT_NUMS`, `GROUP_GET_NUMS`, ...) and a key: a topic,
`topic@group`, or a cluster. Sources: remoting/protocol/header/ViewBrokerStatsDataRequestHeader.java,
remoting/protocol/body/BrokerStatsData.java, 5.4.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Self

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.fields import wire
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.java.integers import long_member
from pyrmq_core.protocol.java.json_text import dumps, load_object
from pyrmq_core.protocol.java.members import float_member, from_members, member, to_members

PERIODS: Final = ("statsMinute", "statsHour", "statsDay")


@dataclass(frozen=True, slots=True)
class ViewBrokerStats(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.VIEW_BROKER_STATS_DATA
    stats_name: str = wire("statsName")
    stats_key: str = wire("statsKey")


@dataclass(frozen=True, slots=True)
class StatsPeriod:
    """A figure over one period: its sum, its sum per second, and its mean per counted operation."""

    sum: int = member("sum", 0, long_member)
    tps: float = member("tps", 0.0, float_member)
    average: float = member("avgpt", 0.0, float_member)


@dataclass(frozen=True, slots=True)
class BrokerStats:
    minute: StatsPeriod = StatsPeriod()
    hour: StatsPeriod = StatsPeriod()
    day: StatsPeriod = StatsPeriod()

    def to_command(self) -> Command:
        periods = zip(PERIODS, (self.minute, self.hour, self.day), strict=True)
        return success(body=dumps({name: to_members(period) for name, period in sorted(periods)}))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        members = load_object(command.body, "statistics")
        try:
            return cls(*(from_members(StatsPeriod, members.get(name) or {}) for name in PERIODS))
        except (TypeError, ValueError) as error:
            raise BodyError(f"statistics: {error}") from error
