"""Groups of Java push consumers on our broker, and mqadmin's commands about them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pyrmq_core import Message, MessageQueue
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer
from tests.support.apache import NEWEST_AND_LONG_OLDER
from tests.support.java_programs import mqadmin, start_java
from tests.support.jvm import JavaProcess

pytestmark = pytest.mark.timeout(400)  # several Java machines start one after another

PROGRAM = Path(__file__).parent / "java" / "PushMembers.java"
QUEUES = 4
SENT = [f"m{number}" for number in range(12)]
CHOSEN = [body for number, body in enumerate(SENT) if number % 3]


def consumed(program: JavaProcess, *names: str) -> list[tuple[str, str, int]]:
    """Returns name of the member, body and queue of each message that these members consumed."""
    lines = re.findall(r"^consumed (\w+) (\S+) (\d+)$", program.log.read_text(), re.MULTILINE)
    return [(name, body, int(queue)) for name, body, queue in lines if name in names]


def bodies(program: JavaProcess, *names: str, behind: int = 0) -> list[str]:
    """Returns the different bodies that these members consumed, after so many; queues that move repeat some."""
    return sorted({body for _, body, _ in consumed(program, *names)[behind:]})


def wait_until(holds: Callable[[], bool], seconds: float = 100) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("version", NEWEST_AND_LONG_OLDER)
def test_java_groups_consume_from_us_and_mqadmin_manages_them(version: str) -> None:
    """One run for all: two members divide the queues and get what their SQL wants, an ordered one gets all in order.

    Then mqadmin shows a member, lets it consume one message again, and resets the group, which consumes all again.
    """
    with (
        EmbeddedCluster(brokers=1, settings={"enablePropertyFilter": "true"}) as cluster,
        Producer("P", nameserver=cluster.nameserver, send_timeout=20) as producer,
    ):
        with Admin(nameserver=cluster.nameserver, timeout=20) as admin:
            admin.create_topic("Grouped", queues=QUEUES)
        sent = [
            producer.send(
                Message("Grouped", body.encode(), properties={"part": str(number % 3)}),
                queue=MessageQueue("Grouped", "broker-a", number % QUEUES),
            )
            for number, body in enumerate(SENT)
        ]
        with start_java(version, PROGRAM, cluster.nameserver, "Grouped", "java-group", "part > 0") as program:
            wait_until(lambda: set(bodies(program, "one", "two")) >= set(CHOSEN))
            wait_until(lambda: len(consumed(program, "ordered")) >= len(SENT))
            assert bodies(program, "one", "two") == sorted(CHOSEN)
            for queue in range(QUEUES):
                assert [body for _, body, of in consumed(program, "ordered") if of == queue] == SENT[queue::QUEUES]
            clients = dict(re.findall(r"^member (\w+) (\S+)$", program.log.read_text(), re.MULTILINE))
            shows_the_members(version, cluster.nameserver, clients)
            consumes_directly(version, cluster.nameserver, clients, program, sent[1].offset_msg_id)
            resets_the_group(version, cluster.nameserver, program)


def shows_the_members(version: str, nameserver: str, clients: dict[str, str]) -> None:
    queue_ids: set[int] = set()

    def divided() -> bool:
        queue_ids.clear()
        for name in ("one", "two"):
            shown = mqadmin(version, "consumerStatus", "-g", "java-group", "-i", clients[name], nameserver=nameserver)
            if "Topic: Grouped " not in shown or "SubExpression: part > 0" not in shown:
                return False  # the member did not answer in time
            offsets = re.findall(r"^Grouped +broker-a +(\d) +(\d+) *$", shown, re.MULTILINE)
            if len(offsets) != QUEUES // 2 or any(offset != "3" for _, offset in offsets):
                return False
            queue_ids.update(int(queue) for queue, _ in offsets)
        return True

    wait_until(divided)
    assert queue_ids == set(range(QUEUES))
    shown = mqadmin(
        version,
        "consumerStatus",
        "-g",
        "java-group-ordered",
        "-i",
        clients["ordered"],
        "-s",
        "true",
        nameserver=nameserver,
    )
    assert "PROP_CONSUMEORDERLY                     : true" in shown
    assert "#Consumer jstack#" in shown


def consumes_directly(
    version: str, nameserver: str, clients: dict[str, str], program: JavaProcess, offset_msg_id: str
) -> None:
    before = consumed(program, "two").count(("two", "m1", 1))
    topic = ["-t", "Grouped"] if version != "4.9.7" else []
    named = ["-g", "java-group", "-d", clients["two"]]
    shown = mqadmin(version, "queryMsgById", "-i", offset_msg_id, *named, *topic, nameserver=nameserver)
    assert "consumeResult=CR_SUCCESS" in shown
    wait_until(lambda: consumed(program, "two").count(("two", "m1", 1)) > before)


def resets_the_group(version: str, nameserver: str, program: JavaProcess) -> None:
    before = len(consumed(program, "one", "two"))
    assert offsets_of_reset(version, nameserver, "0") == dict.fromkeys(range(QUEUES), 0)
    wait_until(lambda: set(bodies(program, "one", "two", behind=before)) >= set(CHOSEN))
    assert bodies(program, "one", "two", behind=before) == sorted(CHOSEN)
    assert offsets_of_reset(version, nameserver, "now") == dict.fromkeys(range(QUEUES), 3)


def offsets_of_reset(version: str, nameserver: str, timestamp: str) -> dict[int, int]:
    """Resets the group to a time; returns the new offsets that mqadmin prints, by queue."""
    arguments = ["-g", "java-group", "-t", "Grouped", "-s", timestamp]
    shown = mqadmin(version, "resetOffsetByTime", *arguments, nameserver=nameserver)
    rows = re.findall(r"^broker-a +(\d) +(\d+) *$", shown, re.MULTILINE)
    return {int(queue): int(offset) for queue, offset in rows}
