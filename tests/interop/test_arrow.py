"""Rows as columns against Apache RocketMQ, and Java's view of them."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest
import trio

from pyrmq_core import Client, Producer
from tests.interop.conftest import HERE
from tests.support.apache import NEWEST_AND_LONG_OLDER, ApacheCluster
from tests.support.arrow_jobs import ArrowJobs, made_topic
from tests.support.client_jobs import client, consumer, producer, topic

__all__ = ["client", "consumer", "made_topic", "producer", "topic"]


@pytest.fixture(params=NEWEST_AND_LONG_OLDER)
def cluster(request: pytest.FixtureRequest) -> ApacheCluster:
    servers: ApacheCluster = request.getfixturevalue(f"apache_{request.param[0]}")
    return servers


@pytest.fixture
def nameserver(cluster: ApacheCluster) -> str:
    return cluster.nameserver.address


class TestArrowJobs(ArrowJobs):
    """The jobs on columns, on each release."""


async def test_java_reads_rows_compressed_or_not(cluster: ApacheCluster, client: Client, made_topic: str) -> None:
    bodies = [b"small %d" % number if number % 3 else b"large %d " % number * 900 for number in range(60)]
    rows = pa.record_batch({"body": bodies, "keys": [f"k{n}" for n in range(60)], "tags": ["t"] * 60})
    async with Producer("g_rows", client=client, send_timeout=15) as producer:
        await producer.send_arrow(rows, topic=made_topic)
    printed = await trio.to_thread.run_sync(
        lambda: cluster.run_java(HERE / "java" / "ReadTopic.java", cluster.nameserver.address, made_topic, "60", "")
    )
    read = [line.split()[1:] for line in printed.splitlines() if line.startswith("read ")]
    assert {row[4]: (int(row[6]), int(row[7])) for row in read} == {
        f"k{number}": (len(body), zlib.crc32(body)) for number, body in enumerate(bodies)
    }
    assert {row[5] for row in read} == {"t"}
    assert len({row[3] for row in read}) == 60
