"""Faults of work queues that their lives have to find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace as changed
from typing import Final

from pyrmq_core.client.consumer.pop import requests
from pyrmq_core.client.consumer.pop.popped import Popped
from pyrmq_core.protocol.messages.readable import Readable
from pyrmq_core.protocol.requests.pop.pop_message import PopAnswer
from pyrmq_core.servers.broker.pop.ordered import OrderedPop, OrderedQueues, Queue
from pyrmq_core.servers.broker.pop.records import Ack, CheckPoint, ReviveEntry
from pyrmq_core.servers.broker.pop.revival import Revival
from pyrmq_core.servers.broker.pop.revive_log import ReviveLog
from pyrmq_core.servers.broker.store.appending import Append
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from tests.chaos.planted import replace
from tests.simulated.pop_life import QUEUES

Take = Callable[[Revival, int, ReviveEntry | None, int], None]
MakeAppend = Callable[[ReviveLog, ReviveEntry, int, int], Append]
AddReceipts = Callable[[PopAnswer, Sequence[Readable], str, str], list[Popped]]
SEVERAL: Final = 4


def _forget_acknowledgements() -> None:
    def take(real: Take) -> Take:
        def planted(revival: Revival, position: int, entry: ReviveEntry | None, deliver_ms: int = 0) -> None:
            is_forgotten = isinstance(entry, Ack) and position % SEVERAL == 0
            real(revival, position, None if is_forgotten else entry, deliver_ms)

        return planted

    replace(Revival, "take", take)


def _leave_a_message_out() -> None:
    """Has the checkpoint of several messages name all but the last."""

    def append(real: MakeAppend) -> MakeAppend:
        def planted(log: ReviveLog, entry: ReviveEntry, revive_queue_id: int, now_ms: int) -> Append:
            if isinstance(entry, CheckPoint) and len(entry.offsets) > 1:
                entry = changed(entry, offsets=entry.offsets[:-1])
            return real(log, entry, revive_queue_id, now_ms)

        return planted

    replace(ReviveLog, "append", append)


def _name_another_queue() -> None:
    def with_receipts(real: AddReceipts) -> AddReceipts:
        def planted(answer: PopAnswer, items: Sequence[Readable], topic: str, broker_name: str) -> list[Popped]:
            return [
                each._replace(receipt=changed(each.receipt, queue_id=(each.receipt.queue_id + 1) % QUEUES))
                if each.receipt.queue_offset % SEVERAL == 0
                else each
                for each in real(answer, items, topic, broker_name)
            ]

        return planted

    replace(requests, "with_receipts", with_receipts)


def _lock_no_queue() -> None:
    def is_locked(_: object) -> Callable[[OrderedQueues, Queue, str | None, int], bool]:
        return lambda queues, queue, attempt_id, now_ms: False

    replace(OrderedQueues, "is_locked", is_locked)


def _pass_over_earlier_messages() -> None:
    """Has an acknowledgement move the offset behind its message, whatever lies before it."""
    replace(OrderedPop, "next_offset", lambda _: property(lambda row: max(row.acked, default=row.offsets[0] - 1) + 1))


def _restore_no_offset_without_a_file() -> None:
    def load(real: Callable[[GroupOffsets], None]) -> Callable[[GroupOffsets], None]:
        def planted(offsets: GroupOffsets) -> None:
            real(offsets)
            offsets.saved_ms = offsets.saved_ms or None

        return planted

    replace(GroupOffsets, "load", load)


PLANTS: Final[dict[str, Callable[[], None]]] = {
    "forgotten acknowledgement": _forget_acknowledgements,
    "checkpoint without its message": _leave_a_message_out,
    "receipt of another queue": _name_another_queue,
    "no lock": _lock_no_queue,
    "passed over": _pass_over_earlier_messages,
    "no offsets of a young broker": _restore_no_offset_without_a_file,
}
