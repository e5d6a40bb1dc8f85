"""A broker's work by its role: a slave follows its master, a master corrects its consumers' progress at its start.

A slave (`slave_tasks`) follows its master's log, and fetches its tables.

When a slave's store is started as the master (`resume_as_master`), it has its master's committed offsets, and perhaps
not all messages before them. New messages would get the offsets of the missing messages, and a group would never
consume them. So an offset beyond the end of its queue is set back to that end.

A master that starts again adopts the offsets committed at a slave that acted for it (`take_progress_back`). It does so
before it registers, so that no consumer fetches an older offset from it. For each queue and each delay level the
greater offset counts. An offset beyond the end of this master's queue is not adopted, since new messages may fill the
gap. Timers that a slave of RocketMQ delivered by another broker (enableRemoteEscape) are delivered again. Source:
broker/BrokerPreOnlineService.java (syncMetadataReverse), 5.4.0.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from pyrmq_core.errors import RocketMQError, StoreError
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.messages.names import SCHEDULE_TOPIC
from pyrmq_core.servers.broker.broker import Broker
from pyrmq_core.servers.broker.ha.acting_master import ActingMaster
from pyrmq_core.servers.broker.ha.ha_client import HaClient
from pyrmq_core.servers.broker.ha.master_checks import CannotFollow, check_master, log_bounds
from pyrmq_core.servers.broker.ha.master_tables import delay_offsets, offset_rows
from pyrmq_core.servers.broker.ha.slave_tables import SlaveTables
from pyrmq_core.servers.broker.in_turns import InTurns
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.store.replay import UnknownTopic
from pyrmq_core.servers.broker.tables.config_files import FOLDER
from pyrmq_core.servers.broker.tables.consumer_offsets import FILE_NAME

CHECK_SECONDS: Final = 5.0
# The most seconds to fetch a master's table, which may have 16 MiB.
TABLE_SECONDS: Final = 30.0
# How long a record waits for its unknown topic, which decides the kind of its queue.
LEARN_SECONDS: Final = 5.0
MOST_LOOKED_UP: Final = 10_000

log = line_logger(__name__)

# A file that a slave leaves in its store, and a master removes.
MARK: Final = f"{FOLDER}/slave"

# How long a starting master waits for each NameServer, and for each table.
QUERY_SECONDS: Final = 3.0
PROGRESS_SECONDS: Final = 10.0

Ask = Callable[[RequestCode], Awaitable[Command]]


def slave_tasks(broker: Broker) -> list[Callable[[], Awaitable[None]]]:
    """Returns the tasks of a slave; its master comes from haMasterAddress or the NameServers."""
    registration = broker.registration
    tables = SlaveTables(
        broker.store,
        broker.topics,
        broker.groups,
        broker.offsets,
        broker.delays,
        ask=partial(registration.ask_master, timeout=TABLE_SECONDS),
        master_address=lambda: registration.master_address,
    )

    async def check() -> None:
        address = registration.master_address
        if address is None:
            return
        await check_master(partial(registration.ask_master, timeout=CHECK_SECONDS), broker.store, address)
        await _wait_for_topics(broker, tables, address)

    looked_up: dict[str, None] = {}

    def check_topic(topic: str) -> None:
        if topic not in looked_up:
            raise UnknownTopic(topic)

    async def learn_topic(topic: str) -> None:
        with trio.move_on_after(LEARN_SECONDS):
            await tables.fetch_topics()
        if topic not in broker.topics:  # the topic was deleted, or its master is down
            if len(looked_up) >= MOST_LOOKED_UP:
                looked_up.clear()
            looked_up[topic] = None

    broker.store.queues.on_unknown_topic = check_topic
    client = HaClient(
        broker.store,
        broker.config,
        broker.flusher,
        lambda: registration.master_ha_address,
        registration.register_now,
        check,
        learn_topic,
    )
    broker.ha_client, broker.slave_tables = client, tables

    def look() -> None:
        tables.want()
        client.try_now()

    registration.on_master = look
    if not broker.config.enable_slave_acting_master:
        return [tables.run, client.run]
    broker.acting = ActingMaster(broker.config, registration)
    broker.acting.on_end = broker.held.wake_all
    return [tables.run, client.run, broker.acting.run]


async def _wait_for_topics(broker: Broker, tables: SlaveTables, address: str) -> None:
    """Waits for the master's topics; raises `CannotFollow` if an empty store would be filled before they are known.

    The messages of a batch topic need another kind of queue, so the store must know the topic first.
    """
    tables.want()  # sends offsets committed here to the master that is back, before consumers fetch its offsets
    await tables.tried.wait()
    if not broker.store.end and not tables.has_topics.is_set():
        raise CannotFollow(f"the topics of the master at {address} are not known yet; a line before this one says why")


def mark_slave(files: Files) -> None:
    """Marks the store as the store of a slave."""
    if files.size(MARK) is None:
        try:
            files.save(MARK, b"a slave's store\n", keep_previous=False)
        except StoreError as error:
            log.error("this store is not marked as a slave's: as a master it would keep offsets as they are: %s", error)


def resume_as_master(broker: Broker) -> None:
    """Lowers committed offsets that exceed a queue's end to that end, before a new master serves clients; blocks."""
    broker.delays.look_back()
    files = broker.store.files
    if files.size(MARK) is None:
        return
    count = broker.offsets.limit(lambda topic, queue_id: broker.store.reader.bounds((topic, queue_id))[1])
    log.info("the store of a slave is a master's now; %d offsets of groups were beyond its messages", count)
    try:
        if (text := broker.offsets.unsaved()) is not None:
            files.save(f"{FOLDER}/{FILE_NAME}", text())
        files.remove(MARK)
    except StoreError as error:  # the disk is full: the next start does the same again
        broker.offsets.is_changed = True
        log.error("the offsets of this former slave are not written: %s", error)


async def take_progress_back(broker: Broker) -> None:
    """Adopts the offsets of the slave with the smallest id, if a NameServer lists a slave; a failure is only logged."""
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
    answer = await broker.registration.ask_broker(address, Command(code), PROGRESS_SECONDS)
    if answer.code != ResponseCode.SUCCESS:
        raise response_error(answer, code, address)
    return answer


async def _take_offsets(broker: Broker, ask: Ask) -> int:
    """Adopts the slave's committed offsets where they are greater than this broker's offsets; returns their number."""
    table, count = await trio.to_thread.run_sync(offset_rows, await ask(RequestCode.GET_ALL_CONSUMER_OFFSET)), 0
    async for (topic, group), row in InTurns(table.rows.items()):
        if topic not in broker.topics:
            continue
        later = {}
        for queue_id, offset in row.items():
            committed = broker.offsets.committed(group, topic, queue_id)
            if (-1 if committed is None else committed) < offset <= broker.store.reader.bounds((topic, queue_id))[1]:
                later[queue_id] = offset
        if later:
            broker.offsets.merge(topic, group, later)
            count += len(later)
    return count


async def _take_levels(broker: Broker, ask: Ask) -> int:
    """Adopts a slave's next offset of each delay level where it is the greater one; returns their number.

    If the slave has more of the log, this master may have lost deliveries, and delivers them again.
    """
    bounds = log_bounds(await ask(RequestCode.GET_BROKER_RUNTIME_INFO))
    if bounds is None or bounds[1] > broker.store.end:
        return 0
    levels = delay_offsets(await ask(RequestCode.GET_ALL_DELAY_OFFSET))
    own_progress = {level: offset for level, offset, _ in broker.delays.progress()}
    later = {
        level: offset
        for level, offset in levels.items()
        if own_progress.get(level, 0) < offset <= broker.store.reader.bounds((SCHEDULE_TOPIC, level - 1))[1]
    }
    if later:
        broker.delays.replace({**own_progress, **later})
    return len(later)
