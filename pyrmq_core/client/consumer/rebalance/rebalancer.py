"""`Rebalancer`: decides every 20 s, and whenever members or routes change, which queues this consumer reads.

Each member computes the complete division by itself, from the topic's queues in the NameServer's route and the members'
client ids at a broker. Members with the same input compute the same result. Sources: client/impl/consumer/
RebalanceImpl.java, RebalanceService.java, 5.4.0.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

import trio

from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.consumer.rebalance.strategies import AllocateMessageQueueStrategy, sort_client_ids, sort_queues
from pyrmq_core.client.routing.publish_info import not_readable, reading_address, subscribe_queues
from pyrmq_core.errors import InvalidState, ProtocolError, ResponseError, RoutingError
from pyrmq_core.model import MessageQueue
from pyrmq_core.network.problems import Problems
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.messages.names import is_retry_topic
from pyrmq_core.protocol.requests.broker.consumer_list import ConsumerList, GetConsumerList
from pyrmq_core.protocol.routes.route import TopicRouteData

ROUND_SECONDS: Final = 20.0
UNSETTLED_SECONDS: Final = 1.0
LEAST_SECONDS: Final = 1.0
# The most members of a group: for this many, consistent hashing blocks the loop for half a second.
MOST_MEMBERS: Final = 20_000
DIVISION: Final = "dividing the queues of"
READING: Final = "reading"


class QueueTable(Protocol):
    """The table of the queues that a consumer reads, which a rebalancer updates."""

    async def update(self, topic: str, wanted: Collection[MessageQueue]) -> bool:
        """Adds and drops queues of the topic, so that exactly the queues `wanted` are read.

        Returns False if a queue could not be added or dropped yet. Then `update` has to be called again soon.
        """
        ...

    async def drop_others(self, topics: Collection[str]) -> bool: ...


class Rebalancer:
    """The task that decides which queues one consumer reads. If `strategy` is None, it reads all (broadcasting).

    `topics` returns the subscribed topics, and `table` receives their queues. `missing` is called if a broker does not
    list this consumer among the members.
    """

    def __init__(
        self,
        client: ClientSession,
        group: str,
        strategy: AllocateMessageQueueStrategy | None,
        topics: Callable[[], Sequence[str]],
        table: QueueTable,
        missing: Callable[[], None],
        problems: Problems,
    ) -> None:
        self._client = client
        self._group = group
        self._strategy = strategy
        self._topics = topics
        self._table = table
        self._missing = missing
        self._problems = problems
        self._woken = trio.Event()
        self.known_queues: dict[str, Sequence[MessageQueue]] = {}

    def wake(self) -> None:
        """Makes the next round begin at once, but at least a second after the one before it began."""
        self._woken.set()

    async def run(self) -> None:
        while True:
            self._woken = woken = trio.Event()
            changed = self._client.routes.changed
            began = trio.current_time()
            settled = await self.run_round()
            with trio.move_on_after(ROUND_SECONDS if settled else UNSETTLED_SECONDS):
                await _first_of(woken, changed)
            await trio.sleep_until(began + LEAST_SECONDS)

    async def run_round(self) -> bool:
        """Decides for each topic which queues this consumer reads. Returns whether it now reads exactly these."""
        topics = self._topics()
        self._problems.keep(DIVISION, topics)
        self._problems.keep(READING, topics)
        settled = await self._table.drop_others(topics)
        for topic in self.known_queues.keys() - set(topics):
            del self.known_queues[topic]
        for topic in topics:
            try:
                wanted = await self._allocated(topic)
            except Exception as error:  # a strategy that the user wrote may raise anything
                self._skip(topic, error)
                settled = settled and isinstance(error, RoutingError)
                continue
            settled = await self._table.update(topic, wanted) and settled
        return settled

    async def _allocated(self, topic: str) -> Collection[MessageQueue]:
        route = await self._client.routes.route(topic)
        queues = sort_queues(subscribe_queues(topic, route))
        self.known_queues[topic] = tuple(queues)
        self._note_permission(topic, route)
        if self._strategy is None or not queues:
            self._problems.passed(DIVISION, topic)
            return queues
        client_id = self._client.client_id
        ids = sort_client_ids(await self._client_ids(topic, route))
        if client_id not in ids:
            self._missing()
            text = f"the {len(ids)} members of group {self._group} at its broker do not include this one, {client_id}"
            self._problems.failed(DIVISION, topic, InvalidState(f"{text}; look whether its heartbeats are refused"))
            return ()
        allocated = frozenset(self._strategy.allocate(self._group, client_id, queues, ids))
        self._problems.passed(DIVISION, topic)
        return [queue for queue in queues if queue in allocated]

    def _note_permission(self, topic: str, route: TopicRouteData) -> None:
        """Reports a problem if the topic may not be read. No broker reports it, since the queues are not pulled."""
        refusal = None if is_retry_topic(topic) else not_readable(topic, route)
        if refusal is None:
            self._problems.passed(READING, topic)
        else:
            self._problems.failed(READING, topic, refusal, at_once=True)

    async def _client_ids(self, topic: str, route: TopicRouteData) -> Sequence[str]:
        addresses = [address for broker in route.broker_datas if (address := reading_address(broker)) is not None]
        if not addresses:
            raise self._client.routes.no_route(topic)
        address = random.choice(addresses)
        question = GetConsumerList(self._group).to_command()
        answer = await self._client.call(address, question)
        if answer.code != ResponseCode.SUCCESS:
            error = response_error(answer, question.code, address, f"group {self._group}")
            if answer.code == ResponseCode.SYSTEM_ERROR and self._client.heartbeats.was_reached(address):
                raise _unknown_group(error, self._group)
            raise error
        ids = ConsumerList.from_command(answer).client_ids
        if len(ids) > MOST_MEMBERS:
            raise ProtocolError(f"{address} answers {len(ids)} members of group {self._group}; {MOST_MEMBERS} at most")
        return ids

    def _skip(self, topic: str, error: Exception) -> None:
        if not (isinstance(error, RoutingError) and is_retry_topic(topic)):  # retry topics exist only after a heartbeat
            self._problems.failed(DIVISION, topic, error)


def _unknown_group(error: ResponseError, group: str) -> ResponseError:
    return ResponseError(
        f"{error}; it took this consumer's heartbeat: create the group (pyrmq group create {group}), or switch on "
        "autoCreateSubscriptionGroup at the brokers",
        code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        remark=error.remark,
        address=error.address,
    )


async def _first_of(*events: trio.Event) -> None:
    async with trio.open_nursery() as nursery:

        async def wait(event: trio.Event) -> None:
            await event.wait()
            nursery.cancel_scope.cancel()

        for event in events:
            nursery.start_soon(wait, event)


class FixedQueues:
    """Queues that a user assigned to a consumer. A queue that failed to start, or stalled, is started again."""

    def __init__(self, table: QueueTable) -> None:
        self._table = table
        self._by_topic: dict[str, list[MessageQueue]] = {}
        self._woken = trio.Event()

    def set(self, queues: Collection[MessageQueue]) -> None:
        by_topic: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        for queue in dict.fromkeys(queues):
            by_topic[queue.topic].append(queue)
        self._by_topic = dict(by_topic)

    def wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        while True:
            self._woken = trio.Event()
            settled = await self.run_round()
            with trio.move_on_after(ROUND_SECONDS if settled else UNSETTLED_SECONDS):
                await self._woken.wait()

    async def run_round(self) -> bool:
        by_topic = self._by_topic
        await self._table.drop_others(by_topic)
        settled = True
        for topic, queues in by_topic.items():
            settled = await self._table.update(topic, queues) and settled
        return settled
