"""RocketMQ's NameServer, by default as in 5.x: brokers register with it, clients query it for routes.

`tables` makes the decisions without clock, event loop or log. `service` has the tables, settings (`config`), KV
configuration (`kvconfig`) and a cache of encoded routes. `handlers` has a function per request code, and
`registration_queue` has a thread decode long registrations. `server` listens and runs the periodic tasks, and `process`
is the command. Routes are kept in memory only. NameServers do not know each other: a broker registers with all of them,
a client queries any.
"""

from pyrmq_core.servers.nameserver.config import NameServerConfig
from pyrmq_core.servers.nameserver.process import configure, main, run_process
from pyrmq_core.servers.nameserver.server import RunningNameServer, run_nameserver

__all__ = ["NameServerConfig", "RunningNameServer", "configure", "main", "run_nameserver", "run_process"]
