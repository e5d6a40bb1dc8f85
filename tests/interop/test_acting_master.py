"""A slave acts in its master's place with Java beside it: a Java pair at our NameServer, our slave in a Java pair.

Both slaves are asked the same, and answer with the same codes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.broker.consumer_offsets import QueryConsumerOffset, UpdateConsumerOffset
from pyrmq_core.protocol.requests.broker.consumer_send_back import ConsumerSendMsgBack
from pyrmq_core.protocol.requests.broker.lock_queues import LockedQueues, LockQueues
from pyrmq_core.protocol.requests.broker.pull_message import PullMessage
from pyrmq_core.protocol.requests.nameserver.get_route_info import GetRouteInfo, RouteInfo
from pyrmq_core.protocol.routes.route import TopicRouteData
from tests.support.apache import NEWEST, ApacheBroker, ask, boot_broker, boot_cluster
from tests.support.copies import Server, log_end
from tests.support.maven import ApacheUnavailable
from tests.support.our_cluster import boot_our_broker, boot_our_cluster
from tests.support.spark_streams import wait_until
from tests.support.store_jobs import message

SECONDS = 60.0
TOPIC, GROUP = "BenchmarkTest", "CID_ONSAPI_OWNER"  # every broker has them
# With two replicas a Java master that starts waits for its slave, and takes its offsets, before it registers.
MASTER = {"enableSlaveActingMaster": "true", "totalReplicas": "2"}
SLAVE = {"enableSlaveActingMaster": "true", "brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true"}
SUPPORT = {"supportActingMaster": "true"}
# Of a slave with this setting, whether it acts or not; sends with each of their three forms.
REFUSALS = {10: 14, 310: 14, 320: 14, 36: 1, 37: 11}


@dataclass
class Group:
    """A NameServer, a Java master, and its slave, ours or Java's."""

    nameserver: str
    master: ApacheBroker
    slave: Server

    def route(self, topic: str = TOPIC) -> TopicRouteData | None:
        answer = ask(self.nameserver, GetRouteInfo(topic).to_command())
        return RouteInfo.from_command(answer).route if answer.code == 0 else None

    def has_master(self, address: str, perm: int) -> bool:
        route = self.route()
        if route is None or not route.broker_datas:
            return False
        return (route.broker_datas[0].broker_addrs.get(0), route.queue_datas[0].perm) == (address, perm)


@contextmanager
def booted(slave: str, version: str, home: Path) -> Iterator[Group]:
    """Yields a Java pair with our NameServer, or our slave of a Java master with a Java NameServer."""
    with ExitStack() as stack:
        try:
            if slave == "java":
                ours = stack.enter_context(boot_our_cluster([], nameserver_settings=SUPPORT))
                nameserver = ours.nameserver.address
            else:
                theirs = stack.enter_context(boot_cluster(version, (), nameserver_settings=SUPPORT))
                nameserver = theirs.nameserver.address
            master = stack.enter_context(boot_broker(version, nameserver, "broker-a", settings=MASTER))
        except ApacheUnavailable as reason:
            pytest.skip(f"Apache RocketMQ {version}: {reason}")
        second: Server
        if slave == "java":
            second = stack.enter_context(boot_broker(version, nameserver, "broker-a", settings=SLAVE))
        else:
            second = stack.enter_context(boot_our_broker("broker-a", nameserver, home, SLAVE))
        yield Group(nameserver, master, second)


def refusals(address: str) -> dict[int, int]:
    """Returns the codes of answers by those of requests that would store something."""
    single = message(TOPIC, 0, b"x").to_command()
    first = {"producerGroup": "P", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4"}
    first |= {"queueId": "0", "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": ""}
    end = {"producerGroup": "P", "tranStateTableOffset": "0", "commitLogOffset": "0", "commitOrRollback": "8"}
    requests = [
        Command(RequestCode.SEND_MESSAGE, first, b"x"),
        single,
        replace(single, code=RequestCode.SEND_BATCH_MESSAGE),
        ConsumerSendMsgBack(offset=0, group=GROUP, delay_level=0, origin_topic=TOPIC).to_command(),
        Command(RequestCode.END_TRANSACTION, end),
    ]
    return {request.code: ask(address, request).code for request in requests}


def pulled(address: str) -> int:
    return ask(address, PullMessage(GROUP, TOPIC, 0, 0, 32).to_command()).code


def committed(address: str) -> str | None:
    answer = ask(address, QueryConsumerOffset(GROUP, TOPIC, 0).to_command())
    return answer.ext.get("offset") if answer.code == 0 else None


@pytest.mark.parametrize(
    ("slave", "version"),
    [("java", "5.4.0"), pytest.param("ours", "5.4.0", marks=pytest.mark.soak), ("ours", NEWEST)],
    ids=["java", "ours", f"ours-{NEWEST}"],
)
def test_a_slave_acts_while_its_java_master_is_gone(slave: str, version: str, tmp_path: Path) -> None:
    with booted(slave, version, tmp_path / "slave") as group:
        master, second = group.master, group.slave
        for number in range(5):
            assert ask(master.address, message(TOPIC, 0, b"%d" % number).to_command()).code == 0
        assert ask(master.address, UpdateConsumerOffset(GROUP, TOPIC, 0, 1).to_command()).code == 0
        wait_until(lambda: group.has_master(master.address, 6), SECONDS)
        wait_until(lambda: log_end(second.address) >= log_end(master.address), SECONDS)
        if slave == "ours":  # Java's fetches it a minute after its boot
            wait_until(lambda: committed(second.address) == "1", SECONDS)
        assert refusals(second.address) == REFUSALS
        master.kill()
        wait_until(lambda: group.has_master(second.address, 4), SECONDS)
        wait_until(lambda: pulled(second.address) == 0, SECONDS)
        assert refusals(second.address) == REFUSALS
        lock = LockQueues(GROUP, "client", (MessageQueue(TOPIC, "broker-a", 0),)).to_command()
        assert LockedQueues.from_command(ask(second.address, lock)).queues == (MessageQueue(TOPIC, "broker-a", 0),)
        assert ask(second.address, UpdateConsumerOffset(GROUP, TOPIC, 0, 4).to_command()).code == 0
        master.start()
        wait_until(lambda: group.has_master(master.address, 6), SECONDS)
        if slave == "ours":  # Java's takes offsets only of a newer version, which a slave that fetched none may lack
            assert committed(master.address) == "4"
        assert ask(master.address, message(TOPIC, 0, b"more").to_command()).code == 0
        wait_until(lambda: log_end(second.address) >= log_end(master.address), SECONDS)
        second.terminate()
        wait_until(lambda: (route := group.route()) is not None and set(route.broker_datas[0].broker_addrs) == {0}, 30)
