"""A topic's route as JSON: its queues by broker, and the brokers' addresses.

Sources: remoting/protocol/route/TopicRouteData.java, QueueData.java, BrokerData.java. 4.8 and older spell
`topicSysFlag` as `topicSynFlag`: both are read, the newer one is written.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.java.integers import int_member, long_member
from pyrmq_core.protocol.java.json_text import dumps, dumps_bare, load_object
from pyrmq_core.protocol.messages.names import check_address
from pyrmq_core.protocol.routes.topic_config import queue_count

MASTER_ID: Final = 0
# The most queues of all brokers in one route. It is limited, since a client makes an object for each queue.
MAX_QUEUES_PER_ROUTE: Final = 262_144


@dataclass(frozen=True, slots=True)
class QueueData:
    """The number of a topic's queues at one broker, and the permission to read and write them."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0

    def to_members(self) -> dict[str, Any]:
        return {
            "brokerName": self.broker_name,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> Self:
        return cls(
            broker_name=sys.intern(str(members["brokerName"])),  # many routes have the same few names
            read_queue_nums=queue_count(members["readQueueNums"]),
            write_queue_nums=queue_count(members["writeQueueNums"]),
            perm=int_member(members["perm"]),
            topic_sys_flag=int_member(members.get("topicSysFlag", members.get("topicSynFlag", 0))),
        )


@dataclass(frozen=True, slots=True)
class BrokerData:
    """The addresses of the master and slaves with one broker name, by broker id. The master's id is 0."""

    cluster: str
    broker_name: str
    broker_addrs: Mapping[int, str]
    enable_acting_master: bool = False
    zone_name: str | None = None

    @property
    def master(self) -> str | None:
        return self.broker_addrs.get(MASTER_ID)

    def to_members(self) -> dict[str, Any]:
        members: dict[str, Any] = {
            "brokerAddrs": dict(self.broker_addrs),
            "brokerName": self.broker_name,
            "cluster": self.cluster,
            "enableActingMaster": self.enable_acting_master,
        }
        return members if self.zone_name is None else {**members, "zoneName": self.zone_name}

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> Self:
        zone = members.get("zoneName")
        return cls(
            cluster=sys.intern(str(members.get("cluster", ""))),
            broker_name=sys.intern(str(members["brokerName"])),
            broker_addrs=broker_addresses(members["brokerAddrs"]),
            enable_acting_master=members.get("enableActingMaster") is True,
            zone_name=None if zone is None else str(zone),
        )


@dataclass(frozen=True, slots=True)
class TopicRouteData:
    """The route of a topic, as a NameServer returns it.

    `topic_queue_mapping_by_broker` belongs to static topics (5.x). Its JSON is passed on unchanged.
    """

    queue_datas: tuple[QueueData, ...] = ()
    broker_datas: tuple[BrokerData, ...] = ()
    order_topic_conf: str | None = None
    filter_server_table: Mapping[str, list[str]] = field(default_factory=dict)
    topic_queue_mapping_by_broker: Mapping[str, Any] | None = None

    def to_json(self, *, bare_ids: bool = False) -> bytes:
        """Returns strict JSON. With `bare_ids` broker ids have no quotes, which peers before 4.9.4 expect."""
        members: dict[str, Any] = {
            "brokerDatas": [broker.to_members() for broker in self.broker_datas],
            "filterServerTable": dict(self.filter_server_table),
            "queueDatas": [queue.to_members() for queue in self.queue_datas],
        }
        if self.order_topic_conf is not None:
            members["orderTopicConf"] = self.order_topic_conf
        if self.topic_queue_mapping_by_broker is not None:
            members["topicQueueMappingByBroker"] = dict(self.topic_queue_mapping_by_broker)
        return dumps_bare(members) if bare_ids else dumps(members)

    @classmethod
    def from_json(cls, body: bytes | memoryview) -> Self:
        members = load_object(body, "route")
        try:
            order = members.get("orderTopicConf")
            queue_datas = tuple(QueueData.from_members(queue) for queue in members.get("queueDatas") or ())
            _check_total(sum(max(queue.read_queue_nums, queue.write_queue_nums) for queue in queue_datas))
            return cls(
                queue_datas=queue_datas,
                broker_datas=tuple(BrokerData.from_members(broker) for broker in members.get("brokerDatas") or ()),
                order_topic_conf=None if order is None else str(order),
                filter_server_table=_filter_servers(members.get("filterServerTable") or {}),
                topic_queue_mapping_by_broker=_optional_object(members.get("topicQueueMappingByBroker")),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BodyError(f"route: a member is missing or of the wrong type: {error!r}") from error


def broker_addresses(members: Mapping[object, object]) -> dict[int, str]:
    addresses = {long_member(broker_id): str(address) for broker_id, address in members.items()}
    for address in addresses.values():
        check_address(address)
    return addresses


def order_counts(topic: str, order_topic_conf: str) -> list[tuple[str, int]]:
    counts = []
    for part in filter(None, order_topic_conf.split(";")):
        broker_name, _, count = part.partition(":")
        try:
            counts.append((broker_name, queue_count(count)))
        except ValueError as error:
            raise BodyError(
                f"the order configuration of {topic} has {part[:80]!r} where broker:count belongs: {error}"
            ) from error
    _check_total(sum(count for _, count in counts))
    return counts


def _check_total(queues: int) -> None:
    if queues > MAX_QUEUES_PER_ROUTE:
        raise BodyError(f"route: it has {queues} queues; {MAX_QUEUES_PER_ROUTE} at most are taken")


def _filter_servers(table: Mapping[str, Any]) -> dict[str, list[str]]:
    for addresses in table.values():
        if not isinstance(addresses, list):
            raise TypeError("filterServerTable holds something else than lists of addresses")
    return {broker_addr: [str(address) for address in addresses] for broker_addr, addresses in table.items()}


def _optional_object(value: object) -> dict[str, Any] | None:
    if value is None or isinstance(value, dict):
        return value
    raise TypeError("topicQueueMappingByBroker is no object")
