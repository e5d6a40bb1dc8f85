"""Messages with a priority are stored in the queue of that number. Topics may have the types of 5.4 and 5.5."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.names import HALF_TOPIC, SCHEDULE_TOPIC
from pyrmq_core.protocol.messages.properties import PRIORITY, decode_properties
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.requests.broker.send_message import MessageStored
from pyrmq_core.protocol.requests.broker.topic_admin import UpdateTopic
from tests.servers.broker.serving import Served, serving

QUEUES = 4


async def made(served: Served, attributes: str = "") -> Command:
    return await served.ask(UpdateTopic("T", QUEUES, QUEUES, 6, attributes=attributes).to_command())


@pytest.mark.parametrize(
    ("text", "queue_id"),
    [("0", 0), ("2", 2), ("3", 3), ("4", 3), ("+2", 2), ("2147483647", 3)]
    + [(text, 1) for text in ("-1", "x", " 2", "2.0", "2147483648")],
)
async def test_a_priority_chooses_the_queue(tmp_path: Path, text: str, queue_id: int) -> None:
    """A text that is no whole number from 0 on does nothing, on a topic of any type."""
    async with serving(tmp_path) as served:
        await made(served)
        stored = MessageStored.from_command(await served.send("T", properties=f"{PRIORITY}\x01{text}\x02", queue_id=1))
        assert stored.queue_id == queue_id
        (record,) = iterate_records((await served.pull("T", queue_id)).records)
        assert decode_properties(record.properties)[PRIORITY] == text


@pytest.mark.parametrize(
    ("other", "topic"),
    [
        ("DELAY\x013\x02", SCHEDULE_TOPIC),
        ("TIMER_DELAY_SEC\x01600\x02", "rmq_sys_wheel_timer"),
        ("__SHARDINGKEY\x01k\x02", "T"),
        ("TRAN_MSG\x01TRUE\x02PGROUP\x01P\x02", HALF_TOPIC),
    ],
)
async def test_a_priority_beside_a_delay_a_key_or_a_transaction_is_removed(
    tmp_path: Path, other: str, topic: str
) -> None:
    async with serving(tmp_path) as served:
        await made(served)
        properties = f"{PRIORITY}\x013\x02{other}"
        stored = MessageStored.from_command(await served.send("T", properties=properties, queue_id=1))
        assert stored.queue_id == 1
        (queue_id,) = served.running.broker.store.reader.queues_of(topic)
        (record,) = iterate_records((await served.pull(topic, queue_id)).records)
        kept = decode_properties(record.properties)
        assert PRIORITY not in kept
        assert kept.get("REAL_QID", "1") == "1"


@pytest.mark.parametrize("kind", ["PRIORITY", "LITE"])
async def test_topics_of_both_types(tmp_path: Path, kind: str) -> None:
    async with serving(tmp_path) as served:
        answer = await made(served, f"+message.type={kind},+lite.topic.expiration=43200")
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        for refused, code in (
            ("+message.type=MIXED", ResponseCode.INVALID_PARAMETER),
            ("+lite.topic.expiration=43201", ResponseCode.SYSTEM_ERROR),
            ("+priority.type=x", ResponseCode.SYSTEM_ERROR),
        ):
            assert (await made(served, refused)).code == code, refused
