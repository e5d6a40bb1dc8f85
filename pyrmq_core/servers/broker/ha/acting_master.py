"""`ActingMaster`: a slave that answers for its master while that is unreachable (enableSlaveActingMaster).

A slave acts as master while its id is the smallest of the brokers with its name. A NameServer with supportActingMaster
then returns it as the master, with read-only topics. The slave serves pulls, locks queues for consumers, and stores
their offsets. It stores no messages: delayed messages, timers and transactions wait for a master, as in
RocketMQ without enableRemoteEscape. Source: broker/BrokerController.java (syncBrokerMemberGroup, onMinBrokerChange),
5.4.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import trio

from pyrmq_core.errors import RocketMQError
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.servers.broker.registration import BrokerRegistration
from pyrmq_core.servers.broker.settings.broker_config import MASTER_ID, BrokerConfig

log = line_logger(__name__)

# Notices of a broker name's new smallest id (request 905) cause at most one query to the NameServer in this time.
PAUSE_SECONDS: Final = 0.05
QUERY_SECONDS: Final = 3.0


def acts(broker_id: int, members: Mapping[int, str], was_acting: bool) -> bool:
    """Returns True if the broker with this id should act as master: it has the smallest id, and no master is listed.

    `members` has the addresses of the brokers with its name by id, from the NameServer. If the broker itself is
    missing, the list is incomplete, and the result is `was_acting` unless a master is listed.
    """
    if MASTER_ID in members:
        return False
    if broker_id not in members:
        return was_acting
    return broker_id == min(members)


class ActingMaster:
    """The state of a slave that may act as master. `run` updates it. `on_end` is called when it no longer acts."""

    def __init__(
        self, config: BrokerConfig, registration: BrokerRegistration, on_end: Callable[[], None] = lambda: None
    ) -> None:
        self._name = config.broker_name
        self._broker_id = config.broker_id
        self._period_seconds = config.sync_broker_member_group_period / 1000
        self._registration = registration
        self._wanted = trio.Event()
        self._is_failure_logged = False
        self.is_acting = False
        self._on_end = on_end

    def look_soon(self) -> None:
        # A notice only causes a query, since any peer can send it.
        self._wanted.set()

    async def run(self) -> None:
        while True:
            self._wanted = trio.Event()
            try:
                members = await self._registration.members(QUERY_SECONDS)
            except RocketMQError as error:
                self._note_failure(error)
            else:
                self._is_failure_logged = False
                self._take(members)
            await trio.sleep(PAUSE_SECONDS)
            with trio.move_on_after(self._period_seconds - PAUSE_SECONDS):
                await self._wanted.wait()

    def _take(self, members: Mapping[int, str]) -> None:
        acting = acts(self._broker_id, members, self.is_acting)
        if acting is self.is_acting:
            return
        self.is_acting = acting
        if acting:
            log.warning(
                "%s has no master: this slave acts in its place. It serves pulls, locks and offsets; delayed messages, "
                "timers and transactions wait for a master",
                self._name,
            )
            return
        smallest = min(members)
        log.info("%s has the broker %d at %s: this slave no longer acts", self._name, smallest, members[smallest])
        self._registration.register_now()  # the response has the address of the master's port for slaves
        self._on_end()

    def _note_failure(self, error: RocketMQError) -> None:
        if not self._is_failure_logged:
            self._is_failure_logged = True
            log.warning("no NameServer says which brokers %s has: %s", self._name, error)
