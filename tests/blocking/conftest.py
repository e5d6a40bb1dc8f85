"""Scripted servers in a thread of their own, for clients that block."""

from collections.abc import Iterator

import pytest

from pyrmq_core.loop_thread.portal import HeldContext, Portal
from tests.support.stage import Stage, staged


@pytest.fixture(scope="session")
def server_loop() -> Iterator[Portal]:
    """A loop apart from the one under test."""
    loop = Portal()
    yield loop
    loop.stop()


@pytest.fixture
def stage(server_loop: Portal) -> Iterator[Stage]:
    """broker-a and broker-b; the topic "orders" with four queues on each."""
    opened = HeldContext(server_loop, staged("broker-a", "broker-b"))
    opened.value.topic("orders")
    yield opened.value
    opened.close()
