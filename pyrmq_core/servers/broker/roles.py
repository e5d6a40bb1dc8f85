"""A broker's work by its role: a slave follows its master, a master corrects its groups' offsets when it starts.

A slave (`SlaveRole`) copies its master's log and tables.

When the store of a slave is started as a master (`MasterRole.resume`), it may have committed offsets beyond its
messages. New messages would get these offsets, and a group would never consume them. So an offset beyond the end of its
queue is set back to that end.

A restarted master adopts the offsets that were committed at a slave that acted for it
(`MasterRole.take_progress_back`). It does so before it registers, so that no consumer fetches an older offset. For each
queue and each delay level the greater offset is used, unless it lies beyond the end of this master's queue. Timer
messages that a slave running RocketMQ delivered through another broker (enableRemoteEscape) are delivered twice.
Source: broker/BrokerPreOnlineService.java (syncMetadataReverse), 5.4.0.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from pyrmq_core.errors import RocketMQError, StoreError
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.messages.names import SCHEDULE_TOPIC, owner_topic
from pyrmq_core.servers.broker.ha.acting_master import ActingMaster
from pyrmq_core.servers.broker.ha.ha_client import HaClient
from pyrmq_core.servers.broker.ha.master_checks import CannotFollow, check_master, log_bounds
from pyrmq_core.servers.broker.ha.master_tables import delay_offsets, offset_rows
from pyrmq_core.servers.broker.ha.slave_tables import SlaveTables
from pyrmq_core.servers.broker.in_turns import InTurns
from pyrmq_core.servers.broker.opening import StoreParts
from pyrmq_core.servers.broker.registration import BrokerRegistration
from pyrmq_core.servers.broker.schedule.delay_levels import DelayLevels
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store.replay import UnknownTopic
from pyrmq_core.servers.broker.tables.config_files import FOLDER
from pyrmq_core.servers.broker.tables.consumer_offsets import FILE_NAME, GroupOffsets
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable
from pyrmq_core.servers.broker.tables.topics import TopicTable

CHECK_SECONDS: Final = 5.0
# The most seconds to fetch a master's table, which may have 16 MiB.
TABLE_SECONDS: Final = 30.0
# How long a copied record of an unknown topic waits for a fetch of the topics, which decide the format of its queue.
LEARN_SECONDS: Final = 5.0
MOST_LOOKED_UP: Final = 10_000

log = line_logger(__name__)

# A file that marks the store of a slave. A starting master removes it.
MARK: Final = f"{FOLDER}/slave"

# How long a starting master waits for each NameServer, and for each table.
QUERY_SECONDS: Final = 3.0
PROGRESS_SECONDS: Final = 10.0

Ask = Callable[[RequestCode], Awaitable[Command]]


class SlaveRole:
    """A slave's work: it follows its master, whose address comes from haMasterAddress or the NameServers."""

    def __init__(
        self,
        config: BrokerConfig,
        parts: StoreParts,
        groups: GroupTable,
        registration: BrokerRegistration,
    ) -> None:
        self._store = parts.store
        self._topics = parts.topics
        self._registration = registration
        self._looked_up: dict[str, None] = {}  # topics that a fetch from the master did not return
        self.tables = SlaveTables(
            parts.store,
            parts.topics,
            groups,
            parts.offsets,
            parts.delays,
            ask=partial(registration.ask_master, timeout=TABLE_SECONDS),
            master_address=lambda: registration.master_address,
        )
        self.client = HaClient(
            parts.store,
            config,
            parts.flusher,
            lambda: registration.master_ha_address,
            registration.register_now,
            self._check_master,
            self._learn_topic,
        )
        is_acting_possible = config.enable_slave_acting_master
        self.acting = ActingMaster(config, registration, parts.held.wake_all) if is_acting_possible else None
        parts.store.queues.on_unknown_topic = self._check_topic

    def tasks(self) -> list[Callable[[], Awaitable[None]]]:
        return [self.tables.run, self.client.run, *([] if self.acting is None else [self.acting.run])]

    def look(self) -> None:
        """Connects to the master again at once, after its addresses have changed."""
        self.tables.want()
        self.client.try_now()

    async def _check_master(self) -> None:
        address = self._registration.master_address
        if address is not None:
            await check_master(partial(self._registration.ask_master, timeout=CHECK_SECONDS), self._store, address)
            await self._wait_for_topics(address)

    async def _wait_for_topics(self, address: str) -> None:
        """Waits for a fetch of the master's topics, on which the formats of the copied queues depend.

        Raises `CannotFollow` if this broker's store is empty and the topics could not be fetched.
        """
        self.tables.want()  # also sends a returned master the offsets that were committed here meanwhile
        await self.tables.tried.wait()
        if not self._store.end and not self.tables.has_topics.is_set():
            raise CannotFollow(
                f"the topics of the master at {address} are not known yet; a line before this one says why"
            )

    def _check_topic(self, topic: str) -> None:
        if topic not in self._looked_up:
            raise UnknownTopic(topic)

    async def _learn_topic(self, topic: str) -> None:
        with trio.move_on_after(LEARN_SECONDS):
            await self.tables.fetch_topics()
        if topic not in self._topics:  # the topic was deleted, or its master is down
            if len(self._looked_up) >= MOST_LOOKED_UP:
                self._looked_up.clear()
            self._looked_up[topic] = None


def mark_slave(files: Files) -> None:
    """Creates a file that marks the store as a slave's, for `MasterRole.resume`. A failure is logged."""
    if files.size(MARK) is None:
        try:
            files.save(MARK, b"a slave's store\n", keep_previous=False)
        except StoreError as error:
            log.error("this store is not marked as a slave's: as a master it would keep offsets as they are: %s", error)


@dataclass(frozen=True, slots=True)
class MasterRole:
    """A master's work at its start: it lowers committed offsets to the queues' ends, and adopts those of its slave."""

    config: BrokerConfig
    store: MessageStore
    topics: TopicTable
    offsets: GroupOffsets
    delays: DelayLevels
    registration: BrokerRegistration

    def resume(self) -> None:
        """Sets committed offsets beyond a queue's end back to that end, if the store was a slave's. Blocks."""
        self.delays.look_back()
        files = self.store.files
        if files.size(MARK) is None:
            return
        count = self.offsets.limit(lambda topic, queue_id: self.store.reader.bounds((topic, queue_id))[1])
        log.info("the store of a slave is a master's now; %d offsets of groups were beyond its messages", count)
        try:
            if (text := self.offsets.unsaved()) is not None:
                files.save(f"{FOLDER}/{FILE_NAME}", text())
            files.remove(MARK)
        except StoreError as error:  # such as a full disk: the next start tries again
            self.offsets.is_changed = True
            log.error("the offsets of this former slave are not written: %s", error)

    async def take_progress_back(self) -> None:
        """Adopts the offsets of the slave with the smallest id, if a NameServer lists one. A failure is only logged."""
        try:
            members = await self.registration.members(QUERY_SECONDS)
        except RocketMQError as error:
            log.warning("no NameServer says whether a slave acts in this master's place: %s", error)
            return
        slaves = {number: address for number, address in members.items() if number != self.config.broker_id}
        if not slaves:
            return
        address = slaves[min(slaves)]
        try:
            offsets = await self._take_offsets(partial(self._ask, address))
            levels = await self._take_levels(partial(self._ask, address))
        except RocketMQError as error:
            log.warning(
                "the progress of consumers at the slave at %s, which acted in this master's place, is not taken: %s",
                address,
                error,
            )
            return
        log.info("the slave at %s had later offsets of %d queues, and of %d delay levels", address, offsets, levels)

    async def _ask(self, address: str, code: RequestCode) -> Command:
        answer = await self.registration.ask_broker(address, Command(code), PROGRESS_SECONDS)
        if answer.code != ResponseCode.SUCCESS:
            raise response_error(answer, code, address)
        return answer

    async def _take_offsets(self, ask: Ask) -> int:
        table, count = await trio.to_thread.run_sync(offset_rows, await ask(RequestCode.GET_ALL_CONSUMER_OFFSET)), 0
        async for (topic, group), row in InTurns(table.rows.items()):
            if owner_topic(topic) not in self.topics:
                continue
            later = {}
            for queue_id, offset in row.items():
                committed = self.offsets.committed(group, topic, queue_id)
                if (-1 if committed is None else committed) < offset <= self.store.reader.bounds((topic, queue_id))[1]:
                    later[queue_id] = offset
            if later:
                self.offsets.merge(topic, group, later)
                count += len(later)
        return count

    async def _take_levels(self, ask: Ask) -> int:
        """Adopts the slave's next offsets of delay levels that are greater than this broker's. Returns their number.

        If the slave's log is longer, none is adopted: this master may have lost delivered messages, and delivers them
        again.
        """
        bounds = log_bounds(await ask(RequestCode.GET_BROKER_RUNTIME_INFO))
        if bounds is None or bounds[1] > self.store.end:
            return 0
        levels = delay_offsets(await ask(RequestCode.GET_ALL_DELAY_OFFSET))
        own_progress = {level: offset for level, offset, _ in self.delays.progress()}
        later = {
            level: offset
            for level, offset in levels.items()
            if own_progress.get(level, 0) < offset <= self.store.reader.bounds((SCHEDULE_TOPIC, level - 1))[1]
        }
        if later:
            self.delays.replace({**own_progress, **later})
        return len(later)
