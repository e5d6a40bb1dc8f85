"""`pyrmq group`, `query`, `dlq` and `clients` against Apache RocketMQ, whose own tool shows the same."""

from __future__ import annotations

import json
import re
from typing import Any

import trio
from click.testing import CliRunner

from pyrmq_core import Message, MessageExt, MessageQueue
from pyrmq_core.blocking import Admin, Producer
from pyrmq_core.tools.cli.commands import pyrmq
from tests.support.apache import ApacheCluster
from tests.support.consumer_jobs import fresh
from tests.support.group_admin_jobs import administering, behind
from tests.support.message_admin_jobs import dead


def shown(nameserver: str, *arguments: str) -> str:
    result = CliRunner().invoke(pyrmq, [*arguments, "--timeout", "20", "-n", nameserver])
    assert result.exit_code == 0, result.output
    return result.stdout


def rows(nameserver: str, *arguments: str) -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = json.loads(shown(nameserver, *arguments, "--json"))
    return table


def test_offsets_of_a_group(apache: ApacheCluster) -> None:
    nameserver, other = apache.nameserver.address, fresh("clone")
    topic, group = trio.run(behind, nameserver)
    for name in (group, other):
        shown(nameserver, "group", "create", name)
    progress = rows(nameserver, "group", "progress", group)
    assert [(row["topic"], row["brokerOffset"], row["consumerOffset"], row["lag"]) for row in progress] == [
        (topic, 2, 1, 1)
    ] * 4
    (listed,) = [row for row in rows(nameserver, "group", "list") if row["group"] == group]
    assert listed["lag"] == 4
    assert f"group {other} has the offsets of {group}" in shown(nameserver, "group", "clone", group, other)
    shown(nameserver, "group", "reset", group, "-t", topic, "--to", "latest")
    assert sum(row["lag"] for row in rows(nameserver, "group", "progress", group)) == 0
    shown(nameserver, "group", "seek", group, "-t", topic, "-b", "broker-b", "-q", "1", "-o", "0")
    assert sum(row["lag"] for row in rows(nameserver, "group", "progress", group)) == 2
    assert sum(row["lag"] for row in rows(nameserver, "group", "progress", other)) == 4
    printed = apache.mqadmin("consumerProgress", "-g", group)
    assert re.search(rf"{topic}\s+broker-b\s+1\s+2\s+0\s", printed), printed
    assert len(re.findall(rf"{topic}\s+broker-[ab]\s+\d\s+2\s+2\s", printed)) == 3, printed
    shown(nameserver, "group", "delete", other, "--yes")
    assert other not in {row["group"] for row in rows(nameserver, "group", "list")}


def test_messages_and_dead_letters(apache: ApacheCluster) -> None:
    nameserver, topic, group = apache.nameserver.address, fresh("orders"), fresh("group")

    async def letter_of() -> MessageExt:
        async with administering(nameserver) as admin:
            return await dead(nameserver, admin, group, topic)

    with Admin(nameserver=nameserver, timeout=20) as admin:
        admin.create_topic(topic, queues=1)
    letter = trio.run(letter_of)
    assert [row["msgId"] for row in rows(nameserver, "dlq", "list", group)] == [letter.msg_id]
    (message,) = rows(nameserver, "query", topic, "--key", "k7", "--track", "--trace")
    assert message["body"] == "poison"
    assert [(track["group"], track["trackType"], len(track["deadLetters"])) for track in message["tracks"]] == [
        (group, "DEAD_LETTER", 1)
    ]
    (again,) = rows(nameserver, "query", topic, "--id", message["offsetMsgId"])
    assert again["msgId"] == letter.msg_id
    (sent,) = rows(nameserver, "dlq", "resend", group, "--id", letter.msg_id, "--to", "origin")
    assert (sent["sentTo"], sent["status"]) == (topic, "SEND_OK")
    letters = apache.mqadmin("printMsg", "-t", f"%DLQ%{group}", "-d", "true")
    assert re.findall(r"BODY: (\w+)", letters) == ["poison"]
    (retried,) = rows(nameserver, "dlq", "resend", group, "--all")
    assert (retried["sentTo"], retried["status"]) == (f"%RETRY%{group}", "SEND_OK")
    assert shown(nameserver, "tail", f"%RETRY%{group}", "-o", "raw").endswith("poison\n")
    with Producer(fresh("senders"), nameserver=nameserver, send_timeout=20) as producer:
        producer.send(Message(topic, b"x"), queue=MessageQueue(topic, "broker-a", 0))
        assert any(row["kind"] == "producer" for row in rows(nameserver, "clients"))
