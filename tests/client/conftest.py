"""The fixtures of client tests: two scripted brokers with their NameServer, a client, and a clock that jumps."""

from collections.abc import AsyncIterator

import pytest

from pyrmq_core import Client
from pyrmq_core.client.consumer.pull.puller import Puller
from pyrmq_core.client.producer.send.send_options import SendSettings
from pyrmq_core.client.producer.send.sender import Sender
from tests.support.jumping_clock import jumping_clock
from tests.support.stage import Stage, staged

__all__ = ["jumping_clock"]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """broker-a and broker-b; the topic "orders" with four queues on each."""
    async with staged("broker-a", "broker-b") as stage:
        stage.topic("orders")
        yield stage


@pytest.fixture
async def client(stage: Stage) -> AsyncIterator[Client]:
    async with Client(nameserver=stage.nameserver.address) as client:
        yield client


@pytest.fixture
async def puller(stage: Stage, client: Client) -> Puller:
    await client._session.routes.refresh("orders")
    return Puller(client._session, "readers")


@pytest.fixture
def sender(client: Client) -> Sender:
    return Sender(client._session, SendSettings("senders"))
