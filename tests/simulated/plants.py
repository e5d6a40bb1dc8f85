"""Faults that lives have to find: some of `tests/chaos`, one that chance alone brings about, and one of polls."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from pyrmq_core.client.consumer.consume.concurrently import ConcurrentService
from pyrmq_core.client.consumer.consume.hand_over import HandOver
from pyrmq_core.client.consumer.consume.intake import Intake
from pyrmq_core.model import MessageExt
from pyrmq_core.protocol.messages.payload import RawPull
from tests.chaos.planted import PLANTS as OF_CHAOS
from tests.chaos.planted import pass_over_dropped_queues, replace


def _spin() -> None:
    """Has a dropped queue take the messages of its last answer, if that comes as it is dropped."""

    def deliver(real: Callable[[Intake, RawPull], int]) -> Callable[[Intake, RawPull], int]:
        def planted(intake: Intake, pull: RawPull) -> int:
            queue = intake.process_queue
            is_dropped, queue.is_dropped = queue.is_dropped, False
            try:
                return real(intake, pull)
            finally:
                queue.is_dropped = is_dropped

        return planted

    replace(Intake, "_deliver", deliver)
    replace(ConcurrentService, "_next_queue", pass_over_dropped_queues)


def _commit_at_once() -> None:
    """Has the messages of a poll count as consumed when it returns them."""

    def take(real: Callable[[HandOver], list[MessageExt]]) -> Callable[[HandOver], list[MessageExt]]:
        def planted(hand_over: HandOver) -> list[MessageExt]:
            messages = real(hand_over)
            hand_over.settle()
            return messages

        return planted

    replace(HandOver, "take", take)


PLANTS: Final[dict[str, Callable[[], None]]] = {
    "spin of a dropped queue": _spin,
    "swallowed reset": OF_CHAOS["swallowed resets"],
    "stuck retry queue": OF_CHAOS["whole batches"],
    "second record": OF_CHAOS["second records"],
    "second copy": OF_CHAOS["second copies"],
    "polled is consumed": _commit_at_once,
}


def prepare_process(plant: str | None) -> None:
    """Prepares a process for many lives: it logs nothing, and has the plant until it ends."""
    logging.disable(logging.CRITICAL)
    if plant is not None:
        PLANTS[plant]()
