"""The cheap path of single sends: no task for a first try, queues keep their turn, answers are read on request."""

import contextlib
import gc
from itertools import pairwise

import pytest
import trio

from pyrmq_core import AnyQueue, Client, Message, Outcome, PendingSend, Producer, SendFailed, SendResult
from pyrmq_core.client.producer.bulk.split_batches import ChainedResults
from pyrmq_core.client.producer.send.send_options import SendState
from pyrmq_core.client.producer.send.sender import Sender
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import success
from tests.client.sends import payload
from tests.support.scripted import SEND, after, answer, refuse, silence
from tests.support.stage import Stage, settled


async def test_what_is_under_way_has_no_task_of_its_own(stage: Stage, client: Client) -> None:
    release = trio.Event()
    for name, server in stage.brokers.items():
        server.always(SEND, after(release, stage.stores[name]))
    async with Producer("g", client=client) as producer:
        warm = [
            await producer.send_soon(Message("orders", b"x")) for _ in range(8)
        ]  # by tasks: they make the connections
        with trio.fail_after(60):
            while len(stage.sends()) < len(warm):
                await settled()
        assert producer._parts is not None
        nursery = producer._parts.in_flight._sends._nursery
        before = len(nursery.child_tasks)
        assert before >= 8  # a task made each connection, and waits for its answer
        pending = [await producer.send_soon(Message("orders", b"%d" % number)) for number in range(300)]
        assert len(nursery.child_tasks) == before
        release.set()
        assert len({(await send.wait()).msg_id for send in [*warm, *pending]}) == 308


async def test_a_queue_that_was_chosen_keeps_its_turn(stage: Stage, sender: Sender) -> None:
    """Its connection is not open yet, so a task takes over: the next queue is not passed over."""
    for _ in range(8):
        await sender.send(payload(), AnyQueue(), timeout=3)
    used = sorted((broker, request.queue_id) for broker, request in stage.sends())
    assert used == [(broker, queue) for broker in ("broker-a", "broker-b") for queue in range(4)]


async def test_a_broker_that_says_go_away_is_asked_again(stage: Stage, client: Client) -> None:
    """The repeat does not count as a try, as in every call."""
    async with Producer("g", client=client) as producer:
        await producer.send(Message("orders", b"x"))
        await producer.send(Message("orders", b"x"), queue=(await producer.message_queues("orders"))[0])
        stage.brokers["broker-a"].on(SEND, refuse(ResponseCode.GO_AWAY))
        pending = await producer.send_soon(Message("orders", b"y"), queue=(await producer.message_queues("orders"))[0])
        assert (await pending.wait()).message_queue.broker_name == "broker-a"


async def test_an_unreadable_acknowledgement_is_raised_by_wait(stage: Stage, client: Client) -> None:
    for server in stage.brokers.values():
        server.always(SEND, answer(success({"msgId": "x"})))
    async with Producer("g", client=client) as producer:
        pending = await producer.send_soon(Message("orders", b"x"))
        with pytest.raises(SendFailed, match="but not where it is stored"):
            await pending.wait()
        assert isinstance(pending.error, SendFailed)
        assert pending.error.outcome is Outcome.PERHAPS_STORED


async def test_results_of_a_list_are_made_when_asked_for(stage: Stage, client: Client) -> None:
    async with Producer("g", client=client) as producer:
        results = await producer.send_batch([Message("orders", b"x" * 10_000)] * 250)
    assert isinstance(results, ChainedResults)
    listed = list(results)
    assert len(listed) == len(results) == 250
    assert [results[index] for index in range(250)] == listed
    assert [results[index] for index in range(-250, 0)] == listed
    assert results[100:220:7] == listed[100:220:7]
    assert all(after.queue_offset == before.queue_offset + 1 for before, after in pairwise(listed))
    assert len({result.msg_id for result in listed}) == 250
    assert type(results[3]) is SendResult
    with pytest.raises(IndexError):
        results[250]


async def test_giving_up_a_send_withdraws_it(stage: Stage, client: Client) -> None:
    async with Producer("g", client=client, retry_times_when_send_failed=0) as producer:
        for queue in await producer.message_queues("orders"):
            await producer.send(Message("orders", b"x"), queue=queue)  # the connections are open from here on
        for server in stage.brokers.values():
            server.always(SEND, silence)
        with trio.move_on_after(0.05) as scope:
            await producer.send(Message("orders", b"x"), timeout=600)
        assert scope.cancelled_caught
        assert not any(connection.calls_under_way for connection in client._session.caller._pool.connections)


async def test_an_ended_send_leaves_nothing_to_the_garbage_collector(stage: Stage, client: Client) -> None:
    gc.collect()
    gc.disable()
    try:
        async with Producer("g", client=client) as producer:
            for _ in range(20):
                await producer.send(Message("orders", b"x"))
            assert not [left for left in gc.get_objects() if isinstance(left, SendState)]
    finally:
        gc.enable()


async def test_a_result_that_is_kept_keeps_no_payload(stage: Stage, client: Client) -> None:
    async with Producer("g", client=client) as producer:
        kept = [await producer.send_soon(Message("orders", b"x")) for _ in range(20)]
        for pending in kept:
            await pending.wait()
        gc.collect()
        assert not [left for left in gc.get_objects() if isinstance(left, SendState)]
        assert all(pending.is_done for pending in kept)


async def test_an_error_ends_what_was_posted(stage: Stage, client: Client) -> None:
    """A send without a task ends, too, and its `PendingSend` has the error."""
    pending: list[PendingSend] = []
    with contextlib.suppress(KeyError):
        async with Producer("g", client=client) as producer:
            for queue in await producer.message_queues("orders"):
                await producer.send(Message("orders", b"x"), queue=queue)
            for server in stage.brokers.values():
                server.always(SEND, silence)
            pending.append(await producer.send_soon(Message("orders", b"x"), timeout=600))
            raise KeyError("my own")
    with trio.fail_after(60):
        with pytest.raises(SendFailed, match="closed while a message for orders was under way"):
            await pending[0].wait()
    assert not any(connection.calls_under_way for connection in client._session.caller._pool.connections)
