"""Every call without a loop: the same results and errors as with one, from the first use to after the end."""

import asyncio
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime

import pytest

from pyrmq_core import (
    AnyQueue,
    DataLost,
    InvalidArgument,
    InvalidMessage,
    InvalidState,
    KeyedQueue,
    Message,
    MessageQueue,
    NoNameServer,
    NoRoute,
    OffsetRange,
    Outcome,
    PullStatus,
    RawPull,
    ReadWindow,
    SendFailed,
    SendResult,
    ThisQueue,
    decode,
    encode_one,
    unique_ids,
)
from pyrmq_core.blocking import Client, Producer, PullConsumer
from pyrmq_core.client.producer.send.send_options import Target
from pyrmq_core.protocol.framing.codes import RequestCode
from tests.support.held_loop import held_loop
from tests.support.memory_broker import FIRST_STORE_MS
from tests.support.scripted import PULL, SEND, refuse, silence
from tests.support.stage import Stage

A0 = MessageQueue("orders", "broker-a", 0)
B3 = MessageQueue("orders", "broker-b", 3)


# --- Sending


def test_send(stage: Stage) -> None:
    with Producer("g", nameserver=stage.nameserver.address) as producer:
        result = producer.send(Message("orders", b"x", tags="t"), queue=B3, timeout=5)
        assert result.message_queue == B3
        assert producer.send(Message("orders", b"y"), select=lambda queues, _: queues[-1]).message_queue == B3
        assert len(producer.message_queues("orders")) == 8
        assert producer.publish_info("orders").queues == producer.message_queues("orders")
    assert [stored.body for stored in stage.stores["broker-b"].queues["orders", 3]] == [b"x", b"y"]


def test_send_oneway(stage: Stage) -> None:
    with Producer("g", nameserver=stage.nameserver.address) as producer:
        producer.send_oneway(Message("orders", b"x"), queue=A0)
        assert producer.send(Message("orders", b"y"), queue=A0).queue_offset == 1  # behind it on the same connection
    assert [command.is_oneway for command in stage.brokers["broker-a"].of(SEND)] == [True, False]


def test_send_batch(stage: Stage) -> None:
    with Producer("g", nameserver=stage.nameserver.address) as producer:
        results = producer.send_batch([Message("orders", b"%d" % number) for number in range(100)], queue=A0)
    assert [result.queue_offset for result in results] == list(range(100))


def test_send_soon_gives_a_future(stage: Stage) -> None:
    with Producer("g", nameserver=stage.nameserver.address) as producer:
        futures = [producer.send_soon(Message("orders", b"%d" % number)) for number in range(50)]
        assert all(isinstance(future, Future) for future in futures)
        results = [future.result(60) for future in futures]
    assert all(isinstance(result, SendResult) for result in results)
    assert len({result.msg_id for result in results}) == 50
    assert len(stage.stored("orders")) == 50


def test_send_async_is_another_name(stage: Stage) -> None:
    with Producer("g", nameserver=stage.nameserver.address) as producer:
        assert producer.send_async(Message("orders", b"x"), timeout=5).result(60).queue_offset == 0


def test_a_failed_future_raises(stage: Stage) -> None:
    for server in stage.brokers.values():
        server.always(SEND, refuse(13, "no"))
    with Producer("g", nameserver=stage.nameserver.address) as producer:
        future = producer.send_soon(Message("orders", b"x"))
        with pytest.raises(SendFailed, match="MESSAGE_ILLEGAL"):
            future.result(60)
        assert isinstance(future.exception(), SendFailed)


def test_leaving_waits_for_futures(stage: Stage) -> None:
    with Producer("g", nameserver=stage.nameserver.address) as producer:
        futures = [producer.send_soon(Message("orders", b"x")) for _ in range(200)]
    assert all(future.done() and future.exception() is None for future in futures)


def test_no_future_is_left_hanging_by_an_error(stage: Stage) -> None:
    for server in stage.brokers.values():
        server.always(SEND, silence)
    futures: list[Future[SendResult]] = []

    def fail() -> None:
        with Producer("g", nameserver=stage.nameserver.address) as producer:
            futures.append(producer.send_soon(Message("orders", b"x"), timeout=600))
            raise KeyError("my own")

    with pytest.raises(KeyError, match="my own"):
        fail()
    with pytest.raises(SendFailed, match="closed while a message for orders was under way"):
        futures[0].result(60)


def test_a_future_can_be_awaited_in_asyncio(stage: Stage) -> None:
    with Producer("g", nameserver=stage.nameserver.address) as producer:

        async def main() -> list[SendResult]:
            futures = [asyncio.wrap_future(producer.send_soon(Message("orders", b"x"))) for _ in range(10)]
            return await asyncio.wait_for(asyncio.gather(*futures), 10)

        assert len(asyncio.run(main())) == 10


def test_a_callback_may_not_wait_for_its_own_thread(stage: Stage) -> None:
    """Futures' callbacks run in the library's thread: a blocking call there would never end, so it raises."""
    reported: Future[BaseException | None] = Future()
    with Producer("g", nameserver=stage.nameserver.address) as producer:
        unopened = Producer("h", nameserver=stage.nameserver.address)

        def callback(_: Future[SendResult]) -> None:
            calls: list[Callable[[], object]] = [
                lambda: producer.send(Message("orders", b"y")),
                lambda: unopened.send(Message("orders", b"y")),
                producer.close,
            ]
            for call in calls:
                with pytest.raises(InvalidState, match="would wait for itself"):
                    call()
            reported.set_result(None)

        with held_loop():
            producer.send_soon(Message("orders", b"x")).add_done_callback(callback)
        assert reported.result(60) is None


def test_a_window_takes_payloads(stage: Stage) -> None:
    with Producer("g", nameserver=stage.nameserver.address) as producer, producer.open_window() as window:
        for number in range(30):
            window.put(encode_one(Message("orders", b"%d" % number), unique_ids(1)[0]), AnyQueue())
        assert window.drain().messages == 30
        assert window.summary.requests == 30
    assert len(stage.stored("orders")) == 30


@pytest.mark.parametrize("max_requests", [1, 4])
def test_what_a_thread_hands_over_is_never_left_lying(stage: Stage, max_requests: int) -> None:
    """The loop is woken only for payloads that no awaited answer leads to; ordered queues have theirs in order."""
    targets: list[Target] = [AnyQueue(), ThisQueue(A0), AnyQueue(B3, keep=True), KeyedQueue("order-1")]
    chance = random.Random(max_requests)
    producer = Producer("g", nameserver=stage.nameserver.address)
    with producer, producer.open_window(max_requests=max_requests) as window:
        for number in range(2000):
            kind = chance.randrange(len(targets))
            message = Message("orders", b"%d" % number, tags=f"kind{kind}")
            window.put(encode_one(message, unique_ids(1)[0]), targets[kind])
            if not number % 97:
                assert window.drain().messages == number + 1
        assert window.drain().messages == 2000
    for kind in range(1, len(targets)):
        in_order = [int(record.body) for record in stage.stored("orders") if f"TAGS\x01kind{kind}" in record.properties]
        assert len(in_order) > 100
        assert in_order == sorted(in_order)


def test_a_window_raises_the_first_failure(stage: Stage) -> None:
    stage.brokers["broker-a"].always(SEND, refuse(13, "no"))
    with Producer("g", nameserver=stage.nameserver.address) as producer, producer.open_window() as window:
        window.put(encode_one(Message("orders", b"x"), unique_ids(1)[0]), ThisQueue(A0))
        with pytest.raises(SendFailed, match="MESSAGE_ILLEGAL") as caught:
            window.drain()
        assert caught.value.outcome is Outcome.NOT_STORED
        assert window.summary.messages == 0


# --- Reading


def test_offsets_and_commits(stage: Stage) -> None:
    for number in range(5):
        stage.stores["broker-a"].put("orders", 0, b"%d" % number)
    with PullConsumer("g", nameserver=stage.nameserver.address) as consumer:
        assert consumer.topics() == ("orders",)
        assert len(consumer.message_queues("orders")) == 8
        assert (consumer.min_offset(A0), consumer.max_offset(A0)) == (0, 5)
        assert consumer.offset_bounds([A0, B3]) == {A0: OffsetRange(0, 5), B3: OffsetRange(0, 0)}
        assert consumer.offset_at(A0, datetime.fromtimestamp(FIRST_STORE_MS / 1000 + 0.002, UTC)) == 2
        assert consumer.offsets_at({A0: FIRST_STORE_MS + 4}) == {A0: 4}
        assert consumer.committed(A0) is None
        consumer.commit(A0, 3)
        assert consumer.committed(A0) == 3
        assert consumer.committed_offsets([A0, B3]) == {A0: 3, B3: None}


def test_pull(stage: Stage) -> None:
    stage.stores["broker-a"].put("orders", 0, b"x")
    with PullConsumer("g", nameserver=stage.nameserver.address) as consumer:
        pulled = consumer.pull(A0, 0, max_messages=1, tags="*", wait=0)
        assert [message.body for message in pulled.messages] == [b"x"]
        assert consumer.pull(A0, 1, wait=0.05).status is PullStatus.NO_NEW_MSG


def test_a_range_comes_in_lists_worth_decoding(stage: Stage) -> None:
    """One hop to the loop a list of about 6 MiB, whatever the broker gives at once."""
    for number in range(10_000):
        stage.stores["broker-a"].put("orders", 0, b"%d|" % number + b"x" * 800)
    with PullConsumer("g", nameserver=stage.nameserver.address) as consumer:
        consumer.message_queues("orders")
        with consumer.read_joined(A0, 0, 10_000) as reader:
            lists = list(reader)
        with consumer.read(A0, 0, 10_000) as reader:
            single = list(reader)
    assert [pull for pulls in lists for pull in pulls] == single
    offsets = [
        message.queue_offset
        for pulls in lists
        for pull in pulls
        for message in decode(pull, OffsetRange(pull.start, pull.next_offset))
    ]
    assert offsets == list(range(10_000))
    assert len(lists) == 2
    assert len(stage.brokers["broker-a"].of(PULL)) > 300


def test_a_range_is_decoded_where_its_bytes_are_and_a_failure_reaches_the_caller(stage: Stage) -> None:
    for number in range(100):
        stage.stores["broker-a"].put("orders", 0, b"%d" % number)
    threads: set[str] = set()

    def counted(pulls: list[RawPull]) -> list[int]:
        threads.add(threading.current_thread().name)
        if pulls[-1].next_offset > 50:
            raise ValueError("beyond 50")
        return [pull.next_offset - pull.start for pull in pulls]

    with PullConsumer("g", nameserver=stage.nameserver.address) as consumer:
        consumer.message_queues("orders")
        with consumer.read_joined(A0, 0, 40) as reader:
            assert sum(reader.decoded_in_parts(counted)) == 40
        with consumer.read_joined(A0, 0, 100) as reader, pytest.raises(ValueError, match="beyond 50"):
            list(reader.decoded_in_parts(counted))
        assert consumer.max_offset(A0) == 100
    assert threads == {"pyrmq-loop"}


def test_leaving_a_range_early_ends_it(stage: Stage) -> None:
    for number in range(10_000):
        stage.stores["broker-a"].put("orders", 0, b"%d" % number)
    with PullConsumer("g", nameserver=stage.nameserver.address) as consumer:
        consumer.message_queues("orders")
        with consumer.read(A0, 0, 10_000, window=ReadWindow(messages=320)) as reader:
            assert next(iter(reader)).start == 0
        with pytest.raises(DataLost), consumer.read(A0, 20_000, 20_005) as reader:
            list(reader)


# --- Beginning and end


def test_one_client_for_many(stage: Stage) -> None:
    with Client(nameserver=stage.nameserver.address) as client:
        with Producer("a", client=client) as first, Producer("b", client=client) as second:
            first.send(Message("orders", b"x"), queue=A0)
            second.send(Message("orders", b"x"), queue=A0)
            with PullConsumer("c", client=client) as consumer:
                assert consumer.max_offset(A0) == 2
        with Producer("a", client=client) as again:
            again.send(Message("orders", b"x"), queue=A0)
    assert len({id(seen.peer.connection) for seen in stage.brokers["broker-a"].seen}) == 1


def test_nothing_happens_before_the_first_use(stage: Stage) -> None:
    client = Client(nameserver=stage.nameserver.address)
    producer = Producer("g", client=client)
    assert stage.nameserver.seen == []
    producer.send(Message("orders", b"x"))  # without `with` or `open`
    producer.close()
    client.close()
    assert len(stage.stored("orders")) == 1


def test_open_and_close_by_hand(stage: Stage) -> None:
    producer = Producer("g", nameserver=stage.nameserver.address).open()
    producer.send(Message("orders", b"x"))
    producer.close()
    producer.close()
    for call in (producer.send, producer.send_oneway, producer.send_soon):
        with pytest.raises(InvalidState, match="<blocking Producer g> is closed"):
            call(Message("orders", b"x"))
    with pytest.raises(InvalidState):
        producer.open()


def test_what_was_never_opened_closes_quietly() -> None:
    Client(nameserver="127.0.0.1:1").close()
    Producer("g", nameserver="127.0.0.1:1").close()


def test_closing_unregisters_the_group(stage: Stage) -> None:
    seen = stage.brokers["broker-a"]
    with Client(nameserver=stage.nameserver.address) as client, Producer("g", client=client) as producer:
        producer.send(Message("orders", b"x"), queue=A0)
        deadline = time.monotonic() + 60
        while not seen.of(RequestCode.HEART_BEAT):
            assert time.monotonic() < deadline
            producer.send(Message("orders", b"x"), queue=A0)
        producer.send(Message("orders", b"x"), queue=A0)  # behind the heartbeat's answer
    assert len(seen.of(RequestCode.UNREGISTER_CLIENT)) == 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Producer("no group!"), "group 'no group!'"),
        (lambda: Producer("g", compression="rar"), "compression='rar'"),
        (lambda: Producer("g", nameserver="nowhere"), "'nowhere' is not host:port"),
        (lambda: PullConsumer("no group!"), "group 'no group!'"),
        (lambda: Client(nameserver="nowhere"), "'nowhere' is not host:port"),
        (lambda: Client(access_key="a"), "belong together"),
    ],
)
def test_wrong_arguments_are_reported_at_once(make: Callable[[], object], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        make()


def test_errors_are_the_same_and_come_alone(stage: Stage) -> None:
    with Producer("g", nameserver=stage.nameserver.address) as producer:
        with pytest.raises(InvalidMessage):
            producer.send(Message("orders", b""))
        with pytest.raises(NoRoute):
            producer.send(Message("unheard", b"x"))
        for server in stage.brokers.values():
            server.always(SEND, refuse(14))
        with pytest.raises(SendFailed) as caught:
            producer.send(Message("orders", b"x"))
        assert len(caught.value.attempts) == 3
    with Producer("g", nameserver="127.0.0.1:1") as producer, pytest.raises(NoNameServer):
        producer.send(Message("orders", b"x"))


def test_no_text_shows_secrets() -> None:
    client = Client(nameserver="a:1", access_key="the-key", secret_key="the-secret", security_token="the-token")
    assert "a:1" in repr(client)
    for secret in ("the-secret", "the-token"):
        assert secret not in repr(client)
