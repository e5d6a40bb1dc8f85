"""GET_BROKER_RUNTIME_INFO (28): a broker's figures by name, all as text.

A rate is a text of three numbers, for the last 10, 60 and 600 s. A number is missing until its time has passed.
Sources: remoting/protocol/body/KVTable.java, store/StoreStatsService.java getRuntimeInfo, 5.4.0 and 4.9.7.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.header_requests import HeaderRequest
from pyrmq_core.protocol.java.json_text import dumps, load_object

# The name of the rate of consumed messages, in 5.x and in 4.9.
TRANSFERRED: Final = ("getTransferredTps", "getTransferedTps")


@dataclass(frozen=True, slots=True)
class GetRuntimeInfo(HeaderRequest):
    CODE: ClassVar[RequestCode] = RequestCode.GET_BROKER_RUNTIME_INFO


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """The answer to `GetRuntimeInfo`: a broker's figures by name, as texts in `table`.

    Each property of this class is None if its figure is missing or malformed.
    """

    table: Mapping[str, str]

    def to_command(self) -> Command:
        return success(body=dumps({"table": dict(self.table)}))

    @classmethod
    def from_command(cls, command: Command) -> Self:
        table = load_object(command.body, "runtime information").get("table")
        if not isinstance(table, dict) or not all(isinstance(text, str) for text in table.values()):
            raise BodyError("runtime information: it has no table of texts")
        return cls(table)

    @property
    def version(self) -> str | None:
        """The broker's release, such as `5.4.0`, or None if it is missing in the answer."""
        text = self.table.get("brokerVersionDesc")
        return None if text is None else text.removeprefix("V").replace("_", ".")

    @property
    def put_tps(self) -> float | None:
        """The messages a second that were stored in the last 10 s, or None if the broker does not report them."""
        return self._rate("putTps")

    @property
    def get_tps(self) -> float | None:
        """The messages a second sent to consumers in the last 10 s, or None if the broker does not report them."""
        return next((rate for name in TRANSFERRED if (rate := self._rate(name)) is not None), None)

    @property
    def disk_ratio(self) -> float | None:
        """The used fraction of the commit log's disk, 0 to 1, or None if the broker does not report it."""
        ratio = self._number("commitLogDiskRatio")
        return ratio if ratio is not None and ratio >= 0 else None

    @property
    def boot_timestamp_ms(self) -> int | None:
        number = self._number("bootTimestamp")
        return None if number is None else int(number)

    @property
    def messages_put_today(self) -> int | None:
        return self._difference("msgPutTotalTodayNow", "msgPutTotalTodayMorning")

    @property
    def messages_got_today(self) -> int | None:
        return self._difference("msgGetTotalTodayNow", "msgGetTotalTodayMorning")

    def _rate(self, name: str) -> float | None:
        return _number(self.table.get(name, "").partition(" ")[0])

    def _number(self, name: str) -> float | None:
        return _number(self.table.get(name, ""))

    def _difference(self, now: str, before: str) -> int | None:
        numbers = self._number(now), self._number(before)
        return None if None in numbers else int(numbers[0] - numbers[1])  # type: ignore[operator]  # neither is None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
