"""`NameServer`: the route tables, KV configuration and settings of one NameServer, and the operations on them.

It has no port: `handlers` answer requests with it, and `server` calls `connection_closed` and `scan`. Each change of
the tables is logged as one line.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import trio

from pyrmq_core.errors import StoreError
from pyrmq_core.network import Peer
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.network.rare_lines import RareLines
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.java.properties_text import format_java_properties
from pyrmq_core.protocol.requests.nameserver.kv_config import ORDER_TOPIC_CONFIG
from pyrmq_core.protocol.routes.route import TopicRouteData
from pyrmq_core.servers.access.control import AccessControl
from pyrmq_core.servers.access.file_replacement import replace_keeping_previous
from pyrmq_core.servers.nameserver.config import NameServerConfig, unknown_settings
from pyrmq_core.servers.nameserver.kvconfig import KvConfig
from pyrmq_core.servers.nameserver.registration_queue import RegistrationQueue
from pyrmq_core.servers.nameserver.tables import BrokerAddrInfo, RouteTables, registration, removal
from pyrmq_core.servers.nameserver.tables.changes import (
    BrokerRemoved,
    Change,
    MinBrokerIdChange,
    PlaceTaken,
    Removal,
    RemovalReason,
    TopicsRemoved,
)
from pyrmq_core.servers.protocol.register_broker import (
    RegisterBroker,
    RegisteredBroker,
    RegistrationHeader,
    UnregisterBroker,
)
from pyrmq_core.servers.protocol.registration import RegistrationBody

log = line_logger(__name__)

# How many topics removed with a broker are logged at INFO. Further ones are logged at DEBUG.
TOPIC_LINES: Final = 20
# How many lines are logged before other tasks run, in about two milliseconds.
LINES_PER_STEP: Final = 100
# How many unknown settings of a request are logged. The search for a similar name takes half a millisecond.
UNKNOWN_LINES: Final = 10
# The most bytes of encoded routes in the cache, and the memory of an entry without its body.
MAX_KEPT_BYTES: Final = 32 * 1024 * 1024
ROUTE_BYTES: Final = 1024


class NameServer:
    """The state of one NameServer. `notify` is called when the smallest id of a broker name changes, if enabled."""

    def __init__(
        self,
        config: NameServerConfig,
        *,
        notify: Callable[[MinBrokerIdChange], None] | None = None,
    ) -> None:
        self.config = config
        self.tables = RouteTables(config.rules)
        self.kv = KvConfig(config.kv_config_file, config.kv_config_max_bytes)
        self.answers = RouteCache()
        self._places = RareLines()
        self.access = AccessControl()
        self.registrations = RegistrationQueue(self._apply, self._knows)
        self.found_a_route = False
        self.removed: Counter[RemovalReason] = Counter()
        self._notify = notify
        self._started_ms = now_ms()
        self._store_file: Path | None = config.config_store_file
        self._store_turn = trio.Lock()

    def load(self) -> None:
        """Reads the KV configuration. If its file cannot be read, that is logged and the file stays, as in Java."""
        try:
            self.kv.load()
        except StoreError as error:
            log.error("%s; starting without it, and its content goes to a .bak file at the next change", error)

    @property
    def is_ready(self) -> bool:
        """False while routes are refused: in the first `waitSecondsForService` seconds, if `needWaitForService` is set.

        Once a route was returned, it stays True.
        """
        waited_ms = now_ms() - self._started_ms
        waits = self.config.need_wait_for_service and waited_ms < self.config.wait_seconds_for_service * 1000
        return self.found_a_route or not waits

    def order_topic_conf(self, topic: str) -> str | None:
        """Returns the topic's order configuration (`broker-a:4;broker-b:4`), or None if `orderMessageEnable` is off."""
        return self.kv.get(ORDER_TOPIC_CONFIG, topic) if self.config.order_message_enable else None

    def connection_closed(self, peer: Peer) -> None:
        self._remove(removal.connection_closed(self.tables, peer))

    def unregister(self, broker: UnregisterBroker, key: BrokerAddrInfo) -> None:
        self._remove(removal.unregister(self.tables, key, broker.broker_name, broker.broker_id))

    def scan(self) -> None:
        self._remove(removal.scan(self.tables, now_ms()))

    def _remove(self, removed: Removal) -> None:
        self.removed.update(change.reason for change in removed.changes if isinstance(change, BrokerRemoved))
        self.tell(removed.changes)
        for notice in removed.notices:
            self._send_notice(notice)
        for peer in removed.connections:
            if isinstance(peer, Peer):
                peer.connection.close("its broker was silent for too long")

    def tell(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if isinstance(change, TopicsRemoved):
                _tell_topics(change)
            elif isinstance(change, PlaceTaken):
                line = self._places.of((change.broker_name, change.broker_id))
                if line.is_due():
                    log.warning("%s%s", change, line.left_out())
            else:
                log.info("%s", change)

    async def log_kv(self) -> None:
        """Logs the KV configuration, one line for each value. Other tasks run in between."""
        for namespace, values in list(self.kv.namespaces.items()):
            for number, (key, value) in enumerate(list(values.items()), 1):
                log.info("KV configuration %s: %s = %s", namespace, key, value)
                if number % LINES_PER_STEP == 0:
                    await trio.lowlevel.checkpoint()

    async def update_config(self, settings: Mapping[str, str]) -> None:
        """Applies settings and writes all of them to their file. Ports and addresses take effect at the next start.

        Raises `InvalidArgument` for a bad value, and `StoreError` if the file cannot be written. In the second case the
        settings apply. The first `UNKNOWN_LINES` unknown names are logged.
        """
        for name, nearest in unknown_settings(settings, UNKNOWN_LINES).items():
            log.warning("setting %s is not known%s", name, f"; is {nearest} meant?" if nearest else "")
        self.config = self.config.with_settings(settings)
        self.tables.rules = self.config.rules
        async with self._store_turn:
            if self._store_file is None:
                return
            stored = format_java_properties(self.config.to_settings(secrets=True)).encode("utf-8", "replace")
            try:
                await trio.to_thread.run_sync(replace_keeping_previous, self._store_file, stored)
            except OSError as error:
                raise StoreError(f"the settings are in force and not written to {self._store_file}: {error}") from error

    def _knows(self, header: RegistrationHeader, digest: bytes) -> bool:
        return registration.knows(self.tables, header, digest)

    def _apply(
        self, register: RegisterBroker, body: RegistrationBody | None, digest: bytes | None, peer: Peer
    ) -> Command:
        done = registration.register(
            self.tables, register.header, body, connection=peer, now_ms=now_ms(), digest=digest
        )
        self.tell(done.changes)
        if done.notice is not None:
            self._send_notice(done.notice)
        if not done.accepted:
            return refusal(ResponseCode.SYSTEM_ERROR, "register broker failed")
        answer = RegisteredBroker(done.ha_server_addr, done.master_addr).to_command()
        asks_order = self.config.return_order_topic_config_to_broker
        order_table = self.kv.table_body(ORDER_TOPIC_CONFIG) if asks_order else None
        return answer if order_table is None else replace(answer, body=order_table)

    def _send_notice(self, notice: MinBrokerIdChange) -> None:
        if self.config.notify_min_broker_id_changed and self._notify is not None:
            self._notify(notice)


def _tell_topics(removed: TopicsRemoved) -> None:
    for topic in removed.each(end=TOPIC_LINES):
        log.info("%s", topic)
    if len(removed.topics) > TOPIC_LINES:
        log.info("%s", removed)
        if log.isEnabledFor(logging.DEBUG):
            for topic in removed.each(TOPIC_LINES):
                log.debug("%s", topic)


def now_ms() -> int:
    # A monotonic clock: settings of the system's clock do not change it.
    return int(trio.current_time() * 1000)


class _CachedAnswer(NamedTuple):
    route: TopicRouteData
    order_topic_conf: str | None
    answer: Command


class RouteCache:
    """A cache of encoded routes by topic.

    An entry is valid while the tables return the same `TopicRouteData` object and the same order configuration.
    """

    def __init__(self) -> None:
        self._bytes = 0
        self._cache: dict[tuple[str, bool], _CachedAnswer] = {}

    def cached(
        self, topic: str, route: TopicRouteData, order_topic_conf: str | None, *, bare_ids: bool
    ) -> Command | None:
        cached = self._cache.get((topic, bare_ids))
        if cached is not None and cached.route is route and cached.order_topic_conf == order_topic_conf:
            return cached.answer
        return None

    def keep(
        self, topic: str, route: TopicRouteData, order_topic_conf: str | None, body: bytes, *, bare_ids: bool
    ) -> Command:
        before = self._cache.get((topic, bare_ids))
        self._bytes += len(body) - len(before.answer.body) if before is not None else len(body) + ROUTE_BYTES
        if self._bytes > MAX_KEPT_BYTES:
            self._cache.clear()
            self._bytes = len(body) + ROUTE_BYTES
        answer = success(body=body)
        self._cache[topic, bare_ids] = _CachedAnswer(route, order_topic_conf, answer)
        return answer
