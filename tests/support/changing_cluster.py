"""A scripted cluster whose one topic changes under its readers: queues, permissions, files, brokers, the NameServer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

from pyrmq_core import MessageQueue
from pyrmq_core.model import Permission
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage
from pyrmq_core.protocol.routes.route import BrokerData, QueueData, TopicRouteData
from pyrmq_spark.options import read_source
from pyrmq_spark.read.columns import source_schema
from pyrmq_spark.stream.latest_offsets import QueueWatch
from pyrmq_spark.stream.stream_reader import RocketMQStreamReader
from tests.support.memory_broker import MemoryBroker
from tests.support.scripted import ScriptedServer, Table, scripted_server
from tests.support.stream_queries import SCHEMA, Query

TOPIC = "orders"
READ_WRITE = Permission.READ | Permission.WRITE


class ChangingBroker(MemoryBroker):
    """A broker that refuses pulls as Java's does, and removes files: code 20 passes over the offsets in `holes`."""

    def __init__(self, name: str) -> None:
        super().__init__(name, pull_cap=3)
        self.queue_count = 2
        self.perm: int = READ_WRITE
        self.is_up = self.is_registered = True
        self.holes: set[tuple[str, int, int]] = set()

    def __call__(self, request: Command, peer: Peer) -> Command | Awaitable[Command | None] | None:
        if request.code == RequestCode.PULL_MESSAGE:
            if not self.queue_count:
                return refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{TOPIC}] not exist")
            if not self.perm & Permission.READ:
                return refusal(ResponseCode.NO_PERMISSION, f"the topic[{TOPIC}] pulling message is forbidden")
            if int(request.ext["queueId"]) >= self.queue_count:
                return refusal(ResponseCode.INVALID_PARAMETER, "queueId is illegal")
        return super().__call__(request, peer)

    def answer_pull(self, requested: PullMessage) -> Command:
        offset, end = (
            requested.queue_offset,
            requested.queue_offset + min(max(1, requested.max_msg_nums), self.pull_cap),
        )
        hole = (requested.topic, requested.queue_id, offset) in self.holes
        first = offset
        while offset < end and ((requested.topic, requested.queue_id, offset) in self.holes) is hole:
            offset += 1
        answer = super().answer_pull(replace(requested, max_msg_nums=offset - first))
        if not hole or answer.code != ResponseCode.SUCCESS:
            return answer
        pull_answer = PullAnswer.from_command(answer)
        return replace(pull_answer, code=ResponseCode.PULL_RETRY_IMMEDIATELY, records=b"").to_command()

    def kept(self, queue_id: int) -> dict[int, str]:
        """Returns the bodies of a queue by offset."""
        first = self.first_offset[TOPIC, queue_id]
        return {
            offset: message.body.decode()
            for offset, message in enumerate(self.queues[TOPIC, queue_id], first)
            if (TOPIC, queue_id, offset) not in self.holes
        }

    def queue(self, queue_id: int) -> MessageQueue:
        return MessageQueue(TOPIC, self.name, queue_id)

    def bounds(self, queue_id: int) -> tuple[int, int]:
        return self.first_offset[TOPIC, queue_id], self.max_offset((TOPIC, queue_id))

    def remove_first(self, queue_id: int, count: int) -> None:
        """Removes a queue's oldest messages, as an expired file does."""
        key = (TOPIC, queue_id)
        count = min(count, len(self.queues[key]))
        del self.queues[key][:count]
        self.first_offset[key] += count

    def remove_last(self, queue_id: int, count: int) -> None:
        """Removes the last messages of a queue, as a broker that lost its unflushed data."""
        key = (TOPIC, queue_id)
        del self.queues[key][max(0, len(self.queues[key]) - count) :]
        self.holes = {hole for hole in self.holes if hole[:2] != key or hole[2] < self.max_offset(key)}

    def forget(self) -> None:
        """Deletes the topic with its messages."""
        self.queue_count, self.holes = 0, set()
        self.queues.clear()
        self.first_offset.clear()


class ChangingCluster:
    """Brokers by name behind one NameServer; `publish` registers the current topology there."""

    def __init__(self, nameserver: ScriptedServer, table: Table) -> None:
        self.nameserver = nameserver
        self.table = table
        self.nameserver_is_up = True
        self.brokers: dict[str, ChangingBroker] = {}
        self.servers: dict[str, ScriptedServer] = {}

    def broker(self, queue: MessageQueue) -> ChangingBroker:
        return self.brokers[queue.broker_name]

    def is_routed(self, queue: MessageQueue) -> bool:
        return queue.queue_id < self.broker(queue).queue_count

    def kept(self, queue: MessageQueue) -> dict[int, str]:
        return self.broker(queue).kept(queue.queue_id)

    def queues(self) -> list[MessageQueue]:
        """Returns the queues of all brokers, stopped ones included."""
        return [broker.queue(number) for broker in self.brokers.values() for number in range(broker.queue_count)]

    def publish(self) -> None:
        here = {
            name: BrokerData("DefaultCluster", name, {0: self.servers[name].address})
            for name, broker in self.brokers.items()
            if broker.is_registered
        }
        self.table.brokers = here
        datas = [
            QueueData(name, self.brokers[name].queue_count, self.brokers[name].queue_count, self.brokers[name].perm)
            for name in here
            if self.brokers[name].queue_count
        ]
        self.table.routes.pop(TOPIC, None)
        if datas:
            named = tuple(here[data.broker_name] for data in datas)
            self.table.routes[TOPIC] = TopicRouteData(tuple(datas), named)


@asynccontextmanager
async def changing_cluster(*names: str) -> AsyncIterator[ChangingCluster]:
    async with AsyncExitStack() as stack:
        table = Table()
        cluster = ChangingCluster(await stack.enter_async_context(scripted_server(table)), table)
        for name in names:
            cluster.brokers[name] = broker = ChangingBroker(name)
            cluster.servers[name] = await stack.enter_async_context(scripted_server(broker))
        cluster.publish()
        yield cluster


class WatchfulReader(RocketMQStreamReader):
    """A reader that looks for new queues every time."""

    def _watching(self) -> QueueWatch:
        if self._watch is None:
            self._watch = QueueWatch(self._consumer(), self._options, refresh=0.0)
        return self._watch


class WatchfulQuery(Query):
    """A query whose client requests routes only when it needs them."""

    def restart(self, **options: Any) -> None:
        self._options |= {name: str(value) for name, value in options.items()}
        self._connection = replace(self._connection, poll_name_server_interval=3600.0)
        self.reader = WatchfulReader(self._connection, read_source(self._options), source_schema(SCHEMA))
