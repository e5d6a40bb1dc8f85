"""The broker's consumer groups: their settings and `subscriptionGroup.json`.

Source: broker/subscription/SubscriptionGroupManager.java, remoting/protocol/subscription/SubscriptionGroupConfig.java
(5.4.0). Settings are carried as the JSON members they are; the broker looks at a few of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyrmq_core.broker.config_files import load_config, save_config
from pyrmq_core.broker.store.files import Files
from pyrmq_core.errors import BodyError, InvalidArgument, StoreError
from pyrmq_core.protocol.names import check_group
from pyrmq_core.protocol.topic_config import DataVersion

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
SYSTEM_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)

GroupConfig = Mapping[str, Any]


class GroupTable:
    """All groups by name."""

    def __init__(self, files: Files, *, auto_create: bool) -> None:
        self._files = files
        self._auto_create = auto_create
        self._groups: dict[str, GroupConfig] = {name: {**DEFAULTS, "groupName": name} for name in SYSTEM_GROUPS}
        self.data_version = DataVersion()

    def load(self) -> None:
        members = load_config(self._files, FILE_NAME)
        try:
            for name, group in (members.get("subscriptionGroupTable") or {}).items():
                self._groups[name] = {**DEFAULTS, **group}
            self.data_version = DataVersion.from_members(members.get("dataVersion") or {})
        except (BodyError, AttributeError, TypeError) as error:
            raise StoreError(f"{FILE_NAME}: {error}") from error

    def __contains__(self, group: str) -> bool:
        return group in self._groups

    def find(self, group: str, now_ms: int) -> GroupConfig | None:
        """The group's settings, made when it is unknown; None when that is off or the name is none."""
        known = self._groups.get(group)
        if known is not None or not self._auto_create:
            return known
        try:
            check_group(group)
        except InvalidArgument:
            return None
        self.put({"groupName": group}, now_ms)
        return self._groups[group]

    def put(self, group: GroupConfig, now_ms: int) -> None:
        """New or changed settings; what they leave out takes RocketMQ's defaults."""
        settings = {**DEFAULTS, **{name: value for name, value in group.items() if value is not None}}
        if self._groups.get(settings["groupName"]) != settings:
            self._groups[settings["groupName"]] = settings
            self._changed(now_ms)

    def remove(self, group: str, now_ms: int) -> None:
        if self._groups.pop(group, None) is not None:
            self._changed(now_ms)

    def members(self) -> dict[str, Any]:
        """As `subscriptionGroup.json` has them."""
        return {
            "dataVersion": self.data_version.to_members(),
            "forbiddenTable": {},
            "subscriptionGroupTable": dict(self._groups),
        }

    def __len__(self) -> int:
        return len(self._groups)

    def _changed(self, now_ms: int) -> None:
        self.data_version = self.data_version.next(now_ms)
        save_config(self._files, FILE_NAME, self.members())
