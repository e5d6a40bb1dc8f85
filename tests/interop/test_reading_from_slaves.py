"""A stream goes on reading from a slave of each release when its master is killed, and skips nothing when both are."""

from shutil import copyfile

import pytest

from pyrmq_core import Message, MessageQueue
from pyrmq_core.blocking import Admin, Producer
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.broker.offsets import GetMaxOffset, OffsetFound
from pyrmq_core.protocol.requests.broker.pull_message import PullMessage
from pyrmq_spark import worker
from pyrmq_spark.spark_errors import RocketMQSparkError
from tests.interop.conftest import cluster_or_skip
from tests.support.apache import WITH_LONG_NEWEST, ask, boot_broker, registered_brokers
from tests.support.spark_streams import wait_until
from tests.support.stream_queries import Query, numbers

QUEUE = MessageQueue("orders", "broker-a", 0)
SECONDS = 60.0


def held(address: str) -> int:
    """Returns the number of the queue's messages on a broker, master or slave; -1 while it does not answer."""
    answer: Command = ask(address, GetMaxOffset(QUEUE.topic, QUEUE.queue_id).to_command())
    return OffsetFound.from_command(answer).offset if answer.code == 0 else -1


def serves(address: str) -> bool:
    """Checks that the broker knows the topic."""
    answer = ask(address, PullMessage("audit", QUEUE.topic, QUEUE.queue_id, 0, 1).to_command())
    return answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("version", WITH_LONG_NEWEST)
def test_the_slave_serves_when_its_master_is_gone(version: str) -> None:
    settings = {"brokerId": "1", "brokerRole": "SLAVE", "slaveReadEnable": "true"}
    with cluster_or_skip(version, ("broker-a",)) as cluster:
        nameserver, master = cluster.nameserver.address, cluster.brokers["broker-a"]
        with Admin(nameserver=nameserver, timeout=20) as admin:
            admin.create_topic(QUEUE.topic, queues=1)
        with Producer("setup", nameserver=nameserver, send_timeout=20) as producer:
            producer.send_batch([Message(QUEUE.topic, f"{n}".encode()) for n in range(40)], queue=QUEUE)
        # It would fetch topics by itself, one of 5.4.0 a minute after its boot.
        store = cluster.home / "slave"
        (store / "config").mkdir(parents=True)
        copyfile(master.store / "config" / "topics.json", store / "config" / "topics.json")
        settings |= {"storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog")}
        with boot_broker(version, nameserver, "broker-a", settings=settings) as slave:
            wait_until(lambda: held(slave.address) == 40 and serves(slave.address), SECONDS)
            query = Query(nameserver, topic=QUEUE.topic, startingOffsets="earliest", maxOffsetsPerTrigger=15)
            assert query.batch() == numbers(0, 15)
            master.kill()
            wait_until(lambda: registered_brokers(nameserver) == {"broker-a": {slave.address}}, SECONDS)
            assert query.batch() == numbers(15, 30)
            query.restart()
            assert query.batch() == numbers(30, 40)
            assert query.batch() == []
            assert [row[:2] for row in query.rows] == [("broker-a", n) for n in range(40)]
            slave.kill()
            query.restart(pullTimeoutMs=1000)
            with pytest.raises(RocketMQSparkError, match=r"\[RMQ_BROKER_UNAVAILABLE\] .*waited 1 s in vain"):
                query.batch()
            worker.close()
