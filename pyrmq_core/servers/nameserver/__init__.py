"""A NameServer like RocketMQ 5's: brokers register with it, and clients query it for routes.

`tables` makes the decisions without clock, event loop or log. `service` has the tables, settings (`config`), KV
configuration (`kvconfig`) and a cache of encoded routes. `handlers` has a function for each request code, and
`registration_queue` decodes long registrations in a thread. `server` listens and runs the periodic tasks, and `process`
is the command. Routes are only in memory. NameServers do not know each other: a broker registers with all of them, and
a client queries any of them.
"""

from pyrmq_core.servers.nameserver.config import NameServerConfig
from pyrmq_core.servers.nameserver.process import configure, main, run_process
from pyrmq_core.servers.nameserver.server import RunningNameServer, run_nameserver

__all__ = ["NameServerConfig", "RunningNameServer", "configure", "main", "run_nameserver", "run_process"]
