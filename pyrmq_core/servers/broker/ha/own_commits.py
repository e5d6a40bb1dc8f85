"""`OwnCommits`: the offsets that consumers committed at a slave, until the slave has sent them to its master.

In RocketMQ a slave loses these offsets when it fetches the master's offsets, and consumers receive messages again. Here
the slave first sends each offset that is greater than the master's (UPDATE_CONSUMER_OFFSET), and then merges the
master's offsets into its own. If the master does not know the group, the slave first creates it there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.requests.broker.consumer_offsets import PREVIOUSLY_RESET, UpdateConsumerOffset
from pyrmq_core.protocol.requests.broker.group_config import GetSubscriptionGroupConfig
from pyrmq_core.servers.broker.in_turns import InTurns
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets

log = line_logger(__name__)

# The most queues whose commits wait for the master. Each takes some 200 bytes.
MOST_COMMITS: Final = 100_000

Ask: TypeAlias = Callable[[Command], Awaitable[Command]]
# Offsets by topic and group, and then by queue id.
OffsetTable: TypeAlias = dict[tuple[str, str], dict[int, int]]


class OwnCommits:
    """The keys (group, topic, queue id) of the offsets that consumers committed at this slave."""

    def __init__(self, offsets: GroupOffsets, most: int = MOST_COMMITS) -> None:
        self._offsets = offsets
        self._most = most
        self._noted: dict[tuple[str, str, int], None] = {}
        self._left_out = False
        offsets.on_commit = self._note

    def __len__(self) -> int:
        return len(self._noted)

    def _note(self, group: str, topic: str, queue_id: int) -> None:
        if len(self._noted) < self._most:
            self._noted[group, topic, queue_id] = None
        elif not self._left_out and (group, topic, queue_id) not in self._noted:
            self._left_out = True
            log.error(
                "offsets of more than %d queues were committed at this slave: those of more do not come back to its "
                "master, and consumers may repeat messages",
                self._most,
            )

    def others(self, topic: str, group: str, row: dict[int, int]) -> dict[int, int]:
        if not self._noted:
            return row
        return {queue_id: offset for queue_id, offset in row.items() if (group, topic, queue_id) not in self._noted}

    async def give_back(self, rows: OffsetTable, ask: Ask, address: str) -> None:
        """Sends the master the offsets committed here that exceed the master's in `rows`, and puts them into `rows`.

        `ask` sends a request to the master, and log lines name its `address`. The next call sends commits that arrive
        during this one. Offsets that the master refuses are dropped. Raises `RocketMQError` if the master does not
        answer. The next call then sends the offsets that were not sent yet.
        """
        sent, refused, reason = 0, 0, ""
        async for key in InTurns(list(self._noted)):
            group, topic, queue_id = key
            offset = self._offsets.committed(group, topic, queue_id)
            if offset is not None and offset > rows.get((topic, group), {}).get(queue_id, -1):
                answer = await _commit(UpdateConsumerOffset(group, topic, queue_id, offset, from_slave=True), ask)
                if answer.code == ResponseCode.SUCCESS and answer.remark == PREVIOUSLY_RESET:
                    log.info("group %s was reset at the master: queue %d of %s keeps that", group, queue_id, topic)
                elif answer.code == ResponseCode.SUCCESS:
                    sent += 1
                    rows.setdefault((topic, group), {})[queue_id] = offset
                elif offset or answer.code != ResponseCode.TOPIC_NOT_EXIST:  # offset 0 in a missing topic is no loss
                    refused += 1
                    about = f"group {group}, topic {topic}"
                    reason = str(response_error(answer, RequestCode.UPDATE_CONSUMER_OFFSET, address, about))
            if offset == self._offsets.committed(group, topic, queue_id):
                del self._noted[key]
        self._left_out = False
        if sent:
            log.info("the master at %s got %d offsets that were committed at this slave", address, sent)
        if refused:
            line = "%d offsets that were committed at this slave are dropped, since its master refuses them; one: %s"
            log.warning(line, refused, reason)


async def _commit(offset: UpdateConsumerOffset, ask: Ask) -> Command:
    """Commits an offset at the master. If the group is missing there, a query for its settings first creates it."""
    answer = await ask(offset.to_command())
    if answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
        created = await ask(GetSubscriptionGroupConfig(offset.consumer_group).to_command())
        if created.code == ResponseCode.SUCCESS:
            return await ask(offset.to_command())
    return answer
