"""The NameServer: brokers register with it, clients ask it for routes (RocketMQ's own, 5.x's way by default).

`tables` decides and knows no clock, loop or log; `service` holds tables, settings and KV configuration; `handlers` has
a function a request code; `running` listens and keeps the rounds, `process` is the command. Routes live in memory
only, and NameServers know nothing of each other: brokers tell all of them, clients ask any.
"""

from pyrmq_core.nameserver.config import NameServerConfig
from pyrmq_core.nameserver.process import configure, main, run_process
from pyrmq_core.nameserver.server import RunningNameServer, run_nameserver

__all__ = ["NameServerConfig", "RunningNameServer", "configure", "main", "run_nameserver", "run_process"]
