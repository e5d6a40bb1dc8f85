"""The broker's topics: those in `topics.json`, RocketMQ's system topics, and topics that sends create.

Source: broker/topic/TopicConfigManager.java (5.4.0). A change takes effect in the table at once, and is written to
`topics.json` in the background (`file`). `registration` reports it to the NameServers. A new topic is `unsaved` until
the file contains it. Before that, no send to it is acknowledged.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from pyrmq_core.errors import BodyError, StoreError
from pyrmq_core.model import Permission, TopicConfig
from pyrmq_core.protocol.messages.batch_topic import is_batch_topic
from pyrmq_core.protocol.messages.names import (
    AUTO_CREATE_TOPIC,
    HALF_TOPIC,
    MEMBER_GROUP_PREFIX,
    OP_HALF_TOPIC,
    REPLY_TOPIC_SUFFIX,
    SCHEDULE_TOPIC,
    is_retry_topic,
)
from pyrmq_core.protocol.routes.topic_config import (
    MAX_QUEUES_PER_TOPIC,
    DataVersion,
    TopicConfigTable,
    topic_config_from_members,
)
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.tables.table_file import Members, TableFile
from pyrmq_core.servers.broker.timers.timer_rules import TIMER_TOPIC

FILE_NAME: Final = "topics.json"
# Converted to int, since arithmetic on an IntFlag takes about a microsecond.
READ: Final = int(Permission.READ)
WRITE: Final = int(Permission.WRITE)
READ_WRITE: Final = READ | WRITE
INHERITED: Final = READ_WRITE | int(Permission.INHERIT)
# The name of a topic, which may be that of the cluster or broker, such as a host name. It becomes a folder's name, so
# it must not be a path.
FOLDER_NAME: Final = re.compile(r"(?!\.+$)[%|a-zA-Z0-9_.+-]{1,255}")
MAX_DELAY_QUEUES: Final = 18
REVIVE_QUEUES: Final = 8
RECENT_CHANGES: Final = 1000


class TopicTable:
    def __init__(self, files: Files, config: BrokerConfig) -> None:
        self.file = TableFile(files, FILE_NAME, self._snapshot, self._forget_saved)
        self.unsaved: dict[str, int] = {}  # by topic: the number of the change of `file` that added it
        self._config = config
        self._topics: dict[str, TopicConfig] = {topic.topic: topic for topic in system_topics(config)}
        self._system = frozenset(self._topics)
        self.data_version = DataVersion()
        self._recent: deque[tuple[int, str]] = deque(maxlen=RECENT_CHANGES)  # changes: version counter and topic

    def load(self) -> None:
        members = self.file.load()
        try:
            table = (members.get("topicConfigTable") or {}).values()
            self._topics.update({topic.topic: possible_topic(topic) for topic in map(topic_config_from_members, table)})
            self.data_version = DataVersion.from_members(members.get("dataVersion") or {})
        except (BodyError, AttributeError) as error:
            raise StoreError(f"{FILE_NAME}: {error}; correct the file, or remove the topic from it") from error

    def configure(self, config: BrokerConfig, now_ms: int) -> None:
        """Applies changed settings. Creates TBW102 if it is missing and autoCreateTopicEnable was switched on."""
        self._config = config
        missing = [topic for topic in system_topics(config) if topic.topic not in self._topics]
        self._system |= {topic.topic for topic in missing}
        for topic in missing:
            self.put(topic, now_ms)

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(self._topics.values())

    def get(self, topic: str) -> TopicConfig | None:
        return self._topics.get(topic)

    def is_batch_topic(self, topic: str) -> bool | None:
        """Returns True if the topic's queues store a batch as one record, or None for an unknown topic."""
        config = self._topics.get(topic)
        return None if config is None else is_batch_topic(config.attributes)

    def is_system(self, topic: str) -> bool:
        return topic in self._system

    @property
    def system_names(self) -> frozenset[str]:
        return self._system

    def table(self) -> TopicConfigTable:
        return TopicConfigTable(self.data_version, dict(self._topics))

    def changed_since(self, version: DataVersion) -> list[TopicConfig] | None:
        """Returns the topics created or changed after a version, or None if not all these changes are recorded."""
        missing = self.data_version.counter - version.counter
        if not 0 <= missing <= len(self._recent):
            return None
        names = dict.fromkeys(name for counter, name in self._recent if counter > version.counter)
        return [topic for name in names if (topic := self._topics.get(name)) is not None]

    def inherit(self, topic: str, default_topic: str, queue_nums: int) -> TopicConfig | None:
        """Returns settings for a new topic, copied from `default_topic` with at most `queue_nums` queues.

        Returns None if the default topic is unknown or may not be inherited (permission INHERIT), or if it is TBW102
        with autoCreateTopicEnable=false.
        """
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
        """Returns the settings of a topic that a send creates, or None if the topic must not be created.

        The settings are copied from `default_topic`. If that is not possible, a retry topic gets one queue.
        """
        inherited = self.inherit(topic, default_topic, queue_nums)
        if inherited is None and is_retry_topic(topic):
            return TopicConfig(topic, 1, 1, READ_WRITE)
        return inherited

    def put(self, topic: TopicConfig, now_ms: int) -> bool:
        """Creates or changes a topic. Does not wait for the file. Returns False if nothing changed."""
        before = self._topics.get(topic.topic)
        if before == topic:
            return False
        self._topics[topic.topic] = topic
        self._changed(now_ms, topic.topic)
        if before is None:
            self.unsaved[topic.topic] = self.file.changes
        return True

    def remove(self, topic: str, now_ms: int) -> bool:
        if self._topics.pop(topic, None) is None:
            return False
        self.unsaved.pop(topic, None)
        self._changed(now_ms, topic)
        return True

    def replace(self, topics: dict[str, TopicConfig], version: DataVersion) -> None:
        """Replaces all topics by the topics of another broker, with their version."""
        self._topics = topics
        self.data_version = version
        self.unsaved.clear()
        self._recent.clear()
        self.file.changed()

    async def saved(self, topic: str) -> None:
        """Waits until the file has the topic. Raises `StoreError` if it could not be written."""
        while (change := self.unsaved.get(topic)) is not None:
            await self.file.written(change)

    def touch(self, now_ms: int) -> None:
        self.data_version = self.data_version.next(now_ms)
        self._recent.clear()
        self.file.changed()

    def mark_ordered(self, ordered: Mapping[str, str], now_ms: int) -> None:
        """Marks the topics of a NameServer's order configuration as ordered (updateOrderTopicConfig)."""
        changed = [name for name in ordered if (topic := self._topics.get(name)) is not None and not topic.order]
        for name in changed:
            self._topics[name] = replace(self._topics[name], order=True)
            self._changed(now_ms, name)

    def _changed(self, now_ms: int, topic: str) -> None:
        self.data_version = self.data_version.next(now_ms)
        self._recent.append((self.data_version.counter, topic))
        self.file.changed()

    def _forget_saved(self) -> None:
        written = self.file.written_changes
        for topic in [topic for topic, change in self.unsaved.items() if change <= written]:
            del self.unsaved[topic]

    def _snapshot(self) -> Members:
        return self.table().to_members


def possible_topic(topic: TopicConfig) -> TopicConfig:
    """Returns the topic unchanged. Raises `BodyError` if its name cannot be a folder's, or for too many queues."""
    if not FOLDER_NAME.fullmatch(topic.topic):
        raise BodyError(f"{topic.topic[:255]!r} cannot be a topic's name")
    for queues in (topic.read_queue_nums, topic.write_queue_nums):
        if not 0 <= queues <= MAX_QUEUES_PER_TOPIC:
            raise BodyError(f"topic {topic.topic} has {queues} queues; 0 to {MAX_QUEUES_PER_TOPIC} are possible")
    return topic


def system_topics(config: BrokerConfig) -> Iterator[TopicConfig]:
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
    yield topic(HALF_TOPIC, 1)
    yield topic(OP_HALF_TOPIC, 1)
    if config.timer_wheel_enable:
        yield topic(TIMER_TOPIC, 1)
    yield topic(config.revive_topic, REVIVE_QUEUES)
    if config.trace_topic_enable:
        yield topic("RMQ_SYS_TRACE_TOPIC", 1)
    if config.enable_slave_acting_master:  # RocketMQ finds a broker name's brokers by its route
        yield topic(f"{MEMBER_GROUP_PREFIX}{config.broker_name}", 1, int(Permission.INHERIT))
    yield topic(f"{config.broker_cluster_name}{REPLY_TOPIC_SUFFIX}", 1)
