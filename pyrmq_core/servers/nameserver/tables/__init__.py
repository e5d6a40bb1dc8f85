"""The five route tables of a NameServer, and every decision about them, as functions without I/O.

Callers pass the time, connections are only compared, and nothing waits or logs. `state` has the tables. `registration`,
`removal` and `admin_changes` change them and return the changes as values (`changes`). `queries` reads them. `accepted`
and `room` check new entries. Source: namesrv/routeinfo/RouteInfoManager.java, 5.3.3.
"""

from pyrmq_core.servers.nameserver.tables.state import BrokerAddrInfo, BrokerLiveInfo, RouteTables, TableRules

__all__ = ["BrokerAddrInfo", "BrokerLiveInfo", "RouteTables", "TableRules"]
