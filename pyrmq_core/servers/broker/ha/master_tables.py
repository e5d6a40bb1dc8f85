"""Decodes the tables that a slave fetches from its master: topics, groups, offsets and delivery progress.

The answers are those to the requests 21, 43, 45, 60 and 201. A body may have 16 MiB, so callers decode it in a thread.
A malformed table raises a `BodyError` that names it. A topic or group that is invalid here is left out and counted.
Sources: remoting/protocol/body/*SerializeWrapper.java (5.4.0). 4.9.7 has no `totalTopicNum`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar

from pyrmq_core.errors import BodyError, InvalidArgument
from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.java.integers import int_member, long_member
from pyrmq_core.protocol.java.json_text import dumps, load_object
from pyrmq_core.protocol.routes.topic_config import MAX_QUEUES_PER_TOPIC, DataVersion, topic_config_from_members
from pyrmq_core.servers.broker.tables.consumer_offsets import SEPARATOR
from pyrmq_core.servers.broker.tables.subscription_groups import MAX_GROUP_BYTES, GroupConfig, group_settings
from pyrmq_core.servers.broker.tables.topics import possible_topic
from pyrmq_core.servers.broker.timers.timer_checkpoint import TimerCheckpoint

V = TypeVar("V")

MAX_LEVELS: Final = 1000


@dataclass(slots=True)
class Page(Generic[V]):
    """A page of the master's topics or groups: `table` has them by name, and `total` is their number on all pages.

    The page has `rows` rows, of which `left_out` are invalid here. `forbidden` has the topics that a group may not
    read, by group.
    """

    version: DataVersion
    table: dict[str, V]
    total: int
    rows: int
    left_out: int = 0
    reason: str = ""  # why the last row was left out
    forbidden: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, page: Page[V]) -> None:
        self.table.update(page.table)
        self.rows += page.rows
        self.total = page.total
        self.left_out += page.left_out
        self.reason = self.reason or page.reason
        self.forbidden.update(page.forbidden)


@dataclass(slots=True)
class OffsetRows:
    """The master's committed offsets by (topic, group) and queue id. `version` is None if the master sends none."""

    rows: dict[tuple[str, str], dict[int, int]]
    version: DataVersion | None


def topics_page(answer: Command) -> Page[TopicConfig]:
    return _page(answer, load_object(answer.body, "topics"), "topicConfigTable", "totalTopicNum", _topic)


def groups_page(answer: Command) -> Page[GroupConfig]:
    members = load_object(answer.body, "groups")
    page = _page(answer, members, "subscriptionGroupTable", "totalGroupNum", _group)
    forbidden = _object(members, "forbiddenTable")
    page.forbidden = {group: _numbers(bits, "forbiddenTable", str) for group, bits in forbidden.items()}
    return page


def offset_rows(answer: Command) -> OffsetRows:
    members = load_object(answer.body, "offsets")
    rows: dict[tuple[str, str], dict[int, int]] = {}
    for key, offsets in _object(members, "offsetTable").items():
        topic, separator, group = key.partition(SEPARATOR)
        if not separator:
            raise BodyError(f"offsets: {key[:255]!r} names no topic and group")
        row = _numbers(offsets, "offsetTable", int_member)
        if row and not 0 <= min(row) <= max(row) < MAX_QUEUES_PER_TOPIC:
            raise BodyError(f"offsets: {key[:255]!r} has a queue that no topic has")
        rows[topic, group] = row
    version = members.get("dataVersion")
    return OffsetRows(rows, None if version is None else DataVersion.from_members(version))


def delay_offsets(answer: Command) -> dict[int, int]:
    members = load_object(answer.body, "delay offsets")
    levels = _numbers(_object(members, "offsetTable"), "offsetTable", int_member)
    if levels and not 0 < min(levels) <= max(levels) <= MAX_LEVELS:
        raise BodyError("delay offsets: it has a level that no message has")
    return levels


def timer_checkpoint(answer: Command, address: str) -> TimerCheckpoint | None:
    """Returns the checkpoint in the answer to request 60, or None if the master has no timers or never used them.

    Raises `ResponseError` with the master's `address` for any other refusal.
    """
    if answer.code in (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR):
        return None
    if answer.code != ResponseCode.SUCCESS:
        raise response_error(answer, RequestCode.GET_TIMER_CHECK_POINT, address)
    checkpoint = TimerCheckpoint.decode(bytes(answer.body))
    if checkpoint is None or min(checkpoint.read_ms, checkpoint.log_position, checkpoint.queue_offset) < 0:
        raise BodyError("timers: the body is no checkpoint")
    return replace(checkpoint, log_end=None, precision_ms=None) if checkpoint.read_ms else None


def _page(
    answer: Command, members: Mapping[str, Any], table: str, total: str, read: Callable[[str, Any], V]
) -> Page[V]:
    version = DataVersion.from_members(members.get("dataVersion") or {})
    rows = _object(members, table)
    page: Page[V] = Page(version, {}, _total(answer, total), len(rows))
    for name, row in rows.items():
        try:
            page.table[name] = read(name, row)
        except (BodyError, InvalidArgument) as error:
            page.left_out, page.reason = page.left_out + 1, str(error)
    return page


def _total(answer: Command, name: str) -> int:
    text = answer.ext.get(name, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BodyError(f"{name} is {text[:20]!r}, which is no number of rows")
    return int(text)


def _topic(name: str, row: Any) -> TopicConfig:
    topic = possible_topic(topic_config_from_members(row))
    if topic.topic != name:
        raise BodyError(f"topic {name[:255]!r} names itself {topic.topic!r}")
    return topic


def _group(name: str, row: Any) -> GroupConfig:
    if not isinstance(row, dict):
        raise BodyError(f"group {name[:255]!r} has no settings")
    if len(dumps(row)) > MAX_GROUP_BYTES:
        raise BodyError(f"the settings of group {name[:255]!r} take more than {MAX_GROUP_BYTES} bytes")
    return group_settings({**row, "groupName": name})


def _object(members: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = members.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BodyError(f"{name} is no JSON object")
    return value


K = TypeVar("K")


def _numbers(row: Any, what: str, key: Callable[[str], K]) -> dict[K, int]:
    try:
        return {key(name): long_member(value) for name, value in row.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise BodyError(f"{what}: a member is no number: {error}") from error
