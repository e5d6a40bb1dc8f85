"""`RunningBroker`: a started broker, and the two ways to stop it."""

from __future__ import annotations

from collections.abc import Callable

import trio

from pyrmq_core.errors import StoreError
from pyrmq_core.network import Listening
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.servers.broker.broker import Broker
from pyrmq_core.servers.broker.upkeep import rarely_written

log = line_logger(__name__)


class RunningBroker:
    """A started broker: its name, its address, and the two ways to stop it."""

    def __init__(self, broker: Broker, listening: Listening) -> None:
        self.config = broker.settings.config
        self.name = self.config.broker_name
        self.address = broker.identity.address
        self.ha_address = broker.cluster.registration.ha_address
        self.broker = broker
        self.listening = listening
        self.scope = trio.CancelScope()
        self.is_killed = False
        self._then: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"<RunningBroker {self.name} at {self.address}>"

    def stop(self) -> None:
        """Stops the broker as SIGTERM does: it unregisters, flushes, and `run_broker` returns."""
        self.scope.cancel()

    def kill(self, then: Callable[[], None] | None = None) -> None:
        """Stops as SIGKILL does, without a flush. `then` is called after the store's files are closed."""
        self.is_killed = True
        self._then = then
        self.scope.cancel()

    def leave_files(self) -> None:
        """Writes the tables and closes the store, or after `kill` closes its files without writing."""
        broker = self.broker
        if not self.is_killed:
            try:
                for file in (broker.tables.topics.file, broker.tables.groups.file, broker.tables.modes.file):
                    if file.is_behind:
                        file.save()
                if broker.store.failure:
                    raise StoreError(broker.store.failure)
                broker.store.flush()  # as in `keep_written`, no offset may outlive the messages before it
                for path, table in rarely_written(broker).items():
                    if (text := table.unsaved()) is not None:
                        broker.store.files.save(path, text())
                broker.deliveries.timers.close()
                broker.services.index.close()
                broker.store.close()
            except StoreError as error:
                log.error("the store is not closed in order, the next start recovers it: %s", error)
                broker.store.abandon()
            return
        broker.store.abandon()
        if self._then is not None:
            self._then()
