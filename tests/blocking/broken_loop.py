"""A process whose library loop is broken on purpose while calls wait: `main` prints how each ended."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from trio._core._run import GLOBAL_RUN_CONTEXT

from pyrmq_core import InvalidState, Message, MessageQueue, SendFailed, SendResult
from pyrmq_core.blocking import Producer, PullConsumer
from pyrmq_core.loop_thread.portal import HeldContext, Portal, portal
from tests.support.scripted import BATCH, PULL, SEND, silence
from tests.support.stage import Stage, staged

A0 = MessageQueue("orders", "broker-a", 0)


def break_a_task() -> threading.Thread:
    """Makes the loop cancel its tasks and end; returns its thread, which ends last."""

    def fail() -> NoReturn:
        raise ZeroDivisionError("planted")

    broken = portal()
    assert broken._token is not None
    broken._token.run_sync_soon(fail)
    return broken._thread


def break_the_loop() -> threading.Thread:
    """Ends the loop at its next step, without cancelling its tasks; returns its thread."""
    no_task: Any = "no task"
    broken = portal()
    broken.soon(lambda: GLOBAL_RUN_CONTEXT.runner.runq.append(no_task))
    return broken._thread


def main(defect: str) -> None:
    logging.basicConfig(level=logging.INFO)
    stage = HeldContext(Portal(), staged("broker-a", "broker-b")).value
    stage.topic("orders")
    for server in stage.brokers.values():
        for code in (SEND, BATCH, PULL):
            server.always(code, silence)
    address = stage.nameserver.address
    producer, consumer = Producer("g", nameserver=address).open(), PullConsumer("c", nameserver=address).open()
    for end in _ends(producer, consumer, stage, break_a_task if defect == "a task" else break_the_loop):
        assert isinstance(end, InvalidState | SendFailed), repr(end)
        assert "perhaps done" in str(end) or "may store a second copy" in str(end), end
    for late in (lambda: producer.send(Message("orders", b"x")), lambda: consumer.pull(A0, 0)):
        try:
            late()
        except InvalidState:
            continue
        raise AssertionError("a call on a broken loop returned")
    producer.close()
    consumer.close()
    for name, server in stage.brokers.items():
        server.always(SEND, stage.stores[name])
    with Producer("g", nameserver=address) as fresh:  # on a loop of its own
        assert isinstance(fresh.send(Message("orders", b"y")), SendResult)
    print("every wait ended, and a fresh producer sends", flush=True)  # noqa: T201 - the test reads it


def _ends(
    producer: Producer, consumer: PullConsumer, stage: Stage, break_it: Callable[[], threading.Thread]
) -> list[object]:
    """Breaks the loop while every kind of call waits; returns the end of each, within 30 s, when the loop has ended.

    A call before the loop has ended is one more that may end as those under way do.
    """
    ends: list[object] = []

    def waits(call: Callable[[], object]) -> None:
        try:
            ends.append(call())
        except BaseException as error:
            ends.append(error)

    calls: list[Callable[[], object]] = [
        lambda: producer.send(Message("orders", b"x"), timeout=600),
        lambda: producer.send(Message("orders", b"x"), timeout=600, select=lambda queues, _: queues[0]),
        lambda: producer.send_batch([Message("orders", b"x")], timeout=600),
        lambda: consumer.pull(A0, 0, wait=600),
    ]
    threads = [threading.Thread(target=waits, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    future = producer.send_soon(Message("orders", b"x"), timeout=600)
    deadline = time.monotonic() + 60
    servers = stage.brokers.values()
    while not (len(stage.sends()) >= 4 and any(server.of(PULL) for server in servers)):
        assert time.monotonic() < deadline, "the calls did not reach the brokers"
        time.sleep(0.01)
    loop = break_it()
    for thread in (*threads, loop):
        thread.join(30)
    assert not loop.is_alive()
    assert len(ends) == len(calls), "a call waits for ever"
    return [*ends, future.exception(30)]
