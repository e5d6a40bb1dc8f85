"""mqadmin's commands on two clusters with the same content; their outputs without what differs by nature."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import trio

from pyrmq_core import Admin, Message, MessageQueue, Producer, PullConsumer
from tests.support.java_machine import JavaMachine

QUEUES: Final = 2
MESSAGES: Final = 3
COMMITTED: Final = 2
READABLE_SECONDS: Final = 30.0
COMMAND_SECONDS: Final = 120.0
MQADMIN: Final = "org.apache.rocketmq.tools.command.MQAdminStartup"

# Longer texts first: an address is no number, and a time is not three of them.
DIFFERENT: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d([.,:#]\d+)?"), "TIME"),
    (re.compile(r"\b\d{14,17}\b"), "TIME"),
    (re.compile(r"\b1[6-9]\d{11}\b"), "TIME"),
    (re.compile(r"(127\.0\.0\.1|localhost):\d+"), "ADDRESS"),
    (re.compile(r"\b[0-9A-F]{32,60}\b"), "ID"),
    (re.compile(r"\bV\d_\d+_\d+(_SNAPSHOT)?\b"), "VERSION"),
    (re.compile(r"127\.0\.0\.1@\S+"), "CLIENT"),
    (re.compile(r" +"), " "),
)


@dataclass(slots=True)
class Content:
    """The content of a cluster: the same in each, but for ids."""

    nameserver: str
    topic: str
    group: str
    offset_ids: list[str] = field(default_factory=list)
    unique_ids: list[str] = field(default_factory=list)
    brokers: dict[str, str] = field(default_factory=dict)


async def filled(nameserver: str, topic: str, group: str) -> Content:
    """Makes a topic at both brokers, stores messages in each of its queues, and commits a group's offsets."""
    content = Content(nameserver, topic, group)
    async with (
        Admin(nameserver=nameserver, timeout=20) as admin,
        Producer("P", nameserver=nameserver, send_timeout=20) as producer,
        PullConsumer(group, nameserver=nameserver, timeout=20) as consumer,
    ):
        await admin.create_topic(topic, queues=QUEUES)
        info = await admin.cluster_info()
        content.brokers = {
            name: next(iter(data.broker_addrs.values())) for name, data in info.broker_addr_table.items()
        }
        for broker in sorted(content.brokers):
            for queue_id in range(QUEUES):
                queue = MessageQueue(topic, broker, queue_id)
                for number in range(MESSAGES):
                    message = Message(topic, f"body {number}".encode(), tags=f"tag{number}", keys=(f"key{number}",))
                    sent = await producer.send(message, queue=queue)
                    content.offset_ids.append(sent.offset_msg_id)
                    content.unique_ids.append(sent.msg_id)
                await readable(consumer, queue)
                await consumer.commit(queue, COMMITTED)
    return content


async def readable(consumer: PullConsumer, queue: MessageQueue) -> None:
    """Returns when the queue's messages can be read."""
    with trio.fail_after(READABLE_SECONDS):
        while (await consumer.offset_bounds([queue]))[queue].end < MESSAGES:  # noqa: ASYNC110 - a broker's queue
            await trio.sleep(0.05)


def new_names() -> tuple[str, str]:
    """Returns a topic and a group that no test has used."""
    unique = uuid.uuid4().hex[:10]
    return f"T_{unique}", f"G_{unique}"


def run(machine: JavaMachine, content: Content, command: str) -> str:
    """Returns the output of a command in which `{topic}`, `{group}`, `{a}`, `{offset_id}`, `{unique_id}` stand."""
    words = command.format(
        topic=content.topic,
        group=content.group,
        a=content.brokers["broker-a"],
        offset_id=content.offset_ids[0],
        unique_id=content.unique_ids[0],
    ).split()
    return machine.run(MQADMIN, *words, "-n", content.nameserver, timeout=COMMAND_SECONDS)


def normal(output: str) -> list[str]:
    """Returns the lines of an output without times, addresses and ids, in a fixed order: tables have none."""
    return sorted(_normal_lines(output))


def _normal_lines(output: str) -> Iterator[str]:
    for line in output.splitlines():
        for pattern, name in DIFFERENT:
            line = pattern.sub(name, line)
        if line.strip():
            yield line.strip()
