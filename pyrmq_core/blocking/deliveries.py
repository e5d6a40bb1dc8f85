"""The blocking forms of `pyrmq_core.Deliveries` and `pyrmq_core.Delivery`."""

from __future__ import annotations

from types import TracebackType

from pyrmq_core.client.consumer.consume.delivery import Deliveries as AsyncDeliveries
from pyrmq_core.client.consumer.consume.delivery import Delivery as AsyncDelivery
from pyrmq_core.loop_thread.portal import portal
from pyrmq_core.model import MessageExt


class Delivery:
    """One message: `with delivery as message:`. Leaving the block acknowledges it, an exception gives it back."""

    def __init__(self, delivery: AsyncDelivery) -> None:
        self._delivery = delivery
        self.message = delivery.message

    def __enter__(self) -> MessageExt:
        return portal().run(self._delivery.__aenter__)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return portal().run(self._delivery.__aexit__, kind, error, traceback)


class Deliveries:
    """The iterator of a consumer's deliveries; it ends with the consumer's `stop`. Safe to use from many threads."""

    def __init__(self, deliveries: AsyncDeliveries) -> None:
        self._deliveries = deliveries

    def __iter__(self) -> Deliveries:
        return self

    def __next__(self) -> Delivery:
        delivery = portal().run(self._next)
        if delivery is None:
            raise StopIteration
        return Delivery(delivery)

    async def _next(self) -> AsyncDelivery | None:
        return await anext(self._deliveries, None)
