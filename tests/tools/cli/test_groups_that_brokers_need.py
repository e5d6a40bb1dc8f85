"""The groups that have to be made where brokers create none: those that `docs/rocketmq-services.md` names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyrmq_core import Message, ResponseCode
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer, PullConsumer
from pyrmq_core.errors import ResponseError
from pyrmq_spark.options import SinkOptions
from pyrmq_spark.worker import DEFAULT_CONSUMER_GROUP
from tests.support.commands import ended, started

TOPIC = "orders"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(settings={"autoCreateSubscriptionGroup": "false"}, topics={TOPIC: 1}) as cluster:
        yield cluster


def test_sends_and_tail_need_no_group(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    for group in (SinkOptions().producer_group, "shop"):
        with Producer(group, nameserver=cluster.nameserver) as producer:
            producer.send(Message(TOPIC, b"one"))
    code, output, _ = ended(started("tail", TOPIC, "-n", cluster.nameserver, "-o", "raw", home=tmp_path))
    assert (code, output.split()) == (0, ["one", "one"])


def test_reads_need_their_group(cluster: EmbeddedCluster) -> None:
    with (
        Admin(nameserver=cluster.nameserver) as admin,
        PullConsumer(DEFAULT_CONSUMER_GROUP, nameserver=cluster.nameserver) as consumer,
    ):
        (queue,) = consumer.message_queues(TOPIC)
        with pytest.raises(ResponseError, match=DEFAULT_CONSUMER_GROUP) as refused:
            consumer.pull(queue, 0)
        assert refused.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        admin.groups.create(DEFAULT_CONSUMER_GROUP)
        assert consumer.pull(queue, 0).messages
