"""`take_progress_back`: a master that starts again takes over how far consumers came at a slave that acted for it.

It does so before it registers, so that no consumer fetches an older offset from it. Of each committed offset, and of
each delay level, the greater one counts; one behind the end of its queue here is left, since messages may take its
place. Timers that a slave of RocketMQ delivered by another broker (enableRemoteEscape) are delivered again.
Source: broker/BrokerPreOnlineService.java (syncMetadataReverse), 5.4.0.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from pyrmq_core.broker.broker import Broker
from pyrmq_core.broker.ha.master_checks import log_bounds
from pyrmq_core.broker.ha.master_tables import delay_offsets, offset_rows
from pyrmq_core.broker.ha.slave_tables import read_in_steps
from pyrmq_core.broker.turns import InTurns
from pyrmq_core.errors import RocketMQError
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.messages.names import SCHEDULE_TOPIC

log = line_logger(__name__)

# The start of a master does not wait longer for each NameServer, and for each table.
QUERY_SECONDS: Final = 3.0
TABLE_SECONDS: Final = 10.0

Ask = Callable[[RequestCode], Awaitable[Command]]


async def take_progress_back(broker: Broker) -> None:
    """Takes the offsets of the slave with the smallest id, if a NameServer names one; a failure is only logged."""
    try:
        members = await broker.registration.members(QUERY_SECONDS)
    except RocketMQError as error:
        log.warning("no NameServer says whether a slave acts in this master's place: %s", error)
        return
    slaves = {number: address for number, address in members.items() if number != broker.config.broker_id}
    if not slaves:
        return
    address = slaves[min(slaves)]
    try:
        offsets = await _take_offsets(broker, partial(_ask, broker, address))
        levels = await _take_levels(broker, partial(_ask, broker, address))
    except RocketMQError as error:
        log.warning(
            "the progress of consumers at the slave at %s, which acted in this master's place, is not taken: %s",
            address,
            error,
        )
        return
    log.info("the slave at %s had later offsets of %d queues, and of %d delay levels", address, offsets, levels)


async def _ask(broker: Broker, address: str, code: RequestCode) -> Command:
    answer = await broker.registration.ask_broker(address, Command(code), TABLE_SECONDS)
    if answer.code != ResponseCode.SUCCESS:
        raise response_error(answer, code, address)
    return answer


async def _take_offsets(broker: Broker, ask: Ask) -> int:
    """Takes committed offsets that are greater than those here; returns their number."""
    found, count = await read_in_steps(offset_rows(await ask(RequestCode.GET_ALL_CONSUMER_OFFSET))), 0
    async for (topic, group), row in InTurns(found.rows.items()):
        if topic not in broker.topics:
            continue
        later = {}
        for queue_id, offset in row.items():
            known = broker.offsets.committed(group, topic, queue_id)
            if (-1 if known is None else known) < offset <= broker.store.bounds((topic, queue_id))[1]:
                later[queue_id] = offset
        if later:
            broker.offsets.merge(topic, group, later)
            count += len(later)
    return count


async def _take_levels(broker: Broker, ask: Ask) -> int:
    """Takes the next offsets of delay levels that are greater than those here; returns their number.

    If the slave has more of the log, this master may have lost what it delivered: then it delivers that again.
    """
    bounds = log_bounds(await ask(RequestCode.GET_BROKER_RUNTIME_INFO))
    if bounds is None or bounds[1] > broker.store.end:
        return 0
    levels = await read_in_steps(delay_offsets(await ask(RequestCode.GET_ALL_DELAY_OFFSET)))
    known = {level: offset for level, offset, _ in broker.delays.progress()}
    later = {
        level: offset
        for level, offset in levels.items()
        if known.get(level, 0) < offset <= broker.store.bounds((SCHEDULE_TOPIC, level - 1))[1]
    }
    if later:
        broker.delays.replace({**known, **later})
    return len(later)
