"""Commands that give no false comfort: refused look-ups, full disks, and offsets beyond a queue's end are named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pyrmq_core import Command, InvalidArgument, Message, MessageQueue, ResponseError
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer, PullConsumer
from pyrmq_core.client.admin.health_rules import slaves_awaited
from pyrmq_core.client.admin.values import BrokerStatus
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import refusal
from pyrmq_core.protocol.requests.figures.runtime_info import RuntimeInfo
from pyrmq_core.testing import Peer, RequestCode
from pyrmq_core.tools.cli.groups import messages
from pyrmq_core.tools.cli.operation.broker import broker_members, brokers_text
from tests.servers.broker.serving import message
from tests.support.guarded import AUTH_5, KEY, SECRET
from tests.support.table_commands import ask_all, connected
from tests.support.terminal import Terminal, soon

QUEUES = [MessageQueue("T", name, 0) for name in ("broker-a", "broker-b")]
LETTERS = MessageQueue("%DLQ%G", "broker-a", 0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, topics={"T": 1, "%DLQ%G": 1}) as cluster:
        with Producer("P", nameserver=cluster.nameserver) as producer:
            for _ in range(3):
                producer.send(Message("T", b"x", keys="K"), queue=QUEUES[0])
        with PullConsumer("G", nameserver=cluster.nameserver) as consumer:
            consumer.commit(QUEUES[0], 0)
            consumer.commit(QUEUES[1], 5)
        yield cluster


@pytest.fixture
def terminal(cluster: EmbeddedCluster) -> Terminal:
    return Terminal(cluster.nameserver)


@contextmanager
def refused(cluster: EmbeddedCluster, code: int, server: str | None = None) -> Iterator[None]:
    rule = cluster.control(code, refuse, server=server)
    yield
    rule.remove()


async def refuse(_request: Command, _peer: Peer) -> Command:
    return refusal(ResponseCode.NO_PERMISSION, "these keys may not")


@pytest.mark.parametrize("words", [("--key", "K"), ("--unique-key", "0" * 32), ("--id", "0" * 32)])
def test_a_look_up_that_every_broker_refuses(
    cluster: EmbeddedCluster, terminal: Terminal, words: tuple[str, str]
) -> None:
    with refused(cluster, RequestCode.QUERY_MESSAGE):
        for more in ((), ("--json",), ("--trace", "--track")):
            result = terminal.run("query", "T", *words, *more)
            assert (result.exit_code, result.stdout) == (1, "")
            assert "with NO_PERMISSION (16): these keys may not" in result.stderr
        with Admin(nameserver=cluster.nameserver) as admin, pytest.raises(ResponseError, match="these keys may not"):
            admin.messages.by_key("T", "K")


def test_a_look_up_that_one_broker_refuses(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    with refused(cluster, RequestCode.QUERY_MESSAGE, "broker-a"):
        result = terminal.run("query", "T", "--key", "K")
        as_json = terminal.run("query", "T", "--key", "K", "--json")
    assert result.exit_code == 1
    assert result.stdout.startswith("broker-a gave no answer: broker-a")
    assert "no broker that answered has such a message" in result.stderr
    assert (as_json.exit_code, as_json.stdout) == (1, "[]\n")
    assert "broker-a gave no answer" in as_json.stderr


def test_dead_letters_that_every_broker_refuses(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    with Producer("P", nameserver=cluster.nameserver) as producer:
        producer.send(Message(LETTERS.topic, b"dead"), queue=LETTERS)
    with refused(cluster, RequestCode.GET_MIN_OFFSET):
        assert "these keys may not" in terminal.refused(1, "dlq", "list", "G")


def test_older_dead_letters_that_are_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_RESENT", 2)
    with EmbeddedCluster(topics={"T": 1, "%DLQ%G": 1}) as cluster:
        terminal = Terminal(cluster.nameserver)
        with connected(cluster.brokers["broker-a"]) as peer:
            properties = (f"DLQ_ORIGIN_TOPIC\x01T\x02UNIQ_KEY\x01{number}\x02" for number in range(3))
            ask_all(peer, (message(LETTERS.topic, b"dead", text).to_command() for text in properties))
        result = terminal.run("dlq", "resend", "G", "--all", "--to", "origin", "--json")
        terminal.text("dlq", "resend", "G", "--id", "2", "--to", "origin")
    assert [row["msgId"] for row in json.loads(result.stdout)] == ["1", "2"]
    assert "these are the newest 2 of a queue; older ones are not sent" in result.stderr
    assert result.exit_code == 1


def test_a_negative_lag_is_an_offset_beyond_the_end(cluster: EmbeddedCluster, terminal: Terminal) -> None:
    with Admin(nameserver=cluster.nameserver) as admin:
        progress = admin.groups.progress("G")
        assert [row.lag for row in progress.queues] == [3, -5]
        assert progress.lag == 3
        (group,) = [row for row in admin.groups.list().groups if row.group == "G"]
        assert (group.lag, group.queues_beyond_end) == (3, 1)
    lines = terminal.text("group", "progress", "G").splitlines()
    assert lines[-2].startswith("3 messages wait")
    assert lines[-1].startswith("T/broker-b/0: the offset 5 is beyond the end 0: the queue became shorter")
    assert "group G: 1 offsets are beyond their queues' ends" in terminal.text("group", "list")
    for words in ((), ("-g", "G")):
        checks = json.loads(terminal.text("health", "--max-lag", "3", *words, "--json"))
        assert [check["status"] for check in checks if "offsets beyond the ends of 1 queues" in check["found"]] == [
            "WARN"
        ]


@pytest.mark.parametrize(("ratio", "state"), [("0.9", "ok"), ("0.91", "disk full"), ("", "ok")])
def test_a_full_disk_is_no_sound_broker(ratio: str, state: str) -> None:
    row = BrokerStatus("C", "broker-a", 0, "127.0.0.1:1", RuntimeInfo({"commitLogDiskRatio": ratio}))
    assert brokers_text([row], as_json=False).splitlines()[1].endswith(state)
    assert broker_members(row)["diskFull"] is (state != "ok")


WAITS = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}


@pytest.mark.parametrize("waits", [WAITS, {"brokerRole": "SYNC_MASTER", "haSlaveFallbehindMax": "1000"}])
def test_a_master_that_waits_for_slaves_which_cannot_follow(waits: dict[str, str]) -> None:
    cluster = EmbeddedCluster(settings={**AUTH_5, **waits})
    with (
        pytest.raises(InvalidArgument, match="with access control none can follow without haListenPort: set it"),
        cluster,
    ):
        pass


def test_a_master_that_waits_for_a_slave_which_does_not_follow() -> None:
    with EmbeddedCluster(slaves=1, sync=True) as cluster:
        cluster.wait_for_slaves()
        terminal = Terminal(cluster.nameserver)
        assert "replication" not in terminal.text("health")
        cluster.stop("broker-a-1")
        soon(lambda: terminal.run("health").exit_code == 1)
        checks = json.loads(terminal.run("health", "--json").output)
    assert [(check["status"], check["found"]) for check in checks if check["check"] == "replication"] == [
        ("FAIL", "broker-a waits for 1 slaves before it answers a send, and 0 follow it")
    ]


@pytest.mark.parametrize(
    ("settings", "slaves"),
    [
        ({"brokerRole": "ASYNC_MASTER", "inSyncReplicas": "3"}, 0),
        ({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "1"}, 0),
        ({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "1", "haSlaveFallbehindMax": "-1"}, 0),
        ({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "3", "haMaxGapNotInSync": "1000"}, 2),
        ({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "1", "haSlaveFallbehindMax": "1000"}, 1),
        ({"brokerRole": "SYNC_MASTER", "haSlaveFallbehindMax": "268435456"}, 1),  # 4.9
        ({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "", "haSlaveFallbehindMax": "0"}, 1),
    ],
)
def test_slaves_that_a_master_awaits(settings: dict[str, str], slaves: int) -> None:
    assert slaves_awaited(settings) == slaves


def test_such_a_wait_is_not_switched_on_either() -> None:
    with EmbeddedCluster(settings={**AUTH_5, "brokerRole": "SYNC_MASTER"}) as cluster:
        terminal = Terminal(cluster.nameserver, PYRMQ_ACCESS_KEY=KEY, PYRMQ_SECRET_KEY=SECRET)
        result = terminal.run("broker", "config", "broker-a", "--set", "inSyncReplicas=2")
    assert result.exit_code == 1
    assert "none can follow without haListenPort" in result.stderr
