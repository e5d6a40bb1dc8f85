"""A broker that carries the job for real: it stores messages in RocketMQ's own files, and answers pulls from them.

Left out: slaves and replication, transactions, timer messages, SQL filters of heartbeats, the key index
(QUERY_MESSAGE), removal of old segments, access control, TLS, static topics, pop consumption. Each is refused by name.

`handlers` has a function a request code; these stand in `sending`, `pulling` and the `..._requests` modules and work on
`state.Broker`, the broker's parts. `store` keeps the messages, `topics`, `groups` and `group_offsets` the JSON files
beside them, `clients` who is connected, `held_pulls` who waits. `flushing`, `registration` and `delays` are the rounds,
`running` starts and ends it all.
"""

from pyrmq_core.broker.server import RunningBroker, run_broker
from pyrmq_core.broker.settings import BrokerConfig
from pyrmq_core.broker.store.files import DiskFiles
from pyrmq_core.broker.store.unsynced import ForgetfulFiles

__all__ = ["BrokerConfig", "DiskFiles", "ForgetfulFiles", "RunningBroker", "run_broker"]
