"""`RequestModes`: whether a group pulls or pops a topic, as set by request 401, and the file `messageRequestMode.json`.

Source: broker/loadbalance/MessageRequestModeManager.java (5.4.0).
"""

from __future__ import annotations

from typing import Any, Final

from pyrmq_core.errors import BodyError, StoreError
from pyrmq_core.protocol.java.integers import int_member
from pyrmq_core.protocol.requests.pop.assignments import RequestMode, SetRequestMode
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.tables.table_file import Members, TableFile

FILE_NAME: Final = "messageRequestMode.json"
MOST_MODES: Final = 10_000


class RequestModes:
    """The request modes by topic and group: pull or pop. A group without a mode pulls."""

    def __init__(self, files: Files) -> None:
        self.file = TableFile(files, FILE_NAME, self._snapshot)
        self._modes: dict[tuple[str, str], SetRequestMode] = {}

    def load(self) -> None:
        try:
            for topic, groups in (self.file.load().get("messageRequestModeMap") or {}).items():
                for group, row in groups.items():
                    share = int_member(row.get("popShareQueueNum") or 0)
                    mode = SetRequestMode(topic, group, RequestMode(row.get("mode") or RequestMode.PULL), share)
                    self._modes[topic, group] = mode
        except (BodyError, AttributeError, TypeError, ValueError) as error:
            raise StoreError(f"{FILE_NAME}: {error}") from error

    def find(self, topic: str, group: str) -> SetRequestMode:
        return self._modes.get((topic, group)) or SetRequestMode(topic, group, RequestMode.PULL)

    def put(self, mode: SetRequestMode) -> bool:
        """Sets whether a group pulls or pops a topic. Returns False, with nothing changed, if the table is full."""
        key = (mode.topic, mode.consumer_group)
        if key not in self._modes and len(self._modes) >= MOST_MODES:
            return False
        self._modes[key] = mode
        self.file.changed()
        return True

    def members(self) -> dict[str, Any]:
        """Returns the members of the JSON object in `messageRequestMode.json`, which a slave receives, too."""
        by_topic: dict[str, dict[str, Any]] = {}
        for (topic, group), mode in self._modes.items():
            by_topic.setdefault(topic, {})[group] = {
                "consumerGroup": group,
                "mode": mode.mode.value,
                "popShareQueueNum": mode.share_queues,
                "topic": topic,
            }
        return {"messageRequestModeMap": by_topic}

    def _snapshot(self) -> Members:
        return self.members
