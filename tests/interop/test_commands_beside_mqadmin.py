"""`pyrmq` and `mqadmin` side by side: the same facts of the same cluster, on ours and on each RocketMQ."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import trio

from pyrmq_core import MessageExt
from pyrmq_core.blocking import EmbeddedCluster
from tests.support.apache import NEWEST_AND_LONG_OLDER, ApacheCluster
from tests.support.broker_admin_jobs import NO_FILE
from tests.support.group_admin_jobs import administering
from tests.support.java_programs import shared_machine
from tests.support.message_admin_jobs import dead
from tests.support.mqadmin_jobs import Content, filled, new_names, run
from tests.support.terminal import Terminal

# A figure that grows from one request to the next, or that belongs to one of mqadmin's requests.
MOVING = re.compile(
    r"Tps|Times|Wait|Time|runtime|Size|Disk|Offset|Capacity|TotalToday|putLatency|Behind|Dequeue|Enqueue"
)

FLUSH_SECONDS = 60.0
NOTHING = "0 B"

# A message of printMsg.
PRINTED = re.compile(r"MSGID: (\w+) +MessageExt \[.* msgId=(\w+),.* properties=\{(.*)\}, body=.*\] BODY: (.*)$")
# Properties that a broker or mqadmin's consumer adds.
OF_THE_PLACE = {"MIN_OFFSET", "MAX_OFFSET", "CLUSTER", "MSG_REGION", "TRACE_ON"}


@dataclass(frozen=True)
class Printed:
    """A message as mqadmin prints it: its UNIQ_KEY, its id by offset, and its properties."""

    unique_id: str
    offset_id: str
    properties: dict[str, str]
    body: str


@dataclass(frozen=True)
class Beside:
    """A cluster with some content, mqadmin of its release, and pyrmq."""

    version: str
    content: Content
    pyrmq: Terminal

    def mqadmin(self, command: str) -> list[str]:
        """Returns the lines of mqadmin's output that are no headers."""
        output = run(shared_machine(self.version), self.content, command)
        return [line for line in output.splitlines() if line.strip() and not line.startswith(("#", "==="))]

    def printed(self, topic: str) -> list[Printed]:
        """Returns the messages of a topic as mqadmin prints them."""
        messages = []
        for line in self.mqadmin(f"printMsg -t {topic} -d true"):
            if (match := PRINTED.search(line)) is not None:
                unique_id, offset_id, properties, body = match.groups()
                pairs = dict(pair.split("=", 1) for pair in properties.split(", "))
                own = {name: value for name, value in pairs.items() if name not in OF_THE_PLACE}
                messages.append(Printed(unique_id, offset_id, {"WAIT": "true", **own}, body))  # 4.9 stores no "true"
        return messages

    def settings(self, command: str) -> dict[str, str]:
        pairs = [line.partition("=") for line in self.mqadmin(command) if "=" in line]
        return {name.strip(): value.strip() for name, _, value in pairs}


@pytest.fixture(scope="module", params=["ours", *NEWEST_AND_LONG_OLDER])
def beside(request: pytest.FixtureRequest) -> Iterator[Beside]:
    topic, group = new_names()
    if request.param == "ours":
        with EmbeddedCluster(brokers=2) as cluster:
            content = trio.run(filled, cluster.nameserver, topic, group)
            yield Beside("5.4.0", content, Terminal(cluster.nameserver))
        return
    apache: ApacheCluster = request.getfixturevalue(f"apache_{request.param[0]}")
    content = trio.run(filled, apache.nameserver.address, topic, group)
    yield Beside(request.param, content, Terminal(apache.nameserver.address))


def test_brokers(beside: Beside) -> None:
    theirs = [line.split()[:5] for line in beside.mqadmin("clusterList")]
    ours = [
        [
            row["cluster"],
            row["brokerName"],
            str(row["brokerId"]),
            row["address"],
            f"V{row['version']}".replace(".", "_"),
        ]
        for row in beside.pyrmq.rows("broker", "list")
    ]
    assert ours == theirs
    assert len(ours) == 2


def settled_figures(beside: Beside) -> dict[str, object]:
    """Returns what `pyrmq` shows of a broker that has flushed everything; one with little to flush does so in 10 s."""
    deadline = time.monotonic() + FLUSH_SECONDS
    while True:
        figures = {str(row["figure"]): row["value"] for row in beside.pyrmq.rows("broker", "stats", "broker-a")}
        if figures.get("remainHowManyDataToFlush", NOTHING) == NOTHING:
            return figures
        assert time.monotonic() < deadline, figures


def test_figures_of_a_broker(beside: Beside) -> None:
    ours = settled_figures(beside)
    theirs = dict(line.split(":", 1) for line in beside.mqadmin("brokerStatus -b {a}") if "_/" not in line)
    theirs = {name.strip(): value.strip() for name, value in theirs.items()}
    assert {name for name in ours if "_/" not in name} == set(theirs)
    still = [name for name in theirs if not MOVING.search(name)]
    assert {name: ours[name] for name in still} == {name: theirs[name] for name in still}
    assert len(still) >= 5


def test_settings_of_a_broker(beside: Beside) -> None:
    theirs = beside.settings("getBrokerConfig -b {a}")
    ours = {row["setting"]: str(row["value"]).strip() for row in beside.pyrmq.rows("broker", "config", "broker-a")}
    assert ours == theirs
    assert len(ours) > 100


def test_settings_of_nameservers(beside: Beside) -> None:
    theirs = beside.settings("getNamesrvConfig")
    ours = {row["setting"]: str(row["value"]).strip() for row in beside.pyrmq.rows("nameserver", "config")}
    assert ours == theirs
    assert len(ours) >= 15


def test_a_setting_that_mqadmin_reads_back(beside: Beside) -> None:
    beside.pyrmq.text("broker", "config", "broker-a", "--set", "fileReservedTime=69")
    assert beside.settings("getBrokerConfig -b {a}")["fileReservedTime"] == "69"
    beside.mqadmin("updateBrokerConfig -b {a} -k fileReservedTime -v 72")
    assert beside.pyrmq.rows("broker", "config", "broker-a", "fileReservedTime")[0]["value"] == "72"


def test_offsets_of_a_topic(beside: Beside) -> None:
    lines = [line.split() for line in beside.mqadmin("topicStatus -t {topic}") if line.startswith("broker-")]
    theirs = [(name, int(queue), int(low), int(high)) for name, queue, low, high, *_ in lines]
    rows = beside.pyrmq.rows("topic", "stats", beside.content.topic)
    ours = [(row["brokerName"], row["queueId"], row["minOffset"], row["maxOffset"]) for row in rows]
    assert ours == sorted(theirs)
    assert len(ours) == 4
    # Both to the millisecond, mqadmin's in the zone of its machine.
    shown = {line[5].replace(",", ".")[-6:] for line in lines}
    assert {str(row["lastUpdated"])[17:23] for row in rows} == shown


def test_groups_and_clusters_of_a_topic(beside: Beside) -> None:
    assert [row["cluster"] for row in beside.pyrmq.rows("topic", "clusters", beside.content.topic)] == beside.mqadmin(
        "topicClusterList -t {topic}"
    )
    listed = {line.split()[1] for line in beside.mqadmin("statsAll -t {topic}")}
    assert {row["group"] for row in beside.pyrmq.rows("topic", "groups", beside.content.topic)} == listed
    assert listed == {beside.content.group}


def test_permissions_that_mqadmin_sees(beside: Beside) -> None:
    beside.pyrmq.text("topic", "perm", beside.content.topic, "r")
    assert [line.strip() for line in beside.mqadmin("topicRoute -t {topic}") if '"perm":' in line] == ['"perm":4,'] * 2
    beside.mqadmin("updateTopicPerm -b {a} -t {topic} -p 6")
    beside.pyrmq.text("topic", "perm", beside.content.topic, "rw", "-b", "broker-b")
    perms = {row["brokerName"]: row["perm"] for row in beside.pyrmq.rows("topic", "perm", beside.content.topic)}
    assert perms == {"broker-a": 6, "broker-b": 6}


def test_lag_in_health_and_top(beside: Beside) -> None:
    group = beside.content.group
    output = run(shared_machine(beside.version), beside.content, "consumerProgress -g {group}")
    (total,) = re.findall(r"Diff Total: (\d+)", output)
    assert int(total) == 4
    assert f"group {group} is 4 messages behind" in beside.pyrmq.refused(1, "health", "--max-lag", "3", "-g", group)
    assert beside.pyrmq.text("health", "--max-lag", "4", "-g", group).count("OK ") >= 5
    top = json.loads(beside.pyrmq.text("top", "--once", "--json", "--groups", "1000"))
    assert {row["group"]: row["lag"] for row in top["groups"]}[group] == 4
    assert [broker["reachable"] for broker in top["brokers"]] == [True, True]


def test_replication(beside: Beside) -> None:
    if beside.version == "4.9.7":
        refused = beside.pyrmq.refused(1, "broker", "ha", "broker-a")
        assert "replication (5.0 and later) with REQUEST_CODE_NOT_SUPPORTED" in refused
        return
    output = run(shared_machine(beside.version), beside.content, "haStatus -b {a}")
    assert "#SlaveNum\t0" in output
    assert beside.pyrmq.rows("broker", "ha", "broker-a") == []


def test_clean_up_and_writing(beside: Beside) -> None:
    for what in ("unused-topics", "expired-logs"):
        assert beside.pyrmq.text("broker", "clean", what, "--yes") == f"{what}: done at broker-a, broker-b\n"
    try:
        cleaned = beside.pyrmq.text("broker", "clean", "expired-queues")
    except AssertionError as error:
        if NO_FILE not in str(error):
            raise
    else:
        assert cleaned == "expired-queues: done at broker-a, broker-b\n"
    closed = beside.pyrmq.text("broker", "wipe-write-perm", "broker-b")
    (opened,) = beside.mqadmin("addWritePerm -b broker-b")
    assert re.findall(r"(\d+)( topics)?$", closed.strip())[0][0] == re.findall(r"(\d+)$", opened.strip())[0]
    (closed,) = beside.mqadmin("wipeWritePerm -b broker-b")
    opened = beside.pyrmq.text("broker", "add-write-perm", "broker-b")
    assert re.findall(r"(\d+)$", closed.strip()) == re.findall(r"(\d+) topics$", opened.strip())


def test_topics_and_their_routes(beside: Beside) -> None:
    listed = {row["topic"] for row in beside.pyrmq.rows("topic", "list", "--all")}
    assert listed == {line.strip() for line in beside.mqadmin("topicList")}
    assert beside.content.topic in listed
    assert beside.content.topic in beside.pyrmq.text("topic", "list").splitlines()
    printed = "".join(beside.mqadmin("topicRoute -t {topic}"))
    route = json.loads(re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', printed))  # Java prints numbers as names
    masters = {broker["brokerName"]: re.search(r"127[\d.:]+", str(broker)) for broker in route["brokerDatas"]}
    theirs = [
        (queue["brokerName"], queue["readQueueNums"], queue["writeQueueNums"], queue["perm"])
        for queue in sorted(route["queueDatas"], key=lambda queue: str(queue["brokerName"]))
    ]
    ours = beside.pyrmq.rows("topic", "route", beside.content.topic)
    names = ("brokerName", "readQueueNums", "writeQueueNums", "perm")
    assert [tuple(row[name] for name in names) for row in ours] == theirs
    assert {row["brokerName"]: row["master"] for row in ours} == {
        name: addresses and addresses[0] for name, addresses in masters.items()
    }


def test_values_and_an_order(beside: Beside) -> None:
    topic = beside.content.topic
    beside.mqadmin("updateKvConfig -s {topic} -k theirs -v of-mqadmin")
    beside.pyrmq.text("kv", "put", topic, "ours", "of-pyrmq")
    assert beside.pyrmq.rows("kv", "list", topic) == [
        {"key": "ours", "value": "of-pyrmq"},
        {"key": "theirs", "value": "of-mqadmin"},
    ]
    beside.pyrmq.text("topic", "order", topic, "broker-a:2", "broker-b:1")
    assert "orderConf=[broker-a:2;broker-b:1]" in "".join(beside.mqadmin("updateOrderConf -t {topic} -m get"))
    assert beside.pyrmq.rows("topic", "order", topic, "--delete") == []


def test_a_group_without_members_and_its_settings(beside: Beside) -> None:
    group = beside.content.group
    beside.pyrmq.text("group", "create", group, "--retryMaxTimes", "7", "--retryQueueNums", "2")
    (described,) = beside.pyrmq.rows("group", "describe", group)
    settings = described["settings"]
    assert isinstance(settings, dict)
    assert [(config["retryMaxTimes"], config["retryQueueNums"]) for config in settings.values()] == [(7, 2)] * 2
    output = "\n".join(beside.mqadmin("getConsumerConfig -g {group}"))
    assert re.findall(r"retryMaxTimes\s*=\s*(\d+)", output) == ["7", "7"]
    assert f"no member of group {group} is connected" in beside.pyrmq.text("group", "describe", group)
    assert "no broker knows a group nobody" in beside.pyrmq.refused(1, "group", "describe", "nobody")


def test_a_doctor_finds_the_servers(beside: Beside) -> None:
    brokers = [line.split()[1:4] for line in beside.mqadmin("clusterList")]
    checks = json.loads(beside.pyrmq.run("doctor", "--json").stdout)
    assert [
        (check["check"], check["status"], check["found"])
        for check in checks
        if check["check"] in ("nameserver", "broker")
    ] == [
        ("nameserver", "OK", f"{beside.content.nameserver}, 2 brokers"),
        *(("broker", "OK", f"{name} ({broker_id}) {address}") for name, broker_id, address in brokers),
    ]
    assert [name for name, *_ in brokers] == ["broker-a", "broker-b"]


@pytest.mark.parametrize("to", ["origin", "retry"])
def test_a_resent_dead_letter_is_the_first_message(beside: Beside, to: str) -> None:
    """Its id, body, key, tag, user's property and wait flag are the same to mqadmin, which then shows both."""
    topic, group = new_names()

    async def letter_of() -> MessageExt:
        async with administering(beside.content.nameserver) as admin:
            await admin.create_topic(topic, queues=1)
            return await dead(beside.content.nameserver, admin, group, topic)

    letter = trio.run(letter_of)
    (first,) = beside.printed(topic)
    assert (first.unique_id, first.body) == (letter.msg_id, "poison")
    assert first.properties.items() >= {"KEYS": "k7", "TAGS": "t", "region": "eu", "WAIT": "true"}.items()
    (resent,) = beside.pyrmq.rows("dlq", "resend", group, "--id", letter.msg_id, "--to", to)
    sent_to = topic if to == "origin" else f"%RETRY%{group}"
    assert resent == {"msgId": letter.msg_id, "sentTo": sent_to, "status": "SEND_OK"}
    (again,) = [copy for copy in beside.printed(sent_to) if copy.offset_id != first.offset_id]
    assert (again.unique_id, again.body) == (first.unique_id, first.body)
    added = {"ORIGIN_MESSAGE_ID": first.offset_id, **({} if to == "origin" else {"RETRY_TOPIC": topic})}
    assert again.properties == {**first.properties, **added}
    assert [copy.body for copy in beside.printed(f"%DLQ%{group}")] == ["poison"]
