"""The clusters of a run: two brokers of ours, two of Apache RocketMQ's, or one of each, all as processes.

Each broker listens behind the address that it registers, where the run has a proxy.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum, auto
from pathlib import Path
from typing import Final, Protocol

from tests.chaos.history import OURS
from tests.chaos.plan import BROKERS
from tests.chaos.proxy import BEFORE, BEHIND
from tests.support.apache import boot_broker, boot_cluster
from tests.support.our_cluster import boot_our_broker, boot_our_cluster

RELEASE: Final = "5.4.0"
BROKER_MODULE: Final = "tests.chaos.planted_broker"
SETTINGS: Final = {"brokerIP1": BEFORE, "bindAddress": BEHIND, "autoCreateTopicEnable": "false"}


class ClusterKind(StrEnum):
    """The makers of a cluster's servers."""

    OURS = auto()
    APACHE = auto()
    MIXED = auto()  # a broker of each, registered at a NameServer of each


class Broker(Protocol):
    """A broker's process."""

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Cluster:
    """The addresses of the NameServers, as clients take them, and the brokers, with the port and maker of each."""

    nameserver: str
    brokers: Mapping[str, Broker]
    ports: Mapping[str, int]
    makers: Mapping[str, str]


@contextmanager
def boot(kind: ClusterKind) -> Iterator[Cluster]:
    """Yields a cluster of the kind, up and registered; ends its processes and removes their files on leaving."""
    with BOOT[kind]() as cluster:
        yield cluster


@contextmanager
def _ours() -> Iterator[Cluster]:
    with boot_our_cluster(BROKERS, broker_settings=SETTINGS, broker_module=BROKER_MODULE) as cluster:
        ports = {name: broker.port for name, broker in cluster.brokers.items()}
        yield Cluster(cluster.nameserver.address, cluster.brokers, ports, dict.fromkeys(BROKERS, OURS))


@contextmanager
def _apache() -> Iterator[Cluster]:
    with boot_cluster(RELEASE, BROKERS, broker_settings=SETTINGS) as cluster:
        ports = {name: broker.port for name, broker in cluster.brokers.items()}
        yield Cluster(cluster.nameserver.address, cluster.brokers, ports, dict.fromkeys(BROKERS, RELEASE))


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
            {our_name: ours.port, their_name: theirs.port},
            {our_name: OURS, their_name: RELEASE},
        )


BOOT: Final[Mapping[ClusterKind, Callable[[], AbstractContextManager[Cluster]]]] = {
    ClusterKind.OURS: _ours,
    ClusterKind.APACHE: _apache,
    ClusterKind.MIXED: _mixed,
}
