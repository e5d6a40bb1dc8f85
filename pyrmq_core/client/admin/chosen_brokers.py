"""Chooses the brokers for a request: one by its name or address, or all of a cluster.

`one_figure` queries a statistic of one broker.
"""

from __future__ import annotations

from pyrmq_core.client.admin.servers import AdminServers, Server
from pyrmq_core.errors import InvalidArgument, InvalidState, ResponseError
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.requests.figures.stats_data import BrokerStats, ViewBrokerStats
from pyrmq_core.protocol.routes.route import MASTER_ID, BrokerData


async def one_broker(servers: AdminServers, broker: str, broker_id: int = MASTER_ID) -> Server:
    """Returns the server with a broker's name and `broker_id`, or the server at an address `host:port`.

    An address is used as it is, so it may belong to a NameServer, or to an unregistered broker. Raises
    `InvalidArgument` for an unknown name or id.
    """
    if ":" in broker:
        return Server(broker, broker)
    brokers = (await servers.cluster_info()).broker_addr_table
    if broker not in brokers:
        raise InvalidArgument(
            f"no broker is named {broker}; the NameServer knows {', '.join(sorted(brokers)) or 'none'}"
        )
    addresses = brokers[broker].broker_addrs
    if broker_id not in addresses:
        there = ", ".join(map(str, sorted(addresses))) or "none"
        raise InvalidArgument(
            f"broker {broker} has no server with the id {broker_id} (0 is the master); it has {there}"
        )
    return Server(_label(broker, broker_id), addresses[broker_id])


async def one_figure(servers: AdminServers, server: Server, name: str, key: str) -> BrokerStats | None:
    try:
        answer = await servers.ask(server, ViewBrokerStats(name, key).to_command(), f"{name} of {key}")
    except ResponseError as error:
        if error.code == ResponseCode.SYSTEM_ERROR and "not exist" in error.remark:
            return None
        raise
    return BrokerStats.from_command(answer)


async def chosen_brokers(
    servers: AdminServers, broker: str | None, cluster: str | None, *, slaves: bool = False
) -> tuple[Server, ...]:
    """Returns the server of one broker, or the masters of a cluster, or else the masters of all clusters.

    `broker` is a name, which means its master, or an address `host:port`. `slaves` adds the slaves of the clusters.
    Raises `InvalidArgument` if both `broker` and `cluster` are named, or if the name is unknown.
    """
    if broker is not None:
        if cluster is not None:
            raise InvalidArgument(f"broker={broker!r}, cluster={cluster!r}: give one of them")
        return (await one_broker(servers, broker),)
    if not slaves:
        return tuple((await servers.masters(cluster)).values())
    servers_chosen = tuple(server for _, _, server in await every_address(servers, cluster))
    if not servers_chosen:
        raise InvalidState("the NameServer knows no broker; start one, or look why none registered")
    return servers_chosen


async def every_address(servers: AdminServers, cluster: str | None) -> list[tuple[BrokerData, int, Server]]:
    brokers = await servers.registered(cluster)
    return [
        (data, broker_id, Server(_label(data.broker_name, broker_id), address))
        for data in brokers
        for broker_id, address in sorted(data.broker_addrs.items())
    ]


def _label(broker_name: str, broker_id: int) -> str:
    return broker_name if broker_id == MASTER_ID else f"{broker_name}/{broker_id}"
