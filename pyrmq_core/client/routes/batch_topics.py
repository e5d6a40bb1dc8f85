"""Recognition of batch topics of 5.x, whose brokers store a batch as one record.

A route does not name them: the client queries the broker for the topic's settings (GET_TOPIC_CONFIG), once for each
topic, and again after each query for its route. Brokers before 5.0 have no batch topics, and are not asked.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import trio

from pyrmq_core.client.remoting.remoting_client import RemotingClient
from pyrmq_core.client.routes.route_table import Routes
from pyrmq_core.client.routing.publish_info import TopicPublishInfo
from pyrmq_core.errors import CallTimeout, RocketMQError
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.messages.batch_topic import is_batch_topic
from pyrmq_core.protocol.requests.broker.topic_admin import GetTopicConfig, TopicConfigFound

QUESTION_SECONDS: Final = 3.0

# A topic, as brokers name it, on a broker.
Place = tuple[str, str]


class BatchTopics:
    """The answers of one client's brokers about its topics; an answer is never older than the topic's route."""

    def __init__(self, caller: RemotingClient, routes: Routes) -> None:
        self._caller = caller
        self._routes = routes
        self._known: dict[Place, tuple[int, bool]] = {}
        self._locks: defaultdict[Place, trio.Lock] = defaultdict(trio.Lock)

    def is_known(self, topic: str, broker_name: str) -> bool:
        """Returns True if the broker's last answer was that it stores the topic's batches whole, however old it is."""
        answer = self._known.get((topic, broker_name))
        return answer is not None and answer[1]

    async def is_batch_topic(self, topic: str, broker_name: str, address: str, *, timeout: float) -> bool:
        """Returns whether the broker stores the topic's batches whole; False if it refuses the request.

        Raises `NetworkError`s and `ProtocolError`s.
        """
        place = topic, broker_name
        if self._is_fresh(place):
            return self._known[place][1]
        async with self._locks[place]:
            if not self._is_fresh(place):
                answers = self._routes.answers(topic)
                self._known[place] = answers, await self._ask(topic, address, min(timeout, QUESTION_SECONDS))
            return self._known[place][1]

    async def any_batch_topic(self, topic: str, info: TopicPublishInfo, *, timeout: float) -> bool:
        """Returns whether any broker of the topic stores its batches whole, as `keeps_whole`; queries all at once."""
        answers: list[bool] = []

        async def ask(place: Place) -> None:
            answers.append(await self.keeps_whole(*place, timeout=timeout))
            if answers[-1]:
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for place in dict.fromkeys((topic, queue.broker_name) for queue in info.queues):
                nursery.start_soon(ask, place)
        return any(answers)

    def keeps_whole_nowait(self, topic: str, broker_name: str) -> bool | None:
        """Returns `is_batch_topic`'s answer if it is known and fresh; None if it needs a query to the broker."""
        place = topic, broker_name
        return self._known[place][1] if self._is_fresh(place) else None

    async def keeps_whole(self, topic: str, broker_name: str, *, timeout: float) -> bool:
        """Returns the answer of `is_batch_topic`, but never fails a send.

        If the broker does not answer, its previous answer is used, or the topic is treated as a plain one.
        """
        try:
            if (address := self._routes.known_master(broker_name)) is not None:
                return await self.is_batch_topic(topic, broker_name, address, timeout=timeout)
        except CallTimeout:  # keeps the old answer as fresh, so that a silent broker does not delay every send
            self._known[topic, broker_name] = self._routes.answers(topic), self.is_known(topic, broker_name)
        except RocketMQError:
            pass
        return self.is_known(topic, broker_name)

    async def _ask(self, topic: str, address: str, timeout: float) -> bool:
        answer = await self._caller.call(address, GetTopicConfig(topic).to_command(), timeout=timeout)
        if answer.code != ResponseCode.SUCCESS:
            return False
        return is_batch_topic(TopicConfigFound.from_command(answer).config.attributes)

    def _is_fresh(self, place: Place) -> bool:
        answer = self._known.get(place)
        return answer is not None and answer[0] == self._routes.answers(place[0])
