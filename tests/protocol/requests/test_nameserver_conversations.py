"""Conversations with a NameServer: each request and answer through a command and back, and invalid answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pytest

from pyrmq_core.errors import BodyError, HeaderError
from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.headers import decode_json, encode_json
from pyrmq_core.protocol.requests.nameserver.cluster_info import (
    BrokerMemberGroup,
    ClusterInfo,
    GetBrokerMemberGroup,
    GetClusterInfo,
)
from pyrmq_core.protocol.requests.nameserver.kv_config import (
    DeleteKvConfig,
    GetKvConfig,
    GetKvList,
    KvConfig,
    KvTable,
    PutKvConfig,
)
from pyrmq_core.protocol.requests.nameserver.namesrv_config import (
    GetNamesrvConfig,
    NamesrvConfigText,
    UpdateNamesrvConfig,
)
from pyrmq_core.protocol.requests.nameserver.topic_in_namesrv import DeleteTopicInNamesrv, RegisterTopicInNamesrv
from pyrmq_core.protocol.requests.nameserver.topic_lists import (
    GetAllTopicList,
    GetTopicsByCluster,
    TopicList,
)
from pyrmq_core.protocol.requests.nameserver.write_perm import (
    AddedWritePerm,
    AddWritePerm,
    WipedWritePerm,
    WipeWritePerm,
)
from pyrmq_core.protocol.routes.route import BrokerData, QueueData, TopicRouteData
from pyrmq_core.protocol.routes.topic_config import DataVersion
from pyrmq_core.servers.protocol.broker_heartbeat import BrokerHeartbeat, NotifyMinBrokerIdChange
from pyrmq_core.servers.protocol.register_broker import (
    KnownDataVersion,
    QueryDataVersion,
    RegisterBroker,
    RegisteredBroker,
    RegistrationHeader,
    UnregisterBroker,
)
from pyrmq_core.servers.protocol.registration import RegistrationBody


class Said(Protocol):
    """One side of a conversation."""

    def to_command(self) -> Command: ...


HEADER = RegistrationHeader("C", "10.0.0.1:1", "b", 0, "10.0.0.1:2", False, 0, 10_000, True, "zone")
BODY = RegistrationBody(DataVersion(1, 2, 3), (TopicConfig("T", 4, 4, 6),), ("f:1",))
BROKER = BrokerData("C", "b", {0: "10.0.0.1:1", 1: "10.0.0.2:1"}, True, "zone")

REQUESTS: dict[int, Said] = {
    100: PutKvConfig("N", "k", "v"),
    101: GetKvConfig("N", "k"),
    102: DeleteKvConfig("N", "k"),
    103: RegisterBroker.of(HEADER, BODY),
    104: UnregisterBroker("C", "10.0.0.1:1", "b", 0),
    106: GetClusterInfo(),
    205: WipeWritePerm("b"),
    206: GetAllTopicList(),
    216: DeleteTopicInNamesrv("T", "C"),
    217: RegisterTopicInNamesrv("T", (QueueData("b", 4, 4, 6),)),
    219: GetKvList("N"),
    224: GetTopicsByCluster("C"),
    318: UpdateNamesrvConfig({"orderMessageEnable": "true", "path": "a b\\c"}),
    319: GetNamesrvConfig(),
    322: QueryDataVersion("C", "10.0.0.1:1", DataVersion(1, 2, 3), "b", 0),
    327: AddWritePerm("b"),
    901: GetBrokerMemberGroup(broker_name="b", cluster_name="C"),
    904: BrokerHeartbeat("C", "10.0.0.1:1", "b", 0),
    905: NotifyMinBrokerIdChange(1, "10.0.0.2:1", "10.0.0.1:1", None),
}
ANSWERS: list[Said] = [
    KvConfig("v"),
    KvTable({"k": "v", "k/ö": ""}),
    KvTable({}),
    RegisteredBroker(),
    RegisteredBroker("10.0.0.1:2", "10.0.0.1:1", {"T": "b:4"}),
    RegisteredBroker(order_topic_table={}),
    KnownDataVersion(False, DataVersion(1, 2, 3)),
    KnownDataVersion(True),
    ClusterInfo({"b": BROKER}, {"C": ("b",)}),
    BrokerMemberGroup("C", "b", {0: "10.0.0.1:1"}),
    TopicList(("T", "U"), "10.0.0.1:1"),
    TopicList(()),
    WipedWritePerm(3),
    AddedWritePerm(0),
    NamesrvConfigText({"a": "1", "b": "x=y:z"}),
]


def travelled(command: Command) -> Command:
    return decode_json(encode_json(command), bytes(command.body))


@pytest.mark.parametrize(("code", "request_said"), REQUESTS.items(), ids=str)
def test_requests_survive(code: int, request_said: Said) -> None:
    command = travelled(request_said.to_command())
    assert command.code == code == RequestCode(code)
    read: Callable[[Command], Any] = type(request_said).from_command  # type: ignore[attr-defined]
    assert read(command) == request_said


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_answers_survive(answer: Said) -> None:
    read: Callable[[Command], Any] = type(answer).from_command  # type: ignore[attr-defined]
    assert read(travelled(answer.to_command())) == answer


@pytest.mark.parametrize("compressed", [False, True])
def test_a_registration_sums_up_its_body_and_a_lie_is_found(compressed: bool) -> None:
    header = RegistrationHeader("C", "10.0.0.1:1", "b", 0, compressed=compressed)
    requested = RegisterBroker.from_command(travelled(RegisterBroker.of(header, BODY).to_command()))
    requested.check_crc()
    assert requested.body() == BODY
    lying = RegisterBroker(requested.header, bytes(requested.raw_body) + b" ")
    with pytest.raises(BodyError, match="crc32 not match"):
        lying.check_crc()
    RegisterBroker(RegistrationHeader("C", "a", "b", 0), b"unchecked").check_crc()


@pytest.mark.parametrize("code", [103, 104, 205, 216, 217, 322, 327, 901, 904])
def test_a_missing_field_is_named(code: int) -> None:
    read: Callable[[Command], Any] = type(REQUESTS[code]).from_command  # type: ignore[attr-defined]
    with pytest.raises(HeaderError, match="is missing"):
        read(Command(code))


@pytest.mark.parametrize(
    "answer", [KvTable, ClusterInfo, BrokerMemberGroup, TopicList, RegisteredBroker, KnownDataVersion], ids=str
)
@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff"])
def test_an_answer_that_is_no_json_object_is_named(answer: Any, body: bytes) -> None:
    with pytest.raises(BodyError):
        answer.from_command(Command(0, body=body))


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (KvTable, b'{"table":[1]}'),
        (RegisteredBroker, b'{"table":[1]}'),
        (TopicList, b'{"topicList":7}'),
        (TopicList, b'{"topicList":[7]}'),
        (ClusterInfo, b'{"brokerAddrTable":{"b":{}}}'),
        (ClusterInfo, b'{"clusterAddrTable":[1]}'),
        (BrokerMemberGroup, b"{}"),
        (BrokerMemberGroup, b'{"brokerMemberGroup":{"brokerName":"b","brokerAddrs":[1]}}'),
    ],
)
def test_an_answer_with_members_of_a_wrong_type_is_named(answer: Any, body: bytes) -> None:
    with pytest.raises(BodyError):
        answer.from_command(Command(0, body=body))


def test_settings_that_are_no_properties_are_named() -> None:
    with pytest.raises(BodyError):
        UpdateNamesrvConfig.from_command(Command(318, body=b"a=\\u12"))
    with pytest.raises(BodyError):
        UpdateNamesrvConfig.from_command(Command(318, body=b"a=\xff"))


def test_javas_answer_with_bare_ids_is_read() -> None:
    body = b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"a:1"},"brokerName":"b","cluster":"C"}},"clusterAddrTable":{}}'
    assert ClusterInfo.from_command(Command(0, body=body)).broker_addr_table["b"].broker_addrs == {0: "a:1"}


def test_a_route_in_both_forms() -> None:
    route = TopicRouteData(
        (QueueData("b", 4, 4, 6),), (BROKER,), "b:4", {"10.0.0.1:1": ["f:1"]}, {"b": {"currIdMap": {0: 1}, "epoch": 1}}
    )
    bare = route.to_json(bare_ids=True)
    assert b'"brokerAddrs":{0:"10.0.0.1:1",1:"10.0.0.2:1"}' in bare
    assert b'"brokerAddrs":{"0":"10.0.0.1:1","1":"10.0.0.2:1"}' in route.to_json()
    assert TopicRouteData.from_json(bare) == TopicRouteData.from_json(route.to_json())
