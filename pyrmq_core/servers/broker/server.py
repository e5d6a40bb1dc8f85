"""`run_broker`: opens the store, listens, registers the broker, and stops it in order or at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

import trio

from pyrmq_core.errors import StoreError
from pyrmq_core.network import ConnectionPool, Handler, Listening, Peer, failure_in, format_address, serve
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.network.tls_settings import watch_certificate
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.servers.access.control import AccessControl, access_control
from pyrmq_core.servers.broker.broker import Broker, Clients, Cluster, Deliveries, Services, Tables
from pyrmq_core.servers.broker.clients.client_table import ClientTable
from pyrmq_core.servers.broker.clients.group_notices import GroupNotices
from pyrmq_core.servers.broker.exported.broker_metrics import BrokerMetrics, common_labels
from pyrmq_core.servers.broker.ha.ha_server import MAX_PORT, check_slaves_possible, open_ha_port
from pyrmq_core.servers.broker.identity import Identity
from pyrmq_core.servers.broker.member_changes import MemberChanges
from pyrmq_core.servers.broker.opening import StoreParts
from pyrmq_core.servers.broker.pop.ordered import OrderedQueues
from pyrmq_core.servers.broker.pop.revive_log import ReviveLog
from pyrmq_core.servers.broker.pop.reviver import Reviver
from pyrmq_core.servers.broker.processors.handlers import Answer
from pyrmq_core.servers.broker.processors.table import handler_of
from pyrmq_core.servers.broker.registration import BrokerRegistration
from pyrmq_core.servers.broker.roles import MasterRole, SlaveRole, mark_slave
from pyrmq_core.servers.broker.running_broker import RunningBroker
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.store.disk.disk_files import DiskFiles
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.tables.config_files import FOLDER
from pyrmq_core.servers.broker.tables.consumer_filters import ConsumerFilters
from pyrmq_core.servers.broker.tables.request_modes import RequestModes
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable
from pyrmq_core.servers.broker.tables.topics import REVIVE_QUEUES
from pyrmq_core.servers.broker.topic_announcer import TopicAnnouncer
from pyrmq_core.servers.broker.transactions.producer_checks import ProducerChecks
from pyrmq_core.servers.broker.transactions.transactions import Transactions
from pyrmq_core.servers.broker.upkeep import expire_clients, expire_lite_queues, keep_written, sample_figures
from pyrmq_core.servers.exporter.start import start_exporter
from pyrmq_core.servers.protocol.register_broker import RegistrationHeader

log = line_logger(__name__)

Task: TypeAlias = Callable[[], Awaitable[None]]

STOP_SECONDS: Final = 10.0
# How far below its own port the broker also listens: Java's slaves fetch topics there (fastRemotingServer).
FAST_PORT_BELOW: Final = 2


class Entrance:
    """The handler of a broker's port. It refuses all requests until `open` is called."""

    def __init__(self, access: AccessControl) -> None:
        self._access = access
        self._respond: Callable[[Command, Peer], Answer] | None = None
        self._clients: Clients | None = None

    def open(self, respond: Callable[[Command, Peer], Answer], clients: Clients) -> None:
        self._respond, self._clients = respond, clients

    def answer(self, request: Command, peer: Peer) -> Answer:
        if self._respond is None:
            return refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is starting")
        denied = self._access.denied(request, peer)
        return self._respond(request, peer) if denied is None else denied

    def closed(self, peer: Peer) -> None:
        if self._clients is not None:
            self._clients.changes.note(self._clients.table.disconnected(peer))


async def run_broker(
    config: BrokerConfig,
    *,
    files: Files | None = None,
    wrap_handler: Callable[[Handler], Handler] | None = None,
    task_status: trio.TaskStatus[RunningBroker] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Runs a broker until cancelled or stopped. Reports its start once a NameServer, if any is set, has registered it.

    `files` replace the directory storePathRootDir. `wrap_handler` gets the broker's handler and returns the handler
    that receives all requests instead. A cancelled broker stops in order: it unregisters, closes port and
    connections, and flushes. Raises `StoreError` if the store cannot be opened, `NetworkError` if the port cannot,
    `InvalidArgument` for settings that contradict each other.
    """
    check_slaves_possible(config)
    access = await access_control(
        config.access,
        cluster=config.broker_cluster_name,
        folder=config.store_root / FOLDER,
        max_body_bytes=config.max_heartbeat_bytes,
    )
    parts = StoreParts.make(config, DiskFiles(config.store_root) if files is None else files)
    with ExitStack() as leaving:
        leaving.callback(parts.store.abandon)
        try:
            await parts.open(config)
            async with trio.open_nursery() as nursery:
                services = await nursery.start(_keep_services)
                try:
                    running = await _start(config, parts, access, services, wrap_handler)
                    leaving.pop_all()
                    leaving.callback(running.leave_files)
                    try:
                        await _work(running, task_status)
                    finally:
                        if not running.is_killed:
                            await _leave(running)
                finally:
                    services.cancel_scope.cancel()
        except BaseExceptionGroup as failures:
            raise failure_in(failures) from None


async def _keep_services(task_status: trio.TaskStatus[trio.Nursery]) -> None:
    """Runs the nursery of the port and connections, shielded from cancellation, so that the broker stops in order."""
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
    entrance, measures = Entrance(access), parts.counts.measures
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
    ha_port = min(listening.port + 1, MAX_PORT)  # a slave only registers this port, and does not listen at it
    if not config.is_slave:
        ha_port = await open_ha_port(config, parts.ha, services, listening.host, listening.port)
    broker = make_broker(replace(config, listen_port=listening.port), parts, services, ha_port, access)
    _load(broker)
    entrance.open(handler_of(broker), broker.clients)
    return RunningBroker(broker, listening)


async def _leave(running: RunningBroker) -> None:
    """Unregisters before it closes all connections, so that disconnected clients find routes without this broker."""
    with trio.move_on_after(STOP_SECONDS, shield=True):
        await running.broker.cluster.registration.unregister()
        await running.listening.aclose()


def make_broker(
    config: BrokerConfig, parts: StoreParts, services: trio.Nursery, ha_port: int, access: AccessControl
) -> Broker:
    """Creates the broker from its store's `parts` and all other parts. `ha_port` is the port for slaves."""
    store, files, topics, offsets = parts.store, parts.store.files, parts.topics, parts.offsets
    settings, identity = LiveSettings(config), Identity(config.advertised_ip, config.listen_port)
    groups = GroupTable(files, auto_create=config.auto_create_subscription_group)
    filters = ConsumerFilters(files, kept_ms=config.filter_data_clean_time_span)
    clients, notices = ClientTable(), GroupNotices()
    header = RegistrationHeader(
        cluster_name=config.broker_cluster_name,
        broker_addr=identity.address,
        broker_name=config.broker_name,
        broker_id=config.broker_id,
        ha_server_addr=format_address(config.advertised_ip, ha_port),
        heartbeat_timeout_ms=config.broker_not_active_timeout_millis if config.enable_slave_acting_master else None,
        enable_acting_master=config.enable_slave_acting_master,
    )

    def look() -> None:
        if slave is not None:
            slave.look()

    pool = ConnectionPool(services, tls=config.tls.client_context())
    registration = BrokerRegistration(config, header, topics, pool, on_master=look)
    slave = SlaveRole(config, parts, groups, registration) if config.is_slave else None
    transactions = Transactions(
        store,
        offsets,
        ProducerChecks(clients, config.broker_name),
        config,
        identity.store_host,
        on_committed=parts.counts.figures.note_commit,
        on_ended=parts.counts.transaction_ended,
    )
    announcer = TopicAnnouncer(topics, registration, services)
    log = ReviveLog(config.revive_topic, REVIVE_QUEUES, config.broker_name, identity, config.timer_settings)
    ordered = OrderedQueues(files, offsets, parts.waits)
    reviver = Reviver(
        settings, log, store, topics, groups, offsets, parts.timers, parts.waits, announcer, parts.counts, ordered
    )
    return Broker(
        settings,
        identity,
        access,
        store,
        Tables(topics, groups, offsets, filters, RequestModes(files)),
        Clients(clients, parts.held, notices, MemberChanges(settings, clients, groups, filters, notices)),
        Deliveries(parts.delays, parts.timers, transactions, reviver),
        Services(parts.flusher, parts.retention, parts.index, services),
        Cluster(registration, announcer, parts.ha, slave),
        parts.counts,
    )


def _load(broker: Broker) -> None:
    tables = broker.tables
    try:
        tables.topics.file.save()
    except StoreError as error:
        log.error("topics.json is written later: %s", error)
        tables.topics.file.changed()
    tables.groups.load()
    tables.offsets.load()
    tables.filters.load(broker.identity.booted_ms)
    tables.modes.load()
    broker.deliveries.reviver.ordered.load()
    if not broker.settings.config.is_slave and broker.deliveries.timers.enabled:
        reviver = broker.deliveries.reviver
        if raised := reviver.log.restore_offsets(broker.store.reader, tables.offsets):
            log.info("%d offsets of groups that pop were not in their file, and are restored", raised)
    broker.deliveries.delays.load()
    broker.deliveries.transactions.load()


async def _work(running: RunningBroker, task_status: trio.TaskStatus[RunningBroker]) -> None:
    broker, config = running.broker, running.config
    with running.scope:
        async with trio.open_nursery() as nursery:
            for task in _tasks(broker):
                nursery.start_soon(task)
            for task in await _tasks_of_role(broker):
                nursery.start_soon(task)
            if config.exports_metrics:
                metrics = BrokerMetrics(
                    broker.settings,
                    broker.store,
                    broker.tables,
                    broker.clients.table,
                    broker.deliveries,
                    broker.counts,
                    broker.services.long_work,
                )
                await start_exporter(
                    nursery,
                    metrics.families,
                    config.metrics_prom_exporter_host,
                    config.metrics_prom_exporter_port,
                    common=common_labels(config),
                )
            await nursery.start(broker.cluster.registration.run)
            task_status.started(running)


def _tasks(broker: Broker) -> list[Task]:
    services, clients, tables = broker.services, broker.clients, broker.tables
    return [
        broker.access.run,
        services.flusher.run,
        services.retention.run,
        services.index.run,
        clients.held.run,
        partial(sample_figures, broker.counts.figures),
        partial(clients.notices.run, clients.table),
        tables.topics.file.run,
        tables.groups.file.run,
        tables.modes.file.run,
        partial(keep_written, broker),
        partial(expire_clients, broker),
    ]


async def _tasks_of_role(broker: Broker) -> list[Task]:
    config, cluster, tables, deliveries = broker.settings.config, broker.cluster, broker.tables, broker.deliveries
    if cluster.slave is not None:
        mark_slave(broker.store.files)
        return cluster.slave.tasks()
    role = MasterRole(config, broker.store, tables.topics, tables.offsets, deliveries.delays, cluster.registration)
    if config.enable_slave_acting_master:
        await role.take_progress_back()
    role.resume()
    checks = partial(deliveries.transactions.run, cluster.announcer.ensure)
    lite = [partial(expire_lite_queues, broker)] if config.keeps_lite_queues else []
    return [deliveries.delays.run, deliveries.timers.run, deliveries.reviver.run, checks, *lite]
