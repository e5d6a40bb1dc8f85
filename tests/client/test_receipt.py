"""The results of one request: each made on access, or all in turn."""

from __future__ import annotations

import pytest

from pyrmq_core.client.producer.send.receipt import Receipt
from pyrmq_core.model import MessageQueue, SendResult, SendStatus
from pyrmq_core.protocol.requests.broker.send_message import MessageStored

QUEUE = MessageQueue("T", "broker-a", 2)


@pytest.mark.parametrize("offset_ids", ["A,B,C", "A"], ids=["one a message", "one of a batch topic's record"])
@pytest.mark.parametrize("unique_ids", [("1", "2", "3"), None], ids=["ids as texts", "ids in columns"])
def test_results_in_turn_are_those_on_access(offset_ids: str, unique_ids: tuple[str, ...] | None) -> None:
    stored = MessageStored(offset_ids, 2, 7, transaction_id="t", region_id="r", recall_handle="h")
    answer = stored.to_command()
    results = Receipt(QUEUE, 3, SendStatus.FLUSH_DISK_TIMEOUT, (), answer, unique_ids).results()
    shown = offset_ids.split(",") * (3 // len(offset_ids.split(",")))
    expected = [
        SendResult(SendStatus.FLUSH_DISK_TIMEOUT, unique_id, offset_id, QUEUE, 7 + place, "t", "r", "h")
        for place, (unique_id, offset_id) in enumerate(zip(unique_ids or shown, shown, strict=True))
    ]
    assert [*results] == [results[place] for place in range(3)] == results[:] == expected
