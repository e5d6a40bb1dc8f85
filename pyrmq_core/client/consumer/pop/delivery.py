"""`PopDelivery`: one popped message, until it is acknowledged or given back, or its invisible time ends."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Final

import trio

from pyrmq_core.client.async_only import AsyncOnly
from pyrmq_core.client.consumer.consume.handler_exceptions import ConsumeLater, NotHandled
from pyrmq_core.client.consumer.pop.requests import PopRequests
from pyrmq_core.client.consumer.pop.settings import check_wait, delay_of, invisible_ms
from pyrmq_core.errors import InvalidState, RocketMQError
from pyrmq_core.model import MessageExt
from pyrmq_core.protocol.requests.pop.receipt import Receipt

log = logging.getLogger(__name__)

# The time limit for giving a message back after an exception or a cancellation.
LEAVING_SECONDS: Final = 3.0
# How often in an invisible time a task extends the invisible times of which half is over.
LOOKS: Final = 6


class PopDelivery(AsyncOnly):
    """A popped message: `async with delivery as message:` acknowledges it, and an exception gives it back.

    Other workers of the group do not get the message until its invisible time ends. Without a block, call either `ack`
    or `give_back`, once. `message.reconsume_times` counts the earlier deliveries.
    """

    _is_settled = _is_dead = _is_leaving = False
    _lock: trio.Lock | None = None

    def __init__(
        self, message: MessageExt, receipt: Receipt, topic: str, requests: PopRequests, most_tries: int
    ) -> None:
        self.message = message
        self._receipt = receipt
        self._topic = topic
        self._requests = requests
        self._most_tries = most_tries
        self._starts_now(receipt.invisible_ms)

    @property
    def is_settled(self) -> bool:
        """True after the message was acknowledged or given back."""
        return self._is_settled

    async def ack(self) -> None:
        """Acknowledges the message. If its invisible time has ended, another worker may have received it."""
        try:  # `acquire` alone would cost a round of the loop
            self._turn.acquire_nowait()
        except trio.WouldBlock:
            await self._turn.acquire()
        try:
            self._check_unsettled()
            await self._requests.ack(self._topic, [self._receipt])
            self._is_settled = True
        finally:
            self._turn.release()

    async def extend(self, seconds: float) -> None:
        """Keeps the message invisible for `seconds` from now on, up to 12 hours, whatever time was left."""
        milliseconds = invisible_ms("seconds", seconds)
        async with self._turn:
            self._check_unsettled()
            await self._extend(milliseconds)

    async def give_back(self, delay: float | None = None) -> None:
        """Makes the broker deliver the message again after `delay` seconds.

        The default delay grows with the number of deliveries from 10 seconds to 2 hours. It is 1 second for an ordered
        pop. A message that was delivered again `max_reconsume_times` times moves to the dead-letter topic instead.
        """
        milliseconds = None if delay is None else 1 if check_wait("delay", delay) == 0 else invisible_ms("delay", delay)
        async with self._turn:
            self._check_unsettled()
            await self._give_back(milliseconds, None)

    async def __aenter__(self) -> MessageExt:
        self._check_unsettled()
        return self.message

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if self._is_settled:
            return isinstance(error, ConsumeLater)
        if error is None:
            await self.ack()
            return False
        with trio.move_on_after(LEAVING_SECONDS, shield=True):
            await self._fail(error)
        return isinstance(error, ConsumeLater)

    @property
    def _turn(self) -> trio.Lock:
        """The lock that makes requests about a message follow one another, as an extension replaces the receipt."""
        if self._lock is None:  # created at its first use, since few messages of `PopConsumer.run` need it
            self._lock = trio.Lock()
        return self._lock

    @property
    def _is_half_over(self) -> bool:
        return trio.current_time() > self._half_over_at

    @property
    def _is_over(self) -> bool:
        return trio.current_time() > self._ends_at

    async def _extend_on(self, seconds: float) -> None:
        """Extends the invisible time by `seconds` when half of it is over, until the message is settled or visible."""
        while not self._is_settled:
            await trio.sleep_until(self._half_over_at)
            try:
                await self._extend_if_open(seconds)
            except InvalidState as error:
                log.warning("%s", error)
                return
            except RocketMQError as error:
                log.info("%s is not extended yet: %s", self.message.msg_id, error)
                await trio.sleep(seconds / LOOKS)

    async def _extend_if_open(self, seconds: float) -> None:
        async with self._turn:
            if not (self._is_settled or self._is_leaving):
                await self._extend(invisible_ms("seconds", seconds))

    async def _extend(self, milliseconds: int) -> None:
        self._check_in_time()
        self._receipt = await self._requests.change(self._topic, self._receipt, milliseconds)
        self._starts_now(milliseconds)

    async def _fail(self, error: BaseException, *, unused: bool = False) -> None:
        try:
            async with self._turn:
                if not self._is_settled:
                    await self._give_back(None, error, unused=unused)
        except RocketMQError as failure:
            log.info("%s comes again when its invisible time ends: %s", self.message.msg_id, failure)

    async def _bury(self) -> None:
        async with self._turn:
            await self._requests.move_to_dead_letters(self.message, self._topic, self._receipt)
            self._is_settled = True

    async def _give_back(self, milliseconds: int | None, error: BaseException | None, *, unused: bool = False) -> None:
        is_ordered, tries = self._receipt.is_ordered, self.message.reconsume_times
        delay = delay_of(error, tries, self._most_tries, ordered=is_ordered)
        if delay is None:
            await self._requests.move_to_dead_letters(self.message, self._topic, self._receipt)
            self._is_dead = True
        else:
            self._check_in_time()
            milliseconds = milliseconds or max(1, round(delay * 1000))
            await self._requests.change(self._topic, self._receipt, milliseconds, unused=unused)
        self._is_settled = True

    def _starts_now(self, milliseconds: int) -> None:
        now = trio.current_time()
        self._half_over_at, self._ends_at = now + milliseconds / 2000, now + milliseconds / 1000

    def _check_unsettled(self) -> None:
        if self._is_settled:
            raise InvalidState(f"the delivery of {self.message.msg_id} was acknowledged or given back before")

    def _check_in_time(self) -> None:
        if self._is_over:
            raise InvalidState(
                f"the invisible time of {self.message.msg_id} has ended, and the message goes to another worker: "
                "extend a delivery earlier, or receive with a longer `invisible`"
            )


async def acknowledge(deliveries: Sequence[PopDelivery]) -> None:
    """Acknowledges messages of one topic and broker in one request. If that fails, raises its error and settles none.

    The messages are not extended meanwhile, and no other task may settle them.
    """
    locks = []
    for delivery in deliveries:
        delivery._is_leaving = True
        if delivery._lock is not None:
            locks.append(delivery._lock)
    try:
        for lock in locks:
            async with lock:  # waits for an extension under way
                pass
        first = deliveries[0]
        await first._requests.ack(first._topic, [delivery._receipt for delivery in deliveries])
    except BaseException:
        for delivery in deliveries:
            delivery._is_leaving = False
        raise
    for delivery in deliveries:
        delivery._is_settled = True


async def give_back_unused(deliveries: Iterable[PopDelivery]) -> None:
    """Gives received messages back, also in a cancelled task. Does not raise.

    For a lite topic only the first message is sent, since that gives back all that the same pop took from the topic.
    """
    firsts: dict[object, PopDelivery] = {}
    for delivery in deliveries:
        receipt = delivery._receipt
        pop = receipt.broker_name, receipt.lite_topic, receipt.pop_time_ms
        firsts.setdefault(pop if receipt.lite_topic else delivery, delivery)
    with trio.move_on_after(LEAVING_SECONDS, shield=True):
        async with trio.open_nursery() as nursery:
            for delivery in firsts.values():
                fail = partial(delivery._fail, unused=True)
                nursery.start_soon(fail, NotHandled("its receive was cancelled"))
