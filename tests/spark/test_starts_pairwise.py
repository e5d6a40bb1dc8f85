"""Topic options, starting positions and failOnDataLoss in pairs: each query reads, goes on and finds more."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from pyrmq_core import Message, MessageQueue
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer
from pyrmq_spark import worker
from tests.support.stream_queries import Query, numbers, send, wait_end

STARTS = ("latest", "earliest", "offsets", "times", "time")


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster
        worker.close()


def choice(how: str, topic: str) -> dict[str, str]:
    return {
        "one": {"topic": topic},
        "list": {"topic": f"{topic}, {topic}_x"},
        "pattern": {"topicPattern": f"{topic}(_x)?"},
        "assign": {"assign": json.dumps({topic: {"broker-a": [0], "broker-b": [0]}})},
    }[how]


def start(how: str, topics: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Returns the options, and their messages of 8: 0 to 5 in broker-a, 6 and 7 in broker-b."""
    more: dict[str, Any] = dict.fromkeys(topics[1:], "earliest")
    offsets = {topics[0]: {"broker-a": {"0": 2}, "broker-b": {"0": -1}}} | more
    return {
        "latest": ({}, []),
        "earliest": ({"startingOffsets": "earliest"}, numbers(0, 8)),
        "offsets": ({"startingOffsets": json.dumps(offsets)}, numbers(2, 6)),
        "times": ({"startingOffsetsByTimestamp": json.dumps(dict.fromkeys(topics, 0))}, numbers(0, 8)),
        "time": ({"startingTimestamp": "1970-01-01T00:00Z"}, numbers(0, 8)),
    }[how]


@pytest.mark.parametrize("where", STARTS)
@pytest.mark.parametrize("how", ["one", "list", "pattern", "assign"])
def test_a_stream_goes_on_and_finds_what_is_new(cluster: EmbeddedCluster, how: str, where: str) -> None:
    topic = f"t_{uuid.uuid4().hex[:8]}"
    topics = [topic, f"{topic}_x"] if how in ("list", "pattern") else [topic]
    fail = (len(how) + STARTS.index(where)) % 2 == 0
    with Admin(nameserver=cluster.nameserver) as admin, Producer("setup", nameserver=cluster.nameserver) as producer:
        for name in topics:
            admin.create_topic(name, queues=1)
        send(producer, cluster, topic, 0, 6)
        send(producer, cluster, topic, 6, 8, "b")
        given, expected = start(where, topics)
        query = Query(cluster, **choice(how, topic), **given, failOnDataLoss=str(fail).lower())
        assert query.batch() == expected
        query.restart()
        assert query.batch() == []
        send(producer, cluster, topic, 8, 10)
        query.restart()
        assert query.batch() == numbers(8, 10)
        admin.create_topic(topic, queues=2)
        new = MessageQueue(topic, "broker-b", 1)
        producer.send_batch([Message(topic, b"10")], queue=new)
        wait_end(cluster, new, 1)
        assert query.batch() == ([] if how == "assign" else ["10"])
