"""Our own NameServer and brokers as processes, with the handles that `apache.boot_cluster` gives: kill, pause, ..."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from pyrmq_core.errors import RocketMQError
from tests.support.apache import BROKER_PORTS, free_port, registered_brokers
from tests.support.jvm import JavaProcess

BOOT_SECONDS = 60.0
BROKER_MODULE = "pyrmq_core.servers.broker"
MEMORY_BACKED = Path("/dev/shm")
SMALL_FILES = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": "600000",
    "maxStoreBytes": str(4 << 30),
}


class OurServer:
    """One server process and its settings; `start` returns when a broker is registered, or a NameServer answers."""

    def __init__(self, name: str, module: str, home: Path, nameserver: str | None, settings: Mapping[str, str]) -> None:
        self.name = name
        self.port = int(settings["listenPort"])
        self.address = f"{settings.get('brokerIP1', '127.0.0.1')}:{self.port}"
        self.store = Path(settings.get("storePathRootDir", home))
        self._nameserver = nameserver or self.address
        home.mkdir()
        self._conf = home / "server.conf"
        self._settings: dict[str, str] = {}
        self.configure(settings)
        self._module = module
        self._environment = {key: value for key, value in os.environ.items() if key != "NAMESRV_ADDR"}
        self.process = self._process([], self._environment)

    def run_code_of(self, root: Path) -> None:
        """Has the next start run the packages in another folder, without those of this one and its parents."""
        self.process = self._process(["-P"], {**self._environment, "PYTHONPATH": str(root)})

    def _process(self, options: Sequence[str], environment: Mapping[str, str]) -> JavaProcess:
        command = [sys.executable, *options, "-m", self._module, "-c", str(self._conf)]
        return JavaProcess(f"{self.name} (ours)", command, self._conf.parent / "output.log", environment)

    def configure(self, settings: Mapping[str, str]) -> None:
        """Changes settings for the next start."""
        self._settings |= settings
        self._conf.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))

    def start(self) -> None:
        self.process.start()
        self.process.wait_until(self._is_ready, BOOT_SECONDS)

    def kill(self) -> None:
        self.process.kill()

    def terminate(self) -> None:
        """Sends SIGTERM: it stops in order."""
        self.process.terminate()

    def pause(self) -> None:
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()

    def restart(self) -> None:
        """Boots it again on the same port and files, after SIGTERM if it runs."""
        self.terminate()
        self.start()

    def _is_ready(self) -> bool:
        try:
            listed = [registered_brokers(nameserver) for nameserver in self._nameserver.split(";")]
        except (OSError, RocketMQError):
            return False
        return self._nameserver == self.address or all(self.address in each.get(self.name, ()) for each in listed)


@dataclass(slots=True)
class OurCluster:
    """A NameServer and its brokers by name."""

    nameserver: OurServer
    brokers: dict[str, OurServer] = field(default_factory=dict)


@contextmanager
def boot_our_cluster(
    brokers: Sequence[str] = ("broker-a", "broker-b"),
    *,
    nameserver_settings: Mapping[str, str] = MappingProxyType({}),
    broker_settings: Mapping[str, str] = MappingProxyType({}),
    broker_module: str = BROKER_MODULE,
) -> Iterator[OurCluster]:
    """Yields a NameServer and brokers, up and registered; ends them all and removes their files on leaving."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyrmq-", dir=memory_backed())))
        settings = {"listenPort": str(free_port((0,))), "kvConfigPath": str(home / "kv.json"), **nameserver_settings}
        nameserver = OurServer("NameServer", "pyrmq_core.servers.nameserver", home / "namesrv", None, settings)
        stack.callback(nameserver.kill)
        nameserver.start()
        cluster = OurCluster(nameserver)
        for name in brokers:
            broker = our_broker(name, nameserver.address, home / name, broker_settings, broker_module)
            stack.callback(broker.kill)
            broker.start()
            cluster.brokers[name] = broker
        yield cluster


def memory_backed() -> Path | None:
    """Returns the folder of a file system in memory; None where there is none."""
    return MEMORY_BACKED if os.access(MEMORY_BACKED, os.W_OK) else None


def our_broker(
    name: str, nameserver: str, home: Path, settings: Mapping[str, str], module: str = BROKER_MODULE
) -> OurServer:
    """Returns a broker that is not started yet; its store is in `home`, which it makes, unless they say more."""
    first = {
        "brokerName": name,
        "brokerIP1": "127.0.0.1",
        "listenPort": str(free_port(BROKER_PORTS)),
        "namesrvAddr": nameserver,
        "storePathRootDir": str(home / "store"),
        **SMALL_FILES,
    }
    return OurServer(name, module, home, nameserver, {**first, **settings})


@contextmanager
def boot_our_broker(
    name: str, nameserver: str, home: Path, settings: Mapping[str, str], module: str = BROKER_MODULE
) -> Iterator[OurServer]:
    """Yields one broker alone, registered with NameServers of any make (`host:port;host:port`); kills it on leaving."""
    broker = our_broker(name, nameserver, home, settings, module)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
