"""Failures of futures that no thread looks at: reported when dropped, and at the producer's end."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

import pytest

from pyrmq_core import Message, SendFailed, SendResult
from pyrmq_core.blocking import Producer
from pyrmq_core.protocol.framing.codes import ResponseCode
from tests.support.scripted import BATCH, SEND, refuse
from tests.support.stage import Stage

Lines = Callable[[], list[str]]


@pytest.fixture
def full(stage: Stage) -> Stage:
    """Brokers that store nothing."""
    for server in stage.brokers.values():
        for code in (SEND, BATCH):
            server.always(code, refuse(ResponseCode.SYSTEM_ERROR, "disk full"))
    return stage


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    """The warnings so far."""

    def warnings() -> list[str]:
        gc.collect()
        return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]

    return warnings


@pytest.mark.parametrize("batching", [False, True])
def test_a_program_that_looks_at_nothing_hears_of_it(full: Stage, lines: Lines, batching: bool) -> None:
    with Producer("shop", nameserver=full.nameserver.address, batching=batching) as producer:
        for number in range(50):
            producer.send_soon(Message("orders", b"%d" % number))
    dropped, last = sorted(lines())
    assert dropped.startswith("a background send of producer shop failed, and its result was dropped unseen: ")
    assert last.startswith("producer shop ends, and the program has not looked at the failures of 50 of its background")
    assert "disk full" in last


def test_lists_and_selected_queues_are_counted_too(full: Stage, lines: Lines) -> None:
    with Producer("shop", nameserver=full.nameserver.address) as producer:
        kept: list[Future[Any]] = [
            producer.send_batch_soon([Message("orders", b"x")]),
            producer.send_soon(Message("orders", b"x"), select=lambda queues, _: queues[0]),
        ]
    (line,) = lines()
    assert "failures of 2 of its background sends" in line
    assert all(isinstance(future.exception(), SendFailed) for future in kept)


def by_result(future: Future[SendResult]) -> None:
    with pytest.raises(SendFailed):
        future.result(30)


def by_exception(future: Future[SendResult]) -> None:
    assert isinstance(future.exception(30), SendFailed)


def by_callback(future: Future[SendResult]) -> None:
    errors: list[object] = []
    future.add_done_callback(lambda it: errors.append(it.exception()))
    wait([future], 30)


@pytest.mark.parametrize("look", [by_result, by_exception, by_callback])
def test_a_failure_that_was_looked_at_leaves_no_line(
    full: Stage, lines: Lines, look: Callable[[Future[SendResult]], None]
) -> None:
    with Producer("shop", nameserver=full.nameserver.address) as producer:
        for _ in range(5):
            look(producer.send_soon(Message("orders", b"x")))
    assert lines() == []


def test_a_wait_alone_is_no_look(full: Stage, lines: Lines) -> None:
    with Producer("shop", nameserver=full.nameserver.address) as producer:
        future = producer.send_soon(Message("orders", b"x"))
        wait([future], 30)
    (line,) = lines()
    assert "failures of 1 of its background sends" in line
    by_exception(future)


def test_sends_that_are_waited_for_leave_no_line(full: Stage, lines: Lines) -> None:
    with Producer("shop", nameserver=full.nameserver.address) as producer:
        with pytest.raises(SendFailed):
            producer.send(Message("orders", b"x"))
        cancelled = producer.send_soon(Message("orders", b"x"))
        if not cancelled.cancel():  # it has failed already, in the loop's thread
            by_exception(cancelled)
    del cancelled
    assert lines() == []


def test_a_script_ends_with_a_line_on_standard_error() -> None:
    """Python prints warnings of programs that set up no logging."""
    program = """
        from pyrmq_core import Message
        from pyrmq_core.blocking import EmbeddedCluster, Producer
        from pyrmq_core.testing import RequestCode, ResponseCode, refusal

        async def full(request, peer):
            return refusal(ResponseCode.SYSTEM_ERROR, "disk full")

        with EmbeddedCluster(topics={"orders": 1}) as cluster:
            cluster.control(RequestCode.SEND_MESSAGE_V2, full)
            with Producer("shop", nameserver=cluster.nameserver) as producer:
                for number in range(50):
                    producer.send_soon(Message("orders", b"%d" % number))
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True, timeout=120
    )
    assert "failures of 50 of its background sends" in ended.stderr
