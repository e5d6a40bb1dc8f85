"""Removes brokers from the route tables: unregistered, disconnected, or silent for too long.

Two things differ from Java. If a broker registered again with another address, its old address is removed when its old
connection closes or the timeout passes. With its last address a broker name is removed from every cluster. Source:
RouteInfoManager.unRegisterBroker, onChannelDestroy, scanNotActiveBroker, cleanTopicByUnRegisterRequests, 5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from pyrmq_core.model import Permission
from pyrmq_core.servers.nameserver.tables.changes import (
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
from pyrmq_core.servers.nameserver.tables.registration import min_id_change
from pyrmq_core.servers.nameserver.tables.state import BrokerAddrInfo, RouteTables


class _Leaving(NamedTuple):
    key: BrokerAddrInfo
    broker_name: str | None
    broker_id: int | None


def unregister(tables: RouteTables, key: BrokerAddrInfo, broker_name: str, broker_id: int) -> Removal:
    return _remove(tables, [_Leaving(key, broker_name, broker_id)], RemovalReason.UNREGISTERED)


def connection_closed(tables: RouteTables, connection: object) -> Removal:
    """Removes the broker address that registered over `connection`, which was closed.

    If several addresses registered over it, only the first of them is removed, as in Java.
    """
    keys = tables.connections.get(connection)
    if not keys:
        return Removal()
    oldest = min(keys, key=lambda key: tables.broker_live_table[key].number)
    return _remove(tables, [_leaving(tables, oldest)], RemovalReason.CONNECTION_CLOSED)


def scan(tables: RouteTables, now_ms: int) -> Removal:
    """Removes every address that was silent for longer than its time-out."""
    expired = {key: live for key, live in tables.broker_live_table.items() if live.is_expired(now_ms)}
    if not expired:
        return Removal()
    removal = _remove(tables, (_leaving(tables, key) for key in expired), RemovalReason.SILENT)
    return replace(removal, connections=tuple(dict.fromkeys(live.connection for live in expired.values())))


def _leaving(tables: RouteTables, key: BrokerAddrInfo) -> _Leaving:
    name = tables.name_of(key)
    if name is None:
        return _Leaving(key, None, None)
    addrs = tables.broker_addr_table[name].broker_addrs
    return _Leaving(key, name, next(broker_id for broker_id, address in addrs.items() if address == key.address))


def _remove(tables: RouteTables, all_leaving: Iterable[_Leaving], reason: RemovalReason) -> Removal:
    changes: list[Change] = []
    notices: dict[str, MinBrokerIdChange] = {}
    touched: dict[str, None] = {}
    for key, name, broker_id in all_leaving:
        lived = tables.drop_live(key)
        tables.put_filter_servers(key, ())
        broker = None if name is None else tables.broker_addr_table.get(name)
        addressed = broker is not None and key.address in broker.broker_addrs.values()
        if lived or addressed:
            changes.append(BrokerRemoved(name, broker_id, key.address, key.cluster, reason))
        if broker is None:
            continue
        touched[broker.broker_name] = None
        remaining = replace(
            broker, broker_addrs={i: addr for i, addr in broker.broker_addrs.items() if addr != key.address}
        )
        if not remaining.broker_addrs:
            changes.append(BrokerNameRemoved(broker.broker_name))
            changes += map(ClusterRemoved, tables.drop_broker(broker.broker_name))
            notices.pop(broker.broker_name, None)
            continue
        tables.put_broker(remaining)
        if addressed and broker_id == min(broker.broker_addrs):
            notices[broker.broker_name] = min_id_change(remaining, offline_address=key.address)
    removed = touched.keys() - tables.broker_addr_table.keys()
    if removed and (gone := tables.drop_brokers(removed)):
        changes.append(TopicsRemoved(tuple(gone)))
    changes += _switch_off_writing(tables, touched.keys() - removed)
    return Removal(tuple(changes), tuple(notices.values()))


def _switch_off_writing(tables: RouteTables, broker_names: Iterable[str]) -> list[Change]:
    """Makes the topics of brokers without a master read-only if a slave may act as master."""
    brokers = [tables.broker_addr_table[name] for name in broker_names if name in tables.broker_addr_table]
    names = {broker.broker_name for broker in brokers if broker.enable_acting_master and broker.master is None}
    if not names:
        return []
    switched = tables.set_perms(names, lambda perm: perm & ~int(Permission.WRITE))
    reason = "its master is gone, and a slave acts for it"
    return [WriteSwitched(name, False, done.changed, reason) for name, done in switched.items() if done.changed]
