"""Go's client (rocketmq-client-go/v2, the version of `go/go.mod`) as a judge of our servers and of our messages.

Groups that it shares with Java's members and ours are in `test_mixed_groups`.
"""

from __future__ import annotations

import json
import re
import uuid

import pytest

from pyrmq_core import (
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    Message,
    MessageQueue,
    select_like_go,
)
from pyrmq_core.blocking import Admin, Client, EmbeddedCluster, Producer, PullConsumer
from tests.support.apache import ApacheCluster
from tests.support.go_programs import built, run_go
from tests.support.guarded import AUTH_5, KEY, SECRET
from tests.support.maven import ApacheUnavailable
from tests.support.stored_messages import awaited

pytestmark = pytest.mark.timeout(400)

CHECKS = (
    *("broadcast", "dead-letter", "delay", "namespace", "orderly", "pull", "request", "retry", "sql", "tags"),
    *("trace", "transaction"),
)
SETTINGS = {"enablePropertyFilter": "true", "transactionTimeOut": "4000", "transactionCheckInterval": "3000"}


@pytest.fixture(autouse=True, scope="module")
def _built_program() -> None:
    try:
        built()
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))


def faults(nameserver: str, *checks: str) -> list[str]:
    """Returns the line of each check that did not pass; their topics are there before they begin."""
    word = uuid.uuid4().hex[:8]
    topics = [f"go_{name.replace('-', '_')}_{word}" for name in checks]
    with Admin(nameserver=nameserver, timeout=20) as admin:
        for topic in topics:
            admin.create_topic(f"go-space%{topic}" if topic.startswith("go_namespace") else topic, queues=4)
        admin.create_topic(f"of_go_trace_{word}", queues=1)
    lines = run_go("judge", nameserver, word, *checks).splitlines()
    failed = [line for line in lines if " failed: " in line]
    return failed or [f"{name} said nothing" for name in checks if f"{name} passed" not in lines]


def test_go_judges_our_brokers() -> None:
    with EmbeddedCluster(brokers=2, settings=SETTINGS) as ours:
        assert faults(ours.nameserver, *CHECKS) == []


@pytest.mark.soak  # no line of ours runs: it judges the judge
def test_go_judges_apaches_brokers(apache_5: ApacheCluster) -> None:
    assert faults(apache_5.nameserver.address, *CHECKS) == []


@pytest.mark.parametrize("is_ours", [True, False], ids=["ours", "5.4.0"])
def test_messages_are_equal_both_ways(request: pytest.FixtureRequest, is_ours: bool) -> None:
    if is_ours:
        with EmbeddedCluster(brokers=2) as ours:
            equal_both_ways(ours.nameserver)
    else:
        apache_5: ApacheCluster = request.getfixturevalue("apache_5")
        equal_both_ways(apache_5.nameserver.address)


def equal_both_ways(nameserver: str) -> None:
    topic = f"go_{uuid.uuid4().hex[:8]}"
    with Admin(nameserver=nameserver, timeout=20) as admin:
        for name in (topic, f"{topic}_ours"):
            admin.create_topic(name, queues=4)
    go_sends(nameserver, topic)
    go_reads(nameserver, f"{topic}_ours")


def go_sends(nameserver: str, topic: str) -> None:
    lines = re.findall(r"^sent (\S+) (\S*) (\S+) (\d+) (\d+)$", run_go("send", nameserver, topic), re.MULTILINE)
    assert [form for form, *_ in lines] == ["single", "large", "batch", "async", "keyed", "keyed", "keyed"]
    with PullConsumer("readers", nameserver=nameserver, timeout=20) as consumer:
        read = {message.body: message for message in awaited(consumer, topic, 10)}
    batch = [b"batch 0", b"batch 1", b"batch 2"]
    bodies = [b"single", b"large " * 2000, b"async", b"one-way", b"keyed 0", b"keyed 1", b"keyed 2", *batch]
    assert sorted(read) == sorted(bodies)
    answered = [*bodies[:2], batch[0], bodies[2], *bodies[4:7]]
    for (form, ids, broker, queue, offset), body in zip(lines, answered, strict=True):
        message = read[body]
        assert message.queue_offset == int(offset), form
        assert (message.broker_name, message.queue_id) == (broker, int(queue)), form
        # Members of a Go batch have no unique id: the broker's is theirs, and Go's answer names none.
        assert (message.msg_id, ids) == ((message.offset_msg_id, "") if form == "batch" else (ids, ids))
    single = read[b"single"]
    assert (single.tags, single.keys) == ("paid", "order-1 shop-2")
    assert single.user_properties == {"região": "são paulo, 中"}
    assert [read[body].keys for body in batch] == ["member-0", "member-1", "member-2"]
    # Go's name of the sharding key is its own: to Java and to us it is a property of the user's.
    keyed = [read[b"keyed %d" % number] for number in range(3)]
    assert [(each.sharding_key, each.user_properties) for each in keyed] == [(None, {"SHARDING_KEY": "order-1"})] * 3
    assert len({each.queue for each in keyed}) == 1
    with Producer("senders", nameserver=nameserver, send_timeout=20) as producer:
        ours = producer.send(Message(topic, b"ours", sharding_key="order-1"), select=select_like_go)
    assert {ours.message_queue} == {each.queue for each in keyed}


def go_reads(nameserver: str, topic: str) -> None:
    messages = [
        Message(topic, b"single", tags="paid", keys=["order-1", "shop-2"], properties={"região": "são paulo, 中"}),
        Message(topic, b"large " * 2000),
        Message(topic, "中文 \U0001f600".encode()),
        Message(topic, b"keyed", sharding_key="order-1"),
    ]
    batch = [Message(topic, b"batch %d" % number, keys=[f"member-{number}"]) for number in range(3)]
    with Producer("senders", nameserver=nameserver, send_timeout=20) as producer:
        results = [producer.send(message) for message in messages]
        producer.send_batch(batch)
    lines = run_go("read", nameserver, topic, str(len(messages) + len(batch))).splitlines()
    read = {seen["body"].encode(): seen for seen in map(json.loads, lines)}
    assert sorted(read) == sorted(message.body for message in [*messages, *batch])
    for message, result in zip(messages, results, strict=True):
        seen, queue = read[bytes(message.body)], result.message_queue
        assert (seen["id"], seen["broker"], seen["queue"]) == (result.msg_id, queue.broker_name, queue.queue_id)
        assert seen["offset"] == result.queue_offset
    single = read[b"single"]
    assert (single["tag"], single["keys"]) == ("paid", "order-1 shop-2")
    assert single["properties"]["região"] == "são paulo, 中"
    assert read[b"keyed"]["properties"]["__SHARDINGKEY"] == "order-1"
    assert read[b"batch 2"]["keys"] == "member-2"


def test_go_signs_its_requests() -> None:
    with EmbeddedCluster(settings=AUTH_5) as cluster:
        topic = f"go_{uuid.uuid4().hex[:8]}"
        client = Client(nameserver=cluster.nameserver, access_key=KEY, secret_key=SECRET)
        with client, Admin(client=client, timeout=20) as admin:
            admin.create_topic(topic, queues=4)
        assert run_go("signed", cluster.nameserver, topic, KEY, SECRET) == "signed signed by Go\n"
        with pytest.raises(AssertionError, match=r"CODE: 16|signature|NO_PERMISSION"):
            run_go("signed", cluster.nameserver, topic, KEY, f"not {SECRET}")


def test_members_in_go_divide_queues_as_ours_do() -> None:
    strategies = {
        each.name: each for each in (AllocateMessageQueueAveragely(), AllocateMessageQueueAveragelyByCircle())
    }
    most_queues, most_members = 13, 6
    queues = [MessageQueue("T", "broker-a", number) for number in range(most_queues)]
    ids = [f"member-{member:02}" for member in range(most_members)]
    lines = re.findall(
        r"^(\S+) (\d+) (\d+) (\S+) \[(.*)\]$", run_go("divide", "-", str(most_queues), str(most_members)), re.MULTILINE
    )
    assert len(lines) == 2 * most_queues * sum(range(1, most_members + 1))
    for name, size, count, member, share in lines:
        own = strategies[name].allocate("g", member, queues[: int(size)], ids[: int(count)])
        assert [str(queue.queue_id) for queue in own] == share.split(), (name, size, count, member)
