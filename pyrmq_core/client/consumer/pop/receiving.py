"""`Receiving`: waits for messages of a topic at its brokers, and makes deliveries of them.

If the topic has one broker, a pop request waits there until a message arrives, so an idle worker sends one request
every 15 s. With several brokers, waiting pops could together return more messages than were requested. So each broker
is popped without a wait, and then NOTIFICATION requests wait until a broker has a message.

Brokers do not notify of lite topics, so a pop waits at each broker instead. When one pop has returned messages, the
others go on waiting, and the next receive with the same options uses them. Messages that arrive between two receives
are given back, without counting a try.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import trio

from pyrmq_core.client.consumer.pop.delivery import PopDelivery, give_back_unused
from pyrmq_core.client.consumer.pop.popped import Popped
from pyrmq_core.client.consumer.pop.requests import PopOptions, PopRequests
from pyrmq_core.client.consumer.pop.settings import PopSettings
from pyrmq_core.client.unique_ids import unique_id
from pyrmq_core.errors import InvalidState, NetworkError, ResponseError, RocketMQError
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.messages.namespaces import message_without_namespace
from pyrmq_core.protocol.messages.unread_message import reconsume_times_of

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 15.0
PAUSE_SECONDS: Final = 1.0
# The first pause after a broker has reported a message but returned none.
FIRST_PAUSE_SECONDS: Final = 0.05


@dataclass(eq=False, slots=True)
class _Pop:
    """A pop that runs in its own task. If its caller is cancelled, it is abandoned and its messages are given back."""

    ended: trio.Event = field(default_factory=trio.Event)
    deliveries: list[PopDelivery] = field(default_factory=list)
    error: Exception | None = None
    is_abandoned: bool = False


class OutsideReceive:
    """A receive of popped messages by a caller outside of trio's loop, such as a thread or an asyncio task.

    If the caller is cancelled or interrupted, it calls `leave`, which gives back the messages that are received for it
    now or later.
    """

    def __init__(self, receive: Callable[[Any], Awaitable[list[PopDelivery]]]) -> None:
        self._receive = receive
        self._deliveries: list[PopDelivery] = []
        self._has_left = False

    async def run(self, consumer: object) -> list[PopDelivery]:
        self._deliveries = await self._receive(consumer)
        if self._has_left:
            await self.leave()
        return self._deliveries

    async def leave(self) -> None:
        self._has_left = True
        await give_back_unused(self._deliveries)


class Receiving:
    def __init__(self, requests: PopRequests, settings: PopSettings[Any], nursery: trio.Nursery) -> None:
        self._requests = requests
        self._settings = settings
        self._nursery = nursery
        self._turns = count()
        # By topic and broker: the id of an ordered pop whose answer was lost. The next pop repeats it by this id.
        self._lost_attempts: dict[tuple[str, str], str] = {}
        # By broker and options: pops of lite topics that still wait at the broker after their receive has ended.
        self._left_waiting: defaultdict[tuple[str, PopOptions], list[_Pop]] = defaultdict(list)

    async def receive(self, options: PopOptions, wait: float) -> list[PopDelivery]:
        """Returns messages of the first broker that has any within `wait` seconds, or an empty list.

        Raises `ResponseError` if a broker refuses, `NetworkError` if it cannot be reached, and `RecordError` if the
        answer has a record whose end cannot be found.
        """
        deadline, pause, is_quick = trio.current_time() + wait, FIRST_PAUSE_SECONDS, False
        while True:
            began = trio.current_time()
            brokers = await self._requests.brokers(options.topic)
            left = max(0.0, min(deadline - began, POLL_SECONDS))
            if len(brokers) == 1:
                deliveries = await self._pop(brokers[0], options, left)
            else:
                deliveries = await self._pop_in_turn(brokers, options)
            if deliveries or trio.current_time() >= deadline:
                return deliveries
            if is_quick:  # the broker did not wait, or its messages are not for this consumer
                await trio.sleep(min(pause, left))
                pause = min(2 * pause, PAUSE_SECONDS)
            if len(brokers) > 1 and options.lite_client is None:
                await self._wait_for_any(brokers, options, left)
            elif len(brokers) > 1 and (deliveries := await self._pop_any(brokers, options, left)):
                return deliveries
            is_quick = trio.current_time() - began < PAUSE_SECONDS
            pause = pause if is_quick else FIRST_PAUSE_SECONDS

    async def _pop_in_turn(self, brokers: Sequence[str], options: PopOptions) -> list[PopDelivery]:
        turn, failed, error = next(self._turns), 0, None
        for index in range(len(brokers)):
            try:
                deliveries = await self._pop(brokers[(turn + index) % len(brokers)], options, 0.0)
            except RocketMQError as failure:
                failed, error = failed + 1, failure
                continue
            if deliveries:
                return deliveries
        if error is not None and failed == len(brokers):
            raise error
        return []

    async def _wait_for_any(self, brokers: Sequence[str], options: PopOptions, wait: float) -> None:
        with trio.move_on_after(wait):
            async with trio.open_nursery() as nursery:
                for broker_name in brokers:
                    nursery.start_soon(self._wait_for_one, broker_name, options, wait, nursery.cancel_scope.cancel)
                await trio.sleep(wait)

    async def _wait_for_one(
        self, broker_name: str, options: PopOptions, wait: float, end: Callable[[], object]
    ) -> None:
        try:
            if await self._requests.has_message(broker_name, options, wait):
                end()
        except RocketMQError as error:
            log.debug("broker %s does not report its messages of %s: %s", broker_name, options.topic, error)
            if isinstance(error, ResponseError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                await trio.sleep(PAUSE_SECONDS)  # after this pause, the broker is popped again
                end()

    async def _pop_any(self, brokers: Sequence[str], options: PopOptions, wait: float) -> list[PopDelivery]:
        """Pops lite topics at every broker at once. Returns the messages of the first answer, or an empty list."""
        deadline, answers, most = trio.current_time() + wait, list[list[PopDelivery]](), 0
        deliveries, unused = list[PopDelivery](), list[PopDelivery]()
        for key, pops in list(self._left_waiting.items()):
            self._left_waiting[key] = [pop for pop in pops if not pop.ended.is_set()]
            if not self._left_waiting[key]:
                del self._left_waiting[key]
        try:
            with trio.move_on_after(wait):
                async with trio.open_nursery() as nursery:
                    for broker_name in brokers:
                        key = broker_name, options
                        nursery.start_soon(self._pop_one, key, deadline, answers, nursery.cancel_scope.cancel)
                    await trio.sleep(wait)
            most = options.max_messages
        finally:
            for answer in answers:  # several brokers may have answered at once
                (deliveries if len(deliveries) + len(answer) <= most else unused).extend(answer)
            if unused:
                self._nursery.start_soon(give_back_unused, unused)
        return deliveries

    async def _pop_one(
        self,
        key: tuple[str, PopOptions],
        deadline: float,
        answers: list[list[PopDelivery]],
        end: Callable[[], object],
    ) -> None:
        is_new, error = False, None
        while not is_new and (left := deadline - trio.current_time()) > 0:
            pop = next((pop for pop in self._left_waiting[key] if not pop.ended.is_set()), None)
            is_new = pop is None
            if pop is None:
                self._nursery.start_soon(self._run_pop, pop := _Pop(), *key, left)
            else:
                self._left_waiting[key].remove(pop)
                pop.is_abandoned = False
            try:
                await pop.ended.wait()
            finally:
                answers.append(pop.deliveries)
                pop.is_abandoned = not pop.ended.is_set()
                if pop.is_abandoned:
                    self._left_waiting[key].append(pop)
            if pop.deliveries:
                end()
                return
            if (error := pop.error) is not None:
                log.debug("broker %s does not wait for a message of %s: %s", key[0], key[1].topic, error)
        if not isinstance(error, NetworkError):
            # The broker answered early, since too many requests wait there. After a pause it is popped again.
            await trio.sleep(PAUSE_SECONDS)
            end()

    async def _pop(self, broker_name: str, options: PopOptions, wait: float) -> list[PopDelivery]:
        pop = _Pop()
        self._nursery.start_soon(self._run_pop, pop, broker_name, options, wait)
        try:
            await pop.ended.wait()
        except trio.Cancelled:
            pop.is_abandoned = True
            await give_back_unused(pop.deliveries)  # the pop may have ended just before
            raise
        if pop.error is not None:
            raise pop.error
        return pop.deliveries

    async def _run_pop(self, pop: _Pop, broker_name: str, options: PopOptions, wait: float) -> None:
        try:
            popped = await self._pop_with_attempt(broker_name, options, wait)
            pop.deliveries = self._wanted(popped, options)
        except RocketMQError as error:
            pop.error = error
        except trio.Cancelled:
            pop.error = InvalidState("the consumer was closed")
            raise
        finally:
            pop.ended.set()
        if pop.is_abandoned:
            await give_back_unused(pop.deliveries)

    async def _pop_with_attempt(self, broker_name: str, options: PopOptions, wait: float) -> list[Popped]:
        if not options.order:
            return await self._requests.pop(broker_name, options, wait, None)
        key = options.topic, broker_name
        attempt_id = self._lost_attempts.pop(key, None) or unique_id()
        try:
            return await self._requests.pop(broker_name, options, wait, attempt_id)
        except NetworkError:
            self._lost_attempts[key] = attempt_id
            raise

    def _wanted(self, popped: Sequence[Popped], options: PopOptions) -> list[PopDelivery]:
        """Returns deliveries of the popped messages that pass the filter and can be read.

        A broker compares only hashes of tags, so a message with another tag of the same hash is acknowledged here. A
        message that was delivered too often moves to the dead-letter topic. An unreadable message stays invisible, and
        comes again.
        """
        namespace, most_tries = self._settings.namespace, self._settings.max_reconsume_times
        deliveries = []
        for entry in popped:
            message = message_without_namespace(entry.message, namespace) if namespace else entry.message
            delivery = PopDelivery(message, entry.receipt, options.topic, self._requests, most_tries)
            if not options.filter.passes_all and not options.filter.matches(message.tags):
                self._nursery.start_soon(self._quietly, delivery.ack)
            elif reconsume_times_of(message) > most_tries - (entry.error is not None):
                self._nursery.start_soon(self._quietly, delivery._bury)
            elif entry.error is not None:
                log.warning("%s of %s is not consumed and comes again: %s", message.msg_id, message.queue, entry.error)
            else:
                deliveries.append(delivery)
        return deliveries

    async def _quietly(self, settle: Callable[[], Awaitable[None]]) -> None:
        try:
            await settle()
        except RocketMQError as error:
            log.info("a popped message comes again when its invisible time ends: %s", error)
