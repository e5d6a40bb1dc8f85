"""Lag and published offsets, without a session: a progress as Spark reports it, and our own brokers."""

import json
from typing import Any

import pytest

from pyrmq_core import MessageQueue
from pyrmq_core.blocking import Admin, EmbeddedCluster, PullConsumer
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_spark import OffsetPublisher, QueueLag, commit_offsets, lag, worker
from pyrmq_spark.spark_errors import RocketMQSparkError
from pyrmq_spark.stream.stream_offset import StreamOffset

A, B = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-b", 0)


class Progress:
    """The parts of a query and of its progress event that are read."""

    def __init__(self, *sources: dict[str, Any], name: str | None = None) -> None:
        self.json = json.dumps({"name": name, "sources": sources})

    @property
    def progress(self) -> "Progress":
        return self

    @property
    def lastProgress(self) -> "Progress":  # noqa: N802 - Spark's name
        return self


class NotStarted:
    lastProgress = None  # noqa: N815 - Spark's name


def source(end: dict[MessageQueue, int], latest: dict[MessageQueue, int] | None = None) -> dict[str, Any]:
    known = None if latest is None else json.dumps(StreamOffset(latest).to_json())
    return {"endOffset": json.dumps(StreamOffset(end).to_json()), "latestOffset": known}


def test_lag_is_what_lies_between_the_query_and_the_end() -> None:
    found = lag(Progress(source({A: 5, B: 7}, {A: 9, B: 7})))  # type: ignore[arg-type]
    assert found == [QueueLag(A, 5, 9), QueueLag(B, 7, 7)]
    assert [one.behind for one in found] == [4, 0]


def test_a_listener_passes_its_event() -> None:
    class Event:
        progress = Progress(source({A: 5}, {A: 9}))

    assert lag(Event()) == [QueueLag(A, 5, 9)]  # type: ignore[arg-type]


def test_lag_never_raises_before_the_first_batch_or_for_other_sources() -> None:
    assert lag(NotStarted()) == []  # type: ignore[arg-type]
    others: list[dict[str, Any]] = [{"endOffset": None}, {"endOffset": '{"orders":{"0":5}}'}, {"endOffset": "0"}]
    assert lag(Progress(*others)) == []  # type: ignore[arg-type]
    assert lag(Progress(source({A: 5}))) == [QueueLag(A, 5, 5)]  # type: ignore[arg-type]


def test_offsets_are_published_and_the_slower_of_two_sources_counts(cluster: EmbeddedCluster) -> None:
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic("orders", queues=1)
    publisher = OffsetPublisher("audit", query_name="mine", nameServer=cluster.nameserver)
    publisher.onQueryProgress(Progress(source({A: 1}), name="another"))  # type: ignore[arg-type]
    with PullConsumer("audit", nameserver=cluster.nameserver) as consumer:
        assert consumer.committed(A) is None
        publisher.onQueryProgress(Progress(source({A: 5, B: 8}), source({A: 4}), name="mine"))  # type: ignore[arg-type]
        assert (consumer.committed(A), consumer.committed(B)) == (4, 8)
    worker.close()


def test_what_cannot_be_published_is_logged_and_the_query_goes_on(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def refused(request: Command, peer: Peer) -> Command:
        return refusal(ResponseCode.NO_PERMISSION, "not you")

    control = cluster.control(RequestCode.UPDATE_CONSUMER_OFFSET, refused)
    progress = Progress(source({A: 5}))
    try:
        OffsetPublisher("others", nameServer=cluster.nameserver).onQueryProgress(progress)  # type: ignore[arg-type]
        assert "are not published under group others" in caplog.text
        with pytest.raises(RocketMQSparkError, match=r"\[RMQ_REFUSED\] group others: .*not you"):
            commit_offsets(progress, "others", nameServer=cluster.nameserver)  # type: ignore[arg-type]
    finally:
        control.remove()
        worker.close()


def test_where_to_publish_has_to_be_named() -> None:
    with pytest.raises(RocketMQSparkError, match=r"\[RMQ_INVALID_OPTION\] .*no NameServer is named"):
        OffsetPublisher("audit")
    with pytest.raises(RocketMQSparkError, match=r"\[RMQ_UNKNOWN_OPTION\] .*nameservr"):
        OffsetPublisher("audit", nameservr="x")
