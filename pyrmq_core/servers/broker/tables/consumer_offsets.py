"""The offsets that consumer groups committed in each queue, and their file `consumerOffset.json`.

Source: broker/offset/ConsumerOffsetManager.java (5.4.0). The file is written every flushConsumerOffsetInterval and at a
stop. A killed broker loses the commits of the last seconds, and consumers receive a few messages again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from pyrmq_core.errors import BodyError, StoreError
from pyrmq_core.protocol.messages.names import is_lite_queue
from pyrmq_core.protocol.routes.topic_config import DataVersion
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.tables.changing_rows import ChangingRows
from pyrmq_core.servers.broker.tables.config_files import encode_config, load_config

FILE_NAME: Final = "consumerOffset.json"
SEPARATOR: Final = "@"
# The member with the time at which the file was written. RocketMQ ignores this member.
SAVED_MS: Final = "savedMs"
# How long a reset lasts after its first redirection. Then members that ignored it may continue at other offsets. Java's
# clients of 4.9 store the new offset after 10 s.
RESET_SECONDS: Final = 60.0
# The most pairs of topic and group with resets. At this limit, the deletion of a topic first ends the oldest reset in
# a lite topic. If there is no such reset, the deletion resets no group.
MOST_RESETS: Final = 10_000


@dataclass(slots=True)
class _Reset:
    """A reset of a group's offset in one queue. The group's pulls of the queue are redirected to `offset`.

    `given_at` is the time of the first redirection. After it, the reset `is_over` once a member pulls at `offset` or
    commits it. `followers` are the client ids of the members that have continued there. After a reset `by_deletion` of
    the topic, a pull at `offset` ends the reset even before a redirection.
    """

    offset: int
    given_at: float = math.inf
    is_over: bool = False
    followers: set[str] = field(default_factory=set)
    by_deletion: bool = False


class GroupOffsets:
    """Committed offsets by (topic, group) and queue id.

    The offset after each queue's last pull and the resets since the start are kept in memory only. `now` and the times
    of resets are seconds on the event loop's clock. `saved_ms` is the time in ms at which the loaded file was written.
    It is 0 without a file, and None if RocketMQ's broker wrote the file. `on_commit` is called with group, topic and
    queue id of each commit at this broker.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._committed = ChangingRows[tuple[str, str], dict[int, int]](dict)
        self._topics = ChangingRows[str, set[str]](set)  # by group: the topics with committed offsets
        self._pulled: dict[tuple[str, str], dict[int, int]] = {}
        self._resets: dict[tuple[str, str], dict[int, _Reset]] = {}
        self.is_changed = False
        self.data_version = DataVersion()
        self.saved_ms: int | None = None
        self.on_commit: Callable[[str, str, int], None] = lambda group, topic, queue_id: None

    def load(self) -> None:
        members = load_config(self._files, FILE_NAME)
        try:
            for key, offsets in (members.get("offsetTable") or {}).items():
                topic, _, group = key.partition(SEPARATOR)
                self._queues(topic, group).update((int(queue), int(offset)) for queue, offset in offsets.items())
            self.data_version = DataVersion.from_members(members.get("dataVersion") or {})
            saved_ms = members.get(SAVED_MS) if members else 0
            self.saved_ms = None if saved_ms is None else int(saved_ms)
        except (BodyError, AttributeError, TypeError, ValueError) as error:
            raise StoreError(f"{FILE_NAME}: {error}") from error

    def __len__(self) -> int:
        return len(self._committed.items())

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """Returns a group's committed offset in a queue, or None if there is none or it is negative."""
        queues = self._committed.find((topic, group))
        offset = -1 if queues is None else queues.get(queue_id, -1)
        return None if offset < 0 else offset

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commits an offset. As in RocketMQ, it may be lower than the group's present offset."""
        self._queues(topic, group)[queue_id] = offset
        self.is_changed = True
        self.on_commit(group, topic, queue_id)

    def merge(self, topic: str, group: str, offsets: Mapping[int, int]) -> None:
        """Adopts a group's `offsets` from another broker, by queue id. Queues without one keep theirs."""
        before = self._committed.find((topic, group))
        if before is None or not before.items() >= offsets.items():
            self._queues(topic, group).update(offsets)
            self.is_changed = True

    def limit(self, end_of: Callable[[str, int], int]) -> int:
        """Lowers each committed offset beyond its queue's end to that end. Returns how many were changed.

        `end_of` returns the end of a queue from its topic and queue id.
        """
        count = 0
        for (topic, group), row in list(self._committed.items()):
            beyond = {queue_id: end for queue_id, offset in row.items() if offset > (end := end_of(topic, queue_id))}
            self.merge(topic, group, beyond)
            count += len(beyond)
        return count

    def _queues(self, topic: str, group: str) -> dict[int, int]:
        queues = self._committed.change((topic, group))
        if not queues:
            self._topics.change(group).add(topic)
        return queues

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commits an offset, and redirects the group's pulls of the queue to it until a member continues there.

        `moved_to` returns the redirections. Until a member continues there, commits of other offsets are refused, since
        the consumers do not know about the reset.
        """
        self.commit(group, topic, queue_id, offset)
        self._resets.setdefault((topic, group), {})[queue_id] = _Reset(offset)

    def may_commit(
        self, group: str, topic: str, queue_id: int, offset: int, now: float, member: str | None = None
    ) -> bool:
        """Returns True if a consumer may commit an offset. It may not while the queue is reset to another offset.

        The client with the id `member` may commit again once it has pulled at the new offset, or after RESET_SECONDS.
        `now` is in seconds on the event loop's clock.
        """
        reset = self._current(group, topic, queue_id, now)
        if reset is None:
            return True
        if reset.is_over:
            return member is None or member in reset.followers
        reset.is_over = offset == reset.offset and reset.given_at <= now
        if reset.is_over and member is not None:
            reset.followers.add(member)
        return reset.is_over

    def was_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Returns True if the group's offset in the queue was reset since the broker's start.

        Offsets that consumers committed at a slave are then out of date.
        """
        return queue_id in self._resets.get((topic, group), {})

    def may_move(self, group: str, topic: str, queue_id: int) -> bool:
        """Returns True while `moved_to` may redirect the group's pulls of the queue because of a reset."""
        resets = self._resets.get((topic, group))
        return resets is not None and (reset := resets.get(queue_id)) is not None and reset.given_at > -math.inf

    def moved_to(
        self, group: str, topic: str, queue_id: int, offset: int | None, now: float, member: str = ""
    ) -> int | None:
        """Returns the offset to which a member's pull must be redirected after a reset, or None if it may continue.

        `offset` is the pull's offset, or None if the pull was waiting when the group was reset. The first member that
        pulls at the new offset ends the reset. After that, pulls of each other member are redirected until one has an
        offset between the new and the committed offset.
        """
        reset = self._current(group, topic, queue_id, now)
        if reset is None or member in reset.followers:
            return None
        if reset.is_over:
            follows = offset is not None and reset.offset <= offset <= (self.committed(group, topic, queue_id) or 0)
        else:
            follows = reset.is_over = offset == reset.offset and (reset.given_at <= now or reset.by_deletion)
            reset.given_at = min(reset.given_at, now)
        if not follows:
            return reset.offset
        reset.followers.add(member)
        return None

    def end_reset(self, group: str, topic: str, queue_id: int) -> None:
        self._resets[topic, group][queue_id] = _Reset(0, given_at=-math.inf, is_over=True)

    def _current(self, group: str, topic: str, queue_id: int, now: float) -> _Reset | None:
        if not self.may_move(group, topic, queue_id):
            return None
        reset = self._resets[topic, group][queue_id]
        if now - reset.given_at <= RESET_SECONDS:
            return reset
        self.end_reset(group, topic, queue_id)
        return None

    def pulled(self, group: str, topic: str, queue_id: int) -> int | None:
        return self._pulled.get((topic, group), {}).get(queue_id)

    def note_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self._pulled.setdefault((topic, group), {})[queue_id] = offset

    def of_group(self, group: str, topic: str) -> dict[int, int]:
        return dict(self._committed.find((topic, group)) or {})

    def groups(self) -> list[str]:
        return [group for group, _ in self._topics.items()]

    def topics_of(self, group: str) -> list[str]:
        return sorted(self._topics.find(group) or ())

    def groups_of(self, topic: str) -> list[str]:
        return sorted(group for group, topics in self._topics.items() if topic in topics)

    def readers_of(self, topic: str) -> set[str]:
        return {*self.groups_of(topic), *(group for name, group in self._pulled if name == topic)}

    def forget_topic(self, topic: str, going_on: Collection[str] = ()) -> None:
        """Removes the offsets of a deleted topic, and redirects the next pulls of the groups `going_on` to offset 0.

        These groups still have members. Without the redirection they would continue at their old offsets, and skip the
        first messages of a new topic of that name.
        """
        rows = {
            (topic, group): {*(self._committed.find((topic, group)) or ()), *self._pulled.get((topic, group), ())}
            for group in going_on
        }
        self._forget(lambda key: key[0] == topic)
        self._drop({topic}, self.groups_of(topic))
        self._reset_to_start(rows)

    def forget_lite_queues(self, names: Collection[str], has_members: Callable[[str], bool]) -> None:
        """Removes all offsets in the deleted queues of the lite topics `names`.

        Groups for which `has_members` returns True continue at offset 0.
        """
        if names:
            readers = [key for key in {*dict(self._committed.items()), *self._pulled} if key[0] in names]
            self._forget(lambda key: key[0] in names)
            self._drop(names, [group for group, topics in self._topics.items() if not topics.isdisjoint(names)])
            self._reset_to_start({key: {0} for key in readers if has_members(key[1])})

    def _reset_to_start(self, rows: Mapping[tuple[str, str], Collection[int]]) -> None:
        for key, queue_ids in rows.items():
            if len(self._resets) >= MOST_RESETS:
                oldest = next((key for key in self._resets if is_lite_queue(key[0])), None)
                if oldest is None:
                    return
                del self._resets[oldest]
            self._resets[key] = {queue_id: _Reset(0, by_deletion=True) for queue_id in queue_ids}

    def _drop(self, names: Collection[str], groups: Iterable[str]) -> None:
        for group in groups:
            topics = self._topics.change(group)
            topics.difference_update(names)
            if not topics:
                self._topics.remove(group)

    def forget_group(self, group: str) -> None:
        self._forget(lambda key: key[1] == group)
        self._topics.remove(group)

    def members(self) -> dict[str, Any]:
        """Returns the members of the JSON object in `consumerOffset.json`. Its tables are iterators over their rows."""
        topics, committed = self._topics.snapshot(), self._committed.snapshot()
        return {
            "dataVersion": self.data_version.to_members(),
            "groupTopicMap": ((group, sorted(names)) for group, names in topics.items()),
            "offsetTable": ((f"{topic}{SEPARATOR}{group}", offsets) for (topic, group), offsets in committed.items()),
        }

    def unsaved(self) -> Callable[[], bytes] | None:
        """Returns a function that encodes `consumerOffset.json`, or None if nothing changed since the last call.

        Any thread may call that function.
        """
        if not self.is_changed:
            return None
        self.is_changed = False
        return partial(encode_config, {**self.members(), SAVED_MS: clock.now_ms()})

    def _forget(self, gone: Callable[[tuple[str, str]], bool]) -> None:
        for key in [key for key, _ in self._committed.items() if gone(key)]:
            self._committed.remove(key)
            self.is_changed = True
        for table in (self._pulled, self._resets):
            for key in [key for key in table if gone(key)]:
                del table[key]
