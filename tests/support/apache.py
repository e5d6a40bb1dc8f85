"""Boots Apache RocketMQ itself, NameServer and brokers of a given release, on free loopback ports.

    with boot_cluster("5.4.0", brokers=("broker-a", "broker-b")) as cluster:
        cluster.nameserver.address                   # "127.0.0.1:23456"
        cluster.brokers["broker-a"].kill()           # terminate, kill, pause, resume, restart
        cluster.mqadmin("clusterList")               # what Java's tool prints
        cluster.run_java(Path("Send.java"), "topic") # a small main against the Java client

`boot_broker` also works alone, with any NameServer's address; so do the tools, in `java_programs`. Everything blocks:
in trio, call what waits (boot, restart, terminate, mqadmin, run_java) by `trio.to_thread.run_sync`. All files lie in
one temporary directory, memory-backed where there is one.
"""

import fcntl
import os
import random
import socket
import ssl
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pyrmq_core.errors import RocketMQError
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.frame import FrameDecoder, encode_frame
from pyrmq_core.protocol.java.json_text import load_object
from tests.support.class_archives import mapped, of_server
from tests.support.java_programs import (
    OPENED,
    PROGRAM_SECONDS,
    java_command,
    java_environment,
    mqadmin,
    prepare_home,
    run_java,
    temporary_directory,
)
from tests.support.jvm import POLL_SECONDS, JavaFailed, JavaProcess

VERSIONS = ("5.4.0", "4.9.7")
# The newest release, for tests of what may change with a release. Behind its first transaction a broker of 5.5.0 takes
# a whole processor for ever: its test ends it, and no other test shares it.
NEWEST = "5.5.0"
# For long tests whose subject hardly depends on the release; `make soak` runs them on the other releases.
NEWEST_AND_LONG_OLDER = ("5.4.0", pytest.param("4.9.7", marks=pytest.mark.soak))
# The same for tests of slaves and of stores that go from broker to broker.
WITH_LONG_NEWEST = (*NEWEST_AND_LONG_OLDER, pytest.param(NEWEST, marks=pytest.mark.soak))
BOOT_SECONDS = 90.0  # 7 s on two free cores
ANSWER_SECONDS = 30.0  # the first request of a kind may take Java 5 s on a busy machine
PORT_TRIES = 5
KEPT_RESERVATIONS = 60
PORTS = range(20000, 30000)  # below the ports that systems use for outgoing connections
# A broker binds its port - 2 for the fast channel and + 1 for its slaves.
BROKER_PORTS = (-2, 0, 1)

BROKER_SETTINGS: Mapping[str, str] = {
    "brokerClusterName": "DefaultCluster",
    "brokerId": "0",
    "brokerRole": "ASYNC_MASTER",
    "bindAddress": "127.0.0.1",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": "600000",
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
    "enablePropertyFilter": "true",
    # A machine with few cores otherwise answers SYSTEM_BUSY at random (200 and 1000 by default).
    "waitTimeMillsInSendQueue": "2000",
    "osPageCacheBusyTimeOutMills": "5000",
    "sendMessageThreadPoolNums": "2",
    "pullMessageThreadPoolNums": "4",
    "adminBrokerThreadPoolNums": "4",
    "enableCompaction": "false",
    "transactionCheckInterval": "3000",
    "transactionTimeOut": "4000",
    # 5.4.0 spins at its start until the first of these intervals has passed (10 s by default), and walks 38 MB at each
    # of the second ones (1 s).
    "transactionMetricFlushInterval": "200",
    "timerFlushIntervalMs": "60000",
    # Each of three threads of a kind wakes ten to a hundred times a second, by default.
    "timerGetMessageThreadNum": "1",
    "timerPutMessageThreadNum": "1",
}
# Both releases write one of these when they cannot bind.
PORT_TAKEN = ("Address already in use", "BindException")
NAMESERVER_MEMORY = ("-Xms64m", "-Xmx256m")
BROKER_MEMORY = ("-Xms256m", "-Xmx1g", "-XX:MaxDirectMemorySize=1g")

# By default a server makes keys for itself at each start, in case a connection should want TLS.
NO_TLS = "-Dtls.server.mode=disabled"

Settings = Mapping[str, str]


def ask(
    address: str, command: Command, *, timeout: float = ANSWER_SECONDS, tls: ssl.SSLContext | None = None
) -> Command:
    """Sends one request over its own connection and returns the answer.

    Raises `OSError` or `RocketMQError` when no answer arrives in `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    host, _, port = address.rpartition(":")
    with ExitStack() as stack:
        plain = stack.enter_context(socket.create_connection((host, int(port)), timeout))
        peer = stack.enter_context(tls.wrap_socket(plain, server_hostname=host)) if tls else plain
        peer.sendall(encode_frame(command))
        decoder = FrameDecoder()
        while (answer := decoder.next_command()) is None:
            peer.settimeout(max(deadline - time.monotonic(), 0.001))
            data = peer.recv(65536)
            if not data:
                raise ConnectionResetError(f"{address} closed the connection instead of answering {command.code}")
            decoder.feed(data)
        return answer


def registered_brokers(nameserver: str, *, tls: ssl.SSLContext | None = None) -> dict[str, set[str]]:
    """Returns the addresses that a NameServer has registered for each broker name (GET_BROKER_CLUSTER_INFO)."""
    answer = ask(nameserver, Command(RequestCode.GET_BROKER_CLUSTER_INFO), tls=tls)
    table = load_object(answer.body, "cluster information").get("brokerAddrTable") or {}
    return {name: set(data["brokerAddrs"].values()) for name, data in table.items()}


class ApacheServer:
    """One server process, its settings and its files; `start` returns when it answers.

    Its port is a free one unless the settings name one. If another process takes it before Java binds it, the server
    moves to another port. This happens at most once: after the first start its clients know its port.
    """

    port_offsets: Sequence[int] = (0,)

    def __init__(self, name: str, version: str, main: str, home: Path, settings: Settings, options: Sequence[str]):
        self.name = name
        self.version = version
        self.home = home
        self.settings = dict(settings)
        self._may_move = "listenPort" not in settings
        self.settings.setdefault("listenPort", str(free_port(self.port_offsets)))
        self.tls: ssl.SSLContext | None = None
        prepare_home(home)
        self._conf = home / "server.conf"
        classes = mapped(of_server(version, main))
        command = java_command(version, home, *classes, *options, main, "-c", str(self._conf))
        self.process = JavaProcess(f"{name} ({version})", command, home / "output.log", java_environment())

    @property
    def port(self) -> int:
        return int(self.settings["listenPort"])

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(self.port + offset for offset in self.port_offsets)

    def start(self) -> None:
        """Boots it, on its own files if it ran before; raises `JavaFailed` with its last lines if it does not start."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Begins to boot it, as `start` does, and returns at once."""
        self._conf.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        self.process.start()

    def wait_until_ready(self) -> None:
        for tries_left in reversed(range(PORT_TRIES)):
            try:
                self.process.wait_until(self._has_booted, BOOT_SECONDS)
            except JavaFailed:
                if not tries_left or not self._may_move or not self.process.wrote(*PORT_TAKEN):
                    raise
                self.process.kill()
                self.settings["listenPort"] = str(free_port(self.port_offsets))
                self.launch()
            else:
                self._may_move = False
                return

    def is_ready(self) -> bool:
        raise NotImplementedError

    def _has_booted(self) -> bool:
        """Checks its own output first: on a port that was already taken another server answers."""
        return self.process.wrote("boot success") and _quietly(self.is_ready)

    def terminate(self) -> None:
        """Sends SIGTERM: it unregisters at its NameServers and flushes, which takes a broker up to 10 s."""
        self.process.terminate()

    def kill(self) -> None:
        """Sends SIGKILL: as if the power were cut for this process."""
        self.process.kill()

    def pause(self) -> None:
        """Sends SIGSTOP: it accepts connections and never answers, until `resume`."""
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()

    def restart(self, **settings: str) -> None:
        """Boots it again on the same port and files, after `terminate` if it runs; `settings` change."""
        self.terminate()
        self.settings.update(settings)
        deadline = time.monotonic() + BOOT_SECONDS
        while not all(map(_can_bind, self.ports)):  # a port takes a second or two to come free
            if time.monotonic() > deadline:
                raise JavaFailed(f"{self.name}: its ports {self.ports} did not come free within {BOOT_SECONDS:g} s")
            time.sleep(POLL_SECONDS)
        self.start()


class ApacheNameServer(ApacheServer):
    """NamesrvStartup of a release."""

    def __init__(self, version: str, home: Path, settings: Settings, options: Sequence[str]) -> None:
        first = {"bindAddress": "127.0.0.1", "kvConfigPath": str(home / "kv.json")}
        logs = "-Drmq.logback.configurationFile=rmq.namesrv.logback.xml"
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        super().__init__(
            "NameServer", version, main, home, {**first, **settings}, (*NAMESERVER_MEMORY, logs, NO_TLS, *options)
        )

    def is_ready(self) -> bool:
        return ask(self.address, Command(RequestCode.GET_BROKER_CLUSTER_INFO), tls=self.tls).code == 0


class ApacheBroker(ApacheServer):
    """BrokerStartup of a release, registered with `nameserver` (of any make) before it counts as started."""

    port_offsets = BROKER_PORTS

    def __init__(
        self, name: str, version: str, nameserver: str, home: Path, settings: Settings, options: Sequence[str]
    ) -> None:
        self.nameserver = nameserver
        store = home / "store"
        first = {
            "brokerName": name,
            "namesrvAddr": nameserver,
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
        }
        logs = "-Drmq.logback.configurationFile=rmq.broker.logback.xml"
        main = "org.apache.rocketmq.broker.BrokerStartup"
        options = (*BROKER_MEMORY, *OPENED, logs, NO_TLS, *options)
        super().__init__(name, version, main, home, {**BROKER_SETTINGS, **first, **settings}, options)

    @property
    def store(self) -> Path:
        return Path(self.settings["storePathRootDir"])

    def is_ready(self) -> bool:
        """Checks that each NameServer lists it, and that it does not report itself inactive.

        4.9 does not report whether it is active, a broker with authentication refuses to, and a slave never is active.
        """
        answer = ask(self.address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), tls=self.tls)
        if answer.code == ResponseCode.SUCCESS:
            active = load_object(answer.body, "runtime information")["table"].get("brokerActive")
            if active == "false" and self.settings["brokerRole"] != "SLAVE":
                return False
        elif answer.code != ResponseCode.NO_PERMISSION:
            return False
        broker_name = self.settings["brokerName"]
        registered = f"{self.settings['brokerIP1']}:{self.port}"
        return all(
            registered in registered_brokers(nameserver, tls=self.tls).get(broker_name, ())
            for nameserver in self.nameserver.split(";")
        )


@dataclass(slots=True)
class ApacheCluster:
    """A NameServer and its brokers by name."""

    version: str
    home: Path
    nameserver: ApacheNameServer
    brokers: dict[str, ApacheBroker] = field(default_factory=dict)

    def mqadmin(self, *arguments: str, timeout: float = PROGRAM_SECONDS) -> str:
        """Runs `mqadmin ARGUMENTS -n <this NameServer>` and returns its output."""
        return mqadmin(self.version, *arguments, nameserver=self.nameserver.address, timeout=timeout)

    def run_java(self, source: Path, *arguments: str, timeout: float = PROGRAM_SECONDS) -> str:
        """Runs the function `run_java` with this release's client."""
        return run_java(self.version, source, *arguments, timeout=timeout)


@contextmanager
def boot_cluster(
    version: str,
    brokers: Sequence[str] = ("broker-a",),
    *,
    broker_settings: Settings | None = None,
    nameserver_settings: Settings | None = None,
    java_options: Sequence[str] = (),
    tls: ssl.SSLContext | None = None,
) -> Iterator[ApacheCluster]:
    """Yields a NameServer and brokers, up and registered; ends them all and removes their files on leaving.

    Settings are RocketMQ's own names and win over `BROKER_SETTINGS`; `java_options` (`-Dtls.server.mode=enforcing`)
    go to every process. With `tls` the probes that wait for readiness use it.
    """
    with ExitStack() as stack:
        home = stack.enter_context(temporary_directory(version))
        nameserver = ApacheNameServer(version, home / "namesrv", nameserver_settings or {}, java_options)
        nameserver.tls = tls
        stack.callback(nameserver.kill)
        nameserver.start()
        cluster = ApacheCluster(version, home, nameserver)
        for name in brokers:
            broker = ApacheBroker(name, version, nameserver.address, home / name, broker_settings or {}, java_options)
            broker.tls = tls
            stack.callback(broker.kill)
            broker.launch()
            cluster.brokers[name] = broker
        for broker in cluster.brokers.values():
            broker.wait_until_ready()
        yield cluster


@contextmanager
def boot_broker(
    version: str,
    nameserver: str,
    name: str = "broker-a",
    *,
    settings: Settings | None = None,
    java_options: Sequence[str] = (),
    tls: ssl.SSLContext | None = None,
) -> Iterator[ApacheBroker]:
    """Yields one broker alone, registered with NameServers of any make (`host:port;host:port`)."""
    with ExitStack() as stack:
        home = stack.enter_context(temporary_directory(version))
        broker = ApacheBroker(name, version, nameserver, home / name, settings or {}, java_options)
        broker.tls = tls
        stack.callback(broker.kill)
        broker.start()
        yield broker


def free_port(offsets: Sequence[int]) -> int:
    """Returns a port that is free, and so are those at `offsets` from it; reserves them all for a while.

    Seconds pass before Java binds it, and other runs on the machine look for ports meanwhile.
    """
    for port in random.sample(PORTS, 200):
        ports = [port + offset for offset in offsets]
        if all(map(_can_bind, ports)) and _reserve(ports):
            return port
    raise OSError(f"no free ports {tuple(offsets)} around any of 200 between {PORTS.start} and {PORTS.stop}")


def _reserve(ports: Sequence[int]) -> bool:
    """Locks one file a port, all of them or none.

    Unlocks the oldest when there are many; the end of this process unlocks all.
    """
    directory = Path(tempfile.gettempdir()) / f"pyrmq-ports-{os.getuid()}"
    directory.mkdir(exist_ok=True)
    locked: list[int] = []
    for port in ports:
        locked.append(os.open(directory / str(port), os.O_CREAT | os.O_RDWR))
        try:
            fcntl.flock(locked[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            for file in locked:
                os.close(file)
            return False
    _RESERVED.extend(locked)
    while len(_RESERVED) > KEPT_RESERVATIONS:
        os.close(_RESERVED.popleft())
    return True


_RESERVED: deque[int] = deque()


def _can_bind(port: int) -> bool:
    """Checks every address: a broker's slave port takes the wildcard, whatever bindAddress says."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def _quietly(ready: Callable[[], bool]) -> bool:
    """Returns False for an error: a server that comes up is only not yet ready."""
    try:
        return ready()
    except (OSError, RocketMQError, KeyError):
        return False
