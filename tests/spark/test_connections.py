"""The ways to a cluster that a worker's clients take: a page of NameServers, a unit, a namespace of 5.x."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from pyrmq_core import RocketMQError
from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.frame import FrameDecoder
from pyrmq_spark import worker
from pyrmq_spark.options import read_connection
from pyrmq_spark.spark_errors import InvalidOption
from tests.support.web import page_of


@pytest.fixture(autouse=True)
def _fresh_clients() -> Iterator[None]:
    yield
    worker.close()


def test_the_list_of_nameservers_comes_from_the_units_page() -> None:
    with (
        EmbeddedCluster(topics={"orders": 1}) as cluster,
        page_of(cluster.nameserver) as (url, paths),
    ):
        connection = read_connection({"nameServerUrl": url, "unitName": "east"}, {"NAMESRV_ADDR": "127.0.0.1:1"})
        queues = worker.consumer(connection, "readers").message_queues("orders")
        assert [queue.topic for queue in queues] == ["orders"]
        assert paths == ["/rocketmq/nsaddr-east?nofix=1"]


def test_a_namespace_of_5_goes_with_each_request() -> None:
    heard: list[Command] = []

    def answer_nothing(server: socket.socket) -> None:
        peer, _ = server.accept()
        with peer:
            decoder = FrameDecoder()
            decoder.feed(peer.recv(65536))
            if (request := decoder.next_command()) is not None:
                heard.append(request)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer_nothing, args=(server,))
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        connection = read_connection({"nameServer": address, "namespaceV2": "tenant"}, {})
        consumer = worker.consumer(connection, "readers")
        with pytest.raises(RocketMQError):
            consumer.topics()
        thread.join()
    assert (heard[0].ext["nsd"], heard[0].ext["ns"]) == ("true", "tenant")


def test_two_ways_to_nameservers_are_one_too_many() -> None:
    with pytest.raises(InvalidOption, match="nameServer names addresses, nameServerUrl says where to fetch them"):
        read_connection({"nameServer": "127.0.0.1:9876", "nameServerUrl": "http://names/list"}, {})


@pytest.mark.parametrize("wrong", ["names:8080", "ftp://names/list", "http://", "http:// names"])
def test_what_is_no_page_is_refused_where_the_option_is_read(wrong: str) -> None:
    with pytest.raises(InvalidOption, match="option nameServerUrl is"):
        read_connection({"nameServerUrl": wrong}, {})
