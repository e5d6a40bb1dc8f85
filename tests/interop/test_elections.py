"""Elections of a master by DLedger, 4.9.7: sends wait for the new master, and nothing acknowledged is lost."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
import trio

from pyrmq_core import Admin, Client, Message, OffsetRange, Producer, PullConsumer, decode
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from tests.interop.conftest import cluster_or_skip
from tests.support.apache import ApacheBroker, ApacheCluster, ask, free_port
from tests.support.waiting import until, until_readable

log = logging.getLogger(__name__)
pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

VERSION = "4.9.7"
GROUP = "broker-a"
MEMBERS = ("n0", "n1", "n2")
KEYS = tuple(f"order-{number}" for number in range(8))
SENDS_AROUND_A_KILL = 300
SECONDS = 240.0


@contextmanager
def dledger_brokers(cluster: ApacheCluster) -> Iterator[dict[str, ApacheBroker]]:
    """Yields three brokers of one DLedger group by their addresses; one of them is its master."""
    peers = ";".join(f"{member}-127.0.0.1:{free_port((0,))}" for member in MEMBERS)
    with ExitStack() as stack:
        brokers = []
        for member in MEMBERS:
            settings = {
                "brokerName": GROUP,
                "enableDLegerCommitLog": "true",
                "dLegerGroup": GROUP,
                "dLegerPeers": peers,
                "dLegerSelfId": member,
            }
            broker = ApacheBroker(member, VERSION, cluster.nameserver.address, cluster.home / member, settings, ())
            stack.callback(broker.kill)
            broker.launch()
            brokers.append(broker)
        for broker in brokers:
            broker.wait_until_ready()
        yield {broker.address: broker for broker in brokers}


@dataclass(slots=True)
class Sending:
    """Sends one after another, of one kind: their bodies once acknowledged, with the times, until `enough`."""

    acknowledged: list[tuple[float, bytes]] = field(default_factory=list)
    enough: bool = False

    async def send_all(self, producer: Producer, kind: str) -> None:
        number = 0
        while not self.enough:
            body = f"{kind} {number}".encode()
            key = KEYS[number % len(KEYS)] if kind == "keyed" else None
            await producer.send(Message("orders", body, sharding_key=key), timeout=120)
            self.acknowledged.append((trio.current_time(), body))
            number += 1

    def longest_pause(self) -> float:
        times = [at for at, _ in self.acknowledged]
        return max(after - before for before, after in pairwise(times))


async def test_keyed_and_plain_sends_outlive_the_master() -> None:
    with cluster_or_skip(VERSION, ()) as cluster, dledger_brokers(cluster) as brokers:
        async with (
            Client(nameserver=cluster.nameserver.address) as client,
            Admin(client=client, timeout=20) as admin,
            Producer("g", client=client) as producer,
            PullConsumer("reading", client=client, timeout=20) as consumer,
        ):
            await master_of(admin)
            await admin.create_topic("orders", queues=4)
            await until(lambda: all(map(has_the_topic, brokers.values())), SECONDS)
            sendings = {"keyed": Sending(), "plain": Sending()}

            async def reach(count: int) -> None:
                await until(lambda: all(len(each.acknowledged) >= count for each in sendings.values()), SECONDS)

            async with trio.open_nursery() as nursery:
                for kind, sending in sendings.items():
                    nursery.start_soon(sending.send_all, producer, kind)
                await reach(SENDS_AROUND_A_KILL)
                await trio.to_thread.run_sync(brokers[await master_of(admin)].kill)
                sent = max(len(sending.acknowledged) for sending in sendings.values())
                await reach(sent + SENDS_AROUND_A_KILL)
                for sending in sendings.values():
                    sending.enough = True
            bodies = {body for sending in sendings.values() for _, body in sending.acknowledged}
            await until_readable(cluster.nameserver.address, "orders", len(bodies))
            stored: set[bytes] = set()
            for queue, bounds in (await consumer.offset_bounds(await consumer.message_queues("orders"))).items():
                async with consumer.read(queue, bounds.start, bounds.end) as pulls:
                    async for pull in pulls:
                        stored.update(
                            message.body for message in decode(pull, OffsetRange(pull.start, pull.next_offset))
                        )
        for kind, sending in sendings.items():
            log.info("%s: %.1f s without an acknowledgement", kind, sending.longest_pause())
        assert bodies - stored == set()


async def master_of(admin: Admin) -> str:
    """Returns the address of the group's master, once there is one."""
    with trio.fail_after(SECONDS):
        while True:
            broker = (await admin.cluster_info()).broker_addr_table.get(GROUP)
            if broker is not None and 0 in broker.broker_addrs:
                return broker.broker_addrs[0]
            await trio.sleep(0.1)


def has_the_topic(broker: ApacheBroker) -> bool:
    """Returns whether a member has copied the topic from the master, which takes some seconds."""
    return b'"orders"' in bytes(ask(broker.address, Command(RequestCode.GET_ALL_TOPIC_CONFIG)).body)
