"""The five tables a NameServer keeps, and every decision over them, as plain functions of what comes in.

The time is handed in, connections are only compared, nothing waits or logs: `registration`, `removal` and `outside`
change a `RouteTables` and return what changed (`changes`), `lookups` read it.
Source: namesrv/routeinfo/RouteInfoManager.java, 5.3.3; what 4.x does otherwise is a rule in `TableRules`, or said
where it is decided.
"""

from pyrmq_core.nameserver.tables.state import BrokerAddrInfo, BrokerLiveInfo, RouteTables, TableRules

__all__ = ["BrokerAddrInfo", "BrokerLiveInfo", "RouteTables", "TableRules"]
