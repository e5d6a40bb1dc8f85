"""Record batches on the send path and the read path, against scripted brokers: failures, bounds, refusals."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
import trio

from pyrmq_core import (
    BatchFailed,
    Client,
    DataLost,
    InvalidArgument,
    InvalidMessage,
    MessageQueue,
    NoRoute,
    Outcome,
    Producer,
    PullConsumer,
    ResponseError,
    SendFailed,
    WriteSummary,
)
from pyrmq_core.columnar import DEFAULT_COLUMNS, batches_of
from pyrmq_core.columnar.encoding.sink_rows import JOINED_ROWS
from pyrmq_core.errors import RecordError
from tests.client.reading import A0, fill, requested
from tests.support.scripted import BATCH, after, refuse
from tests.support.stage import Stage, settled


def rows(count: int, **columns: Any) -> pa.RecordBatch:
    return pa.record_batch({"body": pa.array([b"%d" % number for number in range(count)], pa.binary()), **columns})


@pytest.fixture
async def producer(client: Client) -> Any:
    async with Producer("g", client=client, send_timeout=20, retry_times_when_send_failed=0) as producer:
        yield producer


@pytest.fixture
async def consumer(client: Client) -> Any:
    async with PullConsumer("readers", client=client) as consumer:
        await client._session.routes.refresh("orders")
        yield consumer


# --- Sending


async def test_requests_take_the_queues_in_turn(stage: Stage, producer: Producer) -> None:
    summary = await producer.send_arrow(rows(32_500), topic="orders")
    assert (summary.messages, summary.requests) == (32_500, 9)
    assert sorted(summary.messages_by_queue.values()) == [4000] * 7 + [4500]
    assert len(stage.stored("orders")) == 32_500
    assert len({message.unique_id for message in stage.stored("orders")}) == 32_500


async def test_nothing_to_send_makes_no_request(stage: Stage, producer: Producer) -> None:
    assert await producer.send_arrow(rows(0), topic="nowhere") == WriteSummary()
    assert await producer.send_arrow(rows(0).schema.empty_table(), topic="nowhere") == WriteSummary()
    assert await producer.send_arrow(pa.Table.from_batches([rows(0)] * 2), topic="nowhere") == WriteSummary()
    assert stage.sends() == []


async def test_a_table_is_its_batches(stage: Stage, producer: Producer) -> None:
    table = pa.Table.from_batches([rows(10), rows(20), rows(0)])
    assert (await producer.send_arrow(table, topic="orders")).messages == 30
    wrong = pa.Table.from_batches([rows(10, tags=["a"] * 10), rows(2, tags=["b", "\x02"])])
    with pytest.raises(InvalidMessage, match="row 11, column tags"):
        await producer.send_arrow(wrong, topic="orders")


async def test_small_batches_of_a_table_share_requests_in_their_order(stage: Stage, producer: Producer) -> None:
    counts = (100, 0, 900, 1, *[333] * 30, 9000, 1)
    chunks = [rows(count, tags=pa.array(["t"] * count, pa.string())) for count in counts]
    table = pa.Table.from_batches(chunks)
    summary = await producer.send_arrow(table, topic="orders", queue=A0)
    bodies = [message.body for message in stage.stored("orders")]
    assert bodies == table.column("body").to_pylist()
    assert summary.requests <= len(bodies) // 1000 + 4


def test_large_batches_of_a_table_are_not_joined() -> None:
    large = pa.record_batch({"body": pa.array([b"x" * 5_000_000], pa.binary())})
    assert [batch.num_rows for batch in batches_of(pa.Table.from_batches([large] * 3))] == [1, 1, 1]
    joined = list(batches_of(pa.Table.from_batches([rows(4000)] * 5)))
    assert [batch.num_rows for batch in joined] == [8000, 8000, 4000]
    (alone,) = batches_of(whole := rows(20_000))
    assert alone is whole


async def test_keys_go_to_their_queues_and_others_in_turn(stage: Stage, producer: Producer) -> None:
    keys = pa.array(["a", None, "b", "c"] * 500)
    summary = await producer.send_arrow(rows(2000, shardingKey=keys), topic="orders")
    info = await producer.publish_info("orders")
    for key in ("a", "b", "c"):
        assert summary.messages_by_queue[info.queue_of_key(key)] >= 500
    assert summary.messages == 2000


async def test_a_queue_has_one_lane_however_many_batches_its_keys_are_in(stage: Stage, producer: Producer) -> None:
    """Each batch begins with another key of the queue; the first request of all is held at the broker."""
    info = await producer.publish_info("orders")
    queue = info.queue_of_key("0")
    first, second = [key for key in map(str, range(200)) if info.queue_of_key(key) == queue][:2]
    count = JOINED_ROWS // 2 + 1  # two such batches are not joined
    table = pa.Table.from_batches(
        [rows(count, shardingKey=pa.array([key, *[first] * (count - 1)])) for key in (first, second, first)]
    )
    release = trio.Event()
    stage.brokers[queue.broker_name].on(BATCH, after(release, stage.stores[queue.broker_name]))
    async with trio.open_nursery() as nursery:

        async def send() -> None:
            summary = await producer.send_arrow(table, topic="orders", timeout=20)
            assert summary.messages == 3 * count

        nursery.start_soon(send)
        await stage.brokers[queue.broker_name].wait_seen(BATCH)
        await settled()
        assert len(stage.sends()) == 1
        release.set()
    assert [message.body for message in stage.stored("orders")] == table.column("body").to_pylist()


async def test_a_call_goes_by_one_publish_list(stage: Stage, client: Client, producer: Producer) -> None:
    """The route of a later batch has no effect: a key that moved would be out of order."""
    info = await producer.publish_info("orders")
    keys = [f"key-{number % 50}" for number in range(JOINED_ROWS)]
    table = pa.Table.from_batches([rows(JOINED_ROWS, shardingKey=pa.array(keys))] * 6)  # more than a window holds

    async def change(request: Any, peer: Any) -> Any:
        stage.topic("orders", queues=16)
        await client._session.routes.refresh("orders")
        return stage.stores["broker-a"](request, peer)

    stage.brokers["broker-a"].on(BATCH, change)
    summary = await producer.send_arrow(table, topic="orders", timeout=20)
    assert len((await producer.publish_info("orders")).queues) == 32
    assert summary.messages_by_queue.keys() <= set(info.queues)


async def test_the_topic_given_wins_over_the_column(stage: Stage, producer: Producer) -> None:
    await producer.send_arrow(rows(3, topic=["a", "b", None]), topic="orders")
    assert len(stage.stored("orders")) == 3


@pytest.mark.parametrize(
    ("columns", "topic", "reported"),
    [
        ({"tags": ["a", "b", ""]}, "orders", "row 2, column tags: it is empty"),
        ({"topic": ["orders", None, "orders"]}, None, "row 1, column topic: it is null"),
        ({"topic": ["orders", "orders", "o rders"]}, None, "row 2, column topic: .* characters"),
    ],
)
async def test_a_row_that_cannot_be_sent_is_named_and_none_is(
    stage: Stage, producer: Producer, columns: dict[str, Any], topic: str | None, reported: str
) -> None:
    with pytest.raises(InvalidMessage, match=reported):
        await producer.send_arrow(rows(3, **columns), topic=topic)
    assert stage.sends() == []


@pytest.mark.parametrize(
    ("columns", "topic", "reported"),
    [
        ({"offset": [1, 2, 3]}, "orders", "no column offset to send; there are body, topic, "),
        ({"tags": [1, 2, 3]}, "orders", "column tags is int64; it has to be string"),
        ({}, None, "neither a topic nor a column topic"),
        ({}, "or ders", "topic 'or ders' holds characters"),
    ],
)
async def test_columns_that_make_no_message_are_reported(
    stage: Stage, producer: Producer, columns: dict[str, Any], topic: str | None, reported: str
) -> None:
    with pytest.raises(InvalidArgument, match=reported):
        await producer.send_arrow(rows(3, **columns), topic=topic)
    assert stage.sends() == []


@pytest.mark.parametrize(
    "wrong", [[{"body": b"x"}], None, pa.array([b"x"]), pa.RecordBatchReader.from_batches(rows(0).schema, [])]
)
async def test_what_has_no_columns_is_refused(stage: Stage, producer: Producer, wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"are a {type(wrong).__name__}; a pyarrow.RecordBatch or Table is sent"):
        await producer.send_arrow(wrong, topic="orders")
    assert stage.sends() == []


async def test_a_request_that_fails_alone_is_its_error(stage: Stage, producer: Producer) -> None:
    stage.brokers["broker-a"].always(BATCH, refuse(16, "no"))
    stage.brokers["broker-b"].always(BATCH, refuse(16, "no"))
    with pytest.raises(SendFailed, match="no") as caught:
        await producer.send_arrow(rows(10), topic="orders")
    assert not isinstance(caught.value, BatchFailed)
    assert isinstance(caught.value.__cause__, SendFailed | ResponseError)


async def test_after_a_failure_the_error_says_what_is_stored(stage: Stage, producer: Producer) -> None:
    queue = MessageQueue("orders", "broker-a", 0)
    stage.brokers["broker-a"].on(BATCH, *[stage.stores["broker-a"]] * 2, refuse(13, "too much"))
    with pytest.raises(BatchFailed, match=r"8000 of 9500 rows are stored, then a request failed .* too much") as caught:
        await producer.send_arrow(rows(9500), topic="orders", queue=queue)
    summary, error = caught.value.parts
    assert isinstance(summary, WriteSummary)
    assert summary.messages_by_queue == {queue: 8000}
    assert isinstance(error, SendFailed)
    assert caught.value.outcome is Outcome.PERHAPS_STORED
    assert len(stage.stored("orders")) == 8000


async def test_an_unknown_topic_is_reported(stage: Stage, producer: Producer) -> None:
    with pytest.raises(NoRoute):
        await producer.send_arrow(rows(10), topic="nowhere")


async def test_what_is_under_way_is_bounded(stage: Stage, producer: Producer) -> None:
    full, release = trio.Event(), trio.Event()
    waiting = 0

    async def held(request: Any, peer: Any) -> Any:
        nonlocal waiting
        waiting += 1
        if waiting == 4:
            full.set()
        await release.wait()
        waiting -= 1
        return stage.stores["broker-a"](request, peer)

    for server in stage.brokers.values():
        server.always(BATCH, held)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: producer.send_arrow(rows(20_000), topic="orders"))
        with trio.fail_after(30):  # rows are encoded in a thread, which takes its time on a busy machine
            await full.wait()
        await settled()
        assert waiting == 4
        release.set()
    assert len(stage.stored("orders")) == 20_000


async def test_traces_and_hooks_see_requests_of_rows(stage: Stage, client: Client) -> None:
    stage.topic("RMQ_SYS_TRACE_TOPIC")
    async with Producer("g", client=client, trace=True) as producer:
        assert (await producer.send_arrow(rows(1500), topic="orders")).messages == 1500


# --- Reading


async def test_a_range_comes_as_record_batches(stage: Stage, consumer: PullConsumer) -> None:
    bodies = fill(stage, 30_000, size=400)
    async with consumer.read_arrow(A0, 100, 29_900) as batches:
        read = [batch async for batch in batches]
    assert len(read) > 2
    assert read[0].schema.names == list(DEFAULT_COLUMNS)
    table = pa.Table.from_batches(read)
    assert table.column("queueOffset").to_pylist() == list(range(100, 29_900))
    assert table.column("body").to_pylist() == bodies[100:29_900]


async def test_only_the_columns_asked_for_in_the_types_asked_for(stage: Stage, consumer: PullConsumer) -> None:
    fill(stage, 100)
    columns = pa.schema([pa.field("body", pa.string()), pa.field("queueId", pa.int64(), nullable=False)])
    async with consumer.read_arrow(A0, 0, 100, columns=columns) as batches:
        (batch,) = [batch async for batch in batches]
    assert batch.schema == columns
    with pytest.raises(InvalidArgument, match="no column offset"):
        async with consumer.read_arrow(A0, 0, 100, columns=["offset"]):
            pass


async def test_what_a_filter_drops_makes_no_batch(stage: Stage, consumer: PullConsumer) -> None:
    fill(stage, 3000, tag_every=1000)
    async with consumer.read_arrow(A0, 0, 3000, columns=["queueOffset"], tags="yes") as batches:
        read = [batch async for batch in batches]
    assert [offset for batch in read for offset in batch.column(0).to_pylist()] == [0, 1000, 2000]
    async with consumer.read_arrow(A0, 5, 5) as batches:
        assert [batch async for batch in batches] == []


async def read_whole(consumer: PullConsumer, end: int, **options: Any) -> list[Any]:
    async with consumer.read_arrow(A0, 0, end, **options) as batches:
        return [batch async for batch in batches]


async def test_what_is_no_longer_there_is_reported(stage: Stage, consumer: PullConsumer) -> None:
    fill(stage, 300)
    stage.stores["broker-a"].first_offset["orders", 0] = 350
    with pytest.raises(DataLost):
        await read_whole(consumer, 400)


async def test_a_broken_body_is_reported_or_kept(stage: Stage, consumer: PullConsumer) -> None:
    fill(stage, 300)
    stage.stores["broker-a"].put("orders", 0, b"no zlib", sys_flag=0x301)
    with pytest.raises(RecordError, match=r"orders/broker-a/0, pulled from offset .* zlib"):
        await read_whole(consumer, 301)
    kept = await read_whole(consumer, 301, columns=["body"], keep_undecodable=True)
    assert kept[-1].to_pylist()[-1] == {"body": b"no zlib"}


async def test_leaving_early_ends_all_pulls(stage: Stage, consumer: PullConsumer) -> None:
    fill(stage, 20_000, size=500)
    async with consumer.read_arrow(A0, 0, 20_000, columns=["body"]) as batches:
        async for _ in batches:
            break
    await settled()
    before = len(requested(stage))
    await settled()
    assert len(requested(stage)) == before < 20_000 / 32


# --- Without the extra


WITHOUT = """
import sys
sys.modules["{missing}"] = None
import trio
from pyrmq_core import MissingLibrary, Producer, PullConsumer, MessageQueue, blocking

async def main():
    async with Producer("g", nameserver="127.0.0.1:1") as producer:
        try:
            await producer.send_arrow(None, topic="t")
        except MissingLibrary as error:
            print(error)
    async with PullConsumer("g", nameserver="127.0.0.1:1") as consumer:
        try:
            async with consumer.read_arrow(MessageQueue("t", "b", 0), 0, 1):
                pass
        except MissingLibrary as error:
            print(error)

trio.run(main)
with blocking.PullConsumer("g", nameserver="127.0.0.1:1") as consumer:
    try:
        consumer.read_arrow(MessageQueue("t", "b", 0), 0, 1)
    except MissingLibrary as error:
        print(error)
"""


@pytest.mark.parametrize("missing", ["pyarrow", "numpy"])
def test_a_missing_library_is_named(missing: str) -> None:
    code = WITHOUT.format(missing=missing)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True)
    line = f'record batches need {missing}, which is not installed: pip install "pyrmq-spark[arrow]"'
    assert done.stdout.splitlines() == [line] * 3


def test_nothing_of_arrow_is_loaded_before_it_is_used() -> None:
    code = "import sys; from pyrmq_core.blocking import Producer, PullConsumer; print('pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout.strip() == "False"
