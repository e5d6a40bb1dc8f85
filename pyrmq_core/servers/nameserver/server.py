"""`run_nameserver`: runs a NameServer, which removes silent brokers, and saves its KV configuration when it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from pyrmq_core.errors import InvalidArgument, NetworkError, StoreError
from pyrmq_core.network import ConnectionPool, Handler, Listening, Peer, failure_in, serve
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.network.standstill import sleep_and_hear
from pyrmq_core.network.tls_settings import watch_certificate
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.servers.access.control import access_control
from pyrmq_core.servers.exporter.rpc_latency import RpcLatency
from pyrmq_core.servers.exporter.start import start_exporter
from pyrmq_core.servers.nameserver.config import NameServerConfig
from pyrmq_core.servers.nameserver.exported import NameServerMetrics
from pyrmq_core.servers.nameserver.handlers import handle
from pyrmq_core.servers.nameserver.kvconfig import KvConfig
from pyrmq_core.servers.nameserver.service import NameServer
from pyrmq_core.servers.nameserver.tables import RouteTables
from pyrmq_core.servers.nameserver.tables.changes import MinBrokerIdChange
from pyrmq_core.servers.protocol.broker_heartbeat import NotifyMinBrokerIdChange

log = line_logger(__name__)

# As in 4.x (NamesrvController): the times of the first scan for silent brokers and of the first log of the KV
# configuration, and the interval of further logs.
FIRST_SCAN_SECONDS: Final = 5.0
FIRST_KV_SECONDS: Final = 60.0
KV_SECONDS: Final = 600.0
NOTICE_SECONDS: Final = 0.3
NOTICES: Final = 1000
# The cluster whose rights a request needs if it names no cluster: RocketMQ's default (BrokerConfig).
DEFAULT_CLUSTER: Final = "DefaultCluster"
# The most unanswered requests of a connection. Meanwhile no further ones are read from it. A client queries one route
# at a time, and a broker registers every 30 s.
REQUESTS_PER_CONNECTION: Final = 64


@dataclass(eq=False, slots=True)
class RunningNameServer:
    """A started NameServer: its address, tables, KV configuration and settings, and the two ways to stop it."""

    listening: Listening
    server: NameServer
    scope: trio.CancelScope
    is_killed: bool = False
    metrics_address: str = ""  # set with metricsExporterType=PROM

    @property
    def address(self) -> str:
        """The address that the NameServer listens on."""
        return self.listening.address

    @property
    def tables(self) -> RouteTables:
        """The route tables as they are now."""
        return self.server.tables

    @property
    def kv(self) -> KvConfig:
        """The KV configuration as it is now."""
        return self.server.kv

    @property
    def config(self) -> NameServerConfig:
        """The current settings, which may change while it runs."""
        return self.server.config

    def stop(self) -> None:
        """Stops the NameServer as SIGTERM does: it closes its connections and saves its KV configuration."""
        self.scope.cancel()

    def kill(self) -> None:
        """Stops the NameServer as SIGKILL does: changes of its KV configuration that are not yet saved are lost."""
        self.is_killed = True
        self.scope.cancel()


async def run_nameserver(
    config: NameServerConfig | None = None,
    *,
    wrap_handler: Callable[[Handler], Handler] | None = None,
    task_status: trio.TaskStatus[RunningNameServer] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Runs a NameServer until cancelled or stopped. `nursery.start` returns the `RunningNameServer`.

    `wrap_handler` wraps the request handler, to read and change requests and answers. When cancelled, the NameServer
    closes the port and all connections, and saves its KV configuration. Raises `NetworkError` if it cannot listen, and
    `InvalidArgument` for invalid TLS files.
    """
    config = config or NameServerConfig()
    to_send, to_take = trio.open_memory_channel[MinBrokerIdChange](NOTICES)
    access = await access_control(config.access, cluster=DEFAULT_CLUSTER, folder=config.users_folder)
    server = NameServer(config, notify=partial(_queue_notice, to_send))
    server.access = access
    server.load()

    def answer(request: Command, peer: Peer) -> Command | Awaitable[Command | None] | None:
        denied = access.denied(request, peer)
        return handle(server, request, peer) if denied is None else denied

    latency = RpcLatency() if config.exports_metrics else None
    handler = answer if latency is None else latency.measured(answer)
    tls = config.tls.server_context()
    listen = partial(
        serve,
        handler if wrap_handler is None else wrap_handler(handler),
        config.bind_address,
        config.listen_port,
        on_close=server.connection_closed,
        idle_timeout=float(config.server_channel_max_idle_time_seconds),
        max_requests_per_connection=REQUESTS_PER_CONNECTION,
        bounds=config.bounds,
        tls=tls,
        tls_mode=config.tls.mode,
    )
    running: RunningNameServer | None = None
    try:
        async with trio.open_nursery() as nursery:
            listening = await nursery.start(listen)
            nursery.start_soon(_send_notices, ConnectionPool(nursery, tls=config.tls.client_context()), to_take)
            nursery.start_soon(tell_kv_rounds, server)
            if tls is not None:
                nursery.start_soon(watch_certificate, config.tls, tls)
            running = RunningNameServer(listening, server, nursery.cancel_scope)
            if latency is not None:
                running.metrics_address = await _start_exporter(nursery, running, latency)
            task_status.started(running)
            await scan_rounds(server)
    except BaseExceptionGroup as failures:
        raise failure_in(failures) from None
    finally:
        if running is None or not running.is_killed:
            await _write_kv(server)


async def _start_exporter(nursery: trio.Nursery, running: RunningNameServer, latency: RpcLatency) -> str:
    config, listening = running.config, running.listening
    metrics = NameServerMetrics(running.server, latency, lambda: len(listening.connections))
    return await start_exporter(
        nursery,
        metrics.families,
        config.metrics_prom_exporter_host,
        config.metrics_prom_exporter_port,
        common={"node_type": "nameserver", "node_id": listening.address},
    )


async def scan_rounds(server: NameServer) -> None:
    await sleep_and_hear(FIRST_SCAN_SECONDS)
    while True:
        server.scan()
        await sleep_and_hear(server.config.scan_not_active_broker_interval_ms / 1000)


async def tell_kv_rounds(server: NameServer) -> None:
    await trio.sleep(FIRST_KV_SECONDS)
    while True:
        await server.log_kv()
        await trio.sleep(KV_SECONDS)


def _queue_notice(to_send: trio.MemorySendChannel[MinBrokerIdChange], notice: MinBrokerIdChange) -> None:
    try:
        to_send.send_nowait(notice)
    except trio.WouldBlock:
        log.warning("broker %s gets no notice of its smallest id: %d notices wait", notice.broker_name, NOTICES)


async def _send_notices(pool: ConnectionPool, to_take: trio.MemoryReceiveChannel[MinBrokerIdChange]) -> None:
    """Sends brokers each notice of a new smallest id once. A broker that misses it queries the id by itself."""
    async for notice in to_take:
        command = NotifyMinBrokerIdChange(
            min_broker_id=notice.min_broker_id,
            min_broker_addr=notice.min_broker_addr,
            offline_broker_addr=notice.offline_address,
            ha_broker_addr=notice.ha_server_addr,
        ).to_command()
        targets = ", ".join(notice.targets)
        log.info("smallest id of broker %s is now %d, notifying %s", notice.broker_name, notice.min_broker_id, targets)
        for address in notice.targets:
            try:
                await pool.send_oneway(address, command, timeout=NOTICE_SECONDS)
            except (NetworkError, InvalidArgument) as error:  # the registered address may be unusable
                log.warning("%s gets no notice of its group's smallest id: %s", address, error)


async def _write_kv(server: NameServer) -> None:
    with trio.CancelScope(shield=True):
        try:
            await server.kv.save()
        except StoreError as error:
            log.error("%s", error)
