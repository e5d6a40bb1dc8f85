"""The first page: what is wrong, and where it leads."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import trio
from trio.testing import assert_no_checkpoints

from pyrmq_core import Admin, Command, RequestCode
from pyrmq_core.client.admin.health_rules import Health
from pyrmq_core.network import Peer
from pyrmq_core.protocol.requests.figures.runtime_info import RuntimeInfo
from pyrmq_core.tools.web.health_looks import HealthLooks
from tests.support.message_admin_jobs import dead
from tests.tools.web.serving import served


async def test_the_first_page_begins_with_what_is_wrong() -> None:
    sound = {"commitLogDiskRatio": "0.5", "brokerVersionDesc": "V5_4_0"}
    figures = {"broker-a": sound, "broker-b": sound}

    async with served() as page:

        def answering(name: str) -> None:
            async def runtime(request: Command, peer: Peer) -> Command:
                return RuntimeInfo(figures[name]).to_command()

            page.cluster.control(RequestCode.GET_BROKER_RUNTIME_INFO, runtime, server=name)

        for name in figures:
            answering(name)
        assert "Nothing is wrong." in (await page.get("/")).text
    async with served(topics={"orders": 1}) as page:
        figures["broker-b"] = {"commitLogDiskRatio": "0.97", "brokerVersionDesc": "V5_1_0"}
        for name in figures:
            answering(name)
        async with Admin(nameserver=page.cluster.nameserver) as admin:
            await dead(page.cluster.nameserver, admin, "audit", "orders", "given up")
            await admin.brokers.wipe_write_perm("broker-a")
        text = (await page.get("/")).text
    wrong = re.findall(r'<li><b[^>]*>([^<]*)</b> <a href="([^"]*)">([^<]*)</a>', text)
    assert [(check, href) for check, href, _ in wrong] == [
        ("disk", "/?filter=broker-b"),
        ("writes", "/?filter=broker-a"),
        ("version", "/?filter=broker-b"),
        ("letters", "/dead-letters?group=audit"),
    ]
    assert text.index("What is wrong") < text.index("DefaultCluster")
    assert "97% of the log&#39;s disk are used" in text
    assert "Nothing is wrong." not in text


async def test_a_known_check_keeps_no_page_waiting() -> None:
    """Not for one turn of the loop: a flood of connections makes turns long."""

    async def take(before: Health | None) -> Health:
        return Health((), datetime.now(UTC))

    looks = HealthLooks(take)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(looks.look_up)
        await looks.view()
        assert looks.latest is not None
        with assert_no_checkpoints():
            await looks.view()
        nursery.cancel_scope.cancel()
