"""`pyrmq top`: shows brokers with their rates, and the groups with the greatest lag, at intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from pyrmq_core import RocketMQError
from pyrmq_core.protocol.messages.names import is_retry_topic, is_system_group
from pyrmq_core.tools.cli.admin import with_admin
from pyrmq_core.tools.cli.connections import Connection, connection_options
from pyrmq_core.tools.cli.operation.broker import broker_members, brokers_text
from pyrmq_core.tools.cli.servers import SectionedCommand
from pyrmq_core.tools.cli.tables import Watch, rendered, show_watched, text_of
from pyrmq_core.tools.search.json_output import json_text

if TYPE_CHECKING:
    from pyrmq_core import Admin
    from pyrmq_core.client.admin.values import BrokerStatus, GroupList, GroupSummary

# The default time between rounds. A round takes a few requests to each broker, and one for each group to each broker.
INTERVAL_SECONDS: Final = 5.0
GROUP_COLUMNS: Final = ("group", "members", "lag", "lag/s", "topics")


@click.command(cls=SectionedCommand)
@connection_options
@click.option("--once", is_flag=True, help="Print one round and end.")
@click.option(
    "--groups", "most", default=20, show_default=True, type=click.IntRange(0), help="The most groups to show."
)
@click.option(
    "--interval",
    default=INTERVAL_SECONDS,
    show_default=True,
    type=click.FloatRange(0.1, 3600),
    help="Seconds between two rounds.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a round.")
def top(connection: Connection, once: bool, most: int, interval: float, as_json: bool) -> None:
    """Show brokers with their rates and the groups with the greatest lag, live."""
    import trio

    async def work(admin: Admin) -> None:
        rounds = Rounds(admin, most, trio.current_time)

        async def make() -> str:
            return await rounds.text(as_json=as_json)

        await show_watched(make, Watch(not once, interval))

    with_admin(connection, work)


@dataclass
class Rounds:
    """The state of one `pyrmq top`. It keeps the groups' lags of the last round, to show how fast they change."""

    admin: Admin
    most_groups: int
    clock: Callable[[], float]
    _last: Mapping[str, int] = field(default_factory=dict)
    _at: float = 0.0

    async def text(self, *, as_json: bool) -> str:
        from pyrmq_core.client.admin.values import GroupList

        brokers = await self.admin.brokers.list()
        try:
            listed = await self.admin.groups.list()
        except RocketMQError as error:  # the keys lack the permission, or no broker answers
            listed = GroupList((), {"all": error})
        listed = replace(listed, groups=tuple(group for group in listed.groups if not is_system_group(group.group)))
        failure = "; ".join(str(error) for error in listed.failures.values()) or None
        rates = self._lag_rates(listed)
        groups = sorted(listed.groups, key=lambda group: (-group.lag, group.group))[: self.most_groups]
        if as_json:
            return _json_line(brokers, groups, rates, failure)
        head = _head(brokers, listed)
        rows = [_group_row(group, rates.get(group.group)) for group in groups]
        tables = [brokers_text(brokers, as_json=False), text_of(rows, GROUP_COLUMNS, as_json=False) if rows else ""]
        return "\n".join([head, *filter(None, tables), *([rendered(f"groups: {failure}")] if failure else [])])

    def _lag_rates(self, listed: GroupList) -> dict[str, float]:
        now, lags = self.clock(), {row.group: row.lag for row in listed.groups}
        passed = now - self._at
        rates = {group: (lag - self._last[group]) / passed for group, lag in lags.items() if group in self._last}
        self._last, self._at = lags, now
        return rates


def _head(brokers: tuple[BrokerStatus, ...], listed: GroupList) -> str:
    away = sum(not broker.reachable for broker in brokers)
    put, got = sum(broker.put_tps or 0.0 for broker in brokers), sum(broker.get_tps or 0.0 for broker in brokers)
    brokers_line = f"{len(brokers)} brokers{f', {away} unreachable' if away else ''}"
    lag = sum(group.lag for group in listed.groups)
    at = datetime.now(UTC).astimezone().strftime("%H:%M:%S")
    groups_line = f"{len(listed.groups)} groups, lag {lag}"
    return rendered(f"{at}  {brokers_line}; in {put:.1f}/s, out {got:.1f}/s; {groups_line}")


def _group_row(group: GroupSummary, rate: float | None) -> dict[str, object]:
    own = [topic for topic in group.topics if not is_retry_topic(topic)]
    topics = f"{own[0]}{f' +{len(own) - 1}' if len(own) > 1 else ''}" if own else ""
    return {"group": group.group, "members": group.members, "lag": group.lag, "lag/s": rate, "topics": topics}


def _json_line(
    brokers: tuple[BrokerStatus, ...], groups: list[GroupSummary], rates: Mapping[str, float], failure: str | None
) -> str:
    members = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "brokers": [broker_members(broker) for broker in brokers],
        "groups": [
            {
                "group": group.group,
                "members": group.members,
                "lag": group.lag,
                "lagPerSecond": rates.get(group.group),
                "topics": list(group.topics),
            }
            for group in groups
        ],
        "error": failure,
    }
    return json_text(members) + "\n"
