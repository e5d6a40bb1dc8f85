"""A broker that stores messages in RocketMQ's own files, and answers pulls from them.

`server` starts and ends it, `broker` holds its parts, `settings` and `setting_rules` have its settings, `registration`
keeps it registered with the NameServers, and `__main__` runs it as a process. The folders:

- `processors` answers requests: one module a family, and the table from request codes to functions.
- `store` keeps the messages: commit log, consume queues, checkpoint, recovery.
- `store_services` works on the store in the background: it syncs it to the disk.
- `tables` keeps topics, subscription groups and consumer offsets, in JSON files.
- `clients` knows the connected clients, their queue locks and their waiting pulls.
- `schedule` delivers messages with a delay level.

Some parts have a place, but are not built:

- `transactions` is for half messages and the checks back to producers. There is no such folder yet.
- `schedule` is for timer messages, too (`timer_wheel`).
- `ha` is for replication to slaves. There is no such folder yet: this broker is a master without slaves.
- `store` is for the index of keys (`key_index`), and `store_services` for the removal of old segments.

SQL filters of heartbeats, access control, static topics and pop consumption are not built, either. A request that needs
one of these parts is refused by name, and so is a setting that would switch one on.
"""

from pyrmq_core.broker.server import RunningBroker, run_broker
from pyrmq_core.broker.settings import BrokerConfig
from pyrmq_core.broker.store.files import DiskFiles
from pyrmq_core.broker.store.unsynced import ForgetfulFiles

__all__ = ["BrokerConfig", "DiskFiles", "ForgetfulFiles", "RunningBroker", "run_broker"]
