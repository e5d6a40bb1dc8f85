"""Pops and what ends them, as requests to a served broker."""

from dataclasses import dataclass
from typing import Any

from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.record import StoredRecord, iterate_records
from pyrmq_core.protocol.requests.pop.pop_message import (
    POP_ANSWERS,
    PopAnswer,
    PopMessage,
    read_start_offsets,
)
from pyrmq_core.protocol.requests.pop.receipt import Receipt, pop_retry_topic
from pyrmq_core.protocol.requests.pop.settle import (
    AckMessage,
    BatchAckMessage,
    ChangeInvisibleTime,
    InvisibleTimeChanged,
    ack_entries,
)
from tests.servers.broker.serving import Served
from tests.support.wire_forms import read_message_offsets

BROKER = "broker-a"


@dataclass(frozen=True)
class Delivery:
    """A popped message and its receipt."""

    body: bytes
    tries: int
    receipt: Receipt
    record: StoredRecord


def pop_message(topic: str = "T", *, messages: int = 32, invisible_ms: int = 60_000, **more: Any) -> PopMessage:
    fields: dict[str, Any] = {"consumer_group": "G", "queue_id": -1, "poll_time_ms": 0, "init_mode": 0, **more}
    # Without a time of its own the pop begins when it arrives: a starved machine makes none too late.
    return PopMessage(topic=topic, max_msg_nums=messages, invisible_ms=invisible_ms, born_time_ms=0, **fields)


def deliveries(answer: PopAnswer) -> list[Delivery]:
    """Returns the messages of an answer with the receipts that its fields name."""
    starts = read_start_offsets(answer.start_offset_info or "")
    places = [
        (mark, queue, offset)
        for (mark, queue), offsets in read_message_offsets(answer.msg_offset_info or "").items()
        for offset in offsets
    ]
    popped = []
    for (mark, queue, offset), record in zip(places, iterate_records(answer.records), strict=True):
        assert (record.queue_id, record.queue_offset) == (queue, offset)
        receipt = Receipt(
            starts[mark, queue],
            answer.pop_time_ms,
            answer.invisible_ms,
            answer.revive_queue_id,
            mark,
            BROKER,
            queue,
            offset,
        )
        popped.append(Delivery(record.body, record.reconsume_times, receipt, record))
    return popped


async def pop(served: Served, topic: str = "T", **how: Any) -> list[Delivery]:
    answer = await served.ask(pop_message(topic, **how).to_command())
    assert answer.code in POP_ANSWERS, answer.remark
    return deliveries(PopAnswer.from_command(answer))


async def pop_some(served: Served, topic: str = "T", **how: Any) -> list[Delivery]:
    """Returns the first messages that come: a poll ends without any now and then."""
    while not (popped := await pop(served, topic, poll_time_ms=10_000, **how)):
        pass
    return popped


def topic_of(receipt: Receipt, group: str = "G", topic: str = "T") -> str:
    return topic if receipt.mark == "0" else pop_retry_topic(topic, group, receipt.mark)


async def ack(served: Served, receipt: Receipt, group: str = "G") -> Command:
    request = AckMessage(group, topic_of(receipt, group), receipt.queue_id, receipt.encode(), receipt.queue_offset)
    return await served.ask(request.to_command())


async def ack_all(served: Served, receipts: list[Receipt], group: str = "G") -> Command:
    return await served.ask(BatchAckMessage(BROKER, ack_entries("T", group, receipts)).to_command())


async def change(served: Served, receipt: Receipt, invisible_ms: int, group: str = "G") -> Receipt:
    topic = topic_of(receipt, group)
    request = ChangeInvisibleTime(group, topic, receipt.queue_id, receipt.encode(), receipt.queue_offset, invisible_ms)
    return InvisibleTimeChanged.from_command(await served.ask(request.to_command())).receipt(receipt)
