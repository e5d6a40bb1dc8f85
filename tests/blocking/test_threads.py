"""Many threads at once: every call its own result, one loop, one set of connections; interrupts end a wait."""

import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from pyrmq_core import InvalidState, Message, MessageQueue, RocketMQError, SendResult
from pyrmq_core.blocking import Client, Producer, PullConsumer
from pyrmq_core.loop_thread.portal import portal
from tests.support.scripted import SEND, silence
from tests.support.stage import Stage

THREADS = 64
A0 = MessageQueue("orders", "broker-a", 0)


def at_once(work: Callable[[int], object]) -> list[object]:
    """Returns the results of 64 threads that begin at the same moment."""
    start = threading.Barrier(THREADS)

    def run(number: int) -> object:
        start.wait(60)
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS), timeout=40))


def test_64_threads_share_a_producer(stage: Stage) -> None:
    with Producer("g", nameserver=stage.nameserver.address) as producer:

        def send(number: int) -> list[SendResult]:
            return [producer.send(Message("orders", b"%d-%d" % (number, turn)), timeout=30) for turn in range(10)]

        results = at_once(send)
    ids = {result.msg_id for outcome in results if isinstance(outcome, list) for result in outcome}
    assert len(ids) == THREADS * 10
    assert {stored.unique_id for stored in stage.stored("orders")} == ids
    assert {stored.body for stored in stage.stored("orders")} == {
        b"%d-%d" % (number, turn) for number in range(THREADS) for turn in range(10)
    }


def test_64_threads_open_one_client(stage: Stage) -> None:
    """The first use opens the client: callers at the same time share it."""
    client = Client(nameserver=stage.nameserver.address)
    consumer = PullConsumer("g", client=client)
    before = threading.active_count()
    assert at_once(lambda _: consumer.max_offset(A0)) == [0] * THREADS
    assert threading.active_count() <= before + 1  # one loop for all
    consumer.close()
    client.close()
    assert len({id(seen.peer.connection) for seen in stage.brokers["broker-a"].seen}) == 1
    assert len({id(seen.peer.connection) for seen in stage.nameserver.seen}) == 1


def test_64_threads_open_and_close_their_own(stage: Stage) -> None:
    def live(number: int) -> int:
        with Producer(f"g{number}", nameserver=stage.nameserver.address) as producer:
            return producer.send(Message("orders", b"x"), queue=A0, timeout=30).queue_offset

    assert sorted(map(str, at_once(live))) == sorted(map(str, range(THREADS)))


def test_closing_under_others_ends_their_calls(stage: Stage) -> None:
    for server in stage.brokers.values():
        server.always(SEND, silence)
    producer = Producer("g", nameserver=stage.nameserver.address).open()
    ended: list[RocketMQError] = []

    def send() -> None:
        try:
            producer.send(Message("orders", b"x"), timeout=600, queue=A0)
        except RocketMQError as error:
            ended.append(error)

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    while len(stage.brokers["broker-a"].of(SEND)) < 8:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    producer.close()
    for thread in threads:
        thread.join(60)
    assert len(ended) == 8


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals for one thread on this system")
def test_ctrl_c_ends_a_wait_and_nothing_else(stage: Stage) -> None:
    stage.brokers["broker-a"].on(SEND, silence)

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    def interrupt_when_sent(sender: int) -> None:
        deadline = time.monotonic() + 60
        while not stage.brokers["broker-a"].of(SEND) and time.monotonic() < deadline:
            time.sleep(0.005)
        signal.pthread_kill(sender, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with Producer("g", nameserver=stage.nameserver.address) as producer:
            interrupter = threading.Thread(target=interrupt_when_sent, args=(threading.get_ident(),))
            interrupter.start()  # there is no other send that it could interrupt
            with pytest.raises(KeyboardInterrupt):
                producer.send(Message("orders", b"x"), timeout=600, queue=A0)
            interrupter.join(60)
            assert producer.send(Message("orders", b"y"), queue=A0).queue_offset == 0
            parts = producer._async()._parts
            assert parts is not None
            assert not parts.in_flight._sends  # the interrupted one is given up
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_call_in_the_loops_own_thread_is_refused(stage: Stage) -> None:
    async def inside() -> str:
        try:
            portal().run(inside)
        except InvalidState as error:
            return str(error)
        return "it waited for itself"

    assert "would wait for itself" in portal().run(inside)


def test_the_loop_does_not_keep_a_process_alive() -> None:
    portal()
    (loop,) = [thread for thread in threading.enumerate() if thread.name == "pyrmq-loop" and thread.daemon][:1]
    assert loop.daemon
