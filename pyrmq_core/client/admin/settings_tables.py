"""Settings of several servers in one table: where they differ from each other, and from RocketMQ's defaults."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from pyrmq_core.client.admin.html_tables import ShownAsTable
from pyrmq_core.errors import RocketMQError
from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.requests.groups.subscription_groups import SubscriptionGroupConfig
from pyrmq_core.protocol.routes.topic_config import topic_config_members

HIDDEN: Final = "********"
SECRET: Final = re.compile(
    "secret|passw|token|credential|accessKey|initAuthenticationUser|ExporterHeader", re.IGNORECASE
)
_OF_ONE_SERVER: Final = """
brokerName brokerId brokerIP1 brokerIP2 listenPort haListenPort rocketmqHome storePathRootDir storePathCommitLog
brokerConfigPath configStorePath kvConfigPath metricsPromExporterPort
"""
# Settings with a server's name, addresses or folders, which differ between all servers.
OF_ONE_SERVER: Final = frozenset(_OF_ONE_SERVER.split())
TOPIC_DEFAULTS: Final = {"perm": "6", "order": "false", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting and its value by server name. The value is None at a server that does not list the setting.

    Secrets are hidden. `default` is None if it is unknown. `differs` is True if the values differ, and `changed` if a
    value is not the default. Both are False for settings that are always different, such as `brokerName`.
    """

    name: str
    values: Mapping[str, str | None]
    default: str | None
    differs: bool
    changed: bool

    @property
    def by_value(self) -> dict[str | None, list[str]]:
        """The servers' names, grouped by the value of the setting. Servers that do not list it are under None."""
        servers: dict[str | None, list[str]] = {}
        for server, value in self.values.items():
            servers.setdefault(value, []).append(server)
        return servers


@dataclass(frozen=True, slots=True)
class SettingsTable(ShownAsTable):
    """The settings of several servers, sorted by setting. `failures` has the errors of servers that did not answer."""

    ROWS: ClassVar = "rows"

    servers: tuple[str, ...]
    rows: tuple[SettingRow, ...]
    failures: Mapping[str, RocketMQError]

    @property
    def unusual(self) -> tuple[SettingRow, ...]:
        """The rows of settings that differ between servers or from the default."""
        return tuple(row for row in self.rows if row.differs or row.changed)


def settings_table(
    settings: Mapping[str, Mapping[str, str]],
    defaults: Mapping[str, Mapping[str, str]],
    failures: Mapping[str, RocketMQError],
) -> SettingsTable:
    """Returns a table that compares the settings of several servers with each other and with their defaults.

    `settings` and `defaults` map the name of each server to its settings. `failures` are the errors of other servers.
    """
    servers = tuple(sorted(settings))
    names = sorted({name for listed in settings.values() for name in listed})
    return SettingsTable(servers, tuple(_row(name, settings, defaults) for name in names), failures)


def _row(name: str, settings: Mapping[str, Mapping[str, str]], defaults: Mapping[str, Mapping[str, str]]) -> SettingRow:
    values = {server: settings[server].get(name) for server in sorted(settings)}
    usual = {server: defaults[server].get(name) for server in values}
    texts = sorted({default for default in usual.values() if default is not None})
    is_own = name in OF_ONE_SERVER
    return SettingRow(
        name,
        {server: _shown(name, value) for server, value in values.items()},
        " or ".join(texts) if texts else None,
        differs=not is_own and len(set(values.values())) > 1,
        changed=not is_own
        and any(None not in (value, usual[at]) and value != usual[at] for at, value in values.items()),
    )


def _shown(name: str, value: str | None) -> str | None:
    return HIDDEN if value and SECRET.search(name) else value


def _texts(members: Mapping[str, object]) -> dict[str, str]:
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in members.items()}


def topic_settings(config: TopicConfig) -> dict[str, str]:
    """Returns a topic's settings by RocketMQ's names, including its attributes."""
    members = topic_config_members(config)
    del members["topicName"]
    attributes: Mapping[str, str] = members.pop("attributes")
    return {**_texts(members), **attributes}


def group_settings(config: SubscriptionGroupConfig) -> dict[str, str]:
    members = config.to_members()
    del members["groupName"]
    return _texts(members)


GROUP_DEFAULTS: Final = group_settings(SubscriptionGroupConfig())


def topic_table(configs: Mapping[str, TopicConfig], failures: Mapping[str, RocketMQError]) -> SettingsTable:
    settings = {name: topic_settings(config) for name, config in configs.items()}
    return settings_table(settings, dict.fromkeys(settings, TOPIC_DEFAULTS), failures)


def group_table(configs: Mapping[str, SubscriptionGroupConfig], failures: Mapping[str, RocketMQError]) -> SettingsTable:
    settings = {name: group_settings(config) for name, config in configs.items()}
    return settings_table(settings, dict.fromkeys(settings, GROUP_DEFAULTS), failures)


def changes_of(before: Mapping[str, str], after: Mapping[str, str]) -> Iterable[tuple[str, str, str]]:
    """Yields the name, old value and new value of each setting that changes. A missing old value is an empty text."""
    for name, value in after.items():
        if before.get(name, "") != value:
            yield name, before.get(name, ""), value
