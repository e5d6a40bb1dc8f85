"""`EmbeddedCluster`, the NameServers and brokers of one `async with` block."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn, Self

import trio

from pyrmq_core.errors import InvalidArgument, InvalidState
from pyrmq_core.model import TopicConfig
from pyrmq_core.network import open_owned_nursery
from pyrmq_core.network.server import TlsMode
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.servers.broker import DiskFiles, RunningBroker, make_topics, run_broker
from pyrmq_core.servers.embedded.arguments import (
    NAMESERVER_FILES,
    broker_config,
    broker_places,
    broker_ports,
    changed_settings,
    checked_nameserver_settings,
    checked_timeout,
    server_names,
    topic_configs,
)
from pyrmq_core.servers.embedded.controls import Control, ControlFunction, Controls
from pyrmq_core.servers.embedded.forgetful_files import ForgetfulFiles, cut_power
from pyrmq_core.servers.embedded.pairs import Pair, follow, have_all, pairs_of
from pyrmq_core.servers.embedded.servers import KeptPorts, Server
from pyrmq_core.servers.nameserver import NameServerConfig, RunningNameServer, run_nameserver

NAMESERVER: Final = "nameserver"
PORTS_FILE: Final = "ports.json"
# A directory in memory, if the system has one, where files are written faster.
MEMORY_BACKED: Final = Path("/dev/shm")


class EmbeddedCluster:
    """`async with EmbeddedCluster(brokers=2) as cluster:` serves at `cluster.nameserver` until the block ends.

    Brokers are named broker-a, broker-b, ... A single NameServer is named nameserver, several nameserver-a,
    nameserver-b, ... Each broker has `slaves` slaves, which follow it when the block begins. The slaves of broker-a are
    named broker-a-1 (id 1), broker-a-2 (id 2), ... With `sync` a send is answered when a slave has the message.

    `settings` apply to all brokers and `nameserver_settings` to all NameServers, under RocketMQ's names. `topics` maps
    a topic's name to its number of queues or a `TopicConfig`. When the block begins, every broker has these topics and
    every NameServer their routes. `port` is the port of the first NameServer, `host` an IP address of this machine.

    Stores are in a temporary directory, in memory where possible, which is removed afterwards. Stores in a `directory`
    stay: the next cluster there opens them again, on the same ports if these are free. A store larger than 2 GiB
    removes its oldest messages. `maxStoreBytes` in `settings` sets another limit (0: none). With `forgetful`, stores
    record which bytes are not synced yet, for `power_cut`.

    Raises `InvalidArgument` with the name of a wrong argument, topic or setting.
    """

    def __init__(
        self,
        brokers: int | Sequence[str] = 1,
        *,
        slaves: int = 0,
        sync: bool = False,
        nameservers: int | Sequence[str] = 1,
        topics: Mapping[str, int | TopicConfig] | None = None,
        settings: Mapping[str, str] | None = None,
        nameserver_settings: Mapping[str, str] | None = None,
        port: int = 0,
        broker_port: int = 0,
        host: str = "127.0.0.1",
        forgetful: bool = False,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        places = broker_places(server_names("broker", brokers), slaves)
        nameserver_names = (NAMESERVER,) if nameservers == 1 else server_names("nameserver", nameservers)
        if both := places.keys() & set(nameserver_names):
            raise InvalidArgument(f"{', '.join(both)} names a broker and a NameServer")
        self._topics = topic_configs(topics)
        common = broker_config(settings, host=host, slaves=slaves, sync=sync)
        self._broker_configs = {name: common.with_settings(place.settings()) for name, place in places.items()}
        several = len(nameserver_names) > 1
        self._nameserver_settings = checked_nameserver_settings(nameserver_settings, host=host, several=several)
        self._has_slaves = slaves > 0
        self._forgetful = forgetful
        self._directory = None if directory is None else Path(directory)
        kept_ports = None if self._directory is None else KeptPorts(self._directory / PORTS_FILE)
        self._nameservers = {
            name: Server(name, partial(self._run_nameserver, name), port=first_port, kept_ports=kept_ports)
            for name, first_port in zip(nameserver_names, (port, *[0] * 25), strict=False)
        }
        self._brokers = {
            name: Server(name, partial(self._run_broker, name), port=first_port, kept_ports=kept_ports)
            for name, first_port in zip(places, broker_ports(broker_port, len(places)), strict=True)
        }
        self._controls = Controls()
        self._stack = AsyncExitStack()
        self._nursery: trio.Nursery | None = None

    def __enter__(self) -> NoReturn:
        raise InvalidState("this EmbeddedCluster is opened by `async with`; `with` opens that of pyrmq_core.blocking")

    def __exit__(self, *_: object) -> None:
        """Does nothing: `with` needs this method, but `__enter__` always raises."""

    async def __aenter__(self) -> Self:
        if self._nursery is not None:
            raise InvalidState("this EmbeddedCluster was opened before; make a new one")
        if self._directory is None:
            parent = MEMORY_BACKED if os.access(MEMORY_BACKED, os.W_OK) else None
            self._directory = Path(tempfile.mkdtemp(prefix="pyrmq-", dir=parent))
            self._stack.callback(shutil.rmtree, self._directory, ignore_errors=True)
        try:
            self._nursery = await self._stack.enter_async_context(open_owned_nursery())
            for nameserver in self._nameservers.values():
                await nameserver.start(self._nursery)
            self._stack.push_async_callback(self._stop_brokers)  # brokers stop before NameServers, to unregister
            for broker in self._brokers.values():  # masters are first
                running = await broker.start(self._nursery)
                if not running.config.is_slave:
                    await make_topics(running.broker, self._topics)
            await follow(self._pairs())
        except BaseException:
            await self._stack.__aexit__(*sys.exc_info())
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, traceback)

    @property
    def nameserver(self) -> str:
        """The addresses of all NameServers, running or not, in the format for clients: `host:port;host:port`."""
        self._opened()
        return ";".join(server.address for server in self._nameservers.values())

    @property
    def nameservers(self) -> dict[str, str]:
        """The `host:port` of each running NameServer by its name."""
        return {name: server.address for name, server in self._nameservers.items() if server.running is not None}

    @property
    def brokers(self) -> dict[str, str]:
        """The `host:port` of each running master by its name."""
        return self._running(is_slave=False)

    @property
    def slaves(self) -> dict[str, str]:
        """The `host:port` of each running slave by its name."""
        return self._running(is_slave=True)

    @property
    def directory(self) -> Path:
        """The directory of the stores."""
        if self._directory is None:
            raise InvalidState("this EmbeddedCluster is not open: use it inside `async with`")
        return self._directory

    def control(
        self, code: int, function: ControlFunction, *, server: str | None = None, times: int | None = None
    ) -> Control:
        """Calls `function` in place of the server's handler for requests with this code.

        `server` is the name of one broker or NameServer, or None for all. `function` is async and runs on the cluster's
        loop. It returns the answer, None for no answer, or `PASS` to call the server's handler. It may wait, or raise
        `CutConnection`. `times` limits how often it is called. The rule stays when a server is started again.
        """
        if server is not None:
            self._server(server)
        rule = Control(RequestCode(code), server, function, times)
        self._controls.add(rule)
        return rule

    async def kill(self, name: str) -> None:
        """Ends a server as SIGKILL does: a broker neither flushes nor unregisters, a NameServer loses its routes.

        The broker's files have all acknowledged messages.
        """
        await self._server(name).end(lambda running: running.kill())

    async def power_cut(self, name: str) -> None:
        """Ends a broker as a power cut does: unsynced data is lost. Needs `forgetful=True`."""
        await self._broker(name, "kill ends a NameServer").end(cut_power)

    async def stop(self, name: str) -> None:
        """Ends a server as SIGTERM does, with flush and unregistration."""
        await self._server(name).end(lambda running: running.stop())

    async def start(self, name: str, *, settings: Mapping[str, str] | None = None) -> None:
        """Starts a server that was ended, with its old port and files.

        When this returns, a broker is registered with all running NameServers, and its slaves follow it. A slave that
        cannot follow logs the reason. `settings` change the broker's settings, also for later starts. For example,
        brokerRole=ASYNC_MASTER and brokerId=0 make a slave the master, after the old master has ended. A NameServer
        starts without routes, as in RocketMQ, so the running brokers register with it before this returns. Raises
        `InvalidState` if a broker has no running NameServer, or another broker runs with the same name and id.
        """
        nursery, server = self._opened(), self._server(name)
        if settings is not None:
            self._change(name, settings)
        if name in self._brokers:
            self._check_start(name)
        await server.start(nursery)
        if name in self._brokers:
            await follow([pair for pair in self._pairs() if name in (pair.master_name, pair.slave_name)])
            return
        async with trio.open_nursery() as registrations:
            for broker in self._brokers.values():
                if broker.running is not None:
                    registrations.start_soon(broker.running.broker.cluster.registration.register_anew, server.address)

    async def wait_for_slaves(self, timeout: float = 10.0) -> None:
        """Waits until each running slave has its master's current messages, topics, groups and offsets.

        Skips slaves whose master does not run. Raises `InvalidState` with the reason after `timeout` seconds.
        """
        self._opened()
        await have_all(self._pairs(), checked_timeout(timeout))

    def _opened(self) -> trio.Nursery:
        if self._nursery is None:
            raise InvalidState("this EmbeddedCluster is not open: use it inside `async with`")
        return self._nursery

    def _server(self, name: str) -> Server[RunningNameServer] | Server[RunningBroker]:
        servers = {**self._nameservers, **self._brokers}
        if name not in servers:
            raise InvalidArgument(f"server={name!r}: {', '.join(servers)} are there")
        return servers[name]

    def _broker(self, name: str, otherwise: str) -> Server[RunningBroker]:
        if name not in self._brokers:
            raise InvalidArgument(f"{name}: {', '.join(self._brokers)} are the brokers; {otherwise}")
        return self._brokers[name]

    def _running(self, *, is_slave: bool) -> dict[str, str]:
        brokers = self._brokers.items()
        return {
            name: server.address
            for name, server in brokers
            if server.running is not None and server.running.config.is_slave is is_slave
        }

    def _pairs(self) -> list[Pair]:
        return pairs_of({name: server.running for name, server in self._brokers.items() if server.running is not None})

    def _change(self, name: str, settings: Mapping[str, str]) -> None:
        broker = self._broker(name, "settings are a broker's")
        if broker.running is not None:
            raise InvalidState(f"{name} is running")
        self._broker_configs[name] = self._broker_configs[name].with_settings(changed_settings(settings))

    def _check_start(self, name: str) -> None:
        if not self.nameservers:
            raise InvalidState(
                f"{name} has no NameServer to register with; start {' or '.join(self._nameservers)} first"
            )
        wanted = self._broker_configs[name]
        for other, server in self._brokers.items():
            if other != name and server.running is not None:
                config = server.running.config
                if (config.broker_name, config.broker_id) == (wanted.broker_name, wanted.broker_id):
                    raise InvalidState(
                        f"{other} runs with brokerId={config.broker_id} of {config.broker_name}; end it before {name} "
                        "starts with the same"
                    )

    async def _stop_brokers(self) -> None:
        async with trio.open_nursery() as ends:
            for broker in self._brokers.values():
                if broker.running is not None:
                    ends.start_soon(broker.end, RunningBroker.stop)

    async def _run_nameserver(self, name: str, port: int, task_status: trio.TaskStatus[RunningNameServer]) -> None:
        files = {setting: str(self.directory / name / file) for setting, file in NAMESERVER_FILES.items()}
        settings = {"listenPort": str(port), **files, **self._nameserver_settings}
        config = NameServerConfig().with_settings(settings)
        await run_nameserver(config, wrap_handler=self._controls.wrapping(name), task_status=task_status)

    async def _run_broker(self, name: str, port: int, task_status: trio.TaskStatus[RunningBroker]) -> None:
        config = self._broker_configs[name]
        own = {
            "listenPort": str(port),
            "namesrvAddr": self.nameserver,
            "storePathRootDir": str(self.directory / name),
        }
        if self._has_slaves and not config.is_slave and (config.access.is_on or config.tls.mode is TlsMode.ENFORCING):
            own["haListenPort"] = "0"  # with access control or TLS, slaves need a port in the settings; 0 is a free one
        config = config.with_settings(own)
        directory = DiskFiles(config.store_root)
        files = ForgetfulFiles(directory) if self._forgetful else directory
        await run_broker(config, files=files, wrap_handler=self._controls.wrapping(name), task_status=task_status)
