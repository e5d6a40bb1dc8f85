"""`pyrmq query` with the messages that it finds: none, two of one id, and one that a member consumes at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio

from pyrmq_core import ConsumeLater, Message
from pyrmq_core.blocking import EmbeddedCluster, Producer
from tests.support.consumer_jobs import Seen, fresh, made_topic
from tests.support.group_admin_jobs import administering
from tests.support.message_admin_jobs import dead
from tests.support.terminal import Terminal, consuming_elsewhere, soon


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture
def terminal(cluster: EmbeddedCluster) -> Terminal:
    return Terminal(cluster.nameserver)


def sent(cluster: EmbeddedCluster, topic: str, body: str) -> str:
    with Producer("senders", nameserver=cluster.nameserver) as producer:
        return producer.send(Message(topic, body.encode())).msg_id


@pytest.fixture(scope="module")
def topic(cluster: EmbeddedCluster) -> str:
    return trio.run(made_topic, cluster.nameserver, 1)


def test_a_member_consumes_a_message_at_once(cluster: EmbeddedCluster, terminal: Terminal, topic: str) -> None:
    group, seen = fresh("group"), Seen()
    with consuming_elsewhere(cluster.nameserver, group, topic, seen):
        soon(lambda: terminal.rows("clients", "-g", group))
        msg_id = sent(cluster, topic, "again")
        soon(lambda: terminal.rows("query", topic, "--id", msg_id) and seen.bodies.count("again") == 1)
        (row,) = terminal.rows("query", topic, "--id", msg_id, "--consume-by", group)
        consumed = row["consumed"]
        assert isinstance(consumed, dict)
        assert (consumed["group"], consumed["consumeResult"]) == (group, "CR_SUCCESS")
        (client,) = [row["client"] for row in terminal.rows("clients", "-g", group) if row["kind"] == "consumer"]
        text = terminal.text("query", topic, "--id", msg_id, "--consume-by", group, "--client", str(client))
        assert f"group {group} consumed {msg_id} in " in text.splitlines()[-1]
        assert seen.bodies.count("again") == 3
        seen.orders = {"again": [ConsumeLater(1), ValueError("no such account")]}
        later = terminal.refused(1, "query", topic, "--id", msg_id, "--consume-by", group)
        assert "CR_LATER" in later
        raised = terminal.refused(1, "query", topic, "--id", msg_id, "--consume-by", group)
        assert "CR_THROW_EXCEPTION, " in raised
        assert "no such account" in raised
    gone = terminal.refused(1, "query", topic, "--id", msg_id, "--consume-by", group)
    assert f"no member of group {group} is connected" in gone


def test_two_messages_of_one_id_are_shown_and_none_is_consumed(
    cluster: EmbeddedCluster, terminal: Terminal, topic: str
) -> None:
    group, seen = fresh("group"), Seen()

    async def letter_of() -> str:
        async with administering(cluster.nameserver) as admin:
            return (await dead(cluster.nameserver, admin, group, topic)).msg_id

    msg_id = trio.run(letter_of)
    terminal.text("dlq", "resend", group, "--id", msg_id, "--to", "origin")
    soon(lambda: len(terminal.rows("query", topic, "--unique-key", msg_id)) == 2)
    rows = terminal.rows("query", topic, "--unique-key", msg_id)
    places = [str(row["offsetMsgId"]) for row in rows]
    assert len(set(places)) == 2
    assert [row["body"] for row in rows] == ["poison", "poison"]
    with consuming_elsewhere(cluster.nameserver, fresh("other"), topic, seen):
        refused = terminal.refused(1, "query", topic, "--id", msg_id, "--consume-by", group)
    assert f"2 messages are found and --consume-by takes one; give --id with one of {', '.join(places)}" in refused
    (twin,) = terminal.rows("query", topic, "--id", places[1])
    assert twin["offsetMsgId"] == places[1]


def test_a_key_that_no_message_has(terminal: Terminal, topic: str) -> None:
    for words in (("--key", "absent"), ("--unique-key", "0" * 32), ("--id", "0" * 32)):
        assert terminal.text("query", topic, *words, "--track", "--trace").startswith("no such message: ")
        assert terminal.rows("query", topic, *words) == []
    assert "no such message" in terminal.text("query", topic, "--key", "absent", "--consume-by", "G")


def test_a_member_needs_its_group(terminal: Terminal) -> None:
    assert "--client belongs to --consume-by" in terminal.refused(2, "query", "T", "--id", "i", "--client", "c")
