"""Short names for steps that the tests of the route tables repeat."""

from __future__ import annotations

from typing import Any

from pyrmq_core.servers.nameserver.tables import (
    BrokerAddrInfo,
    RouteTables,
    registration,
)
from pyrmq_core.servers.nameserver.tables.changes import (
    Change,
    RegistrationResult,
)
from tests.servers.nameserver import desk

A, B, SLAVE = "127.0.0.1:10911", "127.0.0.1:20911", "127.0.0.1:10921"
KEY_A = BrokerAddrInfo("DefaultCluster", A)
CONNECTION, OTHER = object(), object()


def register(
    tables: RouteTables, *args: Any, at: int = 0, over: object = CONNECTION, digest: bytes | None = None, **more: Any
) -> RegistrationResult:
    requested = desk.registration(*args, **more)
    return registration.register(tables, requested.header, requested.body(), connection=over, now_ms=at, digest=digest)


def perms(tables: RouteTables, topic: str) -> dict[str, int]:
    return {name: queue.perm for name, queue in tables.topic_queue_table.get(topic, {}).items()}


def kinds(changes: tuple[Change, ...] | list[Change]) -> list[type]:
    return [type(change) for change in changes]
