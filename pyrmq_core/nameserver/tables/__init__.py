"""The five tables a NameServer keeps, and every decision about them, as plain functions of their arguments.

The time is passed in, connections are only compared, and nothing waits or logs. `state` is the tables themselves;
`registration`, `removal` and `admin_changes` change them and return the changes as values (`changes`); `queries` reads
them; `accepted` and `room` check what may enter.
Source: namesrv/routeinfo/RouteInfoManager.java, 5.3.3; where 4.x differs, the difference is a rule in `TableRules` or
stated at the decision.
"""

from pyrmq_core.nameserver.tables.state import BrokerAddrInfo, BrokerLiveInfo, RouteTables, TableRules

__all__ = ["BrokerAddrInfo", "BrokerLiveInfo", "RouteTables", "TableRules"]
