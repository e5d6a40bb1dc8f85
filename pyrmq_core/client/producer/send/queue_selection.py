"""`QueueSelector`: chooses the queue for each try of a send (RocketMQ's MQFaultStrategy).

The choice depends on the send's target, and on the brokers of its earlier tries.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import Final

import trio

from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.producer.send.fault_latency import FaultLatency, judged
from pyrmq_core.client.producer.send.send_options import (
    ANY_QUEUE,
    AnyQueue,
    KeyedQueue,
    SendSettings,
    SendState,
    Target,
    ThisQueue,
)
from pyrmq_core.client.routing.publish_info import TopicPublishInfo
from pyrmq_core.errors import BrokerNotFound, InvalidArgument, RocketMQError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.names import REPLY_TOPIC_SUFFIX
from pyrmq_core.protocol.messages.namespaces import with_namespace
from pyrmq_core.protocol.requests.broker.topic_admin import GetTopicConfig, TopicConfigFound
from pyrmq_core.protocol.requests.figures.broker_config import BrokerConfigText, GetBrokerConfig

log = logging.getLogger(__name__)

# A broker of 5.5 keeps queues of lite topics only with both settings. Without them it acknowledges messages, but
# consumers cannot read them.
LITE_SETTINGS: Final = ("enableLmq", "enableMultiDispatch")


class QueueSelector:
    """The choice of a queue for each try of one producer's sends. Topics and queues are without the namespace.

    `faults` has the brokers to avoid. It is None if sendLatencyFaultEnable is off.
    """

    def __init__(self, client: ClientSession, settings: SendSettings, faults: FaultLatency | None) -> None:
        self._client = client
        self._routes = client.routes
        self._settings = settings
        self._faults = faults
        self.learns = faults is not None
        self._tenant_infos: dict[str, tuple[TopicPublishInfo, TopicPublishInfo]] = {}
        self._lite_checked: set[tuple[str, str]] = set()

    def on_wire(self, topic: str) -> str:
        namespace = self._settings.namespace
        if namespace is None or topic.endswith(REPLY_TOPIC_SUFFIX):  # a reply topic belongs to a cluster
            return topic
        return with_namespace(topic, namespace)

    async def publish_info(self, topic: str, *, timeout: float) -> TopicPublishInfo:
        """Returns the queues to which the topic is written. Queries a NameServer only if they are not cached."""
        info = await self._routes.publish_info(
            self.on_wire(topic),
            create_topic_key=self._settings.create_topic_key,
            default_topic_queue_nums=self._settings.default_topic_queue_nums,
            timeout=timeout,
        )
        return info if self._settings.namespace is None else self._tenant_info(topic, info)

    def known_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        info = self._routes.known_publish_info(self.on_wire(topic))
        return () if info is None else tuple(replace(queue, topic=topic) for queue in info.queues)

    def has_untried_broker(self, state: SendState) -> bool:
        """Returns whether the send may go to any queue, and has not tried every broker of the cached route."""
        info = self._routes.known_publish_info(self.on_wire(state.payload.topic))
        if info is None or not isinstance(state.to, AnyQueue):
            return False
        tried = {attempt.broker_name for attempt in state.attempts}
        if state.queue is not None:
            tried.add(state.queue.broker_name)
        return any(queue.broker_name not in tried for queue in info.queues)

    def awaits_master(self, topic: str) -> bool:
        return self._routes.awaits_master(self.on_wire(topic))

    def master(self, broker_name: str) -> str:
        broker = self._routes.broker(broker_name)
        if broker.master is None:
            raise BrokerNotFound(
                f"broker {broker_name} has no master now, only slaves, and slaves take no writes",
                broker_name=broker_name,
            )
        return broker.master

    def choose_nowait(self, state: SendState) -> MessageQueue | None:
        if isinstance(state.to, ThisQueue):
            queue = self._this_queue(state.to, state)
            return queue if self._routes.known_master(queue.broker_name) is not None else None
        topic = state.payload.topic
        if self._settings.namespace is None:
            info = self._routes.known_publish_info(topic)
        elif (info := self._routes.known_publish_info(self.on_wire(topic))) is not None:
            info = self._tenant_info(topic, info)
        if info is None:
            return None
        queue = self._of_info(info, state)
        return None if state.to.__class__ is KeyedQueue and self.awaits_lite_check(state.to, queue) else queue

    async def choose(self, state: SendState) -> MessageQueue:
        """Returns the queue of the next try. Raises route errors, and `InvalidArgument` for a wrong topic's queue."""
        queue = self.choose_nowait(state)
        if queue is not None:
            return queue
        if isinstance(state.to, ThisQueue):
            queue = state.to.queue
            if state.to.wait and state.attempts:
                return queue
            wire_queue = replace(queue, topic=self.on_wire(queue.topic))
            await self._client.master_address(wire_queue, timeout=state.seconds_left())
            return queue
        return self._of_info(await self.publish_info(state.payload.topic, timeout=state.seconds_left()), state)

    def awaits_lite_check(self, to: Target, queue: MessageQueue) -> bool:
        return isinstance(to, KeyedQueue) and to.is_lite and (queue.topic, queue.broker_name) not in self._lite_checked

    async def check_lite(self, queue: MessageQueue, address: str, *, timeout: float) -> None:
        """Warns, once for each topic and broker, if consumers cannot read the topic's lite topics from the broker.

        The reason is a setting of the broker, or the topic's type. This takes two requests, each with a quarter of
        `timeout`. If the broker does not answer both, the next send checks again.
        """
        pair = (queue.topic, queue.broker_name)
        self._lite_checked.add(pair)
        lacks: list[str] = []
        topic_config = GetTopicConfig(self.on_wire(queue.topic)).to_command()
        try:
            for command, lacking in ((GetBrokerConfig().to_command(), _settings_off), (topic_config, _other_type)):
                answer = await self._client.call(address, command, timeout=timeout / 4)
                if answer.code == ResponseCode.SUCCESS:
                    with suppress(RocketMQError):
                        lacks += lacking(answer)
        except BaseException as error:
            self._lite_checked.discard(pair)
            if isinstance(error, RocketMQError):
                return
            raise
        if lacks:
            log.warning(
                "%s (%s) stores messages for lite topics of %s, but has no queue of them for consumers without %s",
                *(queue.broker_name, address, queue.topic, " and ".join(lacks)),
            )

    def learn(self, state: SendState, failure: RocketMQError | None) -> None:
        if self._faults is not None and state.queue is not None and isinstance(state.to, AnyQueue):
            now = trio.current_time()
            isolation, reachable = judged(failure, state.mode, detector=self._settings.start_detector_enable)
            self._faults.update(
                state.queue.broker_name, now - state.began, isolation=isolation, reachable=reachable, now=now
            )

    def _this_queue(self, to: ThisQueue, state: SendState) -> MessageQueue:
        if to.queue.topic != state.payload.topic:
            raise InvalidArgument(
                f"queue {to.queue} belongs to another topic than the message's, {state.payload.topic}"
            )
        return to.queue

    def _of_info(self, info: TopicPublishInfo, state: SendState) -> MessageQueue:
        to = state.to
        if to is ANY_QUEUE and self._faults is None:
            return info.select_one_message_queue(state.last_broker_name)
        if isinstance(to, KeyedQueue):
            has_own_queues = to.queues and state.refused is None
            chosen_info = TopicPublishInfo(info.topic, to.queues, counter_start=0) if has_own_queues else info
            return chosen_info.queue_of_key(to.sharding_key, is_lite=to.is_lite)
        if isinstance(to, AnyQueue) and to.first is not None and not state.attempts and to.first in info.queues:
            return to.first
        if self._faults is not None:
            now = trio.current_time() if state.attempts else state.started
            return self._faults.select(info, state.last_broker_name, now)
        return info.select_one_message_queue(state.last_broker_name)

    def _tenant_info(self, topic: str, info: TopicPublishInfo) -> TopicPublishInfo:
        """Returns a copy of `info` whose queues have `topic`, the name without the namespace.

        Calls with the same `info` return the same copy, whose round-robin counter goes on.
        """
        infos = self._tenant_infos.get(topic)
        if infos is None or infos[0] is not info:
            queues = [replace(queue, topic=topic) for queue in info.queues]
            mine = TopicPublishInfo(
                topic,
                queues,
                counter_start=info.next_number(),
                order_topic=info.order_topic,
                borrowed=info.borrowed,
                without_master=info.without_master,
                keyed_queues=[replace(queue, topic=topic) for queue in info.keyed_queues],
            )
            infos = self._tenant_infos[topic] = (info, mine)
        return infos[1]


def _settings_off(answer: Command) -> list[str]:
    settings = BrokerConfigText.from_command(answer).settings
    return [f"{name}=true" for name in LITE_SETTINGS if settings.get(name) != "true"]


def _other_type(answer: Command) -> list[str]:
    kind = TopicConfigFound.from_command(answer).config.attributes.get("message.type")
    return [] if kind == "LITE" else ["the topic's type LITE (pyrmq topic create --type lite)"]
