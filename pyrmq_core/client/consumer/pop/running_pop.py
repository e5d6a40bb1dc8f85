"""`RunningPop`: calls a handler with popped messages, and keeps them invisible to other consumers meanwhile.

In an ordered pop, the broker returns further messages of a queue only after the returned ones are settled. These are
handled one after another. If one fails, it and all later ones are given back, and come again.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Final

import trio

from pyrmq_core.client.consumer.consume.handler_calls import SLICE_SECONDS, HandlerCalls
from pyrmq_core.client.consumer.consume.handler_exceptions import NotHandled
from pyrmq_core.client.consumer.pop.delivery import LEAVING_SECONDS, LOOKS, PopDelivery, acknowledge
from pyrmq_core.client.consumer.pop.requests import MOST_ACKS
from pyrmq_core.errors import LocalError, ResponseError, RocketMQError
from pyrmq_core.network.problems import Problems
from pyrmq_core.protocol.framing.codes import PASSING_CODES, ResponseCode
from pyrmq_core.protocol.requests.pop.pop_message import MOST_MESSAGES

PAUSE_SECONDS: Final = 1.0
# The most messages that are in handlers or wait for their acknowledgement, in multiples of `at_once`.
MOST_UNSETTLED: Final = 2
RECEIVING: Final = "receiving from"
EXTENDING: Final = "extending the messages of"
ACKNOWLEDGING: Final = "acknowledging the messages of"
# Codes of refusals that a later try would get again.
FINAL_CODES: Final = frozenset(
    (
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        ResponseCode.INVALID_PARAMETER,
    )
)


@dataclass(eq=False, slots=True)
class RunningPop:
    """The work of one `PopConsumer.run`: it receives messages, and passes up to `at_once` of them to the handler.

    `receive(count)` returns up to `count` deliveries, perhaps none. A message is invisible for `invisible` seconds.
    This time is extended when half of it is over, until `consume_timeout` seconds after the message's arrival.

    handled     the arrival time of each unsettled message, by trio's clock
    free        the number of calls that may begin. With `order`, a call ends when its message is acknowledged
    consumed    the messages to acknowledge, by broker
    changed     the event that is set when a handler ends
    """

    receive: Callable[[int], Awaitable[Sequence[PopDelivery]]]
    calls: HandlerCalls
    topic: str
    at_once: int
    invisible: float
    consume_timeout: float
    problems: Problems
    order: bool
    handled: dict[PopDelivery, float] = field(default_factory=dict)
    consumed: defaultdict[str, list[PopDelivery]] = field(default_factory=partial(defaultdict, list))
    changed: trio.Event = field(default_factory=trio.Event)
    free: int = field(init=False)

    def __post_init__(self) -> None:
        self.free = self.at_once

    async def work(self, nursery: trio.Nursery) -> None:
        """Receives messages until it is cancelled, and calls the handler for them in tasks of the nursery.

        Failed requests are repeated. An error that every later request would get, such as a refused expression, is
        raised.
        """
        nursery.start_soon(self._extend_in_turn)
        while True:
            await self._wait_until(lambda: self.free > 0 and len(self.handled) < MOST_UNSETTLED * self.at_once)
            try:
                unsettled = MOST_UNSETTLED * self.at_once - len(self.handled)
                deliveries = await self.receive(min(self.free, unsettled, MOST_MESSAGES))
            except RocketMQError as error:
                if is_final(error):
                    raise
                self.problems.failed(RECEIVING, self.topic, error)
                await trio.sleep(PAUSE_SECONDS)
            else:
                self.problems.passed(RECEIVING, self.topic)
                self._begin(nursery, deliveries)

    async def finish(self) -> None:
        """Waits until all received messages are acknowledged or given back."""
        await self._wait_until(lambda: not self.handled)

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed = trio.Event()
            await self.changed.wait()

    def _begin(self, nursery: trio.Nursery, deliveries: Sequence[PopDelivery]) -> None:
        now = trio.current_time()
        self.free -= len(deliveries)
        self.handled.update(dict.fromkeys(deliveries, now))
        if self.order:
            for _, queue in groupby(deliveries, key=lambda each: (each.message.queue, each._receipt.lite_topic)):
                nursery.start_soon(self._handle_in_turn, nursery, list(queue))
        elif deliveries:
            nursery.start_soon(self._handle_next, nursery, deque(deliveries))

    async def _handle_next(self, nursery: trio.Nursery, waiting: deque[PopDelivery]) -> None:
        """Calls the handler with the messages in `waiting`. While a call waits, another task makes the next one."""
        began, has_next = time.perf_counter(), False
        while waiting and not (has_next and time.perf_counter() - began > SLICE_SECONDS):
            delivery = waiting.popleft()
            if waiting and not has_next:
                nursery.start_soon(self._handle_next, nursery, waiting)
                has_next = True
            is_handled = False
            try:
                await self._handle(nursery, delivery)
                is_handled = True
            finally:
                if not is_handled:
                    await self._leave([delivery])

    async def _handle_in_turn(self, nursery: trio.Nursery, deliveries: Sequence[PopDelivery]) -> None:
        left = list(deliveries)
        try:
            while left:
                is_over = await self._handle(nursery, left[0])
                del left[0]
                if not is_over:
                    break
        finally:
            if left:  # a cancel scope for each message would cost more than a fast handler
                await self._leave(left)

    async def _leave(self, deliveries: Sequence[PopDelivery]) -> None:
        with trio.move_on_after(LEAVING_SECONDS, shield=True):
            for delivery in deliveries:
                await delivery._fail(NotHandled())
        for delivery in deliveries:
            self.free += not self.order
            self._end(delivery)

    async def _handle(self, nursery: trio.Nursery, delivery: PopDelivery) -> bool:
        outcome = await self.calls.call([delivery.message])
        if not self.order:
            self.free += 1
            self.changed.set()
        if outcome.reason is not None:
            await delivery._fail(outcome.reason)
            self._end(delivery)
            # After a dead letter the next messages are still handled: this may be their last try, too.
            return delivery._is_dead
        if self.order:
            is_acknowledged = await self._acknowledge([delivery])
            self._end(delivery)
            return is_acknowledged
        consumed = self.consumed[delivery.message.broker_name]
        if not consumed:
            nursery.start_soon(self._acknowledge_consumed, delivery.message.broker_name)
        consumed.append(delivery)
        return True

    async def _acknowledge_consumed(self, broker_name: str) -> None:
        deliveries = self.consumed.pop(broker_name)
        try:
            for start in range(0, len(deliveries), MOST_ACKS):
                await self._acknowledge(deliveries[start : start + MOST_ACKS])
        finally:
            for delivery in deliveries:
                del self.handled[delivery]
            self.changed.set()

    async def _acknowledge(self, deliveries: Sequence[PopDelivery]) -> bool:
        while True:
            try:
                await acknowledge(deliveries)
            except RocketMQError as error:
                self.problems.failed(ACKNOWLEDGING, self.topic, error)
                is_final = isinstance(error, ResponseError) and error.code not in PASSING_CODES
                deliveries = [delivery for delivery in deliveries if not delivery._is_over]
                if is_final or not deliveries:
                    return False
                await trio.sleep(PAUSE_SECONDS)
            else:
                self.problems.passed(ACKNOWLEDGING, self.topic)
                return True

    def _end(self, delivery: PopDelivery) -> None:
        del self.handled[delivery]
        self.free += self.order
        self.changed.set()

    async def _extend_in_turn(self) -> None:
        while True:
            await trio.sleep(self.invisible / LOOKS)
            oldest = trio.current_time() - self.consume_timeout
            due = [delivery for delivery, began in self.handled.items() if delivery._is_half_over and began > oldest]
            await self._extend(due)

    async def _extend(self, deliveries: Iterable[PopDelivery]) -> None:
        async with trio.open_nursery() as nursery:
            for delivery in deliveries:
                nursery.start_soon(self._extend_one, delivery)

    async def _extend_one(self, delivery: PopDelivery) -> None:
        try:
            await delivery._extend_if_open(self.invisible)
        except RocketMQError as error:
            self.problems.failed(EXTENDING, self.topic, error)
        else:
            self.problems.passed(EXTENDING, self.topic)


def is_final(error: RocketMQError) -> bool:
    """Returns whether every later receive will get this error, too."""
    return isinstance(error, LocalError) or (isinstance(error, ResponseError) and error.code in FINAL_CODES)
