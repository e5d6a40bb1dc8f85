"""Real queries over topics that grow and lose permissions, and while the NameServer alone is away."""

import json
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

from pyrmq_core import MessageQueue
from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.embedded import CutConnection
from pyrmq_core.model import Permission
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from tests.support.spark import read
from tests.support.spark_batches import topic
from tests.support.spark_streams import RUNS_AFTER_A_FAILURE, Topic, bodies, run, sender, sent, start, stream

__all__ = ["sender", "sent", "topic"]

pytestmark = pytest.mark.spark

NAMESERVER_CODES = (
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
)


def test_a_query_that_failed_in_batch_0_goes_on_though_its_topic_has_grown(
    spark: SparkSession, sent: Topic, tmp_path: Path
) -> None:
    sent.send(0, 6, sent.queues()[0])
    named = json.dumps({sent.name: {name: {"0": -2, "1": -2} for name in ("broker-a", "broker-b")}})
    frame = stream(spark, sent.nameserver, topic=sent.name, startingOffsets=named)
    with pytest.raises(StreamingQueryException, match="row 3 is poison"):
        run(frame.withColumn("body", expr("if(body = '3', raise_error('row 3 is poison'), body)")), tmp_path)
    sent.create(queues=3)
    sent.send(6, 9, MessageQueue(sent.name, "broker-a", 2))
    for _ in range(RUNS_AFTER_A_FAILURE):
        run(frame, tmp_path)
    assert bodies(spark, tmp_path) == list(range(9))


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_that_may_not_be_read_fails_by_name_and_is_gone_on_with(
    spark: SparkSession, sent: Topic, tmp_path: Path, fail: str
) -> None:
    sent.send(0, 5)
    frame = stream(spark, sent.nameserver, topic=sent.name, startingOffsets="earliest", failOnDataLoss=fail)
    run(frame, tmp_path)
    sent.send(5, 8)
    sent.admin.create_topic(sent.name, queues=2, perm=Permission.WRITE)
    with pytest.raises(StreamingQueryException, match=r"\[RMQ_NOT_READABLE\] .*lacks the READ permission"):
        run(frame, tmp_path)
    with pytest.raises(Exception, match=r"\[RMQ_NOT_READABLE\] .*lacks the READ permission"):
        read(spark, sent.nameserver, topic=sent.name).count()
    sent.admin.create_topic(sent.name, queues=2)
    run(frame, tmp_path)
    assert bodies(spark, tmp_path) == list(range(8))


def test_a_query_goes_on_while_only_the_nameserver_is_away(
    spark: SparkSession, cluster: EmbeddedCluster, sent: Topic, tmp_path: Path
) -> None:
    sent.send(0, 10)
    frame = stream(spark, sent.nameserver, topic=sent.name, startingOffsets="earliest", pullTimeoutMs=10_000)
    query = start(frame, tmp_path, processingTime="100 milliseconds")

    async def away(request: Command, peer: Peer) -> None:
        raise CutConnection

    try:
        query.processAllAvailable()
        queues = sent.queues()
        controls = [cluster.control(code, away, server="nameserver") for code in NAMESERVER_CODES]
        try:
            for number in range(10, 30):
                sent.send_quietly(number, queues[number % len(queues)])
                query.processAllAvailable()
        finally:
            for control in controls:
                control.remove()
        query.processAllAvailable()
    finally:
        query.stop()
    assert bodies(spark, tmp_path) == list(range(30))
