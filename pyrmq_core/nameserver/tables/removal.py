"""How brokers leave the route tables: unregistered, cut off, or silent for too long.

Source: RouteInfoManager.unRegisterBroker, onChannelDestroy, scanNotActiveBroker, cleanTopicByUnRegisterRequests, 5.3.3.
Java removes in a thread of its own, ours at once. Where Java keeps a live entry that no broker name points to any more
(its broker came back under another address), ours goes with its connection or its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from pyrmq_core.model import Permission
from pyrmq_core.nameserver.tables.changes import (
    BrokerNameRemoved,
    BrokerRemoved,
    Change,
    ClusterRemoved,
    MinBrokerIdChange,
    Removal,
    RemovalReason,
    TopicsRemoved,
    WriteSwitched,
)
from pyrmq_core.nameserver.tables.registration import min_id_change
from pyrmq_core.nameserver.tables.state import BrokerAddrInfo, RouteTables
from pyrmq_core.protocol.route import BrokerData


class _Leaving(NamedTuple):
    """An address that goes; without a name when no broker has it."""

    key: BrokerAddrInfo
    broker_name: str | None
    broker_id: int | None


def unregister(tables: RouteTables, key: BrokerAddrInfo, broker_name: str, broker_id: int) -> Removal:
    """A broker says that it leaves."""
    return _remove(tables, [_Leaving(key, broker_name, broker_id)], RemovalReason.UNREGISTERED)


def connection_closed(tables: RouteTables, connection: object) -> Removal:
    """Removes the one address that lives on this connection; of several, as Java does, only one: the oldest."""
    for key, live in tables.broker_live_table.items():
        if live.connection is connection:
            return _remove(tables, [_leaving(tables, key)], RemovalReason.CONNECTION_CLOSED)
    return Removal()


def scan(tables: RouteTables, now_ms: int) -> Removal:
    """Removes every address that was silent for longer than its time-out."""
    expired = {key: live for key, live in tables.broker_live_table.items() if live.is_expired(now_ms)}
    if not expired:
        return Removal()
    removal = _remove(tables, [_leaving(tables, key) for key in expired], RemovalReason.SILENT)
    return replace(removal, connections=tuple(live.connection for live in expired.values()))


def _leaving(tables: RouteTables, key: BrokerAddrInfo) -> _Leaving:
    for broker in tables.broker_addr_table.values():
        if broker.cluster == key.cluster:
            for broker_id, address in broker.broker_addrs.items():
                if address == key.address:
                    return _Leaving(key, broker.broker_name, broker_id)
    return _Leaving(key, None, None)


def _remove(tables: RouteTables, all_leaving: Sequence[_Leaving], reason: RemovalReason) -> Removal:
    changes: list[Change] = []
    notices: dict[str, MinBrokerIdChange] = {}
    touched: dict[str, None] = {}
    for leaving in all_leaving:
        key, name, broker_id = leaving
        lived = tables.broker_live_table.pop(key, None) is not None
        tables.put_filter_servers(key, ())
        broker = None if name is None else tables.broker_addr_table.get(name)
        addressed = broker is not None and key.address in broker.broker_addrs.values()
        if lived or addressed:
            changes.append(BrokerRemoved(name, broker_id, key.address, key.cluster, reason))
        if broker is None:
            continue
        touched[broker.broker_name] = None
        rest = _without(broker, key.address)
        if not rest.broker_addrs:
            changes += _remove_name(tables, broker.broker_name, key.cluster)
            notices.pop(broker.broker_name, None)
            continue
        tables.put_broker(rest)
        if addressed and broker_id == min(broker.broker_addrs):
            notices[broker.broker_name] = min_id_change(rest, offline_address=key.address)
    removed = [name for name in touched if name not in tables.broker_addr_table]
    reduced = [name for name in touched if name in tables.broker_addr_table]
    gone = tables.drop_brokers(removed) if removed else []
    if gone:
        changes.append(TopicsRemoved(tuple(gone)))
    changes += _switch_off_writing(tables, reduced)
    return Removal(tuple(changes), tuple(notices.values()))


def _without(broker: BrokerData, address: str) -> BrokerData:
    return replace(broker, broker_addrs={i: known for i, known in broker.broker_addrs.items() if known != address})


def _remove_name(tables: RouteTables, broker_name: str, cluster: str) -> list[Change]:
    del tables.broker_addr_table[broker_name]
    changes: list[Change] = [BrokerNameRemoved(broker_name)]
    names = tables.cluster_addr_table.get(cluster)
    if names is not None:
        names.pop(broker_name, None)
        if not names:
            del tables.cluster_addr_table[cluster]
            changes.append(ClusterRemoved(cluster))
    return changes


def _switch_off_writing(tables: RouteTables, broker_names: Iterable[str]) -> list[Change]:
    """Where slaves may act for a master that is gone, its topics are only read; else permissions stay."""
    changes: list[Change] = []
    for name in broker_names:
        broker = tables.broker_addr_table[name]
        if broker.enable_acting_master and broker.master is None:
            _, switched = tables.set_perms(name, lambda perm: perm & ~int(Permission.WRITE))
            if switched:
                changes.append(WriteSwitched(name, False, switched, "its master is gone, and a slave acts for it"))
    return changes
