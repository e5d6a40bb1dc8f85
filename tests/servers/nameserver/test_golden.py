"""Recorded requests to real NameServers, sent to ours: the answers are equal, apart from the list below.

Intended differences: our NameServer
- takes a first registration with one topic, as 4.9.7 does and 5.x does not (a setting turns it; both are replayed);
- answers 106 and 901 with quoted broker ids (the comparison reads both forms);
- answers every success with an `extFields`, if only an empty one, and refusals with none;
- names the error in a refusal of a registration that cannot be read, where Java names its class;
- names, after the text of 5.x, the request code that is not a NameServer's; 4.9.7 answers nothing at all;
- orders topics as they came, where Java's order is that of its hash tables;
- shows settings of its own, and not Java's rest, in 319.
"""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from pyrmq_core.model import TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, Serialization
from pyrmq_core.protocol.framing.frame import FrameDecoder
from pyrmq_core.protocol.java.json_text import loads
from pyrmq_core.protocol.java.properties_text import parse_java_properties
from tests.servers.nameserver.desk import Desk, peer, registration
from tests.support import golden

FAQ = {
    "4.9.7": "See http://rocketmq.apache.org/docs/faq/ for further details.",
    "5.4.0": "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.",
}


def body_value(body: bytes | str, version: str) -> Any:
    """Returns a body for comparison: lists of topics sorted, 5.x's members left out of answers of 4.9.7."""
    if not body:
        return None
    value = loads(body.encode() if isinstance(body, str) else body, "body")
    if "topicList" in value:
        value["topicList"] = sorted(value["topicList"])
    if version == "4.9.7":
        value.pop("stateVersion", None)
        brokers = value.get("brokerDatas", []) + list(value.get("brokerAddrTable", {}).values())
        for broker in brokers:
            broker.pop("enableActingMaster", None)
    return value


def remark_of(answer: Command, version: str) -> str | None:
    return answer.remark and answer.remark.replace(FAQ["5.4.0"], FAQ[version])


def commands(raw: bytes) -> Command:
    decoder = FrameDecoder()
    decoder.feed(raw)
    command = decoder.next_command()
    assert command is not None
    return command


@pytest.mark.parametrize(
    "source",
    [
        "4.9.7_broker_nameserver",
        "5.4.0_broker_nameserver",
        "5.4.0_acting_master_nameserver",
        "4.9.7_client_nameserver",
        "5.4.0_client_nameserver",
    ],
)
async def test_recorded_conversations_get_the_same_answers(source: str) -> None:
    version = source[:5]
    desk = Desk()
    peers = {conn: peer(f"127.0.0.1:{50_000 + conn}") for conn in (1, 2)}
    frames = [frame for frame in golden.frames() if frame.source == source]
    requested: dict[tuple[int, int], Command] = {}
    compared = 0
    for frame in frames:
        command = commands(frame.raw)
        if frame.dir == "c2s":
            requested[frame.conn, command.opaque] = command
            if frame.oneway:
                await desk.ask(command, peers[frame.conn])
            continue
        request = requested[frame.conn, command.opaque]
        if "client" in source and command.code == 0:
            await broker_of_recorded_client(desk, request.ext["topic"], loads(command.body, "route"))
        ours = await desk.ask(request, peers[frame.conn])
        assert (ours.code, dict(ours.ext)) == (command.code, dict(command.ext)), str(frame)
        assert body_value(bytes(ours.body), version) == body_value(bytes(command.body), version)
        if "Failed to decode RegisterBrokerBody" not in (command.remark or ""):
            assert remark_of(ours, version) == command.remark
        compared += 1
    assert compared >= 3


async def broker_of_recorded_client(desk: Desk, topic: str, route: dict[str, Any]) -> None:
    """Registers the topic as the recorded route has it."""
    (queues,) = route["queueDatas"]
    (broker,) = route["brokerDatas"]
    config = TopicConfig(topic, queues["readQueueNums"], queues["writeQueueNums"], queues["perm"])
    await desk.register(broker["brokerName"], broker["brokerAddrs"]["0"], topics=[config], version=len(topic))


# Topics of the broker that the servers of real_answers.json had, by version.
BOOT_TOPICS = {
    version: next(
        loads(row[version]["body"].encode(), "topics")["topicList"]
        for row in golden.rows()
        if row["request"]["code"] == 206
    )
    for version in ("5.4.0", "4.9.7")
}
SPEAKS_VERSION = 493


def answered_by(row: dict[str, Any], version: str) -> dict[str, Any] | None:
    """Returns the answer of a version; None when there was none or the recording cut it."""
    answer = row.get(version)
    if answer == "same":
        answer = row["5.4.0"]
    return answer if isinstance(answer, dict) else None


def question(row: dict[str, Any]) -> Command:
    """Returns a recorded request; restores a body that the recording cut, with its sum."""
    requested = row["request"]
    ext = dict(requested.get("ext", {}))
    body = requested.get("body", b"")
    if isinstance(body, dict):
        body = bytes.fromhex(body["hex"])
    elif isinstance(body, str):
        body = body.encode()
    if body.endswith(b" ..."):
        topics = [TopicConfig("F1", 4, 4), TopicConfig("F2", 4, 4), TopicConfig("FR", 4, 4, 4)]
        whole = registration("fk", "127.0.0.1:5911", topics=topics)
        body = bytes(whole.raw_body)
        ext["bodyCrc32"] = str(zlib.crc32(body) & 0x7FFFFFFF)
    return Command(
        requested["code"],
        ext,
        body,
        version=requested.get("version", SPEAKS_VERSION),
        serialization=Serialization(requested.get("serialization", 0)),
    )


@pytest.mark.parametrize("version", ["5.4.0", "4.9.7"])
async def test_the_answers_of_both_versions_side_by_side(version: str) -> None:
    desk = Desk(acceptFirstRegistrationOfOneTopic=version == "4.9.7")
    boot = [TopicConfig(topic, 4, 4) for topic in BOOT_TOPICS[version]]
    await desk.register(topics=boot, of=peer("127.0.0.1:60000"))
    compared = 0
    for row in golden.rows():
        if row["request"]["to"] != "nameserver":
            continue
        request = question(row)
        # One connection a broker, as brokers do.
        ours = await desk.ask(request, peer(f"127.0.0.1:{51_000 + compared}"))
        theirs = answered_by(row, version)
        if row.get(version) == "none":
            assert request.code in (217, 901, 904) or ours.code == 3, row
        if theirs is None:
            continue
        compared += 1
        compare(row, request, ours, theirs, version)
    assert compared >= 40


def compare(row: dict[str, Any], request: Command, ours: Command, theirs: dict[str, Any], version: str) -> None:
    assert ours.code == theirs["code"], row
    if ours.code == 0:
        assert dict(ours.ext) == theirs.get("ext", {}), row
    theirs_remark = theirs.get("remark", "")
    if "Failed to decode RegisterBrokerBody" in theirs_remark:
        return
    if theirs_remark and theirs_remark != "not set any response code":
        assert (remark_of(ours, version) or "").startswith(theirs_remark.removesuffix(" ...")), row
    body = theirs.get("body", "")
    if request.code == RequestCode.GET_NAMESRV_CONFIG:
        settings = parse_java_properties(bytes(ours.body).decode())
        assert settings.keys() >= parse_java_properties(body.rpartition("\n")[0]).keys()
    elif not body.endswith(" ..."):
        assert body_value(bytes(ours.body), version) == body_value(body, version), row


def probe() -> dict[str, tuple[Command, Any]]:
    """Returns the answers of namesrv_probe.txt by their title."""
    answers: dict[str, tuple[Command, Any]] = {}
    for line in golden.text("namesrv_probe.txt").splitlines():
        if line.startswith("## "):
            title, _, header, body = line[3:].split(" | ", 3)
            members = loads(header.encode(), "header")
            answer = Command(members["code"], members.get("extFields") or {}, remark=members.get("remark"))
            text = body.removeprefix("body b'").removesuffix("'").encode().decode("unicode_escape")
            answers[title] = (answer, text.encode("latin-1"))
    return answers


class Probe:
    """Sends ours the requests that 5.3.3 answered, and compares."""

    def __init__(self) -> None:
        self.desk = Desk(acceptFirstRegistrationOfOneTopic=False)
        self.theirs = probe()
        self.compared: set[str] = set()

    async def same(self, title: str, request: Command, of: Peer | None = None) -> Command:
        ours = await self.desk.ask(request, of)
        answer, body = self.theirs[title]
        self.compared.add(title)
        assert ours.code == answer.code, title
        if ours.code == 0:
            assert dict(ours.ext) == dict(answer.ext), title
        elif title != "unknown code":
            assert ours.remark == answer.remark, title
        if title != "get nsconfig":
            assert body_value(bytes(ours.body), "5.3.3") == body_value(body, "5.3.3"), title
        return ours


def with_fields(code: int, **ext: str) -> Command:
    return Command(code, ext)


def route(topic: str, version: int = 479, **ext: str) -> Command:
    return Command(105, {"topic": topic, **ext}, version=version)


async def test_the_probe_of_5_3_3() -> None:
    probe = Probe()
    master, slave, other = peer("127.0.0.1:1"), peer("127.0.0.1:2"), peer("127.0.0.1:3")
    await probe_routes_and_kv(probe)
    await probe_registration(probe, master)
    await probe_lists(probe)
    await probe_changes(probe)
    await probe_settings_and_slave(probe, slave)
    await probe_compressed(probe, other)
    probe.desk.server.connection_closed(master)
    await probe.same("after master conn close", route("TopicTest"))
    probe.desk.server.connection_closed(slave)
    await probe.same("after slave conn close", route("TopicTest"))
    await probe.same("cluster empty", Command(106))
    await probe.same("zone", route("TopicTest", __ZONE_MODE="true", __ZONE_NAME="z"))
    brief = registration(topics=["HbT", "HbU"], heartbeat_timeout_ms=3000)
    await probe.same("reg hb3000", brief.to_command(), master)
    assert set(probe.theirs) - probe.compared == {"HbT gone"}  # depends on the clock: test_tables_removal has it


async def probe_routes_and_kv(probe: Probe) -> None:
    order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "TopicTest"}
    await probe.same("route none", route("NoSuch"))
    await probe.same("route no ext", Command(105))
    await probe.same("unknown code", Command(9999))
    await probe.same("kv get none", with_fields(101, namespace="N", key="k"))
    await probe.same("kv put", with_fields(100, **order, value="broker-a:4"))
    await probe.same("kv get", with_fields(101, **order))
    await probe.same("kv list", with_fields(219, namespace="ORDER_TOPIC_CONFIG"))
    await probe.same("kv list none", with_fields(219, namespace="X"))
    await probe.same("kv put null val", with_fields(100, namespace="N", key="k"))
    await probe.same("kv put null key", with_fields(100, namespace="N"))


async def probe_registration(probe: Probe, master: Peer) -> None:
    topics = [TopicConfig("ROnly", 4, 4, 4), TopicConfig("TopicTest", 4, 4), TopicConfig("TBW102", 8, 8, 7)]
    await probe.same("reg single topic first", registration(topics=["TopicTest"]).to_command(), master)
    whole = registration(topics=topics, enable_acting_master=False).to_command()
    await probe.same("reg bad crc", Command(103, {**whole.ext, "bodyCrc32": "5"}, whole.body), master)
    await probe.same("reg ok", whole, master)
    await probe.same("route v479", route("TopicTest"))
    await probe.same("route v0", route("TopicTest", 0))
    await probe.same("route v0 std", route("TopicTest", 0, acceptStandardJsonOnly="true"))


async def probe_lists(probe: Probe) -> None:
    me = {"brokerName": "broker-a", "brokerAddr": "127.0.0.1:10911", "clusterName": "DefaultCluster", "brokerId": "0"}
    version_body = b'{"counter":%d,"stateVersion":0,"timestamp":1700000000000}'
    await probe.same("cluster", Command(106))
    await probe.same("topics", Command(206))
    await probe.same("sys topics", Command(304))
    await probe.same("topics by cluster", with_fields(224, cluster="DefaultCluster"))
    await probe.same("topics by cluster none", with_fields(224, cluster="X"))
    await probe.same("member group", with_fields(901, clusterName="DefaultCluster", brokerName="broker-a"))
    await probe.same("data version same", Command(322, me, version_body % 1))
    await probe.same("data version diff", Command(322, me, version_body % 2))
    await probe.same("heartbeat", Command(904, me))


async def probe_changes(probe: Probe) -> None:
    queues = (
        b'{"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":2}]}'
    )
    await probe.same("wipe", with_fields(205, brokerName="broker-a"))
    await probe.same("route after wipe", route("TopicTest"))
    await probe.same("add", with_fields(327, brokerName="broker-a"))
    await probe.same("TBW102 after add", route("TBW102"))
    await probe.same("register topic", Command(217, {"topic": "NewT"}, queues))
    await probe.same("route NewT", route("NewT"))
    await probe.same("delete topic", with_fields(216, topic="NewT"))


async def probe_settings_and_slave(probe: Probe, slave: Peer) -> None:
    ours = await probe.same("get nsconfig", Command(319))
    theirs = parse_java_properties(probe.theirs["get nsconfig"][1].decode().rpartition("\n")[0])
    assert parse_java_properties(bytes(ours.body).decode()).keys() >= theirs.keys()
    await probe.same("upd nsconfig", Command(318, body=b"orderMessageEnable=true\n"))
    await probe.same("route ordered", route("TopicTest"))
    await probe.same("upd black", Command(318, body=b"kvConfigPath=/x\n"))
    topics = ["SlaveOnly", "TopicTest"]
    second = registration(address="127.0.0.1:10921", broker_id=1, topics=topics, enable_acting_master=False)
    await probe.same("reg slave", second.to_command(), slave)
    await probe.same("route w slave", route("TopicTest"))
    await probe.same("route SlaveOnly", route("SlaveOnly"))


async def probe_compressed(probe: Probe, other: Peer) -> None:
    topics = [TopicConfig("CompT", 3, 3), TopicConfig("CompU", 3, 3)]
    compressed = registration("broker-c", "127.0.0.1:10931", topics=topics, compressed=True, enable_acting_master=False)
    await probe.same("reg compressed", compressed.to_command(), other)
    await probe.same("route CompT", route("CompT"))
    old_body = compressed.body().to_compressed(401)
    old_ext = {**compressed.to_command().ext, "bodyCrc32": str(zlib.crc32(old_body) & 0x7FFFFFFF)}
    await probe.same("reg compressed v401 no mapping", Command(103, old_ext, old_body, version=401), other)
    await probe.same("binary req", Command(105, {"topic": "CompT"}, serialization=Serialization.ROCKETMQ))
    gone = {"brokerName": "broker-c", "brokerAddr": "127.0.0.1:10931", "clusterName": "DefaultCluster", "brokerId": "0"}
    await probe.same("unreg", Command(104, gone))
    await probe.same("route CompT gone", route("CompT"))
