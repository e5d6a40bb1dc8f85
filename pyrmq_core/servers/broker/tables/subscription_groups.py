"""The broker's consumer groups: their settings and the file `subscriptionGroup.json`.

Source: broker/subscription/SubscriptionGroupManager.java, remoting/protocol/subscription/SubscriptionGroupConfig.java
(5.4.0). All settings are kept as JSON members, although the broker uses only a few.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyrmq_core.errors import BodyError, InvalidArgument, StoreError
from pyrmq_core.protocol.messages.names import PLACEHOLDER_GROUPS, SYSTEM_GROUPS, check_group
from pyrmq_core.protocol.routes.topic_config import MAX_QUEUES_PER_TOPIC, DataVersion
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.tables.attributes import GROUP_ATTRIBUTES, changed_attributes, listed_changes
from pyrmq_core.servers.broker.tables.table_file import Members, TableFile

FILE_NAME: Final = "subscriptionGroup.json"
DEFAULTS: Final[Mapping[str, Any]] = {
    "attributes": {},
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeMessageOrderly": False,
    "consumeTimeoutMinute": 15,
    "groupName": "",
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "groupSysFlag": 0,
    "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 16,
    "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}

GroupConfig = Mapping[str, Any]
# The bit of the permission to read (common/constant/PermName.java).
READ: Final = 4
# The most pairs of group and topic with forbidden permissions.
MAX_FORBIDDEN: Final = 10_000

# The ranges of the numbers in a group's settings. Most are the ranges of Java's int and long.
INT: Final = (-(2**31), 2**31 - 1)
NUMBERS: Final[Mapping[str, tuple[int, int]]] = {
    "brokerId": (0, 2**63 - 1),
    "consumeTimeoutMinute": INT,
    "groupSysFlag": INT,
    "retryMaxTimes": INT,
    "retryQueueNums": (0, MAX_QUEUES_PER_TOPIC),
    "whichBrokerWhenConsumeSlowly": (0, 2**63 - 1),
}
FLAGS: Final = tuple(name for name, value in DEFAULTS.items() if isinstance(value, bool))
# The most bytes of a group's settings as JSON. RocketMQ's settings have some hundred bytes.
MAX_GROUP_BYTES: Final = 64 * 1024


def group_settings(members: Mapping[str, Any]) -> GroupConfig:
    """Returns a group's settings completed by RocketMQ's defaults. Raises `InvalidArgument` for an invalid setting."""
    settings = {**DEFAULTS, **{name: value for name, value in members.items() if value is not None}}
    group = settings["groupName"]
    if group not in PLACEHOLDER_GROUPS:
        check_group(group)
    for name, (low, high) in NUMBERS.items():
        if type(value := settings[name]) is not int or not low <= value <= high:
            raise InvalidArgument(f"{name} of group {group} is {str(value)[:40]}; {low} to {high} are possible")
    for name in FLAGS:
        if type(value := settings[name]) is not bool:
            raise InvalidArgument(f"{name} of group {group} is {str(value)[:40]}; true and false are possible")
    return settings


class GroupTable:
    def __init__(self, files: Files, *, auto_create: bool) -> None:
        self.file = TableFile(files, FILE_NAME, self._snapshot)
        self.auto_create = auto_create
        self._groups: dict[str, GroupConfig] = {name: {**DEFAULTS, "groupName": name} for name in SYSTEM_GROUPS}
        self._forbidden: dict[str, dict[str, int]] = {}  # by group and topic: the forbidden permissions' bits
        self.data_version = DataVersion()

    def load(self) -> None:
        members = self.file.load()
        try:
            for name, topics in (members.get("forbiddenTable") or {}).items():
                self._forbidden[name] = {topic: int(bits) for topic, bits in topics.items()}
            for name, group in (members.get("subscriptionGroupTable") or {}).items():
                self._groups[name] = group_settings({**group, "groupName": name})
            self.data_version = DataVersion.from_members(members.get("dataVersion") or {})
        except (BodyError, InvalidArgument, AttributeError, TypeError, ValueError) as error:
            raise StoreError(f"{FILE_NAME}: {error}") from error

    def __contains__(self, group: str) -> bool:
        return group in self._groups

    def known(self, group: str) -> GroupConfig | None:
        return self._groups.get(group)

    def find(self, group: str, now_ms: int) -> GroupConfig | None:
        """Returns a group's settings. Creates an unknown group with default settings, if automatic creation is on.

        Returns None for an unknown group if automatic creation is off, or the name is invalid.
        """
        config = self._groups.get(group)
        if config is not None or not self.auto_create:
            return config
        try:
            check_group(group)
        except InvalidArgument:
            return None
        self.put({"groupName": group}, now_ms)
        return self._groups[group]

    def change(self, group: GroupConfig, now_ms: int) -> None:
        """Creates or changes a group. Raises `InvalidArgument` or `BadAttribute` for impossible settings.

        In `group["attributes"]`, a key `+name` sets an attribute and a key `-name` removes it.
        """
        name = group["groupName"]
        before = self._groups.get(name)
        changes = listed_changes(f"group {name}", group.get("attributes"))
        present = None if before is None else before["attributes"]
        attributes = changed_attributes(GROUP_ATTRIBUTES, present, changes)
        self.put({**group, "attributes": attributes}, now_ms)

    def put(self, group: GroupConfig, now_ms: int) -> None:
        """Creates or replaces a group. Raises `InvalidArgument` for impossible settings."""
        settings = group_settings(group)
        if self._groups.get(settings["groupName"]) != settings:
            self._groups[settings["groupName"]] = settings
            self._changed(now_ms)

    def remove(self, group: str, now_ms: int) -> None:
        forbidden = self._forbidden.pop(group, None)
        if self._groups.pop(group, None) is not None or forbidden is not None:
            self._changed(now_ms)

    def replace(
        self, groups: dict[str, GroupConfig], forbidden: Mapping[str, Mapping[str, int]], version: DataVersion
    ) -> None:
        """Replaces all groups and the table's version by those of another broker.

        `forbidden` has, by group and topic, the bits of the permissions that the group lacks for the topic.
        """
        self._groups = groups
        self._forbidden = {group: dict(topics) for group, topics in forbidden.items()}
        self.data_version = version
        self.file.changed()

    def is_readable(self, group: str, topic: str) -> bool:
        return not self._forbidden or not self._forbidden.get(group, {}).get(topic, 0) & READ

    def set_readable(self, group: str, topic: str, now_ms: int, *, is_readable: bool) -> None:
        """Allows a group to read a topic (`is_readable`), or forbids it. Does nothing if that changes nothing.

        Raises `InvalidArgument` if too many topics are forbidden. `now_ms` becomes the time in the table's version.
        """
        topics = self._forbidden.get(group, {})
        bits = topics.get(topic, 0)
        changed = bits & ~READ if is_readable else bits | READ
        if changed == bits:
            return
        if not bits and sum(map(len, self._forbidden.values())) >= MAX_FORBIDDEN:
            raise InvalidArgument(f"{MAX_FORBIDDEN} topics are forbidden to groups; allow others again first")
        topics = {**topics, topic: changed}
        self._forbidden[group] = {name: left for name, left in topics.items() if left}
        if not self._forbidden[group]:
            del self._forbidden[group]
        self._changed(now_ms)

    def names(self) -> list[str]:
        return list(self._groups)

    def members(self) -> dict[str, Any]:
        # A copy of the references is enough, since rows are replaced and never changed.
        return {
            "dataVersion": self.data_version.to_members(),
            "forbiddenTable": dict(self._forbidden),
            "subscriptionGroupTable": dict(self._groups),
        }

    def __len__(self) -> int:
        return len(self._groups)

    def _changed(self, now_ms: int) -> None:
        self.data_version = self.data_version.next(now_ms)
        self.file.changed()

    def _snapshot(self) -> Members:
        members = self.members()
        return lambda: members
