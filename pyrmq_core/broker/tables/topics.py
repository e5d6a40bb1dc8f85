"""The broker's topics: `topics.json`, RocketMQ's own topics, and topics that come into being by being sent to.

Source: broker/topic/TopicConfigManager.java (5.4.0). A change goes: table, DataVersion, then `topics.json` in the
background (`file`), while registration follows (registration.py). A new topic is `unsaved` until the file has it, and
nothing that is sent to it is acknowledged before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from pyrmq_core.broker.settings import BrokerConfig
from pyrmq_core.broker.store.files import Files
from pyrmq_core.broker.tables.table_file import Members, TableFile
from pyrmq_core.errors import BodyError, StoreError
from pyrmq_core.model import Permission, TopicConfig
from pyrmq_core.protocol.messages.batch_topic import is_batch_topic
from pyrmq_core.protocol.messages.names import AUTO_CREATE_TOPIC, SCHEDULE_TOPIC, is_retry_topic
from pyrmq_core.protocol.routes.topic_config import (
    MAX_QUEUES_PER_TOPIC,
    DataVersion,
    TopicConfigTable,
    topic_config_from_members,
)

FILE_NAME: Final = "topics.json"
# Plain numbers: arithmetic on an IntFlag costs about a microsecond.
READ: Final = int(Permission.READ)
WRITE: Final = int(Permission.WRITE)
READ_WRITE: Final = READ | WRITE
INHERITED: Final = READ_WRITE | int(Permission.INHERIT)
# A topic's, or the name of a cluster or broker, which may be a host's: a folder in any case, and never a path.
FOLDER_NAME: Final = re.compile(r"(?!\.+$)[%|a-zA-Z0-9_.-]{1,255}")
MAX_DELAY_QUEUES: Final = 18


class TopicTable:
    """All topics by name, as loaded and as changed since."""

    def __init__(self, files: Files, config: BrokerConfig) -> None:
        self.file = TableFile(files, FILE_NAME, self._snapshot, self._forget_saved)
        self.unsaved: dict[str, int] = {}  # which of the file's changes brings the topic
        self._config = config
        self._topics: dict[str, TopicConfig] = {topic.topic: topic for topic in system_topics(config)}
        self._system = frozenset(self._topics)
        self.data_version = DataVersion()

    def load(self) -> None:
        """`StoreError` when `topics.json` cannot be read."""
        members = self.file.load()
        try:
            table = (members.get("topicConfigTable") or {}).values()
            self._topics.update({topic.topic: _possible(topic) for topic in map(topic_config_from_members, table)})
            self.data_version = DataVersion.from_members(members.get("dataVersion") or {})
        except (BodyError, AttributeError) as error:
            raise StoreError(f"{FILE_NAME}: {error}") from error

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(self._topics.values())

    def get(self, topic: str) -> TopicConfig | None:
        return self._topics.get(topic)

    def is_batch_topic(self, topic: str) -> bool | None:
        """Whether its queues keep batches whole; None of a topic that there is not."""
        known = self._topics.get(topic)
        return None if known is None else is_batch_topic(known.attributes)

    def is_system(self, topic: str) -> bool:
        """Whether this broker made the topic for itself; its cluster's and its own name are among them."""
        return topic in self._system

    def table(self) -> TopicConfigTable:
        """What GET_ALL_TOPIC_CONFIG answers and a registration carries."""
        return TopicConfigTable(self.data_version, dict(self._topics))

    def inherit(self, topic: str, default_topic: str, queue_nums: int) -> TopicConfig | None:
        """The settings of a topic that a send creates; None when the default topic does not allow it."""
        default = self._topics.get(default_topic)
        if default is None:
            return None
        if default_topic == AUTO_CREATE_TOPIC and not self._config.auto_create_topic_enable:
            return None
        if not default.perm & Permission.INHERIT:
            return None
        queues = max(0, min(queue_nums, default.write_queue_nums))
        return TopicConfig(
            topic=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=default.perm & ~int(Permission.INHERIT),
            topic_filter_type=default.topic_filter_type,
        )

    def for_send(self, topic: str, default_topic: str, queue_nums: int) -> TopicConfig | None:
        """As `inherit`; a retry topic is made with one queue where nothing is inherited."""
        inherited = self.inherit(topic, default_topic, queue_nums)
        if inherited is None and is_retry_topic(topic):
            return TopicConfig(topic, 1, 1, READ_WRITE)
        return inherited

    def put(self, topic: TopicConfig, now_ms: int) -> bool:
        """Whether this changed anything; it is in effect at once, and in the file when `file.written` returns."""
        known = self._topics.get(topic.topic)
        if known == topic:
            return False
        self._topics[topic.topic] = topic
        self._changed(now_ms)
        if known is None:
            self.unsaved[topic.topic] = self.file.changes
        return True

    def remove(self, topic: str, now_ms: int) -> bool:
        if self._topics.pop(topic, None) is None:
            return False
        self.unsaved.pop(topic, None)
        self._changed(now_ms)
        return True

    async def saved(self, topic: str) -> None:
        """Returns when the file has the topic; `StoreError` when it could not be written.

        A topic that is deleted and made again meanwhile waits for the later change.
        """
        while (change := self.unsaved.get(topic)) is not None:
            await self.file.written(change)

    def mark_ordered(self, ordered: Mapping[str, str], now_ms: int) -> None:
        """Topics in the NameServer's order configuration are ordered (TopicConfigManager.updateOrderTopicConfig)."""
        changed = [name for name in ordered if (topic := self._topics.get(name)) is not None and not topic.order]
        for name in changed:
            self._topics[name] = replace(self._topics[name], order=True)
        if changed:
            self._changed(now_ms)

    def _changed(self, now_ms: int) -> None:
        self.data_version = self.data_version.next(now_ms)
        self.file.changed()

    def _forget_saved(self) -> None:
        written = self.file.written_changes
        for topic in [topic for topic, change in self.unsaved.items() if change <= written]:
            del self.unsaved[topic]

    def _snapshot(self) -> Members:
        return self.table().to_members


def _possible(topic: TopicConfig) -> TopicConfig:
    """The topic; `BodyError` when it would lead out of the store or drown clients with its queues."""
    if not FOLDER_NAME.fullmatch(topic.topic):
        raise BodyError(f"{topic.topic[:255]!r} cannot be a topic's name; remove it from the file")
    for queues in (topic.read_queue_nums, topic.write_queue_nums):
        if not 0 <= queues <= MAX_QUEUES_PER_TOPIC:
            raise BodyError(f"topic {topic.topic} has {queues} queues; set 0 to {MAX_QUEUES_PER_TOPIC} in the file")
    return topic


def system_topics(config: BrokerConfig) -> Iterator[TopicConfig]:
    """The topics that exist from the start; those of transactions and timers are not among them."""

    def topic(name: str, queues: int, perm: int = READ_WRITE) -> TopicConfig:
        return TopicConfig(name, queues, queues, perm)

    yield topic("SELF_TEST_TOPIC", 1)
    if config.auto_create_topic_enable:
        yield topic(AUTO_CREATE_TOPIC, config.default_topic_queue_nums, INHERITED)
    yield topic("BenchmarkTest", 1024)
    yield topic(config.broker_cluster_name, 16, INHERITED if config.cluster_topic_enable else READ_WRITE)
    yield topic(config.broker_name, 1, INHERITED if config.broker_topic_enable else READ_WRITE)
    yield topic("OFFSET_MOVED_EVENT", 1)
    yield topic(SCHEDULE_TOPIC, MAX_DELAY_QUEUES)
    if config.trace_topic_enable:
        yield topic("RMQ_SYS_TRACE_TOPIC", 1)
    yield topic(f"{config.broker_cluster_name}_REPLY_TOPIC", 1)
