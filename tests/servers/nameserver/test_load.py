"""Large registrations let requests through, and cost what their topics cost, in processor time of this thread."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import pytest
import trio

from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.routes.topic_config import DataVersion
from pyrmq_core.servers.nameserver.process import YOUNG_OBJECTS
from pyrmq_core.servers.protocol.register_broker import RegisterBroker, RegistrationHeader
from pyrmq_core.servers.protocol.registration import RegistrationBody, registration_crc
from tests.servers.nameserver.serving import Caller, nameserver

BROKERS = 10
TOPICS = 10_000
TIMEOUT = 60.0


@pytest.fixture
def garbage_as_in_the_process() -> Iterator[None]:
    """Garbage collection as in the server's own process, without the garbage of other tests."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def registration_of(broker: int, body: bytes) -> Command:
    address, crc = f"10.0.0.{broker}:10911", registration_crc(body)
    return RegisterBroker(RegistrationHeader("C", address, f"broker-{broker}", 0, body_crc32=crc), body).to_command()


@pytest.mark.usefixtures("garbage_as_in_the_process")
async def test_brokers_with_ten_thousand_topics_each_come_in_a_burst() -> None:
    """The first burst of a cluster is like this: one full registration right after the other, requests meanwhile."""
    body = RegistrationBody(DataVersion(1, 1), tuple(TopicConfig(f"topic_{n}", 8, 8) for n in range(TOPICS))).to_json()
    costs: list[float] = []
    answered = 0

    async def ask_until(done: trio.Event, client: Caller) -> None:
        nonlocal answered
        while not done.is_set():
            await client.route(f"topic_{answered % TOPICS}")
            answered += 1

    async with nameserver() as (_, caller):
        done = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_until, done, caller())
            brokers = [caller() for _ in range(BROKERS)]
            for number, broker in enumerate(brokers):
                command = registration_of(number, body)
                began = time.thread_time()
                assert (await broker.pool.call(broker.address, command, timeout=TIMEOUT)).code == 0
                costs.append(time.thread_time() - began)
            done.set()
        route = await caller().route("topic_7")
    assert route is not None
    assert len(route.queue_datas) == BROKERS
    assert answered > BROKERS  # requests are answered while a thread decodes
    assert min(costs[-3:]) < 3 * min(costs[:3])  # the tenth broker costs as much as the first
