"""`MemberChanges`: what the broker does when the members or subscriptions of a consumer group change."""

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
    """Reports changed consumer groups to their clients, and groups without clients to the table of filters."""

    settings: LiveSettings
    clients: ClientTable
    groups: GroupTable
    filters: ConsumerFilters
    notices: GroupNotices

    def note(self, groups: Iterable[str]) -> None:
        """Schedules a notice to the clients of changed groups, except groups that broadcast or disabled notices."""
        notified = []
        for name in groups:
            group, settings = self.clients.consumers.get(name), self.groups.known(name) or {}
            if group is None:
                self.filters.group_left(name, clock.now_ms())
            elif group.message_model != BROADCASTING and settings.get("notifyConsumerIdsChangedEnable", True):
                notified.append(name)
        if self.settings.config.notify_consumer_ids_changed_enable:
            self.notices.changed(notified)
