"""Runs on processes: a cluster of a kind, its clients, and the steps that only processes have."""

from __future__ import annotations

import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import trio

from pyrmq_core import Admin, Batching, Client, Producer, PullConsumer, RocketMQError
from pyrmq_core.model import Permission
from tests.chaos.clusters import Cluster, ClusterKind, Keys, boot, compare_copies, promote
from tests.chaos.history import Booted, Deleted, Denied
from tests.chaos.members import Member
from tests.chaos.orders import Order, give_order
from tests.chaos.plan import (
    BROKERS,
    EVERY_KIND,
    FLEETING,
    LISTENERS,
    OF_ACCESS,
    OF_OURS,
    OF_PAIRS,
    OF_RELEASES,
    OF_TOPICS,
    PACKED,
    PLAIN,
    POLLERS,
    RESETS,
    SLAVES,
    SORTERS,
    TOPICS,
    Kind,
    Plan,
    Step,
)
from tests.chaos.proxy import proxies
from tests.chaos.runner import CALL_SECONDS, GROUP, QUEUES, GroupMember, Run, Way
from tests.chaos.traffic import EVERY_SENDING, SEND_SECONDS, Checks, Load, Sending, Traffic
from tests.chaos.tries import tries_noted
from tests.support.our_cluster import OurServer

MOST_QUEUES: Final = 8
# A change of a topic lasts for seconds: a producer has to learn of it sooner than by default.
POLL_SECONDS: Final = 1.0
FLEETING_MESSAGES: Final = 100
KINDS_OF: Final[Mapping[ClusterKind, Sequence[Kind]]] = {
    ClusterKind.OURS: (*EVERY_KIND, *OF_OURS, *OF_TOPICS),
    ClusterKind.APACHE: (*EVERY_KIND, *OF_TOPICS),
    ClusterKind.MIXED: (*EVERY_KIND, *OF_TOPICS),
    ClusterKind.GUARDED: (*EVERY_KIND, *OF_OURS, *OF_TOPICS, *OF_ACCESS),
    ClusterKind.GUARDED_APACHE: (*EVERY_KIND, *OF_TOPICS, *OF_ACCESS),
    ClusterKind.UPGRADED: (*(kind for kind in EVERY_KIND if kind not in (*RESETS, Kind.CUT, Kind.STALL)), *OF_RELEASES),
    ClusterKind.RENEWED: (*(kind for kind in EVERY_KIND if kind not in RESETS), *OF_RELEASES),
    # A slave keeps a deleted topic's messages until the topic that is made again has others in their place.
    ClusterKind.PAIRS: (*EVERY_KIND, *OF_PAIRS, *(kind for kind in OF_TOPICS if kind is not Kind.REMAKE)),
}
GUARDED: Final = (ClusterKind.GUARDED, ClusterKind.GUARDED_APACHE)
AccessChange: TypeAlias = "Callable[[Admin, str], Awaitable[None]]"
ANOTHER_SECRET: Final = "a-secret-of-another"
USUAL_LOAD: Final = Load()
# 4.9.7 has no timers.
WITHOUT: Final[Mapping[ClusterKind, Sequence[Sending]]] = {ClusterKind.UPGRADED: (Sending.DELAYED,)}


class ProcessRun(Run):
    """A run whose servers are processes."""

    audited_topics: Sequence[str] = (*TOPICS, FLEETING)

    def __init__(
        self,
        plan: Plan,
        cluster: Cluster,
        ways: Mapping[str, Way],
        traffic: Traffic,
        new_member: Callable[[str], GroupMember],
    ) -> None:
        super().__init__(plan, cluster.nameserver, cluster.servers, ways, traffic, new_member)
        self._cluster = cluster
        self._do |= {
            Kind.PROMOTE: self._promote,
            Kind.UPGRADE: self._upgrade,
            Kind.CUT_POWER: self._cut_power,
            Kind.FILL_DISK: self._fill_disk,
            Kind.STEP_CLOCK: self._step_clock,
            Kind.READ_ONLY: partial(self._restrict, perm=Permission.READ),
            Kind.WRITE_ONLY: partial(self._restrict, perm=Permission.WRITE),
            Kind.RESIZE: self._resize,
            Kind.REMAKE: self._remake,
            Kind.DENY: self._deny,
            Kind.CHANGE_SECRET: self._change_secret,
        }
        self._written = dict.fromkeys(TOPICS, QUEUES)  # the queues that are written to; `_queues` are read
        self._remaking = trio.Lock()
        self._changing_access = trio.Lock()

    async def _look_again(self) -> None:
        events_before = set(self.events)
        self.events += [event for event in await self._stored() if event not in events_before]

    async def _order(self, step: Step, order: Order, seconds: float = 0.0) -> None:
        broker = self._servers[step.target]
        assert isinstance(broker, OurServer)
        await trio.to_thread.run_sync(give_order, broker, order, seconds)

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

    async def _step_clock(self, step: Step) -> None:
        async with self._locks[step.target], self._fault(step):
            await self._order(step, Order.SET_CLOCK, step.seconds if step.way == "up" else -step.seconds)
            await trio.sleep(step.seconds)
            await self._order(step, Order.SET_CLOCK)

    async def _promote(self, step: Step) -> None:
        """Has a slave lag and then be the master, once; its own ends as it lags, and stays away."""
        servers, slave = self._cluster.servers, SLAVES[BROKERS.index(step.target)]
        async with self._locks[step.target], self._locks[slave]:  # in the order of `_all_up`
            if slave not in servers:
                return
            async with self._fault(step):
                await trio.to_thread.run_sync(servers[slave].pause)
                await trio.sleep(step.seconds)
                for name in (step.target, slave):
                    await trio.to_thread.run_sync(servers[name].kill)
                await trio.to_thread.run_sync(promote, self._cluster, slave)

    async def _upgrade(self, step: Step) -> None:
        async with self._locks[step.target], self._fault(step):
            await trio.to_thread.run_sync(self._cluster.upgrades[step.target])

    async def _restrict(self, step: Step, perm: int) -> None:
        async with self._locks[step.target], self._fault(step):
            await self._permit(step.target, perm)
            await trio.sleep(step.seconds)
            await self._permit(step.target, Permission.READ | Permission.WRITE)

    async def _permit(self, broker_name: str, perm: int) -> None:
        """Gives the topics at a broker a permission; returns when the NameServers announce it, however often cut."""
        async with self._admin() as admin:
            for topic in TOPICS:
                while not await self._has_permission(admin, topic, broker_name, perm):
                    with suppress(RocketMQError):
                        await self._create(admin, topic, broker=broker_name, perm=perm)

    async def _create(self, admin: Admin, topic: str, **others: Any) -> None:
        queues, read = self._written[topic], self._queues[topic]
        await admin.create_topic(topic, queues=queues, read_queues=read, batch=self._is_batch(topic), **others)

    def _is_batch(self, topic: str) -> bool:
        return topic == PACKED and self._cluster.has_batch_topics

    async def _resize(self, step: Step) -> None:
        topic = step.target
        async with self._all_up(), self._fault(step), self._admin() as admin:
            self._written[topic] = self._draw.randint(1, MOST_QUEUES)
            self._queues[topic] = max(self._queues[topic], self._written[topic])
            await self._insist(partial(self._create, admin, topic))

    async def _remake(self, step: Step) -> None:
        """Deletes the topic, makes it again, and sends to it."""
        async with self._remaking, self._fault(step), self._admin() as admin:
            async with self._all_up():
                began = time.monotonic()
                await self._insist(partial(admin.delete_topic, FLEETING))
                self.events.append(Deleted(began, time.monotonic(), FLEETING))
            await trio.sleep(step.seconds)
            async with self._all_up():
                await self._insist(partial(admin.create_topic, FLEETING, queues=QUEUES))
            await self._traffic.send_some(FLEETING, FLEETING_MESSAGES)

    async def _deny(self, step: Step) -> None:
        """Denies the clients' user what it may do with a topic: up the way to write it, down to read it and to commit.

        A right that a resource's own entry denies is back when that entry allows it.
        """
        topic = step.target
        rights = {"up": ("Pub",), "down": ("Sub", "Get"), "both": ("Pub", "Sub", "Get")}[step.way]

        async def decide(admin: Admin, broker_name: str, decision: str) -> None:
            await self._set_policy(admin, f"Topic:{topic}", rights, decision, broker_name)
            if step.way != "up":
                await self._set_policy(admin, f"Group:{GROUP}", ("Sub",), decision, broker_name)

        refused = [topic] if "Pub" in rights else []
        await self._deny_for_a_while(step, refused, partial(decide, decision="Deny"), partial(decide, decision="Allow"))

    async def _set_policy(
        self, admin: Admin, resource: str, rights: Sequence[str], decision: str, broker_name: str
    ) -> None:
        subject = f"User:{self._cluster.user.access_key}"
        await admin.policies.update(subject, [resource], rights, decision=decision, broker=broker_name)

    async def _change_secret(self, step: Step) -> None:
        name, secret = self._cluster.user

        async def set_secret(admin: Admin, broker_name: str, secret: str) -> None:
            if broker_name == step.target or step.way == "both":
                await admin.users.update(str(name), password=secret, broker=broker_name)

        refused = TOPICS if step.way == "both" else ()
        put_back = partial(set_secret, secret=str(secret))
        await self._deny_for_a_while(step, refused, partial(set_secret, secret=ANOTHER_SECRET), put_back)

    async def _deny_for_a_while(
        self,
        step: Step,
        refused: Sequence[str],
        deny: AccessChange,
        allow: AccessChange,
    ) -> None:
        """Changes the brokers' rules and back; `refused` are the topics to which none takes a send meanwhile."""
        async with self._changing_access, self._fault(step), self._admin() as admin:
            await self._at_each_broker(admin, deny)
            began = time.monotonic()
            await trio.sleep(step.seconds)
            ended = time.monotonic()
            await self._at_each_broker(admin, allow)
        self.events += [Denied(began, ended, topic) for topic in refused]

    async def _at_each_broker(self, admin: Admin, change: AccessChange) -> None:
        """Changes the rules of one broker after the other, each while it is up."""
        for name in BROKERS:
            async with self._locks[name]:
                await self._insist(partial(change, admin, name))

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[Admin]:
        async with (
            client_of(self._nameserver, self._cluster.administrator) as client,
            Admin(client=client, timeout=CALL_SECONDS) as admin,
        ):
            yield admin

    @asynccontextmanager
    async def _audit(self) -> AsyncIterator[PullConsumer]:
        async with (
            client_of(self._nameserver, self._cluster.administrator) as client,
            PullConsumer("audit", client=client, timeout=CALL_SECONDS) as consumer,
        ):
            yield consumer

    async def _insist(self, call: Callable[[], Awaitable[None]]) -> None:
        """Calls until the servers, which are up, answer; connections may be cut meanwhile."""
        while True:
            with suppress(RocketMQError):
                return await call()

    async def _has_permission(self, admin: Admin, topic: str, broker_name: str, perm: int) -> bool:
        with suppress(RocketMQError):
            route = await admin.route(topic)
            return any(data.broker_name == broker_name and data.perm == perm for data in route.queue_datas)
        return False


def client_of(nameserver: str, keys: Keys) -> Client:
    """Returns a client that signs with the keys, if any."""
    return Client(
        nameserver=nameserver,
        poll_nameserver_interval=POLL_SECONDS,
        access_key=keys.access_key,
        secret_key=keys.secret_key,
    )


@asynccontextmanager
async def running(
    plan: Plan,
    home: Path,
    kind: ClusterKind = ClusterKind.OURS,
    sendings: Collection[Sending] = EVERY_SENDING,
    load: Load = USUAL_LOAD,
) -> AsyncIterator[ProcessRun]:
    """Yields a run of the plan that has not begun, on a cluster of its own."""
    with boot(kind) as cluster, ExitStack() as stack:
        nameserver = cluster.nameserver
        async with (
            proxies(cluster.ports) as ways,
            client_of(nameserver, cluster.administrator) as administrator,
            Admin(client=administrator, timeout=CALL_SECONDS) as admin,
            client_of(nameserver, cluster.user) as client,
            Producer(
                "senders",
                client=client,
                send_timeout=SEND_SECONDS,
                batching=Batching(),
                transaction_listener=Checks(),
            ) as producer,
        ):
            await admin.create_topic(PLAIN, queues=QUEUES)
            await admin.create_topic(PACKED, queues=QUEUES, batch=cluster.has_batch_topics)
            await admin.create_topic(FLEETING, queues=QUEUES)
            await admin.groups.create(GROUP)
            sendings = [sending for sending in sendings if sending not in WITHOUT.get(kind, ())]
            traffic = Traffic(producer, random.Random(plan.seed), load, sendings)
            stack.enter_context(tries_noted(traffic.events))
            traffic.events += [Booted(name, maker) for name, maker in cluster.makers.items()]

            def new_member(name: str, group: str = GROUP) -> Member:
                return Member(name, (nameserver, group, plan.seed), home, dict(os.environ), cluster.user)

            run = ProcessRun(plan, cluster, ways, traffic, new_member)
            for group in (POLLERS, LISTENERS, *([SORTERS] if kind in GUARDED else [])):
                run.add_beside(group, new_member(group, group))
            yield run
            run.events += await trio.to_thread.run_sync(compare_copies, cluster)
