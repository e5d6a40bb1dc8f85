"""One send: the request as Java makes it, brokers that fail and others that take over, useless answers, one way."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import trio

from pyrmq_core import AnyQueue, Client, MessageQueue, Outcome, SendFailed, ThisQueue
from pyrmq_core.client.producer.send.send_options import SendSettings
from pyrmq_core.client.producer.send.sender import Sender
from pyrmq_core.errors import NoRoute
from pyrmq_core.model import SendStatus
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import success
from pyrmq_core.protocol.messages.properties import UNIQ_KEY, decode_properties
from pyrmq_core.protocol.requests.broker.send_message import MessageStored
from tests.client.sends import A0, FROM_A, GARBAGE, brokers_of, payload
from tests.support.scripted import SEND, Step, answer, cut, raw_server, refuse, route_of, says, silence
from tests.support.stage import Stage

# --- A send that works


async def test_the_request_says_what_java_says(stage: Stage, sender: Sender) -> None:
    sent = payload()
    receipt = await sender.send(sent, FROM_A, timeout=3)
    ((broker, request),) = stage.sends()
    assert (broker, request.topic, request.queue_id, bytes(request.body)) == ("broker-a", "orders", 0, b"hello")
    assert (request.producer_group, request.default_topic, request.default_topic_queue_nums) == ("senders", "TBW102", 4)
    assert (request.reconsume_times, request.unit_mode, request.batch, request.broker_name) == (
        0,
        False,
        False,
        "broker-a",
    )
    assert decode_properties(request.properties or "") == {UNIQ_KEY: receipt.results()[0].msg_id, "WAIT": "true"}
    assert receipt.queue == A0
    assert receipt.status is SendStatus.SEND_OK
    assert (receipt.attempts, receipt.perhaps_repeated, receipt.queue_offset) == ((), False, 0)


async def test_many_sends_take_turns_over_all_queues(stage: Stage, sender: Sender) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(16):
            nursery.start_soon(lambda: sender.send(payload(), AnyQueue(), timeout=3))
    used = sorted((broker, request.queue_id) for broker, request in stage.sends())
    assert used == sorted([(broker, queue) for broker in stage.brokers for queue in range(4)] * 2)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
async def test_stored_but_not_as_wished_is_a_result(
    stage: Stage, sender: Sender, code: int, status: SendStatus
) -> None:
    stored = MessageStored(msg_ids="7F00000100002A9F0000000000000000", queue_id=0, queue_offset=5).to_command()
    stage.brokers["broker-a"].always(SEND, answer(replace(stored, code=code)))
    receipt = await sender.send(payload(), FROM_A, timeout=3)
    assert receipt.status is status
    assert receipt.results()[0].queue_offset == 5
    assert len(stage.sends()) == 1


async def test_not_as_wished_goes_to_another_broker_when_asked_to(stage: Stage, client: Client) -> None:
    stored = MessageStored(msg_ids="7F00000100002A9F0000000000000000", queue_id=0, queue_offset=5).to_command()
    stage.brokers["broker-a"].always(SEND, answer(replace(stored, code=10)))
    settings = SendSettings("senders", retry_another_broker_when_not_store_ok=True)
    receipt = await Sender(client._session, settings).send(payload(), FROM_A, timeout=3)
    assert (receipt.queue.broker_name, receipt.status) == ("broker-b", SendStatus.SEND_OK)
    assert [attempt.outcome for attempt in receipt.attempts] == [Outcome.STORED]
    assert receipt.perhaps_repeated
    # When no broker does better, the stored message is the result, not an error.
    stage.brokers["broker-b"].always(SEND, refuse(14))
    receipt = await Sender(client._session, settings).send(payload(), FROM_A, timeout=3)
    assert (receipt.queue.broker_name, receipt.status) == ("broker-a", SendStatus.FLUSH_DISK_TIMEOUT)
    # A queue named by the caller is never left.
    receipt = await Sender(client._session, settings).send(payload(), ThisQueue(A0), timeout=3)
    assert (receipt.queue, receipt.status) == (A0, SendStatus.FLUSH_DISK_TIMEOUT)


# --- A broker that fails, another that takes over

FAILURES: dict[str, tuple[Step, Outcome, str]] = {
    "refuses for now": (refuse(14, "disk full"), Outcome.NOT_STORED, r"SERVICE_NOT_AVAILABLE \(14\): disk full"),
    "sheds load": (refuse(2, "busy"), Outcome.NOT_STORED, r"SYSTEM_BUSY \(2\): busy"),
    "fails inside": (refuse(1, "java.lang.Oops"), Outcome.PERHAPS_STORED, r"SYSTEM_ERROR \(1\): java.lang.Oops"),
    "cuts": (cut, Outcome.PERHAPS_STORED, r"SEND_MESSAGE_V2 \(310\) had left"),
}


@pytest.mark.parametrize("how", FAILURES)
async def test_another_broker_takes_over(stage: Stage, sender: Sender, how: str) -> None:
    step, outcome, reason = FAILURES[how]
    stage.brokers["broker-a"].always(SEND, step)
    receipt = await sender.send(payload(), FROM_A, timeout=3)
    assert receipt.queue.broker_name == "broker-b"
    (attempt,) = receipt.attempts
    assert (attempt.broker_name, attempt.address) == ("broker-a", stage.brokers["broker-a"].address)
    assert attempt.outcome is outcome
    assert re.search(reason, attempt.reason)
    assert receipt.perhaps_repeated is (outcome is Outcome.PERHAPS_STORED)
    # Both tries carry the same UNIQ_KEY, so that a reader can tell a copy.
    first, second = (decode_properties(sent.properties or "")[UNIQ_KEY] for _, sent in stage.sends())
    assert first == second == receipt.results()[0].msg_id


async def test_a_broker_that_is_down_costs_nothing_and_stores_nothing(stage: Stage, sender: Sender) -> None:
    await sender.publish_info("orders", timeout=3)
    await stage.brokers["broker-a"].stop()
    receipt = await sender.send(payload(), FROM_A, timeout=3)
    assert receipt.queue.broker_name == "broker-b"
    assert [attempt.outcome for attempt in receipt.attempts] == [Outcome.NOT_STORED]
    assert not receipt.perhaps_repeated


async def test_a_broker_that_answers_garbage_is_left(stage: Stage, sender: Sender) -> None:
    async with raw_server(says(GARBAGE)) as address:
        stage.table.routes["orders"] = route_of({"broker-a": address, "broker-b": stage.addresses["broker-b"]})
        receipt = await sender.send(payload(), FROM_A, timeout=3)
    assert receipt.queue.broker_name == "broker-b"
    (attempt,) = receipt.attempts
    assert attempt.outcome is Outcome.PERHAPS_STORED
    assert address in attempt.reason
    assert "not RocketMQ's" in attempt.reason


async def test_a_broker_that_dies_in_the_middle_of_an_answer(stage: Stage, sender: Sender) -> None:
    half = bytes.fromhex("000000a0000000807b22636f6465223a302c")
    async with raw_server(says(half)) as address:
        stage.table.routes["orders"] = route_of({"broker-a": address, "broker-b": stage.addresses["broker-b"]})
        receipt = await sender.send(payload(), FROM_A, timeout=3)
    assert [attempt.outcome for attempt in receipt.attempts] == [Outcome.PERHAPS_STORED]


async def test_all_tries_are_reported_in_order(stage: Stage, sender: Sender) -> None:
    for server in stage.brokers.values():
        server.always(SEND, refuse(14, "disk full"))
    with pytest.raises(SendFailed, match=r"Send \[3\] times, still failed, cost \[\d+\]ms, Topic: orders") as caught:
        await sender.send(payload(), FROM_A, timeout=3)
    assert brokers_of(caught.value) == ["broker-a", "broker-b", "broker-a"]
    assert [broker for broker, _ in stage.sends()] == ["broker-a", "broker-b", "broker-a"]
    assert caught.value.outcome is Outcome.NOT_STORED
    text = str(caught.value)
    assert "\n" not in text
    for part in ("safe to send again", *stage.addresses.values(), "disk full", "look at its disk"):
        assert part in text


async def test_one_cut_among_refusals_leaves_it_open(stage: Stage, sender: Sender) -> None:
    stage.brokers["broker-a"].always(SEND, cut)
    stage.brokers["broker-b"].always(SEND, refuse(2))
    with pytest.raises(SendFailed) as caught:
        await sender.send(payload(), FROM_A, timeout=3)
    assert caught.value.outcome is Outcome.PERHAPS_STORED
    assert [attempt.outcome for attempt in caught.value.attempts] == [
        Outcome.PERHAPS_STORED,
        Outcome.NOT_STORED,
        Outcome.PERHAPS_STORED,
    ]
    assert "sending again may store a second copy" in str(caught.value)


@pytest.mark.parametrize("code", [13, 15, 3, 29, 26])
async def test_what_no_broker_would_take_is_tried_once(stage: Stage, sender: Sender, code: int) -> None:
    stage.brokers["broker-a"].always(SEND, refuse(code, "no"))
    with pytest.raises(SendFailed, match=rf"\({code}\): no") as caught:
        await sender.send(payload(), FROM_A, timeout=3)
    assert brokers_of(caught.value) == ["broker-a"]
    assert caught.value.outcome is Outcome.NOT_STORED
    assert len(stage.sends()) == 1


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205, 1500])
async def test_javas_retry_codes_go_to_another_broker(stage: Stage, sender: Sender, code: int) -> None:
    stage.brokers["broker-a"].always(SEND, refuse(code))
    receipt = await sender.send(payload(), FROM_A, timeout=3)
    assert receipt.queue.broker_name == "broker-b"


async def test_how_often_is_the_users_choice(stage: Stage, client: Client) -> None:
    for server in stage.brokers.values():
        server.always(SEND, refuse(14))
    for retries in (0, 1, 4):
        with pytest.raises(SendFailed) as caught:
            await Sender(client._session, SendSettings("g", retry_times_when_send_failed=retries)).send(
                payload(), AnyQueue(), timeout=3
            )
        assert len(caught.value.attempts) == retries + 1


# --- One way


async def test_one_way_waits_for_no_answer(stage: Stage, sender: Sender) -> None:
    for server in stage.brokers.values():
        server.always(SEND, silence)
    await sender.send_oneway(payload(), FROM_A, timeout=3)
    await stage.brokers["broker-a"].wait_seen(SEND)
    (request,) = stage.brokers["broker-a"].of(SEND)
    assert request.is_oneway
    assert bytes(request.body) == b"hello"


async def test_one_way_to_a_dead_broker_reports_what_it_knows(stage: Stage, sender: Sender) -> None:
    await sender.publish_info("orders", timeout=3)
    await stage.brokers["broker-a"].stop()
    with pytest.raises(SendFailed, match="nothing listens there") as caught:
        await sender.send_oneway(payload(), FROM_A, timeout=3)
    assert caught.value.outcome is Outcome.NOT_STORED
    assert brokers_of(caught.value) == ["broker-a"]


# --- Answers that are success and yet useless


@pytest.mark.parametrize("ext", [{}, {"msgId": "x"}, {"msgId": "x", "queueId": "0", "queueOffset": "soon"}])
async def test_success_without_its_fields_is_no_lost_message(stage: Stage, sender: Sender, ext: dict[str, str]) -> None:
    stage.brokers["broker-a"].always(SEND, answer(success(ext)))
    receipt = await sender.send(payload(), FROM_A, timeout=3)
    looks: list[Callable[[], object]] = [receipt.results, lambda: receipt.queue_offset]
    for look in looks:
        with pytest.raises(SendFailed, match=r"broker-a acknowledged a send to orders/broker-a/0, but") as caught:
            look()
        assert caught.value.outcome is Outcome.PERHAPS_STORED


async def test_a_topic_that_is_read_only_has_nowhere_to_go(stage: Stage, sender: Sender) -> None:
    stage.topic("orders", perm=4)
    with pytest.raises(NoRoute, match="topic orders has no queue to write to"):
        await sender.send(payload(), AnyQueue(), timeout=3)


async def test_a_broker_that_chooses_the_queue_is_believed(stage: Stage, sender: Sender) -> None:
    chosen = MessageStored(msg_ids="x", queue_id=3, queue_offset=9).to_command()
    stage.brokers["broker-a"].always(SEND, answer(chosen))
    receipt = await sender.send(payload(), ThisQueue(MessageQueue("orders", "broker-a", -1)), timeout=3)
    assert str(receipt.queue) == "orders/broker-a/3"


def test_every_status_of_a_send_has_its_code() -> None:
    assert {status.value for status in SendStatus} == {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
