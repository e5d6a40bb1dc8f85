"""The blocking `PushConsumer`: threads that call the handler, the ends of `run`, and iteration, on our own cluster."""

from __future__ import annotations

import itertools
import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from pyrmq_core import ConsumeFromWhere, ConsumeLater, InvalidArgument, InvalidState, Message, MessageExt
from pyrmq_core.blocking import Admin, Client, EmbeddedCluster, Producer, PullConsumer, PushConsumer

FIRST = ConsumeFromWhere.FIRST_OFFSET


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, with two queues on each broker."""
    name = re.sub(r"\W", "_", request.node.name)
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic(name, queues=2)
    return name


def sent(cluster: EmbeddedCluster, topic: str, count: int) -> set[bytes]:
    bodies = {b"%d" % number for number in range(count)}
    with Producer("senders", nameserver=cluster.nameserver) as producer:
        for body in sorted(bodies):
            producer.send(Message(topic, body))
    return bodies


def committed(cluster: EmbeddedCluster, group: str, topic: str) -> int:
    """Returns the number of messages that the group has acknowledged, by the brokers' account."""
    with PullConsumer(group, nameserver=cluster.nameserver) as consumer:
        return sum(offset or 0 for offset in consumer.committed_offsets(consumer.message_queues(topic)).values())


class Handler:
    """A handler that keeps bodies and its threads' names, and stops the consumer after so many messages."""

    def __init__(self, consumer: PushConsumer, count: int) -> None:
        self.bodies: list[bytes] = []
        self.threads: set[int] = set()
        self._consumer = consumer
        self._count = count
        self._lock = threading.Lock()

    def __call__(self, messages: Sequence[MessageExt]) -> None:
        with self._lock:
            self.bodies += [message.body for message in messages]
            self.threads.add(threading.get_ident())
            is_last = len(self.bodies) == self._count
        if is_last:
            self._consumer.stop()


@pytest.mark.parametrize("orderly", [False, True])
def test_all_messages_are_consumed_and_stored_as_consumed(
    cluster: EmbeddedCluster, topic: str, *, orderly: bool
) -> None:
    group = f"readers-{orderly}"
    bodies = sent(cluster, topic, 300)
    with PushConsumer(group, nameserver=cluster.nameserver, consume_from_where=FIRST) as consumer:
        consumer.subscribe(topic)
        handler = Handler(consumer, len(bodies))
        consumer.run(handler, orderly=orderly)
        assert committed(cluster, group, topic) == len(bodies)
    assert Counter(handler.bodies) == Counter(bodies)
    assert threading.get_ident() not in handler.threads


def test_handlers_run_in_as_many_threads_as_the_setting_says(cluster: EmbeddedCluster, topic: str) -> None:
    """Each of four waits for the three others; were there more threads, a fifth would be at work too."""
    sent(cluster, topic, 12)
    together, at_work, most, done = threading.Barrier(4), 0, 0, 0
    lock = threading.Lock()
    with PushConsumer("four", nameserver=cluster.nameserver, consume_from_where=FIRST, consume_threads=4) as consumer:
        consumer.subscribe(topic)

        def handler(messages: Sequence[MessageExt]) -> None:
            nonlocal at_work, most, done
            with lock:
                at_work += 1
                most = max(most, at_work)
            together.wait(30)
            with lock:
                at_work -= 1
                done += 1
                if done == 12:
                    consumer.stop()

        consumer.run(handler)
    assert most == 4


def test_a_slow_message_does_not_hold_up_those_behind_it(cluster: EmbeddedCluster, topic: str) -> None:
    bodies = sent(cluster, topic, 200)
    others_done, consumed, waited = threading.Event(), [], []
    with PushConsumer("slow", nameserver=cluster.nameserver, consume_from_where=FIRST, consume_threads=2) as consumer:
        consumer.subscribe(topic)

        def handler(messages: Sequence[MessageExt]) -> None:
            if messages[0].body == b"0":
                waited.append(others_done.wait(30))
            consumed.append(messages[0].body)
            if len(consumed) == len(bodies) - 1:
                others_done.set()
            if len(consumed) == len(bodies):
                consumer.stop()

        consumer.run(handler)
    assert waited == [True]
    assert consumed[-1] == b"0"


def test_stop_from_another_thread_returns_when_the_handler_has_finished(cluster: EmbeddedCluster, topic: str) -> None:
    sent(cluster, topic, 1)
    begun, go_on = threading.Event(), threading.Event()
    with PushConsumer("stopped", nameserver=cluster.nameserver, consume_from_where=FIRST) as consumer:
        consumer.subscribe(topic)

        def handler(messages: Sequence[MessageExt]) -> None:
            begun.set()
            assert go_on.wait(30)

        with ThreadPoolExecutor(2) as pool:
            running = pool.submit(consumer.run, handler)
            assert begun.wait(30)
            stopping = pool.submit(consumer.stop)
            with pytest.raises(TimeoutError):
                stopping.result(0.05)
            go_on.set()
            stopping.result(30)
            running.result(30)
        assert committed(cluster, "stopped", topic) == 1


def test_a_stop_that_does_not_wait_leaves_the_message_to_the_group(cluster: EmbeddedCluster, topic: str) -> None:
    sent(cluster, topic, 1)
    begun, go_on = threading.Event(), threading.Event()

    def handler(messages: Sequence[MessageExt]) -> None:
        begun.set()
        go_on.wait(30)

    with PushConsumer("hurried", nameserver=cluster.nameserver, consume_from_where=FIRST) as consumer:
        consumer.subscribe(topic)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(consumer.run, handler)
            assert begun.wait(30)
            consumer.stop(0)
            running.result(30)
        go_on.set()
    assert committed(cluster, "hurried", topic) == 0


def test_a_message_whose_handler_raises_comes_again(cluster: EmbeddedCluster, topic: str) -> None:
    sent(cluster, topic, 1)
    tries: list[int] = []
    with PushConsumer("again", nameserver=cluster.nameserver, consume_from_where=FIRST) as consumer:
        consumer.subscribe(topic)

        def handler(messages: Sequence[MessageExt]) -> None:
            tries.append(messages[0].reconsume_times)
            if len(tries) == 1:
                raise ConsumeLater(1)
            consumer.stop()

        consumer.run(handler)
    assert tries == [0, 1]


def test_a_handler_can_send_with_the_same_client(cluster: EmbeddedCluster, topic: str) -> None:
    sent(cluster, topic, 20)
    with (
        Client(nameserver=cluster.nameserver) as client,
        Producer("answers", client=client) as producer,
        PushConsumer("questions", client=client, consume_from_where=FIRST) as consumer,
    ):
        consumer.subscribe(topic)
        kept = Handler(consumer, 20)

        def handler(messages: Sequence[MessageExt]) -> None:
            producer.send(Message(f"{topic}_answers", messages[0].body))
            kept(messages)

        consumer.run(handler)
    assert len(kept.bodies) == 20


def test_a_block_that_raises_stores_what_was_acknowledged(cluster: EmbeddedCluster, topic: str) -> None:
    """Two of three messages are, though their thread goes on with the third."""
    with Producer("senders", nameserver=cluster.nameserver) as producer:
        producer.send_batch([Message(topic, b"%d" % number) for number in range(3)])
    calls, at_third, leave = itertools.count(1), threading.Event(), threading.Event()
    ended: list[Future[None]] = []

    def handler(messages: Sequence[MessageExt]) -> None:
        if next(calls) == 3:
            at_third.set()
            leave.wait(30)

    with ThreadPoolExecutor(1) as pool:

        def raising() -> None:
            with PushConsumer(
                "raised", nameserver=cluster.nameserver, consume_from_where=FIRST, consume_threads=1
            ) as consumer:
                consumer.subscribe(topic)
                ended.append(pool.submit(consumer.run, handler))
                assert at_third.wait(30)
                _ = 1 // 0

        try:
            with pytest.raises(ZeroDivisionError):
                raising()
            ended[0].result(30)
            assert committed(cluster, "raised", topic) == 2
        finally:
            leave.set()


def test_an_iteration_acknowledges_what_it_leaves_in_order(cluster: EmbeddedCluster, topic: str) -> None:
    bodies = sent(cluster, topic, 10)
    arrivals: list[bytes] = []
    with PushConsumer("iterating", nameserver=cluster.nameserver, consume_from_where=FIRST) as consumer:
        consumer.subscribe(topic)
        for delivery in consumer:
            with delivery as message:
                assert delivery.message is message
                arrivals.append(message.body)
            if len(arrivals) == len(bodies):
                consumer.stop()
    assert Counter(arrivals) == Counter(bodies)
    assert committed(cluster, "iterating", topic) == len(bodies)


def test_an_exception_goes_on_to_the_caller_and_an_order_ends_in_its_block(
    cluster: EmbeddedCluster, topic: str
) -> None:
    sent(cluster, topic, 2)
    with PushConsumer("given-back", nameserver=cluster.nameserver, consume_from_where=FIRST) as consumer:
        consumer.subscribe(topic)
        deliveries = consumer.deliveries()
        with pytest.raises(ZeroDivisionError), next(deliveries):
            _ = 1 // 0
        with next(deliveries):
            raise ConsumeLater(1)
        with next(deliveries) as message:
            assert message.reconsume_times == 1


def test_queues_are_assigned_and_pulling_can_be_suspended(cluster: EmbeddedCluster, topic: str) -> None:
    with PushConsumer("suspended", nameserver=cluster.nameserver, consume_from_where=FIRST) as consumer:
        consumer.subscribe(topic)
        assert not consumer.assigned_queues
        consumer.suspend()
        deliveries = consumer.deliveries()
        sent(cluster, topic, 1)
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(next, deliveries)
            with pytest.raises(TimeoutError):
                first.result(0.5)
            consumer.resume()
            with first.result(30) as message:
                assert message.body == b"0"
        assert {queue.topic for queue in consumer.assigned_queues if not queue.topic.startswith("%")} == {topic}


def test_wrong_uses_are_named(cluster: EmbeddedCluster, topic: str) -> None:
    async def handler(messages: Sequence[MessageExt]) -> None:
        """Does nothing: it is never called."""

    with PushConsumer("wrong", nameserver=cluster.nameserver, consume_from_where=FIRST) as consumer:
        consumer.subscribe(topic)
        with pytest.raises(InvalidArgument, match="the blocking consumer calls plain ones"):
            consumer.run(handler)
        sent(cluster, topic, 1)
        refusals: list[str] = []

        def closing(messages: Sequence[MessageExt]) -> None:
            try:
                consumer.close()
            except InvalidState as error:
                refusals.append(str(error))
            consumer.stop()

        consumer.run(closing)
        assert "cannot close it; call stop" in refusals[0]
        with pytest.raises(InvalidState, match="runs once"):
            consumer.run(closing)
    with pytest.raises(InvalidState, match="is closed"):
        consumer.subscribe(topic)
