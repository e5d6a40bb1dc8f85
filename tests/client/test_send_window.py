"""`SendWindow`: bounds of requests and bytes, order where it is wanted, a stop at the first failure, drain's report."""

from collections.abc import AsyncIterator

import pytest
import trio

from pyrmq_core import (
    AnyQueue,
    Client,
    InvalidArgument,
    KeyedQueue,
    Message,
    MessageQueue,
    Payload,
    Producer,
    SendFailed,
    SendStatus,
    SendWindow,
    ThisQueue,
    encode_batch,
    encode_one,
    unique_ids,
)
from pyrmq_core.client.producer.bulk.send_window import HANDED_OVER
from pyrmq_core.client.producer.send.send_options import Target
from tests.support.scripted import BATCH, SEND, after, cut, refuse, silence
from tests.support.stage import Stage, settled

A0 = MessageQueue("orders", "broker-a", 0)


@pytest.fixture
async def producer(client: Client) -> AsyncIterator[Producer]:
    async with Producer("g", client=client) as producer:
        yield producer


def payload(number: int = 0, size: int = 0) -> Payload:
    return encode_one(Message("orders", b"%d|" % number + b"x" * size), unique_ids(1)[0], compression=None)


def numbers(stage: Stage, broker: str, queue_id: int) -> list[int]:
    return [int(stored.body.partition(b"|")[0]) for stored in stage.stores[broker].queues["orders", queue_id]]


async def test_everything_put_is_stored_when_drained(stage: Stage, producer: Producer) -> None:
    async with producer.open_window(max_requests=4) as window:
        for number in range(50):
            await window.put(payload(number), AnyQueue())
        summary = await window.drain()
        again = await window.drain()
    assert (summary.messages, summary.requests, summary.retries, summary.perhaps_repeated) == (50, 50, 0, 0)
    assert summary.messages_by_status == {SendStatus.SEND_OK: 50}
    assert sum(summary.messages_by_queue.values()) == 50
    assert len(summary.messages_by_queue) == 8
    assert summary.bytes == sum(len(stored.body) for stored in stage.stored("orders"))
    assert again.messages == 50
    assert len(stage.stored("orders")) == 50


async def test_batches_count_their_messages(stage: Stage, producer: Producer) -> None:
    batch = encode_batch([Message("orders", b"x")] * 100, unique_ids(100))
    async with producer.open_window() as window:
        await window.put(batch, AnyQueue())
        await window.put(payload(), AnyQueue())
        summary = await window.drain()
    assert (summary.messages, summary.requests) == (101, 2)
    assert len(stage.brokers["broker-a"].of(BATCH) + stage.brokers["broker-b"].of(BATCH)) == 1


async def test_requests_under_way_are_bounded(stage: Stage, producer: Producer) -> None:
    release = trio.Event()
    for name, server in stage.brokers.items():
        server.always(SEND, after(release, stage.stores[name]))
    async with producer.open_window(max_requests=3) as window, trio.open_nursery() as nursery:
        put = 0

        async def put_all() -> None:
            nonlocal put
            for number in range(40):
                await window.put(payload(number), AnyQueue())
                put += 1

        nursery.start_soon(put_all)
        await settled()
        assert (put, len(stage.sends())) == (3 * HANDED_OVER, 3)
        release.set()
        await settled()
        assert (await window.drain()).messages == put == 40


async def test_bytes_under_way_are_bounded(stage: Stage, producer: Producer) -> None:
    release = trio.Event()
    for name, server in stage.brokers.items():
        server.always(SEND, after(release, stage.stores[name]))
    async with producer.open_window(max_requests=100, max_bytes=1000) as window, trio.open_nursery() as nursery:
        for number in range(2):
            await window.put(payload(number, size=450), AnyQueue())
        nursery.start_soon(window.put, payload(2, size=450), AnyQueue())
        await settled()
        assert len(stage.sends()) == 2
        release.set()
        await settled()
        assert (await window.drain()).messages == 3


async def test_what_does_not_fit_beside_half_a_window_waits(stage: Stage, producer: Producer) -> None:
    release = trio.Event()
    for name, server in stage.brokers.items():
        server.always(SEND, after(release, stage.stores[name]))
    async with producer.open_window(max_requests=100, max_bytes=1000) as window, trio.open_nursery() as nursery:
        await window.put(payload(0, size=450), AnyQueue())
        nursery.start_soon(window.put, payload(1, size=600), AnyQueue())
        await settled()
        assert len(stage.sends()) == 1
        release.set()
        await settled()
        assert (await window.drain()).messages == 2


async def test_a_payload_above_the_bound_goes_alone(stage: Stage, producer: Producer) -> None:
    async with producer.open_window(max_requests=10, max_bytes=100) as window:
        for number in range(3):
            await window.put(payload(number, size=5000), AnyQueue())
        assert (await window.drain()).messages == 3


@pytest.mark.parametrize(("max_requests", "max_bytes"), [(0, 1000), (4, 0)])
async def test_a_window_without_room_is_refused(producer: Producer, max_requests: int, max_bytes: int) -> None:
    with pytest.raises(InvalidArgument, match="a window needs room"):
        async with producer.open_window(max_requests=max_requests, max_bytes=max_bytes):
            pytest.fail("it opened")


@pytest.mark.parametrize("to", [ThisQueue(A0), KeyedQueue("order-1")])
async def test_one_ordered_queue_has_one_request_under_way(stage: Stage, producer: Producer, to: Target) -> None:
    release = trio.Event()
    for name, server in stage.brokers.items():
        server.on(SEND, after(release, stage.stores[name]))
    async with producer.open_window(max_requests=50) as window:
        for number in range(20):
            await window.put(payload(number), to)
        await settled()
        assert len(stage.sends()) == 1
        release.set()
        await window.drain()
    broker, queue_id = ("broker-a", 0) if isinstance(to, ThisQueue) else ("broker-b", 2)
    assert numbers(stage, broker, queue_id) == list(range(20))


async def test_ordered_queues_do_not_wait_for_each_other(stage: Stage, producer: Producer) -> None:
    release = trio.Event()
    stage.brokers["broker-a"].always(SEND, after(release, stage.stores["broker-a"]))
    other = ThisQueue(MessageQueue("orders", "broker-b", 1))
    async with producer.open_window(max_requests=50) as window:
        for number in range(10):
            await window.put(payload(number), ThisQueue(A0))
            await window.put(payload(number), other)
        await settled()
        assert numbers(stage, "broker-b", 1) == list(range(10))
        release.set()
        await window.drain()
    assert numbers(stage, "broker-a", 0) == list(range(10))


async def test_what_is_kept_together_stays_in_one_queue(stage: Stage, producer: Producer) -> None:
    async with producer.open_window(max_requests=50) as window:
        for number in range(20):
            await window.put(payload(number), AnyQueue(A0, keep=True))
        summary = await window.drain()
        assert summary.messages_by_queue == {A0: 20}
        for number in range(20, 40):  # the lane was empty in between, and goes on where it was
            await window.put(payload(number), AnyQueue(A0, keep=True))
        await window.drain()
    assert numbers(stage, "broker-a", 0) == list(range(40))


async def test_what_is_kept_together_moves_with_its_broker(stage: Stage, producer: Producer) -> None:
    """Another broker takes over for a failed one, and later payloads stay there: in order, after the earlier ones."""
    async with producer.open_window(max_requests=50) as window:
        for number in range(5):
            await window.put(payload(number), AnyQueue(A0, keep=True))
        await window.drain()
        stage.brokers["broker-a"].always(SEND, refuse(14))
        for number in range(5, 15):
            await window.put(payload(number), AnyQueue(A0, keep=True))
        summary = await window.drain()
    (new,) = [queue for queue in summary.messages_by_queue if queue != A0]
    assert new.broker_name == "broker-b"
    assert numbers(stage, "broker-a", 0) == list(range(5))
    assert numbers(stage, "broker-b", new.queue_id) == list(range(5, 15))
    assert summary.retries == 1


async def test_retries_and_possible_repeats_are_counted(stage: Stage, producer: Producer) -> None:
    stage.brokers["broker-a"].on(SEND, cut, refuse(2))
    batch = encode_batch([Message("orders", b"x")] * 7, unique_ids(7))
    stage.brokers["broker-a"].on(BATCH, cut)
    async with producer.open_window() as window:
        await window.put(payload(), AnyQueue(A0))
        await window.drain()
        await window.put(payload(), AnyQueue(A0))
        await window.drain()
        await window.put(batch, AnyQueue(A0))
        summary = await window.drain()
    assert (summary.messages, summary.retries, summary.perhaps_repeated) == (9, 3, 8)


async def test_the_first_failure_stops_the_window(stage: Stage, producer: Producer) -> None:
    stage.brokers["broker-a"].always(SEND, refuse(13, "no"))
    async with producer.open_window(max_requests=50) as window:
        await window.put(payload(), ThisQueue(A0))
        await settled()
        with pytest.raises(SendFailed, match="MESSAGE_ILLEGAL"):
            await window.put(payload(), AnyQueue())
        with pytest.raises(SendFailed, match="MESSAGE_ILLEGAL"):
            await window.drain()
        assert window.summary.messages == 0


async def test_after_a_failure_the_rest_of_its_lane_is_not_sent(stage: Stage, producer: Producer) -> None:
    release = trio.Event()
    stage.brokers["broker-a"].on(SEND, stage.stores["broker-a"], after(release, refuse(13)))
    async with producer.open_window(max_requests=50) as window:
        for number in range(10):
            await window.put(payload(number), ThisQueue(A0))
        release.set()
        with pytest.raises(SendFailed):
            await window.drain()
        assert window.summary.messages == 1
    assert numbers(stage, "broker-a", 0) == [0]
    assert len(stage.sends()) == 2


async def test_drain_lets_the_others_end_before_it_raises(stage: Stage, producer: Producer) -> None:
    release = trio.Event()
    stage.brokers["broker-a"].always(SEND, refuse(13))
    stage.brokers["broker-b"].always(SEND, after(release, stage.stores["broker-b"]))
    async with producer.open_window(max_requests=50) as window, trio.open_nursery() as nursery:
        await window.put(payload(1), ThisQueue(MessageQueue("orders", "broker-b", 0)))
        await window.put(payload(2), ThisQueue(A0))
        failed = trio.Event()

        async def drain() -> None:
            with pytest.raises(SendFailed):
                await window.drain()
            failed.set()

        nursery.start_soon(drain)
        await settled()
        assert not failed.is_set()
        release.set()
        await failed.wait()
        assert window.summary.messages == 1  # stored messages are counted, also after a failure


async def test_a_waiting_put_raises_a_failure(stage: Stage, producer: Producer) -> None:
    release = trio.Event()
    stage.brokers["broker-a"].always(SEND, after(release, refuse(13)))
    async with producer.open_window(max_requests=1) as window, trio.open_nursery() as nursery:
        for _ in range(HANDED_OVER):
            await window.put(payload(), ThisQueue(A0))

        async def put() -> None:
            with pytest.raises(SendFailed):
                await window.put(payload(), AnyQueue())

        nursery.start_soon(put)
        await settled()
        release.set()


async def test_after_a_failure_what_was_handed_over_is_not_sent(stage: Stage, producer: Producer) -> None:
    release = trio.Event()
    stage.brokers["broker-a"].always(SEND, after(release, refuse(13)))
    async with producer.open_window(max_requests=1) as window:
        await window.put(payload(), ThisQueue(A0))
        for number in range(1, HANDED_OVER):
            await window.put(payload(number), AnyQueue())
        release.set()
        with pytest.raises(SendFailed):
            await window.drain()
    assert len(stage.sends()) == 1


@pytest.mark.parametrize(("count", "max_bytes"), [(HANDED_OVER, 1 << 20), (4, 400)])
async def test_a_caller_that_waits_for_room_is_woken_when_half_is_empty(
    stage: Stage, producer: Producer, count: int, max_bytes: int
) -> None:
    gates = [trio.Event() for _ in range(count)]
    stage.brokers["broker-a"].on(SEND, *[after(gate, stage.stores["broker-a"]) for gate in gates])
    window_of_one = producer.open_window(max_requests=1, max_bytes=max_bytes)
    async with window_of_one as window, trio.open_nursery() as nursery:
        for number in range(count):
            await window.put(payload(number, size=98), ThisQueue(A0))
        entered = trio.Event()

        async def put() -> None:
            await window.put(payload(count, size=98), ThisQueue(A0))
            entered.set()

        nursery.start_soon(put)
        for number, gate in enumerate(gates):
            await settled()
            assert entered.is_set() == (number >= count // 2)
            gate.set()
        assert (await window.drain()).messages == count + 1


async def test_what_is_abandoned_is_not_waited_for(stage: Stage, producer: Producer, client: Client) -> None:
    for server in stage.brokers.values():
        server.always(SEND, silence)
    async with producer.open_window() as window:
        for to in (AnyQueue(), ThisQueue(A0), KeyedQueue("order-1")):
            await window.put(payload(), to)
        await settled()
        for to in (AnyQueue(), ThisQueue(A0), KeyedQueue("order-2")):  # the connections are open: these are posted
            await window.put(payload(), to)
        await settled()
    assert not any(connection.calls_under_way for connection in client._session.caller._pool.connections)


async def test_leaving_without_drain_abandons(stage: Stage, producer: Producer) -> None:
    release = trio.Event()
    stage.brokers["broker-a"].always(SEND, after(release, stage.stores["broker-a"]))
    async with producer.open_window() as window:
        await window.put(payload(), ThisQueue(A0))
        await settled()
    assert window.summary.messages == 0
    release.set()
    assert (await producer.send(Message("orders", b"0|"), queue=A0)).message_queue == A0


@pytest.mark.parametrize("drains", [False, True])
async def test_a_failure_that_nothing_raised_is_a_warning(
    stage: Stage, producer: Producer, caplog: pytest.LogCaptureFixture, drains: bool
) -> None:
    for server in stage.brokers.values():
        server.always(SEND, refuse(13, "not that one"))
    async with producer.open_window() as window:
        await window.put(payload(), AnyQueue())
        if drains:
            with pytest.raises(SendFailed, match="not that one"):
                await window.drain()
        else:
            await wait_failed(window)
    left = "a window was left with a failure that neither put nor drain raised"
    lines = [line for line in caplog.messages if line.startswith(left)]
    if drains:
        assert lines == []
    else:
        (line,) = lines
        assert line.startswith(f"{left}: Send [1] times")


async def wait_failed(window: SendWindow) -> None:
    """Waits until the window is empty, without a look at what became of its payloads."""
    await window.wait_for_room(payload(size=1))
    while window._under_way:
        await window._until(lambda: not window._under_way)
