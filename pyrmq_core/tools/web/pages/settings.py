"""The pages of settings of topics, groups, brokers and NameServers, and the forms to change topics and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.requests import Request

from pyrmq_core.client.admin.health_rules import check_subscriptions
from pyrmq_core.client.admin.settings_tables import SettingRow, SettingsTable, group_table, settings_table, topic_table
from pyrmq_core.client.texts import Text
from pyrmq_core.errors import RocketMQError
from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.messages.names import is_system_group
from pyrmq_core.protocol.requests.groups.subscription_groups import SubscriptionGroupConfig
from pyrmq_core.tools.web.look_ups import LookUps
from pyrmq_core.tools.web.pages.page import Shown, matching, query, tried
from pyrmq_core.tools.web.pages.topics import ROCKETMQ, topic_kind
from pyrmq_core.tools.web.prepared import MESSAGE_TYPES, PERMISSIONS

if TYPE_CHECKING:
    from pyrmq_core.client.admin.values import GroupMember

NEW_TOPIC_QUEUES: Final = 8
# A heading, a table of settings, and those of its rows that are shown.
Section = tuple[str, SettingsTable, tuple[SettingRow, ...]]


async def topic_settings_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns a topic's settings by broker and a form to change them. If no topic is named, the form creates one."""
    topic, sections = query(request, "topic"), list[Section]()
    config = TopicConfig("", NEW_TOPIC_QUEUES, NEW_TOPIC_QUEUES)
    if topic:
        configs = await look_ups.topic_configs(topic)
        table = topic_table(configs.answers, configs.failures)
        sections.append(("", table, table.rows))
        config = next(iter(configs.answers.values()), config)
    is_fixed = topic_kind(topic, await look_ups.topics()) == ROCKETMQ
    return await _shown(look_ups, "topic", topic, sections, config, is_fixed=is_fixed)


async def group_settings_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns a group's settings by broker, the subscriptions of its members, and where these differ."""
    group, sections, faults = query(request, "group"), list[Section](), list[str]()
    config, mode = SubscriptionGroupConfig(), ""
    if group:
        described = await look_ups.describe(group)
        table = group_table(described.configs, described.failures)
        reads = _subscriptions(described.members)
        sections = [("", table, table.rows), (Text("What its members read"), reads, reads.rows)]
        faults = [
            Text("{first}; {then}", first=check.found, then=check.advice)
            for check in check_subscriptions(group, described.members)
        ]
        config = next(iter(described.configs.values()), config)
        parts = (described.message_model, described.consume_type, described.consume_from_where)
        mode = ", ".join(part.removeprefix("CONSUME_").replace("_", " ").lower() for part in parts if part)
    is_fixed = is_system_group(group)
    return await _shown(look_ups, "group", group, sections, config, is_fixed=is_fixed, faults=faults, mode=mode)


async def servers_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns the page of the settings of brokers and NameServers.

    By default it shows only settings that differ between servers or from their default value.
    """
    sections, failed = list[Section](), list[str]()
    for heading, look_up in (
        (Text("Brokers"), look_ups.broker_settings),
        (Text("NameServers"), look_ups.nameserver_settings),
    ):
        table, error = await tried(look_up)
        if table is None:
            failed.append(Text("{heading}: {error}", heading=heading, error=error))
        else:
            is_all = query(request, "filter") or query(request, "all")
            rows = matching(request, table.rows if is_all else table.unusual, lambda row: (row.name,))
            sections.append((heading, table, tuple(rows)))
    values = {"sections": sections, "faults": failed, "all": query(request, "all")}
    return Shown("servers.html", values)


async def _shown(
    look_ups: LookUps,
    kind: str,
    name: str,
    sections: list[Section],
    config: TopicConfig | SubscriptionGroupConfig,
    *,
    is_fixed: bool,
    faults: list[str] | None = None,
    mode: str = "",
) -> Shown:
    clusters = sorted({broker.cluster for broker in await look_ups.brokers()})
    values = {"kind": kind, "name": name, "sections": sections, "config": config, "is_fixed": is_fixed, "mode": mode}
    choices: dict[str, object] = {"clusters": [("", Text("all")), *((cluster, cluster) for cluster in clusters)]}
    if isinstance(config, TopicConfig):
        choices["permissions"] = [(letters, letters) for letters in PERMISSIONS]
        choices["perm"] = next((letters for letters, perm in PERMISSIONS.items() if perm == config.perm), "rw")
        choices["types"] = [("", Text("as it is, or RocketMQ's default")), *((name, name) for name in MESSAGE_TYPES)]
        choices["type"] = config.attributes.get("message.type", "")
    return Shown("settings.html", {**values, **choices, "faults": faults or ()})


def _subscriptions(members: tuple[GroupMember, ...]) -> SettingsTable:
    reads: dict[str, dict[str, str]] = {member.client_id: member.reads for member in members if member.running_info}
    silent: dict[str, RocketMQError] = {member.client_id: member.error for member in members if member.error}
    return settings_table(reads, {client: {} for client in reads}, silent)
