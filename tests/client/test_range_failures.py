"""Ranges that cannot be read whole at once: losses, brokers that go and come, and no task left behind."""

from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import (
    Client,
    ConnectFailed,
    DataLost,
    MessageQueue,
    NoNameServer,
    ProtocolError,
    RawPull,
    ReadWindow,
    ResponseError,
    decode,
)
from pyrmq_core.client.consumer.pull.pull_sizes import MAX_UNDER_WAY
from pyrmq_core.client.consumer.pull.puller import Puller
from pyrmq_core.client.consumer.pull.range_reader import PULL_TIMEOUT_SECONDS
from pyrmq_core.errors import ConnectionClosed, HeaderError
from pyrmq_core.network import Peer, ask
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer
from tests.client.reading import A0, fill, read_all, requested
from tests.support.scripted import (
    PULL,
    ROUTE,
    Step,
    another_opaque,
    answer,
    cut,
    raw_server,
    refuse,
    route_of,
    says,
    silence,
)
from tests.support.stage import Stage, settled

# --- Messages that are no longer there


async def test_offsets_that_expired_are_lost(stage: Stage, puller: Puller) -> None:
    fill(stage, 10)
    stage.stores["broker-a"].first_offset["orders", 0] = 100
    with pytest.raises(DataLost, match=r"offsets 50 to 110 of orders/broker-a/0 .* keeps 100 to 110") as caught:
        await read_all(puller, 50, 110)
    error = caught.value
    assert (error.queue, error.start, error.end, error.min_offset, error.max_offset) == (A0, 50, 110, 100, 110)


async def test_a_queue_that_was_made_again_is_lost(stage: Stage, puller: Puller) -> None:
    fill(stage, 10)
    with pytest.raises(DataLost, match="keeps 0 to 10"):
        await read_all(puller, 50, 60)


async def test_what_expires_while_it_is_read_is_lost(stage: Stage, puller: Puller) -> None:
    fill(stage, 500)
    moved = PullAnswer(code=21, next_begin_offset=400, min_offset=400, max_offset=500).to_command()
    seen: list[int] = []
    stage.brokers["broker-a"].on(PULL, *[stage.stores["broker-a"]] * 3, answer(moved))

    async def read() -> None:
        async with puller.read(A0, 0, 500) as pulls:
            async for pull in pulls:
                seen.append(pull.next_offset)  # noqa: PERF401 - what came before the error counts

    with pytest.raises(DataLost) as caught:
        await read()
    assert seen == [32, 64, 96]  # the messages before it were delivered
    assert (caught.value.start, caught.value.min_offset) == (96, 400)


async def test_a_deleted_file_is_no_filtered_message(stage: Stage, puller: Puller) -> None:
    """MESSAGE_WAS_REMOVING comes as 20 with an offset further on: without a filter that is a loss."""
    removed = PullAnswer(code=20, next_begin_offset=50, min_offset=0, max_offset=100).to_command()
    stage.brokers["broker-a"].on(PULL, answer(removed))
    with pytest.raises(DataLost, match="offsets 0 to 50"):
        await read_all(puller, 0, 100)


@pytest.mark.parametrize(
    ("code", "next_offset"), [(0, 0), (0, 5), (0, 10), (20, 5)], ids=["to 0", "back", "nowhere", "20, back"]
)
async def test_an_answer_that_does_not_go_forward_is_reported(
    stage: Stage, puller: Puller, code: int, next_offset: int
) -> None:
    fill(stage, 100)
    wrong = PullAnswer(code=code, next_begin_offset=next_offset, min_offset=0, max_offset=100).to_command()
    stage.brokers["broker-a"].on(PULL, answer(wrong))
    with pytest.raises(ProtocolError, match=rf"pull of orders/broker-a/0 at 10 with next offset {next_offset}"):
        await read_all(puller, 10, 100)
    stage.brokers["broker-a"].on(PULL, stage.stores["broker-a"], answer(wrong))  # one of several pulls under way
    with pytest.raises(ProtocolError, match=rf"pull of orders/broker-a/0 at 42 with next offset {next_offset}"):
        await read_all(puller, 10, 100)


async def test_what_is_not_readable_yet_is_waited_for(stage: Stage, puller: Puller, jumping_clock: MockClock) -> None:
    """An acknowledged message may take a moment until the broker's index has it."""
    fill(stage, 10)
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            assert (await read_all(puller, 0, 20))[0] == list(range(20))

        nursery.start_soon(read)
        await trio.sleep(5)
        fill(stage, 10)


async def test_a_slave_that_lags_behind_is_waited_for(stage: Stage, puller: Puller, jumping_clock: MockClock) -> None:
    lags = PullAnswer(code=20, next_begin_offset=0, min_offset=0, max_offset=0).to_command()
    stage.brokers["broker-a"].on(PULL, answer(lags), answer(lags))
    fill(stage, 10)
    assert (await read_all(puller, 0, 10))[0] == list(range(10))


async def test_what_never_becomes_readable_is_lost(stage: Stage, puller: Puller, jumping_clock: MockClock) -> None:
    fill(stage, 10)
    began = trio.current_time()
    with pytest.raises(DataLost, match=r"offsets 10 to 20 .* keeps 0 to 10"):
        await read_all(puller, 0, 20, window=ReadWindow(patience=7))
    assert trio.current_time() - began == pytest.approx(7, abs=0.5)


# --- Brokers that go and come


@pytest.mark.parametrize("step", [cut, refuse(2, "busy"), refuse(14, "starting"), silence])
async def test_a_pull_that_fails_is_made_again(
    stage: Stage, puller: Puller, jumping_clock: MockClock, step: Step
) -> None:
    fill(stage, 500)
    stage.brokers["broker-a"].on(PULL, step, stage.stores["broker-a"], step, step)
    began = trio.current_time()
    offsets, _ = await read_all(puller, 0, 500)
    assert offsets == list(range(500))
    assert trio.current_time() - began < 3 * PULL_TIMEOUT_SECONDS


async def test_a_pull_that_fails_and_then_gives_less_is_gone_on_with(
    stage: Stage, puller: Puller, jumping_clock: MockClock
) -> None:
    fill(stage, 64)
    store = stage.stores["broker-a"]

    def seven(request: Command, peer: Peer) -> Command | Awaitable[Command | None] | None:
        store.pull_cap = 7
        return store(request, peer)

    stage.brokers["broker-a"].on(PULL, store, refuse(ResponseCode.SYSTEM_BUSY), seven)
    offsets, _ = await read_all(puller, 0, 64)
    assert offsets == list(range(64))


async def test_a_connection_that_ends_while_pulls_are_posted_gives_each_row_once(stage: Stage) -> None:
    """With hooks pulls are posted one by one, so some can find the connection ended by those before."""
    pulls = 0

    class Hook:
        def do_before_request(self, address: str, request: Command) -> None:
            nonlocal pulls
            pulls += request.code == PULL
            if request.code == PULL and pulls in (10, 11, 20):
                client._session.caller.close(address)

        def do_after_response(self, address: str, request: Command, answer: Command) -> None:
            pass

    fill(stage, 1000)
    async with Client(nameserver=stage.nameserver.address, rpc_hooks=[Hook()]) as client:
        offsets, _ = await read_all(Puller(client._session, "g"), 0, 1000)
    assert offsets == list(range(1000))
    assert pulls > 20


async def test_a_pull_that_a_hook_made_too_large_ends_its_read_alone(stage: Stage) -> None:
    """Once when it is posted by an answer, once by the reader: another read over the same connection goes on."""
    numbers = iter(range(1000))

    class Hook:
        def do_before_request(self, address: str, request: Command) -> Command:
            too_large = request.code == PULL and next(numbers) in (5, 150)
            return replace(request, ext={**request.ext, "more": "x" * (1 << 24)}) if too_large else request

        def do_after_response(self, address: str, request: Command, answer: Command) -> None:
            pass

    fill(stage, 10_000)
    async with Client(nameserver=stage.nameserver.address, rpc_hooks=[Hook()]) as client:
        connections = client._session.caller._pool.connections
        with pytest.raises(HeaderError, match="does not fit into a frame"):
            await read_all(Puller(client._session, "g"), 0, 10_000)
        before = list(connections)

        async def read_joined() -> None:
            """Reads lists of many answers; each answer that arrives posts one more pull."""
            async with Puller(client._session, "g").read_joined(A0, 0, 10_000) as lists:
                async for _ in lists:
                    pass

        with pytest.raises(HeaderError, match="does not fit into a frame"):
            await read_joined()
        offsets, _ = await read_all(Puller(client._session, "g"), 0, 10_000)
        assert list(connections) == before
    assert offsets == list(range(10_000))


async def test_a_broker_that_says_go_away_is_read_over_another_connection(stage: Stage, puller: Puller) -> None:
    fill(stage, 2000)
    server, store = stage.brokers["broker-a"], stage.stores["broker-a"]
    peers: list[Peer] = []

    async def step(request: Command, peer: Peer) -> Command | None:
        peers.append(peer)
        return refusal(1500, "go away") if peer is peers[0] and len(peers) > 3 else await ask(store, request, peer)

    server.always(PULL, step)
    window = ReadWindow(messages=64)
    offsets, _ = await read_all(puller, 0, 2000, window=window)
    assert offsets == list(range(2000))
    assert sum(peer is peers[0] for peer in peers) < 10


async def test_an_answer_to_another_question_is_none(stage: Stage, puller: Puller, jumping_clock: MockClock) -> None:
    fill(stage, 100)
    stage.brokers["broker-a"].on(PULL, stage.stores["broker-a"], another_opaque(stage.stores["broker-a"]))
    offsets, _ = await read_all(puller, 0, 100)
    assert offsets == list(range(100))


async def test_a_broker_that_comes_back_is_read_on(stage: Stage, puller: Puller, jumping_clock: MockClock) -> None:
    fill(stage, 500)
    server = stage.brokers["broker-a"]
    async with trio.open_nursery() as nursery:
        result: list[list[int]] = []

        async def read() -> None:
            result.append((await read_all(puller, 0, 500))[0])

        server.on(PULL, *[stage.stores["broker-a"]] * 3, cut)
        nursery.start_soon(read)
        await server.wait_seen(PULL, 4)
        await server.stop()
        await trio.sleep(8)
        await server.start()
    assert result == [list(range(500))]


async def test_a_broker_that_comes_back_elsewhere_is_found(
    stage: Stage, puller: Puller, jumping_clock: MockClock
) -> None:
    """Its new address is looked up during the wait."""
    fill(stage, 100)
    async with puller.read(A0, 0, 100) as pulls:
        offsets = [message.queue_offset for message in decode(await anext(pulls))]
        await stage.brokers["broker-a"].stop()
        stage.stores["broker-b"].queues["orders", 0] = stage.stores["broker-a"].queues["orders", 0]
        stage.table.routes["orders"] = route_of({"broker-a": stage.addresses["broker-b"]})
        async for pull in pulls:
            offsets += [message.queue_offset for message in decode(pull)]
    assert offsets == list(range(100))


async def test_a_broker_that_stays_away_is_reported_after_the_patience(
    stage: Stage, puller: Puller, jumping_clock: MockClock
) -> None:
    fill(stage, 100)
    await stage.brokers["broker-a"].stop()
    began = trio.current_time()
    with pytest.raises(ConnectFailed, match="nothing listens there"):
        await read_all(puller, 0, 100, window=ReadWindow(patience=9))
    assert trio.current_time() - began == pytest.approx(9, abs=0.5)


async def test_without_nameserver_and_route_the_patience_counts_too(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    fill(stage, 10)
    server = stage.nameserver
    await server.stop()
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            assert (await read_all(Puller(client._session, "g"), 0, 10))[0] == list(range(10))

        nursery.start_soon(read)
        await trio.sleep(5)
        await server.start()
    await server.stop()
    unknown = MessageQueue("audit", "broker-z", 0)
    began = trio.current_time()
    with pytest.raises(NoNameServer):
        async with Puller(client._session, "g").read(unknown, 0, 5, window=ReadWindow(patience=4)) as pulls:
            await anext(pulls)
    assert trio.current_time() - began == pytest.approx(4, abs=0.5)


@pytest.mark.parametrize("code", [17, 16, 24, 26, 1])
async def test_a_refusal_ends_a_read(stage: Stage, puller: Puller, code: int) -> None:
    fill(stage, 500)
    stage.brokers["broker-a"].on(PULL, stage.stores["broker-a"], refuse(code, "no"))
    with pytest.raises(ResponseError, match=rf"\({code}\): no") as caught:
        await read_all(puller, 0, 500)
    assert caught.value.code == code
    for part in ("broker-a", stage.addresses["broker-a"], "orders/broker-a/0"):
        assert part in str(caught.value)


async def test_garbage_is_reported_with_its_address(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    async with raw_server(says(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as address:
        stage.table.routes["orders"] = route_of({"broker-a": address})
        with pytest.raises(ConnectionClosed, match=address):
            await read_all(Puller(client._session, "g"), 0, 5, window=ReadWindow(patience=1))


# --- Endings


async def test_leaving_early_ends_all_pulls(stage: Stage, puller: Puller) -> None:
    fill(stage, 3000)
    nurseries = list(trio.lowlevel.current_task().child_nurseries)
    async with puller.read(A0, 0, 3000) as pulls:
        async for _ in pulls:
            break
    assert trio.lowlevel.current_task().child_nurseries == nurseries
    await settled()
    before = len(requested(stage))
    assert before <= 1 + MAX_UNDER_WAY  # the pulls of the window, and no more
    await settled()
    assert len(requested(stage)) == before


async def test_a_cancelled_read_ends_all_pulls(stage: Stage, puller: Puller) -> None:
    fill(stage, 3000)
    stage.brokers["broker-a"].on(PULL, stage.stores["broker-a"])
    stage.brokers["broker-a"].always(PULL, silence)
    with trio.move_on_after(0.2) as scope:
        await read_all(puller, 0, 3000)
    assert scope.cancelled_caught
    stage.brokers["broker-a"].always(PULL, None)
    assert (await read_all(puller, 0, 3000))[0] == list(range(3000))


async def test_many_reads_go_on_together(stage: Stage, puller: Puller) -> None:
    fill(stage, 600)
    results: list[list[int]] = []

    async def read(start: int) -> None:
        results.append((await read_all(puller, start, 600))[0])

    async with trio.open_nursery() as nursery:
        for start in range(0, 100, 10):
            nursery.start_soon(read, start)
    assert sorted(results) == [list(range(start, 600)) for start in range(0, 100, 10)]


async def test_a_failed_read_raises_its_error_alone(stage: Stage, puller: Puller) -> None:
    """The error is not in a group, though many tasks read."""
    fill(stage, 3000)
    stage.brokers["broker-a"].on(PULL, *[stage.stores["broker-a"]] * 3)
    stage.brokers["broker-a"].always(PULL, refuse(17, "gone"))

    async def collect() -> AsyncIterator[RawPull]:
        async with puller.read(A0, 0, 3000) as pulls:
            async for pull in pulls:
                yield pull

    with pytest.raises(ResponseError, match="gone"):
        async for _ in collect():
            pass
    assert len(stage.nameserver.of(ROUTE)) == 1
