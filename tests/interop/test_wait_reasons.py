"""Why messages of Java's members wait on Apache's brokers, as `Admin` says it: a slow handler, suspended members."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from pyrmq_core import Admin, Message, MessageQueue, Producer
from pyrmq_core.client.admin import wait_reasons
from pyrmq_core.client.admin.values import GroupProgress, WaitKind
from tests.support.apache import ApacheCluster
from tests.support.client_jobs import topic
from tests.support.java_programs import start_java
from tests.support.waiting import until

__all__ = ["topic"]

PROGRAM = Path(__file__).parent / "java" / "SlowMembers.java"
MESSAGES = 5


async def waiting(
    admin: Admin, group: str, topic: str, kind: WaitKind, send: Callable[[], Awaitable[None]]
) -> GroupProgress:
    """Returns the group's progress when all its messages wait for this reason. Sends more while none waits."""
    progress = None
    with trio.move_on_after(90):
        while True:
            progress = await admin.groups.progress(group, topic=topic, members=True)
            if [reason.kind for reason in progress.reasons] == [kind]:
                return progress
            if progress.lag == 0:
                await send()
            await trio.sleep(0.2)
    raise AssertionError(f"{kind} is not the reason: {progress}")


async def test_a_slow_and_suspended_java_members(
    apache_5: ApacheCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait_reasons, "STILL_SECONDS", 4)
    nameserver, groups = apache_5.nameserver.address, [f"{name}_{topic}" for name in ("slow", "still", "stopped")]
    async with (
        Admin(nameserver=nameserver, timeout=20) as admin,
        Producer("P", nameserver=nameserver, send_timeout=20) as producer,
    ):

        async def send() -> None:
            for _ in range(MESSAGES):
                await producer.send(Message(topic, b"x"), queue=MessageQueue(topic, "broker-a", 0))

        slow, still, stopped = groups
        await admin.create_topic(topic, queues=1)
        await send()
        with start_java("5.4.0", PROGRAM, nameserver, topic, *groups) as program:
            progress = await waiting(admin, slow, topic, WaitKind.IN_MEMORY, send)
            assert progress.description is not None
            (member,), (reason,) = progress.description.members, progress.reasons
            assert (member.language, reason.client_id) == ("JAVA", member.client_id)
            assert reason.text.startswith(f"{MESSAGES} in the memory of {member.client_id}")
            assert "SlowMembers.sleepLong" in await admin.groups.stack(slow, member.client_id)
            await until(lambda: program.log.read_text().count("consumed") == MESSAGES, 60)
            await send()  # a pull that the broker holds may still take these
            await waiting(admin, still, topic, WaitKind.NOT_HELD, send)
            await waiting(admin, stopped, topic, WaitKind.NOT_DELIVERED, send)
