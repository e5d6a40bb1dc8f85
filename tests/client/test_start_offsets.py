"""`StartOffsets`: each row of the table of starts, and questions without an answer."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pyrmq_core import Client, ConsumeFromWhere, InvalidArgument, MessageQueue, ResponseError
from pyrmq_core.client.consumer.offsets.local_offsets import LocalOffsetStore
from pyrmq_core.client.consumer.offsets.offset_store import RemoteOffsetStore, StartOffsets
from pyrmq_core.client.consumer.queue_offsets import QueueOffsets
from pyrmq_core.errors import StoreError
from pyrmq_core.network.problems import Problems
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.requests.broker.offsets import SearchOffset
from tests.support.memory_broker import FIRST_STORE_MS
from tests.support.scripted import refuse
from tests.support.stage import Stage

LAST, FIRST, TIMESTAMP = ConsumeFromWhere.LAST_OFFSET, ConsumeFromWhere.FIRST_OFFSET, ConsumeFromWhere.TIMESTAMP
NORMAL, RETRY = MessageQueue("orders", "broker-a", 0), MessageQueue("%RETRY%readers", "broker-a", 0)
KEPT_FROM, END, AT_TIME = 10, 15, 12
WHEN = datetime.fromtimestamp((FIRST_STORE_MS + AT_TIME - KEPT_FROM) / 1000, UTC)
PROBLEMS = Problems(logging.getLogger(__name__))


@pytest.fixture
def lookups(stage: Stage, client: Client) -> QueueOffsets:
    """Queries of a group that stored nothing, on queues that keep the offsets 10 to 14."""
    stage.topic("%RETRY%readers", queues=1)
    for topic in ("orders", "%RETRY%readers"):
        stage.stores["broker-a"].first_offset[topic, 0] = KEPT_FROM
        for _ in range(KEPT_FROM, END):
            stage.stores["broker-a"].put(topic, 0, b"body")
    return QueueOffsets(client._session, "readers", timeout=3.0)


@pytest.mark.parametrize(
    ("where", "queue", "start"),
    [
        (LAST, NORMAL, END),
        (LAST, RETRY, 0),
        (FIRST, NORMAL, 0),
        (FIRST, RETRY, 0),
        (TIMESTAMP, NORMAL, AT_TIME),
        (TIMESTAMP, RETRY, END),
    ],
)
async def test_a_queue_without_an_offset_starts_by_the_setting(
    lookups: QueueOffsets, where: ConsumeFromWhere, queue: MessageQueue, start: int
) -> None:
    assert await StartOffsets(lookups, RemoteOffsetStore(lookups, PROBLEMS), where, WHEN).start_of(queue) == start


@pytest.mark.parametrize("where", list(ConsumeFromWhere))
@pytest.mark.parametrize("queue", [NORMAL, RETRY])
@pytest.mark.parametrize("stored", [0, 11])
async def test_a_stored_offset_counts_before_the_setting(
    stage: Stage, lookups: QueueOffsets, where: ConsumeFromWhere, queue: MessageQueue, stored: int
) -> None:
    stage.stores["broker-a"].committed["readers", queue.topic, 0] = stored
    assert await StartOffsets(lookups, RemoteOffsetStore(lookups, PROBLEMS), where, WHEN).start_of(queue) == stored


@pytest.mark.parametrize("where", list(ConsumeFromWhere))
@pytest.mark.parametrize("queue", [NORMAL, RETRY])
async def test_an_offset_that_cannot_be_known_is_raised(
    stage: Stage, lookups: QueueOffsets, where: ConsumeFromWhere, queue: MessageQueue
) -> None:
    """A queue that started at another place would lose messages, or repeat many."""
    stage.brokers["broker-a"].always(RequestCode.QUERY_CONSUMER_OFFSET, refuse(ResponseCode.SYSTEM_ERROR))
    with pytest.raises(ResponseError):
        await StartOffsets(lookups, RemoteOffsetStore(lookups, PROBLEMS), where, WHEN).start_of(queue)


@pytest.mark.parametrize(
    ("where", "queue", "code"),
    [
        (LAST, NORMAL, RequestCode.GET_MAX_OFFSET),
        (TIMESTAMP, RETRY, RequestCode.GET_MAX_OFFSET),
        (TIMESTAMP, NORMAL, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP),
    ],
)
async def test_a_start_that_cannot_be_known_is_raised(
    stage: Stage, lookups: QueueOffsets, where: ConsumeFromWhere, queue: MessageQueue, code: RequestCode
) -> None:
    stage.brokers["broker-a"].always(code, refuse(ResponseCode.SYSTEM_ERROR))
    with pytest.raises(ResponseError):
        await StartOffsets(lookups, RemoteOffsetStore(lookups, PROBLEMS), where, WHEN).start_of(queue)


async def test_a_broadcasting_consumer_starts_by_its_file(lookups: QueueOffsets, tmp_path: Path) -> None:
    store = LocalOffsetStore("client", "readers", tmp_path)
    starts = StartOffsets(lookups, store, LAST)
    assert await starts.start_of(NORMAL) == END
    store.update(NORMAL, 11)
    await store.persist([NORMAL])
    assert await starts.start_of(NORMAL) == 11
    for name in ("offsets.json", "offsets.json.bak"):
        (tmp_path / "client" / "readers" / name).write_text("damaged")
    with pytest.raises(StoreError):
        await starts.start_of(NORMAL)


async def test_the_default_time_is_half_an_hour_before_the_consumer_was_made(
    stage: Stage, lookups: QueueOffsets
) -> None:
    before = datetime.now(UTC)
    starts = StartOffsets(lookups, RemoteOffsetStore(lookups, PROBLEMS), TIMESTAMP)
    after = datetime.now(UTC)
    await starts.start_of(NORMAL)
    questions = stage.brokers["broker-a"].of(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    searched = [SearchOffset.from_command(question).timestamp_ms / 1000 for question in questions]
    half_an_hour = timedelta(minutes=30)
    slack = timedelta(milliseconds=2)  # whole milliseconds, and older brokers are asked from the one before
    for seconds in searched:
        assert before - half_an_hour - slack <= datetime.fromtimestamp(seconds, UTC) <= after - half_an_hour + slack
    assert searched


async def test_a_time_without_a_zone_is_refused(lookups: QueueOffsets) -> None:
    with pytest.raises(InvalidArgument, match="has no time zone"):
        StartOffsets(lookups, RemoteOffsetStore(lookups, PROBLEMS), TIMESTAMP, datetime(2024, 1, 1))
