"""The broker that a consumer should pull from next, and answers in which a slave differs from its master.

Source: broker/processor/PullMessageProcessor.java (composeResponseHeader), store/DefaultMessageStore.java (getMessage,
nextOffsetCorrection), 5.4.0.
"""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from typing import Final

from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer
from pyrmq_core.protocol.routes.route import MASTER_ID
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.store.reading import GetResult, GetStatus
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable

PERCENT: Final = 100
# The results for which a master redirects the consumer to another offset.
MOVES: Final = frozenset(
    (
        GetStatus.OFFSET_OVERFLOW_BADLY,
        GetStatus.OFFSET_TOO_SMALL,
        GetStatus.NO_MATCHED_LOGIC_QUEUE,
        GetStatus.NO_MESSAGE_IN_QUEUE,
    )
)


@functools.cache
def memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def suggested_broker(config: BrokerConfig, groups: GroupTable, log_end: int, group_name: str, result: GetResult) -> int:
    """Returns the id of the broker to pull from next. With slaveReadEnable it is a slave's for consumers far behind."""
    if not config.slave_read_enable:
        return MASTER_ID
    is_behind = False
    if result.last_place is not None:
        most_bytes = memory_bytes() * config.access_message_in_memory_max_ratio // PERCENT
        is_behind = log_end - result.last_place > most_bytes
    group = groups.known(group_name) or {}
    suggested = group.get("whichBrokerWhenConsumeSlowly", 1) if is_behind else group.get("brokerId", MASTER_ID)
    return suggested if isinstance(suggested, int) else MASTER_ID


def unmoved(config: BrokerConfig, result: GetResult, offset: int) -> GetResult:
    """Returns the result of a pull at `offset`. On a slave, a pull outside the queue gets `offset` as its next offset.

    The master may have messages there, since the slave may lag, or lack the beginning of the log.
    """
    if config.is_slave and result.status in MOVES:
        return replace(result, next_offset=offset)
    return result


def is_unmoved(config: BrokerConfig, answer: Command, offset: int) -> bool:
    """Returns True if a slave's answer leaves the consumer at `offset`, where a master would redirect it."""
    if not config.is_slave or answer.code != ResponseCode.PULL_RETRY_IMMEDIATELY:
        return False
    return PullAnswer.from_command(answer).next_begin_offset == offset
