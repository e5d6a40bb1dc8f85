"""Random changes of attributes, and messages with priorities, on a broker of 5.4.0 and on ours.

The same lists are refused, with the same code, and the same attributes are there afterwards; each message is in the
same queue.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest

from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.json_text import load_object
from pyrmq_core.protocol.requests.broker.send_message import MessageStored
from pyrmq_core.protocol.requests.broker.topic_admin import GetTopicConfig, TopicConfigFound, UpdateTopic
from tests.servers.broker.serving import message
from tests.support.apache import ApacheCluster, ask, registered_brokers

LISTS = 200
NAMES = ("message.type", "message.type", "reserve.time", "reserve.time", "queue.type", "cleanup.policy", "no.such", "")
TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "UNSPECIFIED", "MIXED", "fifo")
TIMES = ("-1", "0", "5", "+7", "9223372036854775807", "9223372036854775808", "-2", "soon", "٣")
VALUES = (*TYPES, *TIMES, "SimpleCQ", "BatchCQ", "DELETE", "", "a=b")
FACTORS = ("0", "50", "100", "101", "-1", "+9", "x", "", "1.5")
SIGNS = ("+", "+", "+", "-", "-", "", "++", "+-")


@pytest.fixture
def brokers(apache_5: ApacheCluster) -> Iterator[tuple[str, str]]:
    """The addresses of one broker of 5.4.0 and of one of ours."""
    (java, *_) = registered_brokers(apache_5.nameserver.address)["broker-a"]
    with EmbeddedCluster(brokers=1) as cluster:
        (ours,) = registered_brokers(cluster.nameserver)["broker-a"]
        yield java, ours


def topic_change(choice: random.Random) -> str:
    name, sign = choice.choice(NAMES), choice.choice(SIGNS)
    with_value = sign != "-" if choice.random() < 0.9 else sign == "-"
    return f"{sign}{name}={choice.choice(VALUES)}" if with_value else f"{sign}{name}"


def topic_changes(choice: random.Random) -> str:
    """Returns a list of changes; most are possible for themselves, so that several are needed to be refused."""
    if choice.random() < 0.4:
        kinds, times = choice.sample(TYPES[:6], 2), choice.sample(("-1", "0", "5"), 2)
        parts = [f"+message.type={kinds[0]}", f"+reserve.time={times[0]}", "-message.type", "-reserve.time"]
        return ",".join(choice.sample(parts, choice.randint(1, 3)))
    return ",".join(topic_change(choice) for _ in range(choice.randint(0, 3)))


def attributes_of_topic(address: str, topic: str) -> dict[str, str] | None:
    answer = ask(address, GetTopicConfig(topic).to_command())
    return None if answer.code else dict(TopicConfigFound.from_command(answer).config.attributes)


def attributes_of_group(address: str, group: str) -> object:
    answer = ask(address, Command(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": group}))
    return load_object(answer.body, "group").get("attributes") if not answer.code else None


def test_random_changes_of_topics(brokers: tuple[str, str]) -> None:
    choice = random.Random(45)
    for number in range(LISTS):
        topic, changes = f"attributes-{number // 5}", topic_changes(choice)
        request = UpdateTopic(topic, 4, 4, 6, attributes=changes).to_command()
        java, ours = ([ask(address, request).code, attributes_of_topic(address, topic)] for address in brokers)
        assert java == ours, (number, changes)


def test_random_changes_of_groups(brokers: tuple[str, str]) -> None:
    choice = random.Random(46)
    for number in range(LISTS):
        group, changes = f"attributes-{number // 5}", {}
        for _ in range(choice.randint(0, 2)):
            name = "priority.factor" if choice.random() < 0.9 else choice.choice(NAMES)
            changes[f"{choice.choice(SIGNS)}{name}"] = choice.choice(FACTORS)
        body = json.dumps({"groupName": group, **({"attributes": changes} if choice.random() < 0.9 else {})}).encode()
        request = Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
        java, ours = ([ask(address, request).code, attributes_of_group(address, group)] for address in brokers)
        assert java == ours, (number, changes)


def test_queues_of_priorities(brokers: tuple[str, str]) -> None:
    update = UpdateTopic("priorities", 4, 4, 6).to_command()
    assert [ask(address, update).code for address in brokers] == [0, 0]
    others = ("", "__SHARDINGKEY\x01k\x02", "DELAY\x0118\x02", "TRAN_MSG\x01true\x02PGROUP\x01P\x02")
    for text in ("0", "2", "3", "4", "+2", "2147483647", "-1", "x", " 2", "2.0", "2147483648"):
        for other in others:
            properties = f"_SYS_MSG_PRIORITY_\x01{text}\x02{other}"
            sent = message("priorities", properties=properties, queue_id=1).to_command()
            java, ours = (MessageStored.from_command(ask(address, sent)).queue_id for address in brokers)
            assert java == ours, (text, other)
