"""A broker that stores messages in RocketMQ's own files, and answers pulls from them.

`__main__` runs it as a process, `server` starts and stops it, and `broker` has its parts. `registration` keeps it
registered with the NameServers, `roles` has the work of masters and of slaves, `upkeep` the periodic work. The folders:

- `settings` has its settings, and says what happens to RocketMQ's other settings.
- `processors` answers requests: one module for each family of requests, and the table of their codes.
- `store` keeps the messages: commit log, consume queues, index of keys, checkpoint, recovery.
- `store_services` syncs and indexes the store in the background, and removes old segments.
- `tables` keeps topics, subscription groups and consumer offsets, in JSON files.
- `clients` has the connected clients, their queue locks and their held pulls.
- `schedule` delivers messages with a delay level.
- `timers` delivers messages at the time that their sender chose, with RocketMQ's timer log and wheel.
- `pop` makes popped messages visible again if they were not acknowledged in time.
- `transactions` keeps half messages, and asks their producers to commit or roll back.
- `ha` sends the log to slaves, makes sends wait for them, and follows a master.
- `statistics` counts what the broker does, by topic and group. `exported` shows the counts to Prometheus.

Static topics and controllers are not supported. Requests that need one are refused, and so are settings that would
switch one on. No slave becomes a master by itself. With `enableSlaveActingMaster` a slave answers for an unreachable
master, but refuses sends.
"""

from pyrmq_core.servers.broker.processors.topics_and_groups import make_topics
from pyrmq_core.servers.broker.running_broker import RunningBroker
from pyrmq_core.servers.broker.server import run_broker
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.store.disk.disk_files import DiskFiles

__all__ = ["BrokerConfig", "DiskFiles", "RunningBroker", "make_topics", "run_broker"]
