"""The time limits of a send, and the targets of fixed queues and keys meanwhile."""

from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import AnyQueue, Client, KeyedQueue, Message, MessageQueue, Outcome, SendFailed, ThisQueue
from pyrmq_core.client.producer.send.receipt import Receipt
from pyrmq_core.client.producer.send.send_options import CommunicationMode, SendSettings, SendState, Target
from pyrmq_core.client.producer.send.sender import Sender
from pyrmq_core.client.unique_ids import unique_ids
from pyrmq_core.errors import BrokerNotFound, InvalidArgument
from pyrmq_core.network import pool
from pyrmq_core.network.connect import open_wire
from pyrmq_core.network.connection.wire import Wire
from pyrmq_core.protocol.messages.payload import encode_one
from tests.client.sends import A0, FROM_A, brokers_of, payload
from tests.support.scripted import ROUTE, SEND, another_opaque, later, refuse, silence
from tests.support.stage import Stage

# --- Time


async def test_a_request_that_left_has_all_the_time(stage: Stage, sender: Sender, jumping_clock: MockClock) -> None:
    """A broker that stands still stores the request when it goes on: another try would store it twice."""
    store = stage.stores["broker-a"]
    stage.brokers["broker-a"].on(SEND, later(1.3, store), later(2.9, store))
    for seconds in (1.3, 2.9):
        began = trio.current_time()
        receipt = await sender.send(payload(), FROM_A, timeout=3)
        assert receipt.attempts == ()
        assert trio.current_time() - began == pytest.approx(seconds, abs=0.05)
    assert len(stage.stored("orders")) == 2


async def test_a_silent_broker_is_not_sent_the_message_again(
    stage: Stage, sender: Sender, jumping_clock: MockClock
) -> None:
    stage.brokers["broker-a"].always(SEND, silence)
    began = trio.current_time()
    with pytest.raises(SendFailed) as caught:
        await sender.send(payload(), FROM_A, timeout=3)
    assert trio.current_time() - began == pytest.approx(3.0, abs=0.05)
    (attempt,) = caught.value.attempts
    assert attempt.outcome is Outcome.PERHAPS_STORED
    assert "did not answer SEND_MESSAGE_V2 (310) within 3 s" in attempt.reason
    assert len(stage.sends()) == 1


async def test_a_broker_that_cannot_be_reached_costs_a_share(
    stage: Stage, sender: Sender, jumping_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a connection is made the message has not left: another broker takes over after a third of the time."""
    silent = "192.0.2.1:10911"  # a packet to it is lost, as to a machine without power

    async def opened(address: str, **arguments: Any) -> Wire:
        if address == silent:
            await trio.sleep_forever()
        return await open_wire(address, **arguments)

    monkeypatch.setattr(pool, "open_wire", opened)
    route = stage.topic("orders")
    gone = replace(route.broker_datas[0], broker_addrs={0: silent})
    stage.table.routes["orders"] = replace(route, broker_datas=(gone, route.broker_datas[1]))
    began = trio.current_time()
    receipt = await sender.send(payload(), FROM_A, timeout=3)
    assert trio.current_time() - began == pytest.approx(1.0, abs=0.1)
    assert [(attempt.broker_name, attempt.outcome) for attempt in receipt.attempts] == [
        ("broker-a", Outcome.NOT_STORED)
    ]
    assert receipt.queue.broker_name == "broker-b"


async def test_a_cap_per_attempt_is_kept(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    stage.brokers["broker-a"].always(SEND, silence)
    began = trio.current_time()
    await Sender(client._session, SendSettings("g", timeout_per_attempt=0.25)).send(payload(), FROM_A, timeout=30)
    assert trio.current_time() - began == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize("to", [FROM_A, ThisQueue(A0, wait=True), ThisQueue(A0)])
async def test_a_cap_does_not_send_twice_to_one_broker(
    stage: Stage, client: Client, jumping_clock: MockClock, to: Target
) -> None:
    """Without another broker to move to, a try has all the time that is left."""
    stage.topic("orders", brokers=["broker-a"])
    stage.brokers["broker-a"].on(SEND, later(4.0, stage.stores["broker-a"]))
    receipt = await Sender(client._session, SendSettings("g", timeout_per_attempt=0.25)).send(payload(), to, timeout=30)
    assert receipt.attempts == ()
    assert len(stage.stored("orders")) == 1


async def test_a_cap_moves_a_send_to_each_broker_once(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    """The last broker has all the time that is left: those before it have the message perhaps."""
    stage.brokers["broker-a"].always(SEND, silence)
    stage.brokers["broker-b"].on(SEND, later(2.0, stage.stores["broker-b"]))
    receipt = await Sender(client._session, SendSettings("g", timeout_per_attempt=0.25)).send(
        payload(), FROM_A, timeout=30
    )
    assert brokers_of(receipt) == ["broker-a"]
    assert [broker for broker, _ in stage.sends()] == ["broker-a", "broker-b"]


async def test_the_whole_time_is_kept(stage: Stage, sender: Sender, jumping_clock: MockClock) -> None:
    """NameServer, tries and the pauses between them count together."""
    stage.nameserver.on(ROUTE, later(1.5, stage.table))
    for server in stage.brokers.values():
        server.always(SEND, silence)
    began = trio.current_time()
    with pytest.raises(SendFailed) as caught:
        await sender.send(payload(), AnyQueue(), timeout=3)
    assert trio.current_time() - began == pytest.approx(3.0, abs=0.1)
    (attempt,) = caught.value.attempts
    assert attempt.seconds == pytest.approx(1.5, abs=0.1)


async def test_a_silent_nameserver_between_tries_eats_no_more_than_a_second(
    stage: Stage, sender: Sender, jumping_clock: MockClock
) -> None:
    await sender.publish_info("orders", timeout=3)
    stage.nameserver.always(ROUTE, silence)
    stage.brokers["broker-a"].always(SEND, refuse(14))
    began = trio.current_time()
    receipt = await sender.send(payload(), FROM_A, timeout=3)
    assert receipt.queue.broker_name == "broker-b"
    assert trio.current_time() - began <= 1.1


async def test_what_is_left_is_never_below_zero(autojump_clock: MockClock) -> None:
    """Waits of less than nothing are errors of their own."""
    story: SendState = SendState(payload(), AnyQueue(), 1.0, 3, CommunicationMode.SYNC)
    assert story.seconds_left() == 1.0
    await trio.sleep(0.75)
    assert story.seconds_left() == 0.25
    await trio.sleep(5)
    assert story.seconds_left() == 0.0


async def test_no_time_left_is_reported_and_never_a_crash(
    stage: Stage, sender: Sender, jumping_clock: MockClock
) -> None:
    """Every wait ends exactly with the budget here: nothing may be computed below zero."""
    stage.auto_create()
    for server in stage.brokers.values():
        server.always(SEND, silence)
    stage.nameserver.always(ROUTE, later(0.5, stage.table))
    unknown = encode_one(Message("unheard", b"x"), unique_ids(1)[0])
    with pytest.raises(SendFailed) as caught:
        await sender.send(unknown, AnyQueue(), timeout=2)
    assert caught.value.outcome is Outcome.PERHAPS_STORED


async def test_an_answer_to_another_question_is_no_answer(
    stage: Stage, sender: Sender, jumping_clock: MockClock
) -> None:
    stage.brokers["broker-a"].always(SEND, another_opaque(stage.stores["broker-a"]))
    with pytest.raises(SendFailed) as caught:
        await sender.send(payload(), FROM_A, timeout=3)
    assert caught.value.outcome is Outcome.PERHAPS_STORED
    assert len(stage.stored("orders")) == 1


async def test_a_cancelled_send_leaves_nothing_behind(stage: Stage, sender: Sender) -> None:
    stage.brokers["broker-a"].on(SEND, silence)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: sender.send(payload(), FROM_A, timeout=30))
            await stage.brokers["broker-a"].wait_seen(SEND)
            scope.cancel()
    assert scope.cancelled_caught
    receipt = await sender.send(payload(), FROM_A, timeout=3)
    assert receipt.queue.broker_name == "broker-a"


# --- Fixed queues and keys


async def test_a_given_queue_has_one_try_and_the_whole_time(
    stage: Stage, sender: Sender, jumping_clock: MockClock
) -> None:
    stage.brokers["broker-a"].always(SEND, silence)
    began = trio.current_time()
    with pytest.raises(SendFailed) as caught:
        await sender.send(payload(), ThisQueue(A0), timeout=3)
    assert trio.current_time() - began == pytest.approx(3.0, abs=0.05)
    assert brokers_of(caught.value) == ["broker-a"]
    assert [broker for broker, _ in stage.sends()] == ["broker-a"]


async def test_a_given_queue_is_not_left_when_refused(stage: Stage, sender: Sender) -> None:
    stage.brokers["broker-a"].always(SEND, refuse(14))
    with pytest.raises(SendFailed, match=r"Send \[1\] times"):
        await sender.send(payload(), ThisQueue(A0), timeout=3)
    assert len(stage.sends()) == 1


async def test_a_queue_of_another_topic_is_refused(stage: Stage, sender: Sender) -> None:
    with pytest.raises(InvalidArgument, match="audit/broker-a/0 belongs to another topic than the message's, orders"):
        await sender.send(payload(), ThisQueue(MessageQueue("audit", "broker-a", 0)), timeout=3)
    assert stage.sends() == []


async def test_a_queue_of_an_unknown_broker_is_reported(stage: Stage, sender: Sender) -> None:
    with pytest.raises(BrokerNotFound, match=r"broker broker-z.*known: broker-a, broker-b") as caught:
        await sender.send(payload(), ThisQueue(MessageQueue("orders", "broker-z", 0)), timeout=3)
    assert caught.value.outcome is Outcome.NOT_STORED


async def test_a_broker_with_slaves_alone_takes_no_writes(stage: Stage, sender: Sender) -> None:
    route = stage.topic("orders")
    only_slave = replace(route.broker_datas[0], broker_addrs={1: stage.addresses["broker-a"]})
    stage.table.routes["orders"] = replace(route, broker_datas=(only_slave, route.broker_datas[1]))
    with pytest.raises(SendFailed, match="broker broker-a has no master now"):
        await sender.send(payload(), ThisQueue(A0), timeout=3)
    receipt = await sender.send(payload(), AnyQueue(), timeout=3)
    assert receipt.queue.broker_name == "broker-b"


async def test_a_key_keeps_its_queue(stage: Stage, sender: Sender) -> None:
    receipts = [await sender.send(payload(), KeyedQueue("order-1"), timeout=3) for _ in range(5)]
    assert {str(receipt.queue) for receipt in receipts} == {"orders/broker-b/2"}
    assert [receipt.queue_offset for receipt in receipts] == [0, 1, 2, 3, 4]


async def test_a_keys_broker_is_waited_for(stage: Stage, sender: Sender, jumping_clock: MockClock) -> None:
    await sender.publish_info("orders", timeout=3)
    await stage.brokers["broker-b"].stop()
    async with trio.open_nursery() as nursery:
        receipts: list[Receipt] = []

        async def send() -> None:
            receipts.append(await sender.send(payload(), KeyedQueue("order-1"), timeout=10))

        nursery.start_soon(send)
        await trio.sleep(3)
        assert receipts == []
        await stage.brokers["broker-b"].start()
    (receipt,) = receipts
    assert str(receipt.queue) == "orders/broker-b/2"
    assert {attempt.broker_name for attempt in receipt.attempts} == {"broker-b"}
    assert {attempt.outcome for attempt in receipt.attempts} == {Outcome.NOT_STORED}
    assert all(broker == "broker-b" for broker, _ in stage.sends())


async def test_a_keys_broker_that_stays_away_is_reported(
    stage: Stage, sender: Sender, jumping_clock: MockClock
) -> None:
    await sender.publish_info("orders", timeout=3)
    await stage.brokers["broker-b"].stop()
    began = trio.current_time()
    with pytest.raises(SendFailed, match="nothing listens there") as caught:
        await sender.send(payload(), KeyedQueue("order-1"), timeout=3)
    assert 2.5 <= trio.current_time() - began <= 3.2
    assert caught.value.outcome is Outcome.NOT_STORED
    assert set(brokers_of(caught.value)) == {"broker-b"}
    assert stage.sends() == []


async def test_a_key_stays_with_the_list_it_was_given(stage: Stage, sender: Sender) -> None:
    """The queues that the caller saw first decide, whatever the route says by then."""
    seen = tuple(MessageQueue("orders", "broker-a", number) for number in range(2))
    receipt = await sender.send(payload(), KeyedQueue("order-1", seen), timeout=3)
    assert str(receipt.queue) == "orders/broker-a/0"
