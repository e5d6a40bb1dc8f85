"""`EmbeddedCluster`: a NameServer and brokers in this process, on free ports, for tests and for trying things out.

A test can answer, drop, delay or cut chosen requests (`control` wraps the servers' handlers), and end brokers as a
crash does (`kill`) or as a power failure does (`power_cut`). Brokers and NameServer have no code for this.
"""

from __future__ import annotations

import enum
import json
import os
import shutil
import string
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import trio

from pyrmq_core.broker import BrokerConfig, DiskFiles, ForgetfulFiles, RunningBroker, run_broker
from pyrmq_core.errors import InvalidArgument, InvalidState, NetworkError
from pyrmq_core.nameserver import NameServerConfig, RunningNameServer, run_nameserver
from pyrmq_core.network import CutConnection, Handler, Peer, ask, open_owned_nursery, parse_address
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command

__all__ = ["PASS", "Control", "CutConnection", "EmbeddedCluster"]

CLUSTER_NAME: Final = "DefaultCluster"
NAMESERVER: Final = "nameserver"
PORTS_FILE: Final = "ports.json"
# A memory-backed directory, where the system has one: a commit log is written at memory speed there.
MEMORY_BACKED: Final = Path("/dev/shm")
# Small files for tests: they are sparse, but recovery after a crash reads a file whole.
SMALL_FILES: Final = {
    "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
    "mappedFileSizeConsumeQueue": "600000",
    "mapperFileSizeBatchConsumeQueue": "460000",
}


class Pass(enum.Enum):
    """The value that a control function returns to let the server answer as usual."""

    PASS = "pass"


PASS: Final = Pass.PASS
ControlFunction = Callable[[Command, Peer], Awaitable[Command | Pass | None]]


@dataclass(eq=False, slots=True)
class Control:
    """One rule of `EmbeddedCluster.control`; `seen` holds the requests that it handled, oldest first."""

    code: int
    server: str | None
    function: ControlFunction
    times: int | None
    seen: list[Command] = field(default_factory=list)
    removed: bool = False

    def remove(self) -> None:
        """Ends the rule: from now on requests go to the server."""
        self.removed = True

    def takes(self, server: str, request: Command) -> bool:
        spent = self.times is not None and len(self.seen) >= self.times
        return not (self.removed or spent) and request.code == self.code and self.server in (None, server)


class _KeptPorts:
    """The ports of servers by name, in a file beside their stores; an unreadable file counts as missing."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def port(self, name: str) -> int:
        """Returns the port that was kept last, or 0."""
        port = self._known().get(name)
        return port if isinstance(port, int) and 0 < port < 65536 else 0

    def keep(self, name: str, port: int) -> None:
        if self.port(name) != port:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps({**self._known(), name: port}, indent=1) + "\n", encoding="utf-8")

    def _known(self) -> dict[str, object]:
        try:
            known = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}


@dataclass(slots=True)
class _Server:
    config: BrokerConfig
    running: RunningBroker | None = None
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)


class EmbeddedCluster:
    """`async with EmbeddedCluster(brokers=2) as cluster:` serves at `cluster.nameserver` until the block ends.

    Brokers are named broker-a, broker-b, ...; `settings` apply to all of them, under RocketMQ's names. Stores are in a
    temporary directory, memory-backed where possible, which is removed afterwards. Stores in a `directory` stay: the
    next cluster there opens them again, on the same ports where these are free. With `forgetful`, stores record which
    bytes are not synced yet, for `power_cut`. `host` is an IP address of this machine.
    """

    def __init__(
        self,
        brokers: int | Sequence[str] = 1,
        *,
        settings: Mapping[str, str] | None = None,
        nameserver_settings: Mapping[str, str] | None = None,
        port: int = 0,
        host: str = "127.0.0.1",
        forgetful: bool = False,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        names = (
            [f"broker-{letter}" for letter in string.ascii_lowercase[:brokers]] if isinstance(brokers, int) else brokers
        )
        if not names:
            raise InvalidArgument(f"brokers={brokers!r}: between 1 and 26, or a list of names")
        self._names = tuple(names)
        self._settings = dict(settings or {})
        self._nameserver_settings = dict(nameserver_settings or {})
        self._port = port
        self._host = host
        self._forgetful = forgetful
        self._directory = None if directory is None else Path(directory)
        self._ports = None if self._directory is None else _KeptPorts(self._directory / PORTS_FILE)
        self._stack = AsyncExitStack()
        self._nursery: trio.Nursery | None = None
        self._nameserver: RunningNameServer | None = None
        self._servers: dict[str, _Server] = {}
        self._controls: list[Control] = []

    async def __aenter__(self) -> Self:
        if self._nursery is not None:
            raise InvalidState("this EmbeddedCluster was opened before; make a new one")
        if self._directory is None:
            parent = MEMORY_BACKED if os.access(MEMORY_BACKED, os.W_OK) else None
            self._directory = Path(tempfile.mkdtemp(prefix="pyrmq-", dir=parent))
            self._stack.callback(shutil.rmtree, self._directory, ignore_errors=True)
        try:
            self._nursery = await self._stack.enter_async_context(open_owned_nursery())
            await self._start_nameserver()
            self._stack.push_async_callback(self._stop_brokers)  # before the NameServer, with which they unregister
            for name in self._names:
                await self._start_broker(name)
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
        """`host:port` of the NameServer."""
        if self._nameserver is None:
            raise InvalidState("this EmbeddedCluster is not open: use it inside `async with`")
        return self._nameserver.address

    @property
    def brokers(self) -> dict[str, str]:
        """The `host:port` of each running broker by its name."""
        return {name: server.running.address for name, server in self._servers.items() if server.running is not None}

    @property
    def directory(self) -> Path:
        """The directory of the stores."""
        if self._directory is None:
            raise InvalidState("this EmbeddedCluster is not open: use it inside `async with`")
        return self._directory

    def control(
        self, code: int, function: ControlFunction, *, server: str | None = None, times: int | None = None
    ) -> Control:
        """Sends requests with this code to `function`, at one server (a broker's name, `"nameserver"`) or at all.

        `function` returns the answer, None for no answer, or `PASS`; it may wait, or raise `CutConnection`. `times`
        limits how often it is called.
        """
        if server is not None and server != NAMESERVER and server not in self._names:
            raise InvalidArgument(f"server={server!r}: nameserver, {', '.join(self._names)} are there")
        rule = Control(RequestCode(code), server, function, times)
        self._controls.append(rule)
        return rule

    async def kill(self, name: str) -> None:
        """Ends a broker as SIGKILL does: it does not flush or unregister; acknowledged data is in its files."""
        await self._end(name, lambda running: running.kill())

    async def power_cut(self, name: str) -> None:
        """Ends a broker as a power failure does: unsynced data is lost. Needs `forgetful=True`."""
        await self._end(name, lambda running: running.power_cut())

    async def stop(self, name: str) -> None:
        """Ends a broker in order, as SIGTERM does."""
        await self._end(name, lambda running: running.stop())

    async def start(self, name: str) -> None:
        """Starts a broker that was ended, on its old port and store."""
        if self._servers[name].running is not None:
            raise InvalidState(f"{name} is running")
        await self._start_broker(name)

    async def _stop_brokers(self) -> None:
        for server in self._servers.values():
            if server.running is not None:
                server.running.stop()
        for server in self._servers.values():
            if server.running is not None:
                await server.ended.wait()

    async def _start_nameserver(self) -> None:
        settings = {
            "bindAddress": self._host,
            "kvConfigPath": str(self.directory / "namesrv" / "kvConfig.json"),
            **self._nameserver_settings,
        }

        async def start(port: int) -> int:
            assert self._nursery is not None
            config = NameServerConfig().with_settings({"listenPort": str(port), **settings})
            run = partial(run_nameserver, config, wrap_handler=self._wrapping(NAMESERVER))
            self._nameserver = await self._nursery.start(run)
            return parse_address(self._nameserver.address)[1]

        await self._start_on_its_port(NAMESERVER, start, self._port)

    async def _start_broker(self, name: str) -> None:
        server = self._servers.get(name)
        if server is None:
            settings = {
                "brokerClusterName": CLUSTER_NAME,
                "brokerName": name,
                "bindAddress": self._host,
                "brokerIP1": self._host,
                "listenPort": "0",
                "namesrvAddr": self.nameserver,
                "storePathRootDir": str(self.directory / name),
                **SMALL_FILES,
                **self._settings,
            }
            server = self._servers[name] = _Server(BrokerConfig().with_settings(settings))

        async def start(port: int) -> int:
            assert self._nursery is not None
            server.config = server.config.with_settings({"listenPort": str(port)})
            server.ended = trio.Event()
            server.running = await self._nursery.start(self._run_broker, name, server)
            return parse_address(server.running.address)[1]

        # A broker that is started again has the port that its clients know.
        port = await self._start_on_its_port(name, start, server.config.listen_port)
        server.config = server.config.with_settings({"listenPort": str(port)})

    async def _start_on_its_port(self, name: str, start: Callable[[int], Awaitable[int]], port: int) -> int:
        """Starts on `port`; if that is 0, on the port of an earlier run, or on a free one if that is taken."""
        kept = 0 if port or self._ports is None else self._ports.port(name)
        try:
            taken = await start(port or kept)
        except NetworkError:
            if not kept:
                raise
            taken = await start(0)
        if self._ports is not None:
            self._ports.keep(name, taken)
        return taken

    async def _run_broker(self, name: str, server: _Server, task_status: trio.TaskStatus[RunningBroker]) -> None:
        try:
            directory = DiskFiles(server.config.store_root)
            files = ForgetfulFiles(directory) if self._forgetful else directory
            await run_broker(server.config, files=files, wrap_handler=self._wrapping(name), task_status=task_status)
        finally:
            server.ended.set()

    async def _end(self, name: str, end: Callable[[RunningBroker], None]) -> None:
        server = self._servers[name]
        running, server.running = server.running, None
        if running is None:
            raise InvalidState(f"{name} is not running")
        end(running)
        await server.ended.wait()

    def _wrapping(self, name: str) -> Callable[[Handler], Handler]:
        """Returns a wrapper that tries the rules of `control` before the server's handler; no rule means no delay."""

        def wrap(handler: Handler) -> Handler:
            def controlled(request: Command, peer: Peer) -> Command | Awaitable[Command | None] | None:
                for rule in self._controls:
                    if rule.takes(name, request):
                        rule.seen.append(request)
                        return self._by_rule(rule, handler, request, peer)
                return handler(request, peer)

            return controlled

        return wrap

    async def _by_rule(self, rule: Control, handler: Handler, request: Command, peer: Peer) -> Command | None:
        answer = await rule.function(request, peer)
        return await ask(handler, request, peer) if answer is PASS else answer
