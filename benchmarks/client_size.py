"""A client that knows much: 10,000 topics on 1,000 brokers with 10,000 groups.

    python -m benchmarks.client_size [--quick] [--topics N] [--brokers N] [--groups N] [--subscribed N]

The routes lie in a NameServer of ours. The brokers are one process with one port, which answers at an address of its
own for each of them, 127.1.x.y. Each topic and each group is on 8 brokers, a topic with 4 queues at each. A third
process holds one client with a producer, an `Admin` and a push consumer. The figures are those of that process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import trio

from benchmarks.nameserver_load import connect, receive_success
from benchmarks.support.pairs import Clock
from benchmarks.support.processes import figures_of
from pyrmq_core import Admin, Client, Producer, PushConsumer
from pyrmq_core.model import MessageQueue, TopicConfig
from pyrmq_core.network import Listening, Peer, serve
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.framing.frame import encode_frame
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.requests.broker.consumer_list import ConsumerList
from pyrmq_core.protocol.requests.broker.heartbeat import HeartBeat
from pyrmq_core.protocol.requests.groups.connections import GetConsumerConnections
from pyrmq_core.protocol.requests.groups.subscription_groups import SubscriptionGroupConfig
from pyrmq_core.protocol.routes.topic_config import DataVersion
from pyrmq_core.servers.protocol.register_broker import RegisterBroker, RegistrationHeader
from pyrmq_core.servers.protocol.registration import RegistrationBody
from tests.support.our_cluster import boot_our_cluster

COPIES: Final = 8  # brokers of a topic and of a group
QUEUES: Final = 4
LOOK_AGAIN_SECONDS: Final = 0.5
GROUP: Final = "one-consumer"
REGISTER_SECONDS: Final = 30.0
HOLD_SECONDS: Final = 14.0
PULLED_NOTHING: Final = {"nextBeginOffset": "0", "minOffset": "0", "maxOffset": "0", "suggestWhichBrokerId": "0"}
HOUR_MS: Final = 3_600_000
HEADING: Final = "| what | seconds | of them processor | MiB after it | handles | tasks |\n|---|---|---|---|---|---|"


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a cluster, and the topics of it that the push consumer subscribes to."""

    topics: int
    brokers: int
    groups: int
    subscribed: int

    def topic(self, number: int) -> str:
        return f"topic_of_the_cluster_{number:06d}"

    def at(self, broker: int, things: int) -> list[int]:
        """Returns the numbers of the topics or groups at a broker, of which there are so many in the cluster."""
        firsts = {(broker - copy) % self.brokers for copy in range(COPIES)}
        return [number for number in range(things) if number * COPIES % self.brokers in firsts]


# Brokers


def run_brokers(nameserver: str, size: Size, ready: multiprocessing.SimpleQueue[int]) -> None:
    """Registers the brokers once, for an hour, and answers for them until the process is ended."""
    trio.run(_serve_brokers, nameserver, size, ready)


async def _serve_brokers(nameserver: str, size: Size, ready: multiprocessing.SimpleQueue[int]) -> None:
    answers = Answers(size)
    async with trio.open_nursery() as nursery:
        server = partial(serve, answers, "0.0.0.0", 0, max_requests_per_connection=100_000)
        listening: Listening = await nursery.start(server)
        connection = connect(nameserver)
        for broker in range(size.brokers):
            topics = tuple(TopicConfig(size.topic(number), QUEUES, QUEUES) for number in size.at(broker, size.topics))
            body = RegistrationBody(DataVersion(1_700_000_000_000, 1), topics)
            address = f"{host_of(broker)}:{listening.port}"
            header = RegistrationHeader("DefaultCluster", address, f"broker-{broker}", 0, heartbeat_timeout_ms=HOUR_MS)
            registration = encode_frame(RegisterBroker.of(header, body).to_command())
            connection.sendall(registration)
            receive_success(connection)
        ready.put(listening.port)
        nursery.start_soon(answers.run)
        while True:
            await trio.sleep(REGISTER_SECONDS)
            connection.sendall(registration)  # a NameServer closes a connection that idles, and forgets a broker of it
            receive_success(connection)


def host_of(broker: int) -> str:
    return f"127.1.{broker // 250}.{broker % 250 + 1}"


class Answers:
    """The answers of all brokers. All queues are empty, and a pull waits for a message as long as its client allows."""

    def __init__(self, size: Size) -> None:
        self._client_ids: tuple[str, ...] = ()
        self._groups: dict[str, bytes] = {}
        for broker in range(size.brokers):
            names = [f"group_of_the_cluster_{number:06d}" for number in size.at(broker, size.groups)]
            table = {name: SubscriptionGroupConfig(name).to_members() for name in names}
            self._groups[host_of(broker)] = dumps({"subscriptionGroupTable": table})
        self._held: deque[tuple[float, Command, Peer]] = deque()
        self._members = dumps(
            {
                "connectionSet": [
                    {"clientId": "10.0.0.1@1", "clientAddr": "10.0.0.1:5", "language": "JAVA", "version": 493}
                ],
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionTable": {},
            }
        )

    def __call__(self, request: Command, peer: Peer) -> Command | None:
        match request.code:
            case RequestCode.PULL_MESSAGE | RequestCode.LITE_PULL_MESSAGE:
                self._held.append((trio.current_time() + HOLD_SECONDS, request, peer))
                return None
            case RequestCode.HEART_BEAT:
                self._client_ids = self._client_ids or (HeartBeat.from_command(request).client_id,)
                return success()
            case RequestCode.GET_CONSUMER_LIST_BY_GROUP:
                return ConsumerList(self._client_ids).to_command()
            case RequestCode.QUERY_CONSUMER_OFFSET:
                return success({"offset": "0"})
            case RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
                return success(body=self._groups[peer.local_address.rpartition(":")[0]])
            case RequestCode.GET_BROKER_CONSUME_STATS:
                return success(body=b'{"consumeStatsList":[]}')
            case GetConsumerConnections.CODE if request.ext.get("consumerGroup") == GROUP:
                return refusal(ResponseCode.CONSUMER_NOT_ONLINE, "it is not registered yet")
            case GetConsumerConnections.CODE:
                return success(body=self._members)
            case RequestCode.UNREGISTER_CLIENT | RequestCode.UPDATE_CONSUMER_OFFSET:
                return success()
            case _:
                return refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"request code {request.code}")

    async def run(self) -> None:
        nothing = replace(success(PULLED_NOTHING), code=ResponseCode.PULL_NOT_FOUND)
        while True:
            await trio.sleep(LOOK_AGAIN_SECONDS)
            while self._held and self._held[0][0] <= trio.current_time():
                _, request, peer = self._held.popleft()
                peer.connection.answer(request, nothing)


# The client


def run_client(nameserver: str, size: Size) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    trio.run(_use, nameserver, size)


async def _use(nameserver: str, size: Size) -> None:
    print(HEADING, flush=True)
    all_there, complete = trio.Event(), set[str]()

    def changed(topic: str, every: Sequence[MessageQueue], own: Sequence[MessageQueue]) -> None:
        if len(own) == QUEUES * COPIES:
            complete.add(topic)
        if len(complete) == size.subscribed:
            all_there.set()

    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        client = Client(nameserver=nameserver, poll_nameserver_interval=3600, heartbeat_broker_interval=3600)
        producer, admin = Producer("one-producer", client=client), Admin(client=client, timeout=30)
        consumer = PushConsumer(GROUP, client=client, message_queue_listener=changed)
        session = client._session

        async def begin() -> None:
            for opened in (client, producer, admin, consumer):
                await stack.enter_async_context(opened)

        async def learn() -> None:
            for number in range(size.topics):
                await producer.message_queues(size.topic(number))

        async def subscribe() -> None:
            for number in range(size.subscribed):
                await consumer.subscribe(size.topic(number))
            nursery.start_soon(consumer.run, _received)
            await all_there.wait()

        async def list_groups() -> None:
            listed = await admin.groups.list()
            if listed.failures or len(listed.groups) != size.groups:
                failure = next(iter(listed.failures.values()), None)
                raise SystemExit(f"{len(listed.groups)} groups, {len(listed.failures)} failures, as {failure}")

        await row("a client with a producer and an `Admin`, which know nothing", begin)
        await row(f"the routes of {size.topics:,} topics, one after the other", learn)
        await row("a round of heartbeats, the first over new connections", session.heartbeats.send_round)
        await row("a round of heartbeats", session.heartbeats.send_round)
        await row("a round of polls of all routes", session.routes.refresh_all)
        await row("`admin.topics.list()`", admin.topics.list)
        await row("`admin.cluster_info()`", admin.cluster_info)
        await row(f"`admin.groups.list()`, {size.groups:,} groups", list_groups)
        await row(f"a push consumer of {size.subscribed:,} topics until it holds all queues", subscribe)
        await row("a round of heartbeats with these subscriptions", session.heartbeats.send_round)
        await row("the consumer stopped", consumer.stop)
        await row("all closed", stack.aclose)


async def _received(message: object) -> None:
    raise AssertionError(f"there are no messages, and {message!r} came")


async def row(what: str, work: Callable[[], Awaitable[object]]) -> None:
    """Prints what a piece of work took, and what the process holds after it."""
    clock = Clock()
    await work()
    seconds, processor = clock.seconds()
    tasks = trio.lowlevel.current_statistics().tasks_living
    held = figures_of(os.getpid())
    memory, handles = held["resident MiB"], held["handles"]
    print(f"| {what} | {seconds:.2f} | {processor:.2f} | {memory:.0f} | {handles:.0f} | {tasks} |", flush=True)


def main(quick: bool = False, *, size: Size | None = None) -> None:
    size = size or (Size(300, 30, 200, 20) if quick else Size(10_000, 1_000, 10_000, 100))
    print(f"{size.topics:,} topics, {size.brokers:,} brokers, {size.groups:,} groups\n")
    spawn = multiprocessing.get_context("spawn")
    with boot_our_cluster(()) as cluster:
        nameserver = cluster.nameserver.address
        ready = spawn.SimpleQueue()
        brokers = spawn.Process(target=run_brokers, args=(nameserver, size, ready), daemon=True)
        brokers.start()
        ready.get()
        client = spawn.Process(target=run_client, args=(nameserver, size))
        client.start()
        client.join()
        brokers.terminate()
        brokers.join()
        if client.exitcode:
            raise SystemExit(f"the client ended with {client.exitcode}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client_size", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    for name, number in (("topics", 10_000), ("brokers", 1_000), ("groups", 10_000), ("subscribed", 100)):
        parser.add_argument(f"--{name}", type=int, default=number)
    options = parser.parse_args()
    chosen = Size(options.topics, options.brokers, options.groups, options.subscribed)
    main(options.quick, size=None if options.quick else chosen)
