"""The first page: what is wrong, and where it leads."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import trio
import trio.testing
from trio.testing import assert_no_checkpoints

from pyrmq_core import Admin, Command, RequestCode
from pyrmq_core.client.admin.health_rules import Health
from pyrmq_core.errors import NoRoute
from pyrmq_core.network import Peer
from pyrmq_core.protocol.requests.figures.runtime_info import RuntimeInfo
from pyrmq_core.tools.web.health_looks import LOOK_SECONDS, VIEWED_SECONDS, HealthLooks
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


async def test_a_viewer_who_returns_gets_a_new_check_at_once(autojump_clock: trio.testing.MockClock) -> None:
    returns_at = VIEWED_SECONDS + LOOK_SECONDS + 1

    async def take(before: Health | None) -> Health:
        if VIEWED_SECONDS < trio.current_time() < returns_at:
            raise NoRoute("no answer", topic="T")
        return Health((), datetime.now(UTC))

    looks = HealthLooks(take)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(looks.look_up)
        await looks.view()
        await trio.sleep_until(returns_at)
        assert looks.error is None
        await looks.view()
        assert looks.latest is not None
        nursery.cancel_scope.cancel()
