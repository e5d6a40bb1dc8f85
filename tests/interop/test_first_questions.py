"""The first requests to real servers, over a plain socket: the cluster's brokers (106), and a topic's route (105)."""

from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, Serialization
from pyrmq_core.protocol.requests.nameserver.get_route_info import GetRouteInfo, RouteInfo
from tests.support.apache import ApacheCluster, ask, registered_brokers


def test_the_nameserver_lists_its_brokers(apache: ApacheCluster) -> None:
    expected = {name: {broker.address} for name, broker in apache.brokers.items()}
    assert registered_brokers(apache.nameserver.address) == expected


def test_the_route_of_a_known_topic(apache: ApacheCluster) -> None:
    answer = ask(apache.nameserver.address, GetRouteInfo("TBW102", accept_standard_json_only=True).to_command())
    assert answer.code == ResponseCode.SUCCESS
    route = RouteInfo.from_command(answer).route
    assert {broker.broker_name: broker.master for broker in route.broker_datas} == {
        name: broker.address for name, broker in apache.brokers.items()
    }
    assert {queue.broker_name: queue.write_queue_nums for queue in route.queue_datas} == dict.fromkeys(
        apache.brokers, 8
    )


def test_the_route_of_an_unknown_topic(apache: ApacheCluster) -> None:
    answer = ask(apache.nameserver.address, GetRouteInfo("nobody_made_this").to_command())
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark is not None
    assert answer.remark.startswith("No topic route info in name server for the topic: nobody_made_this")


def test_the_compact_header_encoding_is_understood(apache: ApacheCluster) -> None:
    """5.4.0 always answers in JSON, 4.9.7 in the encoding of the request."""
    question = Command(RequestCode.GET_BROKER_CLUSTER_INFO, serialization=Serialization.ROCKETMQ)
    answer = ask(apache.nameserver.address, question)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.serialization == (Serialization.JSON if apache.version == "5.4.0" else Serialization.ROCKETMQ)
