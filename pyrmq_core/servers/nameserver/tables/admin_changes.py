"""Administrators' changes to the route tables: to single topics, and to a broker's write permission.

Source: RouteInfoManager.deleteTopic, registerTopic, operateWritePermOfBroker, 5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyrmq_core.model import Permission
from pyrmq_core.protocol.routes.route import QueueData
from pyrmq_core.servers.nameserver.tables.changes import Change, TopicSet, WriteSwitched
from pyrmq_core.servers.nameserver.tables.room import check_queues
from pyrmq_core.servers.nameserver.tables.state import RouteTables

READ_AND_WRITE: Final = int(Permission.READ | Permission.WRITE)


def delete_topic(tables: RouteTables, topic: str, cluster: str | None = None) -> list[Change]:
    """Removes a topic's queues at the brokers of one cluster, or at all brokers if `cluster` is None or empty.

    A broker that still has the topic adds them again with its next registration.
    """
    queues = tables.topic_queue_table.get(topic, {})
    names = [name for name in queues if not cluster or name in tables.cluster_addr_table.get(cluster, ())]
    if not names:
        return []
    tables.forget_digests(names)
    return tables.drop_queues(topic, names)


def set_topic(tables: RouteTables, topic: str, queue_datas: Sequence[QueueData]) -> TopicSet | None:
    """Sets the queues of a topic at the brokers that `queue_datas` names. Returns None if `queue_datas` is empty.

    If a broker is not registered, only the queues of the brokers before it are set, or for a new topic none.
    Raises `BodyError` if the limits of the tables would be exceeded.
    """
    if not queue_datas:
        return None
    unknown = next(
        (index for index, queue in enumerate(queue_datas) if queue.broker_name not in tables.broker_addr_table), None
    )
    set_queues = queue_datas if unknown is None else queue_datas[:unknown] if topic in tables.topic_queue_table else ()
    if set_queues:
        check_queues(tables, topic, [queue_data.broker_name for queue_data in set_queues])
    for queue_data in set_queues:
        tables.put_queue_data(topic, queue_data)
    names = tuple(queue_data.broker_name for queue_data in set_queues)
    tables.forget_digests(names)
    return TopicSet(topic, names, None if unknown is None else queue_datas[unknown].broker_name)


def wipe_write_perm(tables: RouteTables, broker_name: str) -> WriteSwitched:
    """Clears the write bit of all topics of a broker. A later registration with a new topic version sets it again."""
    switched = tables.set_perms({broker_name}, lambda perm: perm & ~int(Permission.WRITE))
    return WriteSwitched(broker_name, False, switched[broker_name].topics, "asked for")


def add_write_perm(tables: RouteTables, broker_name: str) -> WriteSwitched:
    """Sets the permissions of all topics of a broker to read and write. The topic TBW102 loses its inherit bit."""
    switched = tables.set_perms({broker_name}, lambda _: READ_AND_WRITE)
    return WriteSwitched(broker_name, True, switched[broker_name].topics, "asked for")
