"""Applies a broker's registration and heartbeats to the route tables.

Brokers of 4.x send no acting master, state version or timeout, for which there are defaults. Source:
RouteInfoManager.registerBroker, 5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyrmq_core.model import Permission, TopicConfig
from pyrmq_core.protocol.routes.route import MASTER_ID, BrokerData, QueueData
from pyrmq_core.protocol.routes.topic_config import NO_VERSION, DataVersion
from pyrmq_core.servers.nameserver.tables.changes import (
    AddressMoved,
    BrokerJoined,
    Change,
    MinBrokerIdChange,
    PlaceTaken,
    RegistrationIgnored,
    RegistrationRefused,
    RegistrationResult,
    TopicsTaken,
)
from pyrmq_core.servers.nameserver.tables.room import check_body, check_room
from pyrmq_core.servers.nameserver.tables.state import (
    HEARTBEAT_TIMEOUT_MS,
    BrokerAddrInfo,
    BrokerLiveInfo,
    RouteTables,
)
from pyrmq_core.servers.protocol.register_broker import RegistrationHeader
from pyrmq_core.servers.protocol.registration import RegistrationBody


def knows(tables: RouteTables, header: RegistrationHeader, digest: bytes) -> bool:
    """Returns True if the tables already have the content of the registration body with this digest.

    The body then need not be decoded.
    """
    live = tables.broker_live_table.get(_key(header))
    broker = tables.broker_addr_table.get(header.broker_name)
    if live is None or broker is None or live.digest != digest:
        return False
    if broker.cluster != header.cluster_name:
        # The address was registered in two clusters, and its removal from one may have removed these topics.
        return False
    ids = [broker_id for broker_id, address in broker.broker_addrs.items() if address == header.broker_addr]
    return ids == [header.broker_id] and live.contributed == _contributes(header, broker.broker_addrs)


def register(
    tables: RouteTables,
    header: RegistrationHeader,
    body: RegistrationBody | None,
    *,
    connection: object,
    now_ms: int,
    digest: bytes | None = None,
) -> RegistrationResult:
    """Registers a broker's address and topics. `body` is None if `knows` returned True for its `digest`.

    The digest is stored for the next call of `knows`. Raises `BodyError`, before any change, for invalid topics or if
    the limits of the tables are exceeded.
    """
    if body is not None:
        check_body(tables, header.broker_name, body)
    check_room(tables, header, connection)
    before = tables.broker_addr_table.get(header.broker_name)
    addrs = {} if before is None else dict(before.broker_addrs)
    smallest_before = min(addrs, default=MASTER_ID)
    live = tables.broker_live_table.get(_key(header))
    version = body.data_version if body is not None else live.data_version if live is not None else NO_VERSION
    changes: list[Change] = _drop_other_ids(header, addrs)
    holder = addrs.get(header.broker_id)
    tables.join_cluster(header.cluster_name, header.broker_name)
    refusal = _refusal(tables, header, holder, version, body)
    if refusal is None:
        addrs[header.broker_id] = header.broker_addr
    broker = _broker_data(header, before, addrs)
    tables.put_broker(broker)
    if isinstance(refusal, RegistrationIgnored):
        tables.drop_live(_key(header))
        return RegistrationResult(True, (*changes, refusal))
    if refusal is not None:
        return RegistrationResult(False, (*changes, refusal))
    if holder is not None and holder != header.broker_addr and _is_live(tables, header, holder):
        changes.append(PlaceTaken(header.broker_name, header.broker_id, header.broker_addr, holder))
    contributes = _contributes(header, addrs)
    joined = tables.put_live(_key(header), _live(header, contributes, version, connection, now_ms, body, live))
    if body is not None:
        if contributes:
            news = holder is None or live is None or live.data_version != version
            changes += _take(tables, header, broker, body, news=news)
        if body.filter_servers is not None:
            tables.put_filter_servers(_key(header), body.filter_servers)
        _put_digest(tables, _key(header), digest)
    if joined:
        changes.append(_joined(header))
    notice = min_id_change(broker, ha_server_addr=header.ha_server_addr) if header.broker_id < smallest_before else None
    return _answer(tables, header, broker, tuple(changes), notice)


def heartbeat(tables: RouteTables, key: BrokerAddrInfo, now_ms: int) -> bool:
    """Stores the time of a heartbeat. Returns False for an unknown address."""
    live = tables.broker_live_table.get(key)
    if live is None:
        return False
    tables.broker_live_table[key] = replace(live, last_update_ms=now_ms)
    return True


def min_id_change(
    broker: BrokerData, *, offline_address: str | None = None, ha_server_addr: str | None = None
) -> MinBrokerIdChange:
    """Returns the notice of a broker name's new smallest id, with the addresses to notify in `targets`.

    The broker with the smallest id is notified only if another one has left (`offline_address`), or if it is alone.
    """
    addrs = broker.broker_addrs
    smallest = min(addrs)
    all_are_notified = offline_address is not None or len(addrs) == 1
    return MinBrokerIdChange(
        broker_name=broker.broker_name,
        min_broker_id=smallest,
        min_broker_addr=addrs[smallest],
        targets=tuple(address for broker_id, address in addrs.items() if all_are_notified or broker_id != smallest),
        offline_address=offline_address,
        ha_server_addr=ha_server_addr,
    )


def _key(header: RegistrationHeader) -> BrokerAddrInfo:
    return BrokerAddrInfo(header.cluster_name, header.broker_addr)


def _is_live(tables: RouteTables, header: RegistrationHeader, address: str) -> bool:
    return BrokerAddrInfo(header.cluster_name, address) in tables.broker_live_table


def _contributes(header: RegistrationHeader, addrs: Mapping[int, str]) -> bool:
    """Returns True if this broker's topics enter the tables.

    That is so for a master, and for a broker of 5.x that has the smallest id of its name.
    """
    if header.broker_id == MASTER_ID:
        return True
    return header.enable_acting_master is not None and header.broker_id == min(addrs)


def _drop_other_ids(header: RegistrationHeader, addrs: dict[int, str]) -> list[Change]:
    """Removes the old ids of an address that registers with a new id, as when a slave became the master."""
    others = [
        broker_id
        for broker_id, address in addrs.items()
        if address == header.broker_addr and broker_id != header.broker_id
    ]
    for broker_id in others:
        del addrs[broker_id]
    return [AddressMoved(header.broker_name, header.broker_addr, old, header.broker_id) for old in others]


def _refusal(
    tables: RouteTables,
    header: RegistrationHeader,
    holder: str | None,
    version: DataVersion,
    body: RegistrationBody | None,
) -> RegistrationIgnored | RegistrationRefused | None:
    """Returns the change that refuses or ignores a registration, or None to accept it.

    `holder` is the address registered with the same name and id. The registration is ignored if the holder is another
    living broker with a higher state version.
    """
    if holder is None:
        single = body is not None and len(body.topic_configs) == 1
        if not single or tables.rules.accept_first_registration_of_one_topic:
            return None
        return RegistrationRefused(header.broker_name, header.broker_id, header.broker_addr)
    if holder == header.broker_addr:
        return None
    rival = tables.broker_live_table.get(BrokerAddrInfo(header.cluster_name, holder))
    if rival is None or rival.data_version.state_version <= version.state_version:
        return None
    return RegistrationIgnored(header.broker_name, header.broker_id, header.broker_addr, holder)


def _broker_data(header: RegistrationHeader, before: BrokerData | None, addrs: Mapping[int, str]) -> BrokerData:
    return BrokerData(
        cluster=header.cluster_name if before is None else before.cluster,
        broker_name=header.broker_name,
        broker_addrs=addrs,
        enable_acting_master=header.enable_acting_master is True,
        zone_name=header.zone_name,
    )


def _take(
    tables: RouteTables, header: RegistrationHeader, broker: BrokerData, body: RegistrationBody, *, news: bool
) -> list[Change]:
    """Adds a broker's topics to the tables. With `news`, also updates topics that the tables have.

    `news` is False if the broker's data version is the same as at its last registration. If the settings say so, the
    broker's topics that `body` lacks are removed.
    """
    changes: list[Change] = []
    name = broker.broker_name
    if tables.rules.delete_topic_with_broker_registration and not body.topic_queue_mapping_infos:
        declared = {config.topic for config in body.topic_configs}
        for topic, queues in tuple(tables.topic_queue_table.items()):
            if topic not in declared and name in queues:
                changes += tables.drop_queues(topic, (name,))
    # Topics of a slave that acts for its master are read-only.
    clears_write = header.broker_id != MASTER_ID and broker.enable_acting_master
    changes += _take_topics(tables, name, body.topic_configs, news=news, clears_write=clears_write)
    if changes and tables.rules.delete_topic_with_broker_registration:
        # A broker of this name at another address may have other topics. They are added when it registers again.
        tables.forget_digests((name,))
    if news:
        tables.put_mappings(name, body.topic_queue_mapping_infos)
    return changes


def _take_topics(
    tables: RouteTables, broker_name: str, configs: Sequence[TopicConfig], *, news: bool, clears_write: bool
) -> list[Change]:
    table = tables.topic_queue_table
    values: dict[tuple[int, int, int, int], QueueData] = {}  # equal topics share a value
    bits = ~int(Permission.WRITE) if clears_write else ~0
    new = changed = 0
    for config in configs:
        queues = table.get(config.topic)
        old = None if queues is None else queues.get(broker_name)
        if old is not None and not news:
            continue
        numbers = (config.read_queue_nums, config.write_queue_nums, config.perm & bits, config.topic_sys_flag)
        queue_data = values.get(numbers)
        if queue_data is None:
            queue_data = values[numbers] = QueueData(broker_name, *numbers)
        if old is None:
            new += 1
        elif old != queue_data:
            changed += 1
        else:
            continue
        tables.put_queue_data(config.topic, queue_data)
    return [TopicsTaken(broker_name, new, changed)] if new or changed else []


def _live(
    header: RegistrationHeader,
    contributes: bool,
    version: DataVersion,
    connection: object,
    now_ms: int,
    body: RegistrationBody | None,
    before: BrokerLiveInfo | None,
) -> BrokerLiveInfo:
    # The digest of a new body is set when all its topics are in the tables.
    timeout_ms = header.heartbeat_timeout_ms
    return BrokerLiveInfo(
        last_update_ms=now_ms,
        heartbeat_timeout_ms=HEARTBEAT_TIMEOUT_MS if timeout_ms is None else timeout_ms,
        data_version=version,
        connection=connection,
        ha_server_addr=header.ha_server_addr,
        digest=before.digest if body is None and before is not None else None,
        contributed=contributes,
    )


def _put_digest(tables: RouteTables, key: BrokerAddrInfo, digest: bytes | None) -> None:
    live = tables.broker_live_table.get(key)
    if live is not None:
        tables.broker_live_table[key] = replace(live, digest=digest)


def _joined(header: RegistrationHeader) -> BrokerJoined:
    return BrokerJoined(
        header.broker_name, header.broker_id, header.broker_addr, header.cluster_name, header.ha_server_addr
    )


def _answer(
    tables: RouteTables,
    header: RegistrationHeader,
    broker: BrokerData,
    changes: tuple[Change, ...],
    notice: MinBrokerIdChange | None,
) -> RegistrationResult:
    master = None if header.broker_id == MASTER_ID else broker.master
    live = None if master is None else tables.broker_live_table.get(BrokerAddrInfo(header.cluster_name, master))
    if live is None:
        return RegistrationResult(True, changes, notice=notice)
    return RegistrationResult(True, changes, master, live.ha_server_addr, notice)
