"""`MemberChanges`: the broker's reactions to changed members or subscriptions of consumer groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.clients.client_table import BROADCASTING, ClientTable
from pyrmq_core.servers.broker.clients.group_notices import GroupNotices
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.tables.consumer_filters import ConsumerFilters
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable


@dataclass(frozen=True, slots=True)
class MemberChanges:
    settings: LiveSettings
    clients: ClientTable
    groups: GroupTable
    filters: ConsumerFilters
    notices: GroupNotices

    def note(self, groups: Iterable[str]) -> None:
        """Schedules a notice to the clients of changed groups, except broadcasting groups and groups without notices.

        Marks the SQL92 filters of groups without clients as unused.
        """
        notified = []
        for name in groups:
            group, settings = self.clients.consumers.get(name), self.groups.known(name) or {}
            if group is None:
                self.filters.group_left(name, clock.now_ms())
            elif group.message_model != BROADCASTING and settings.get("notifyConsumerIdsChangedEnable", True):
                notified.append(name)
        if self.settings.config.notify_consumer_ids_changed_enable:
            self.notices.changed(notified)
