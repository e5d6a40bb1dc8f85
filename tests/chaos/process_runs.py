"""Runs on processes: a cluster of a kind, its clients, and the steps that only processes have."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import trio

from pyrmq_core import Admin, Batching, Producer
from tests.chaos.clusters import ClusterKind, boot, compare_copies
from tests.chaos.history import Booted
from tests.chaos.members import Member
from tests.chaos.orders import Order, give_order
from tests.chaos.plan import EVERY_KIND, OF_OURS, OF_PAIRS, PACKED, PLAIN, Kind, Plan, Step
from tests.chaos.proxy import proxies
from tests.chaos.runner import CALL_SECONDS, GROUP, QUEUES, Run
from tests.chaos.traffic import EVERY_SENDING, SEND_SECONDS, Checks, Sending, Traffic
from tests.support.our_cluster import OurServer

KINDS_OF: Final[Mapping[ClusterKind, Sequence[Kind]]] = {
    ClusterKind.OURS: (*EVERY_KIND, *OF_OURS),
    ClusterKind.APACHE: EVERY_KIND,
    ClusterKind.MIXED: EVERY_KIND,
    ClusterKind.PAIRS: (*EVERY_KIND, *OF_PAIRS),
}


class ProcessRun(Run):
    """A run whose servers are processes."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._do |= {Kind.CUT_POWER: self._cut_power, Kind.FILL_DISK: self._fill_disk}

    async def _order(self, step: Step, order: Order) -> None:
        broker = self._servers[step.target]
        assert isinstance(broker, OurServer)
        await trio.to_thread.run_sync(give_order, broker, order)

    async def _cut_power(self, step: Step) -> None:
        async with self._locks[step.target], self._fault(step):
            await self._order(step, Order.CUT_POWER)
            await trio.sleep(step.seconds)
            await trio.to_thread.run_sync(self._servers[step.target].start)

    async def _fill_disk(self, step: Step) -> None:
        async with self._locks[step.target], self._fault(step):
            await self._order(step, Order.FILL_DISK)
            await trio.sleep(step.seconds)
            await self._order(step, Order.FREE_DISK)


@asynccontextmanager
async def running(
    plan: Plan,
    home: Path,
    kind: ClusterKind = ClusterKind.OURS,
    sendings: Collection[Sending] = EVERY_SENDING,
) -> AsyncIterator[ProcessRun]:
    """Yields a run of the plan that has not begun, on a cluster of its own."""
    with boot(kind) as cluster:
        nameserver = cluster.nameserver
        async with (
            proxies(cluster.ports) as ways,
            Admin(nameserver=nameserver, timeout=CALL_SECONDS) as admin,
            Producer(
                "senders",
                nameserver=nameserver,
                send_timeout=SEND_SECONDS,
                batching=Batching(),
                transaction_listener=Checks(),
            ) as producer,
        ):
            await admin.create_topic(PLAIN, queues=QUEUES)
            await admin.create_topic(PACKED, queues=QUEUES, batch=True)
            await admin.groups.create(GROUP)
            traffic = Traffic(producer, random.Random(plan.seed), sendings=sendings)
            traffic.events += [Booted(name, maker) for name, maker in cluster.makers.items()]
            run = ProcessRun(
                plan,
                nameserver,
                cluster.servers,
                ways,
                traffic,
                lambda name: Member(name, (nameserver, GROUP, plan.seed), home, dict(os.environ)),
            )
            yield run
            run.events += await trio.to_thread.run_sync(compare_copies, cluster)
