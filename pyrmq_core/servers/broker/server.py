"""`run_broker`: opens the store, listens, registers the broker, and stops it in order or abruptly."""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import trio

from pyrmq_core.errors import InvalidArgument, StoreError
from pyrmq_core.network import ConnectionPool, Handler, Listening, Peer, failure_in, format_address, serve
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.network.tls_settings import watch_certificate
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.protocol.messages.message_id import UniqueIdMaker
from pyrmq_core.protocol.messages.names import SCHEDULE_TOPIC
from pyrmq_core.protocol.messages.record import pack_host
from pyrmq_core.servers.access.control import AccessControl, access_control
from pyrmq_core.servers.broker.broker import Answer, Broker
from pyrmq_core.servers.broker.clients.client_table import ClientTable
from pyrmq_core.servers.broker.clients.held_pulls import HeldPulls
from pyrmq_core.servers.broker.exported.broker_metrics import common_labels, families, note_ends
from pyrmq_core.servers.broker.ha.ha_server import MAX_PORT, HaServer, check_slaves_possible, open_ha_port
from pyrmq_core.servers.broker.processors.put_message import ensure_topic
from pyrmq_core.servers.broker.processors.slave_rules import handle_on_slave
from pyrmq_core.servers.broker.processors.table import handle
from pyrmq_core.servers.broker.registration import BrokerRegistration
from pyrmq_core.servers.broker.roles import mark_slave, resume_as_master, slave_tasks, take_progress_back
from pyrmq_core.servers.broker.running_broker import RunningBroker
from pyrmq_core.servers.broker.schedule.delay_levels import DelayLevels, entry_maker
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.statistics.figures import BrokerFigures
from pyrmq_core.servers.broker.statistics.measures import Measures
from pyrmq_core.servers.broker.store.appending import Dispatched
from pyrmq_core.servers.broker.store.disk.disk_files import DiskFiles
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.store.message_store import MessageStore, StoreListener
from pyrmq_core.servers.broker.store.reading import QueueKey
from pyrmq_core.servers.broker.store_services.flush import Flusher
from pyrmq_core.servers.broker.store_services.key_indexing import KeyIndexing
from pyrmq_core.servers.broker.store_services.retention import Retention, unread_lines
from pyrmq_core.servers.broker.tables.config_files import FOLDER
from pyrmq_core.servers.broker.tables.consumer_filters import ConsumerFilters
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable
from pyrmq_core.servers.broker.tables.topics import TopicTable
from pyrmq_core.servers.broker.timers.service import Timers
from pyrmq_core.servers.broker.timers.timer_rules import TIMER_TOPIC
from pyrmq_core.servers.broker.transactions.producer_checks import ProducerChecks
from pyrmq_core.servers.broker.transactions.transactions import Transactions
from pyrmq_core.servers.broker.upkeep import expire_clients, keep_written, sample_figures
from pyrmq_core.servers.exporter.start import start_exporter
from pyrmq_core.servers.protocol.register_broker import RegistrationHeader

log = line_logger(__name__)

STOP_SECONDS: Final = 10.0
# Java's slaves fetch topics at this port (BrokerController.java, fastRemotingServer).
FAST_PORT_BELOW: Final = 2


class Entrance:
    """The handler of a broker's port, which refuses requests until `broker` is set."""

    def __init__(self, config: BrokerConfig, access: AccessControl) -> None:
        self.broker: Broker | None = None
        self._access = access
        self._respond = handle_on_slave if config.is_slave else handle

    def answer(self, request: Command, peer: Peer) -> Answer:
        if self.broker is None:
            return refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is starting")
        denied = self._access.denied(request, peer)
        return self._respond(self.broker, request, peer) if denied is None else denied

    def closed(self, peer: Peer) -> None:
        """Removes the clients of a connection that ended."""
        if self.broker is not None:
            self.broker.notify_groups(self.broker.clients.disconnected(peer))

    def is_system(self, topic: str) -> bool:
        return self.broker is not None and self.broker.topics.is_system(topic)


class Listener(StoreListener):
    """Passes the store's events to the parts of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def readable(self, key: QueueKey, entries: bytes) -> None:
        self._broker.held.wake(key, entries)
        if key[0] == SCHEDULE_TOPIC:
            self._broker.delays.arrived()
        elif key[0] == TIMER_TOPIC:
            self._broker.timers.arrived()

    def dispatched(self, messages: Dispatched) -> None:
        self._broker.index.note(messages)

    def replayed(self) -> None:
        self._broker.index.note_replayed()

    def stored(self) -> None:
        self._broker.flusher.want()
        self._broker.ha.stored()

    def segment_begun(self) -> None:
        self._broker.retention.want()

    def failed(self, reason: str) -> None:
        self._broker.flusher.failed(reason)


async def run_broker(
    config: BrokerConfig,
    *,
    files: Files | None = None,
    wrap_handler: Callable[[Handler], Handler] | None = None,
    task_status: trio.TaskStatus[RunningBroker] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves until cancelled or stopped; it counts as started once a NameServer has registered it, if any is set.

    `files` replace the directory storePathRootDir. `wrap_handler` gets the broker's handler and returns a handler that
    receives all requests instead. Cancelled, the broker stops in order: it unregisters, closes port and connections,
    and flushes. Raises `StoreError` if the store cannot be opened, `NetworkError` if the port cannot, `InvalidArgument`
    for settings that contradict each other.
    """
    check_slaves_possible(config)
    access = await access_control(
        config.access,
        cluster=config.broker_cluster_name,
        folder=config.store_root / FOLDER,
        max_body_bytes=config.max_heartbeat_bytes,
    )
    directory = DiskFiles(config.store_root) if files is None else files
    store = MessageStore(directory, config.store_settings, entry_maker(config.delays_ms()))
    running: list[RunningBroker] = []
    try:
        # Opening the queues needs each topic's kind of queue.
        saved = TopicTable(directory, config)
        saved.load()
        store.queues.is_batch_topic = saved.is_batch_topic
        open_store = partial(store.open, os.getpid(), is_copy=config.is_slave)
        recovery = await trio.to_thread.run_sync(open_store)
        log.info("store opened: %s", recovery)
        for warning in recovery.warnings():
            log.warning("%s", warning)
        parts = await open_parts(config, store, clean=recovery.clean)
        async with trio.open_nursery() as nursery:
            services = await nursery.start(_keep_services)
            try:
                running.append(await _start(config, parts, access, services, wrap_handler))
                await _work(running[0], task_status)
            finally:
                if running and not running[0].is_killed:
                    await _leave(running[0])
                services.cancel_scope.cancel()
    except BaseExceptionGroup as failures:
        raise failure_in(failures) from None
    finally:
        if running:
            running[0].leave_files()
        else:
            store.abandon()


async def _keep_services(task_status: trio.TaskStatus[trio.Nursery]) -> None:
    """Keeps a nursery for port and connections open through a cancellation, so that the broker can stop in order."""
    with trio.CancelScope(shield=True):
        async with trio.open_nursery() as services:
            task_status.started(services)
            await trio.sleep_forever()


async def _start(
    config: BrokerConfig,
    parts: StoreParts,
    access: AccessControl,
    services: trio.Nursery,
    wrap_handler: Callable[[Handler], Handler] | None,
) -> RunningBroker:
    """Listens, and loads the config files."""
    entrance = Entrance(config, access)
    measures = Measures(entrance.is_system) if config.exports_metrics else None
    measured = entrance.answer if measures is None else measures.rpc.measured(entrance.answer)
    handler = measured if wrap_handler is None else wrap_handler(measured)
    tls = config.tls.server_context()
    if tls is not None:
        services.start_soon(watch_certificate, config.tls, tls)
    listen = partial(
        serve,
        handler,
        config.bind_address,
        config.listen_port,
        on_close=entrance.closed,
        bounds=config.bounds,
        idle_timeout=config.server_channel_max_idle_time_seconds,
        tls=tls,
        tls_mode=config.tls.mode,
        fast_port_below=FAST_PORT_BELOW,
    )
    listening: Listening = await services.start(listen)
    ha = HaServer(parts.store, config, is_clean=parts.is_clean)
    ha_port = min(listening.port + 1, MAX_PORT)  # a slave does not listen here, it only registers the port
    if not config.is_slave:
        ha_port = await open_ha_port(config, ha, services, listening.host, listening.port)
    broker = make_broker(config, parts, services, listening.port, ha, ha_port, access, measures)
    parts.store.listener = Listener(broker)
    entrance.broker = broker
    return RunningBroker(broker, listening)


async def _leave(running: RunningBroker) -> None:
    """Unregisters before connections are closed: their clients then find routes without this broker."""
    with trio.move_on_after(STOP_SECONDS, shield=True):
        await running.broker.registration.unregister()
        await running.listening.aclose()


def make_broker(
    config: BrokerConfig,
    parts: StoreParts,
    services: trio.Nursery,
    port: int,
    ha: HaServer,
    ha_port: int,
    access: AccessControl,
    measures: Measures | None,
) -> Broker:
    """Makes the broker's parts, and loads them from its files."""
    store = parts.store
    config = replace(config, listen_port=port)
    files, address = store.files, format_address(config.advertised_ip, port)
    try:
        store_host = pack_host(address)
    except InvalidArgument as error:
        raise InvalidArgument(f"brokerIP1 is {config.advertised_ip!r}; it has to be an ip address") from error
    topics, offsets, clients = TopicTable(files, config), GroupOffsets(files), ClientTable()
    header = RegistrationHeader(
        cluster_name=config.broker_cluster_name,
        broker_addr=address,
        broker_name=config.broker_name,
        broker_id=config.broker_id,
        ha_server_addr=format_address(config.advertised_ip, ha_port),
        heartbeat_timeout_ms=config.broker_not_active_timeout_millis if config.enable_slave_acting_master else None,
        enable_acting_master=config.enable_slave_acting_master,
    )
    broker = Broker(
        config=config,
        store=store,
        topics=topics,
        groups=GroupTable(files, auto_create=config.auto_create_subscription_group),
        offsets=offsets,
        filters=ConsumerFilters(files, kept_ms=config.filter_data_clean_time_span),
        held=HeldPulls(config.held_limits),
        delays=DelayLevels(store, files, config.delays_ms()),
        transactions=Transactions(store, offsets, ProducerChecks(clients, config.broker_name), config, store_host),
        timers=parts.timers,
        flusher=Flusher(store, config),
        ha=ha,
        retention=Retention(store, config),
        index=parts.index,
        registration=BrokerRegistration(
            config, header, topics, ConnectionPool(services, tls=config.tls.client_context())
        ),
        figures=BrokerFigures(config.broker_cluster_name, topics.is_system),
        nursery=services,
        address=address,
        store_host=store_host,
        ids=UniqueIdMaker(store_host[:-4], os.getpid(), random.getrandbits(32)),
        clients=clients,
        access=access,
        measures=measures,
    )
    _load(broker)
    return broker


def _load(broker: Broker) -> None:
    """Loads the broker's tables from its files."""
    broker.booted_ms = broker.now_ms()
    broker.topics.load()
    try:
        broker.topics.file.save()
    except StoreError as error:
        log.error("topics.json is written later: %s", error)
        broker.topics.file.changed()
    broker.store.queues.is_batch_topic = broker.topics.is_batch_topic
    broker.groups.load()
    broker.offsets.load()
    broker.filters.load(broker.booted_ms)
    broker.delays.load()
    broker.transactions.load()


async def _work(running: RunningBroker, task_status: trio.TaskStatus[RunningBroker]) -> None:
    """Runs the broker's tasks until `running.scope`, or a scope around it, is cancelled."""
    broker, config = running.broker, running.config

    note_ends(broker)
    broker.retention.on_removed = partial(_note_removal, broker)
    broker.retention.other_bytes = lambda: broker.index.stored_bytes
    with running.scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.access.run)
            nursery.start_soon(broker.flusher.run)
            nursery.start_soon(broker.retention.run)
            nursery.start_soon(broker.index.run)
            nursery.start_soon(broker.held.run)
            nursery.start_soon(sample_figures, broker.figures)
            nursery.start_soon(broker.notices.run, broker.clients)
            nursery.start_soon(broker.topics.file.run)
            nursery.start_soon(broker.groups.file.run)
            nursery.start_soon(keep_written, broker)
            nursery.start_soon(expire_clients, broker)
            if config.enable_slave_acting_master and not config.is_slave:
                await take_progress_back(broker)
            for task in _tasks_of_role(broker):
                nursery.start_soon(task)
            if config.exports_metrics:
                broker.metrics_address = await start_exporter(
                    nursery,
                    partial(families, broker),
                    config.metrics_prom_exporter_host,
                    config.metrics_prom_exporter_port,
                    common=common_labels(broker),
                )
            await nursery.start(broker.registration.run)
            task_status.started(running)


def _tasks_of_role(broker: Broker) -> list[Callable[[], Awaitable[None]]]:
    """Returns the tasks that only a master has, or only a slave."""
    if broker.config.is_slave:
        mark_slave(broker.store.files)
        return slave_tasks(broker)
    resume_as_master(broker)
    return [broker.delays.run, broker.timers.run, partial(broker.transactions.run, partial(ensure_topic, broker))]


async def _note_removal(broker: Broker) -> None:
    """Logs the messages that were removed before the broker had worked on them, and removes their index files."""
    broker.delays.arrived()
    for line in unread_lines(broker.store, broker.offsets):
        log.error("%s", line)
    await broker.index.remove_old()


@dataclass(frozen=True, slots=True)
class StoreParts:
    """The opened store, and the parts opened with it; `is_clean` is False if the store was not closed in order."""

    store: MessageStore
    index: KeyIndexing
    timers: Timers
    is_clean: bool


async def open_parts(config: BrokerConfig, store: MessageStore, *, clean: bool) -> StoreParts:
    """Opens the parts that belong to an open store."""
    index = KeyIndexing(store, config)
    timers = Timers(
        store,
        store.files,
        config.timer_settings,
        enabled=config.timer_wheel_enable and not config.is_slave,
        flush_ms=config.timer_flush_interval_ms,
        counts_topics=config.exports_metrics,
    )
    await trio.to_thread.run_sync(partial(index.open, clean=clean))
    if not config.is_slave:
        await trio.to_thread.run_sync(timers.open)
    if config.message_index_safe:
        await index.catch_up()
    return StoreParts(store, index, timers, clean)
