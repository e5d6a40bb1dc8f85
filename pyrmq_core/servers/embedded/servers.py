"""`Server`: a NameServer or broker of an embedded cluster, which has the same port after each start."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import trio

from pyrmq_core.errors import InvalidState, NetworkError
from pyrmq_core.network import parse_address


class RunningServer(Protocol):
    """A started server: `RunningNameServer` or `RunningBroker`."""

    @property
    def address(self) -> str: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


R = TypeVar("R", bound=RunningServer)


class Server(Generic[R]):
    """A NameServer or a broker. `run` runs it on a port until it is stopped.

    If `port` is 0, the first start uses the port that an earlier cluster saved in `kept_ports`, or else a free port.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[int, trio.TaskStatus[R]], Awaitable[None]],
        *,
        port: int = 0,
        kept_ports: KeptPorts | None = None,
    ) -> None:
        self.name = name
        self.running: R | None = None
        self.address = ""  # empty before the start; it does not change afterwards
        self._run = run
        self._port = port
        self._kept_ports = kept_ports
        self._ended = trio.Event()

    async def start(self, nursery: trio.Nursery) -> R:
        """Starts the server. Raises `InvalidState` if it runs already, `NetworkError` if its port is in use."""
        if self.running is not None:
            raise InvalidState(f"{self.name} is running")
        kept = 0 if self._port or self._kept_ports is None else self._kept_ports.port(self.name)
        try:
            running = await self._start(nursery, self._port or kept)
        except NetworkError:
            if not kept:
                raise
            running = await self._start(nursery, 0)
        self._port = parse_address(running.address)[1]
        if self._kept_ports is not None:
            self._kept_ports.keep(self.name, self._port)
        self.running, self.address = running, running.address
        return running

    async def end(self, end: Callable[[R], None]) -> None:
        """Calls `end` with the running server, such as to stop or kill it, and waits until it has ended.

        Raises `InvalidState` if the server is not running.
        """
        if self.running is None:
            raise InvalidState(f"{self.name} is not running")
        end(self.running)
        await self._ended.wait()

    async def _start(self, nursery: trio.Nursery, port: int) -> R:
        self._ended = trio.Event()
        running: R = await nursery.start(self._serve, port, self._ended)
        return running

    async def _serve(self, port: int, ended: trio.Event, *, task_status: trio.TaskStatus[R]) -> None:
        try:
            await self._run(port, task_status)
        finally:
            self.running = None
            ended.set()


class KeptPorts:
    """The ports of servers by name, in a file beside their stores. An unreadable file is ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def port(self, name: str) -> int:
        port = self._known().get(name)
        return port if isinstance(port, int) and 0 < port < 65536 else 0

    def keep(self, name: str, port: int) -> None:
        if self.port(name) != port:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps({**self._known(), name: port}, indent=1) + "\n", encoding="utf-8")

    def _known(self) -> dict[str, object]:
        try:
            ports = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return ports if isinstance(ports, dict) else {}
