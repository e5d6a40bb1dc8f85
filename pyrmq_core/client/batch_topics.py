"""Recognises batch topics of 5.x, and makes the batches sent to them such that their brokers keep them whole.

A route shows nothing of it: the broker is asked for the topic's settings (GET_TOPIC_CONFIG) once a topic, and again
when its route has been asked for again. Brokers before 5.0 have no batch topics and do not know the question.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import trio

from pyrmq_core.client.calling import Caller
from pyrmq_core.client.ids import unique_id
from pyrmq_core.client.routes import Routes
from pyrmq_core.client.routing import TopicPublishInfo
from pyrmq_core.client.story import SendStory
from pyrmq_core.errors import CallTimeout, RocketMQError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.batch_topic import can_be_one_record, is_batch_topic, record_properties
from pyrmq_core.protocol.codes import ResponseCode
from pyrmq_core.protocol.payload import Payload
from pyrmq_core.protocol.requests.topic_admin import GetTopicConfig, TopicConfigFound

QUESTION_SECONDS: Final = 3.0
# V5_0_0 of common/MQVersion.java.
FIRST_VERSION_WITH_BATCH_TOPICS: Final = 413

# A topic, as brokers name it, on a broker.
Place = tuple[str, str]


class BatchTopics:
    """What one client's brokers said of its topics; the answer is as old as the topic's route at most."""

    def __init__(self, caller: Caller, routes: Routes, version_of: Callable[[str], int | None]) -> None:
        self._caller = caller
        self._routes = routes
        self._version_of = version_of
        self._known: dict[Place, tuple[int, bool]] = {}
        self._locks: defaultdict[Place, trio.Lock] = defaultdict(trio.Lock)

    def is_known(self, topic: str, broker_name: str) -> bool:
        """Whether the broker said, at any time, that it keeps the topic's batches whole."""
        known = self._known.get((topic, broker_name))
        return known is not None and known[1]

    async def is_batch_topic(self, topic: str, broker_name: str, address: str, *, timeout: float) -> bool:
        """Whether the broker keeps the topic's batches whole; a broker that refuses to say keeps none.

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
        """Whether one of the topic's brokers keeps its batches whole, as far as they say so; all are asked at once."""
        found: list[bool] = []

        async def ask(place: Place) -> None:
            found.append(await self._is_batch_topic_quietly(*place, timeout))
            if found[-1]:
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for place in dict.fromkeys((topic, queue.broker_name) for queue in info.queues):
                nursery.start_soon(ask, place)
        return any(found)

    def as_kept_nowait(self, story: SendStory[Any], topic: str, queue: MessageQueue) -> Payload | None:
        """As `as_kept`; None when the broker has to be asked first."""
        payload, place = story.payload, (topic, queue.broker_name)
        if not can_be_one_record(payload):
            return payload
        if not self._is_fresh(place):
            return None
        return self._one_record(story) if self._known[place][1] else payload

    async def as_kept(self, story: SendStory[Any], topic: str, queue: MessageQueue) -> Payload:
        """The story's payload for one try: to a batch topic with what makes it one record, else as it is."""
        payload = story.payload
        if not can_be_one_record(payload):
            return payload
        # A silent broker leaves half of the time for the send itself.
        if not await self._is_batch_topic_quietly(topic, queue.broker_name, story.seconds_left() / 2):
            return payload
        return self._one_record(story)

    def _one_record(self, story: SendStory[Any]) -> Payload:
        story.record_id = story.record_id or unique_id()
        return replace(story.payload, properties=record_properties(story.payload, story.record_id))

    async def _is_batch_topic_quietly(self, topic: str, broker_name: str, timeout: float) -> bool:
        """For sends, which do not fail for it: who cannot be asked is taken at its last word, or for a plain one."""
        try:
            address = self._routes.broker(broker_name).master
            return address is not None and await self.is_batch_topic(topic, broker_name, address, timeout=timeout)
        except CallTimeout:  # silent: not waited for again with every send
            self._known[topic, broker_name] = self._routes.answers(topic), self.is_known(topic, broker_name)
        except RocketMQError:
            pass
        return self.is_known(topic, broker_name)

    async def _ask(self, topic: str, address: str, timeout: float) -> bool:
        version = self._version_of(address)
        if version is not None and version < FIRST_VERSION_WITH_BATCH_TOPICS:
            return False
        answer = await self._caller.call(address, GetTopicConfig(topic).to_command(), timeout=timeout)
        if answer.code != ResponseCode.SUCCESS:
            return False
        return is_batch_topic(TopicConfigFound.from_command(answer).config.attributes)

    def _is_fresh(self, place: Place) -> bool:
        known = self._known.get(place)
        return known is not None and known[0] == self._routes.answers(place[0])
