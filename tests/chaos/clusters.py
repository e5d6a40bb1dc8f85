"""The clusters of a run: brokers of ours, of Apache RocketMQ's, or one of each, all as processes.

Each broker listens behind the address that it registers, where the run has a proxy.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum, auto
from functools import partial
from itertools import cycle
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from pyrmq_core import Command
from pyrmq_core.errors import RocketMQError
from pyrmq_core.protocol.acl import sign
from pyrmq_core.protocol.framing.codes import ResponseCode
from tests.chaos.history import OURS, Copied, Event
from tests.chaos.plan import BROKERS, NAMESERVERS, SAFE, SLAVES
from tests.chaos.proxy import BEFORE, BEHIND
from tests.support.apache import ApacheBroker, ask, boot_broker, boot_cluster
from tests.support.copies import check_copy, log_end
from tests.support.guarded import AUTH_5, KEY, MEMBER, READER_SECRET, SECRET, member_requests
from tests.support.jvm import JavaFailed
from tests.support.our_cluster import OurServer, boot_our_broker, boot_our_cluster, memory_backed, our_broker

OLD_RELEASE: Final = "4.9.7"
RELEASE: Final = "5.4.0"
# Four days before this was written.
COMMITS_BACK: Final = 400
ROOT: Final = Path(__file__).parent.parent.parent
BROKER_MODULE: Final = "tests.chaos.planted_broker"
COPY_SECONDS: Final = 60.0
SETTINGS: Final = {
    "brokerIP1": BEFORE,
    "bindAddress": BEHIND,
    "autoCreateTopicEnable": "false",
    "transactionCheckInterval": "3000",
    "transactionTimeOut": "4000",
    # A broker counts its checks while it has no producer, too: after a restart that may be for a minute.
    "transactionCheckMax": "1000",
}
# Nothing may be removed from a disk for being full: what is acknowledged has to stay.
OF_OURS: Final = {**SETTINGS, "cleanFileForciblyEnable": "false", "cleanResourceInterval": "1000"}
FLUSHES: Final = {"flushDiskType": "SYNC_FLUSH"}
REPLICATES: Final = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "1000"}
LEADS: Final = {"brokerRole": "ASYNC_MASTER", "brokerId": "0"}
FOLLOWS: Final = {**SETTINGS, "brokerIP1": BEHIND, "brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true"}


class NoHistory(Exception):
    """A checkout without the commits of some days ago, as of a release or of a shallow clone."""


class ClusterKind(StrEnum):
    """The servers of a cluster."""

    OURS = auto()
    APACHE = auto()
    MIXED = auto()  # a broker of each, registered at a NameServer of each
    PAIRS = auto()  # of ours: two NameServers, and a slave of each broker
    UPGRADED = auto()  # of Apache's: brokers of an older release, which are upgraded
    GUARDED = auto()  # of ours, with access control
    GUARDED_APACHE = auto()  # of Apache's, with access control
    RENEWED = auto()  # of ours: brokers of an older commit, which run today's code or that one in turn


class Keys(NamedTuple):
    """The keys of a user that a client signs with; none where brokers know no users."""

    access_key: str | None = None
    secret_key: str | None = None


NO_KEYS: Final = Keys()


class Server(Protocol):
    """A server's process."""

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Cluster:
    """The addresses of the NameServers, as clients take them, the servers that may fail, and what the run has to know.

    `ports` are those of a broker behind its proxy, `makers` the releases of brokers, `slaves` their names and masters',
    `upgrades` functions that stop a broker and start the other release on its files. Producers and members sign as
    `user`.
    """

    nameserver: str
    servers: dict[str, Server]
    ports: Mapping[str, Sequence[int]]
    makers: Mapping[str, str]
    slaves: dict[str, str] = field(default_factory=dict)
    upgrades: Mapping[str, Callable[[], None]] = field(default_factory=dict)
    has_batch_topics: bool = True
    administrator: Keys = NO_KEYS
    user: Keys = NO_KEYS


@contextmanager
def boot(kind: ClusterKind) -> Iterator[Cluster]:
    """Yields a cluster of the kind, up and registered; ends its processes and removes their files on leaving."""
    with BOOT[kind]() as cluster:
        yield cluster


@contextmanager
def _ours(guard: Mapping[str, str] = MappingProxyType({})) -> Iterator[Cluster]:
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyrmq-", dir=memory_backed())))
        nameserver = stack.enter_context(boot_our_cluster(())).nameserver.address
        brokers = {}
        for name in BROKERS:
            settings = {**OF_OURS, **(FLUSHES if name in SAFE else {}), **guard}
            booted = boot_our_broker(name, nameserver, home / name, settings, module=BROKER_MODULE)
            brokers[name] = stack.enter_context(booted)
        ports = {name: (broker.port,) for name, broker in brokers.items()}
        yield Cluster(nameserver, dict(brokers), ports, dict.fromkeys(BROKERS, OURS))


@contextmanager
def _apache(guard: Mapping[str, str] = MappingProxyType({})) -> Iterator[Cluster]:
    with boot_cluster(RELEASE, BROKERS, broker_settings={**SETTINGS, **guard}) as cluster:
        ports = {name: (broker.port,) for name, broker in cluster.brokers.items()}
        yield Cluster(cluster.nameserver.address, dict(cluster.brokers), ports, dict.fromkeys(BROKERS, RELEASE))


@contextmanager
def _guarded(boot_unguarded: Callable[[Mapping[str, str]], AbstractContextManager[Cluster]]) -> Iterator[Cluster]:
    """Yields a cluster whose brokers know an administrator, and the user of all clients."""
    with boot_unguarded(AUTH_5) as cluster:
        for (port,) in cluster.ports.values():
            for request in member_requests():
                signed = Command(request.code, sign(request.ext, request.body, KEY, SECRET), request.body)
                assert ask(f"{BEHIND}:{port}", signed).code == ResponseCode.SUCCESS
        yield replace(cluster, administrator=Keys(KEY, SECRET), user=Keys(MEMBER, READER_SECRET))


@contextmanager
def _mixed() -> Iterator[Cluster]:
    our_name, their_name = BROKERS
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyrmq-")))
        nameservers = (stack.enter_context(boot_our_cluster(())), stack.enter_context(boot_cluster(RELEASE, ())))
        nameserver = ";".join(cluster.nameserver.address for cluster in nameservers)
        theirs = stack.enter_context(boot_broker(RELEASE, nameserver, their_name, settings=SETTINGS))
        ours = stack.enter_context(
            boot_our_broker(our_name, nameserver, home / our_name, SETTINGS, module=BROKER_MODULE)
        )
        yield Cluster(
            nameserver,
            {our_name: ours, their_name: theirs},
            {our_name: (ours.port,), their_name: (theirs.port,)},
            {our_name: OURS, their_name: RELEASE},
        )


@contextmanager
def _pairs() -> Iterator[Cluster]:
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyrmq-", dir=memory_backed())))
        nameservers = {name: stack.enter_context(boot_our_cluster(())).nameserver for name in NAMESERVERS}
        nameserver = ";".join(each.address for each in nameservers.values())
        brokers = {}
        for name, broker_name, settings in (
            *((name, name, SETTINGS | REPLICATES if name in SAFE else SETTINGS) for name in BROKERS),
            *((slave, master, FOLLOWS) for slave, master in zip(SLAVES, BROKERS, strict=True)),
        ):
            booted = boot_our_broker(broker_name, nameserver, home / name, settings, module=BROKER_MODULE)
            brokers[name] = stack.enter_context(booted)
        ports = {name: (brokers[name].port, brokers[name].port + 1) for name in BROKERS}  # the second is for slaves
        yield Cluster(
            nameserver,
            {**brokers, **nameservers},
            ports,
            dict.fromkeys(BROKERS, OURS),
            dict(zip(SLAVES, BROKERS, strict=True)),
        )


@contextmanager
def _upgraded() -> Iterator[Cluster]:
    with ExitStack() as stack:
        nameserver = stack.enter_context(boot_cluster(RELEASE, ())).nameserver.address
        servers: dict[str, Server] = {}
        settings = {**SETTINGS, "brokerIP1": BEHIND}  # 4.9.7 listens at every address: no proxy has its port

        def upgrade(old: ApacheBroker) -> None:
            if servers[old.name] is old:
                old.terminate()
                servers[old.name] = new = ApacheBroker(old.name, RELEASE, nameserver, old.home, old.settings, ())
                stack.callback(new.kill)
                new.start()

        upgrades = {}
        for name in BROKERS:
            old = stack.enter_context(boot_broker(OLD_RELEASE, nameserver, name, settings=settings))
            servers[name], upgrades[name] = old, partial(upgrade, old)
        makers = dict.fromkeys(BROKERS, OLD_RELEASE)
        yield Cluster(nameserver, servers, {}, makers, upgrades=upgrades, has_batch_topics=False)


@contextmanager
def _renewed() -> Iterator[Cluster]:
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyrmq-", dir=memory_backed())))
        old_code = home / "code"
        check_out(old_code)
        nameserver = stack.enter_context(boot_our_cluster(())).nameserver.address
        brokers, upgrades = {}, {}
        for name in BROKERS:
            broker = our_broker(name, nameserver, home / name, SETTINGS)
            stack.callback(broker.kill)
            codes = cycle((old_code, ROOT))
            broker.run_code_of(next(codes))
            broker.start()
            brokers[name], upgrades[name] = broker, partial(_renew, broker, codes)
        ports = {name: (broker.port,) for name, broker in brokers.items()}
        yield Cluster(nameserver, dict(brokers), ports, dict.fromkeys(BROKERS, OURS), upgrades=upgrades)


def _renew(broker: OurServer, codes: Iterator[Path]) -> None:
    broker.terminate()
    broker.run_code_of(next(codes))
    broker.start()


def check_out(folder: Path) -> None:
    """Writes the package of an older commit into a folder; raises `NoHistory` where this checkout has none."""
    archive = subprocess.run(
        ["git", "archive", "--format=tar", f"HEAD~{COMMITS_BACK}", "pyrmq_core"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if archive.returncode:
        raise NoHistory(archive.stderr.decode().strip())
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")


BOOT: Final[Mapping[ClusterKind, Callable[[], AbstractContextManager[Cluster]]]] = {
    ClusterKind.OURS: _ours,
    ClusterKind.APACHE: _apache,
    ClusterKind.MIXED: _mixed,
    ClusterKind.PAIRS: _pairs,
    ClusterKind.UPGRADED: _upgraded,
    ClusterKind.GUARDED: partial(_guarded, _ours),
    ClusterKind.GUARDED_APACHE: partial(_guarded, _apache),
    ClusterKind.RENEWED: _renewed,
}


def promote(cluster: Cluster, name: str) -> None:
    """Starts a slave, which has ended, as the master in place of its own."""
    server = cluster.servers.pop(name)
    assert isinstance(server, OurServer)
    cluster.servers[cluster.slaves.pop(name)] = server
    server.configure(LEADS)
    server.start()


def compare_copies(cluster: Cluster) -> list[Event]:
    """Returns how each slave's files compare with its master's, after the last message; stops both."""
    compared: list[Event] = []
    for name, master_name in cluster.slaves.items():
        slave, master = cluster.servers[name], cluster.servers[master_name]
        assert isinstance(slave, OurServer)
        assert isinstance(master, OurServer)
        try:
            compared.append(_compared(name, slave, master))
        except (OSError, RocketMQError) as error:
            tails = "".join(f"\n{each.name}:{each.process.log_tail()}" for each in (slave, master))
            compared.append(Copied(name, 0, f"a broker of the pair does not answer: {error}{tails}"))
    return compared


def _compared(name: str, slave: OurServer, master: OurServer) -> Copied:
    def is_complete() -> bool:
        return log_end(slave.address) == log_end(master.address)

    with suppress(JavaFailed):
        slave.process.wait_until(is_complete, COPY_SECONDS)
    wrong = "" if is_complete() else f"it ends at {log_end(slave.address)}, its master at {log_end(master.address)}"
    if not log_end(master.address):
        return Copied(name, 0, wrong)
    slave.terminate()
    master.terminate()
    try:
        return Copied(name, check_copy(slave.store, master.store, has_index=False), wrong)
    except AssertionError as error:
        return Copied(name, 0, wrong or f"its files are others: {error}")
