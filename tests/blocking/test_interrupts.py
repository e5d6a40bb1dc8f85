"""Ctrl-C at every step of a blocking send: room is given back, `close` ends, and other sends go on.

The interrupt is planted by a trace function, at each call, line and return of our own files in turn, so that a run is
the same each time. Python looks for signals where a call begins or ends and where a loop turns, so that no line of a
function that holds a lock for a moment is one; its beginning and its end are.
"""

import itertools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from pyrmq_core import Message, MessageQueue, SendFailed, SendResult, ThisQueue, encode_one, unique_ids
from pyrmq_core.blocking import Producer
from tests.support.stage import Stage

A0 = MessageQueue("orders", "broker-a", 0)
TRACED = (
    "/blocking/",
    "/loop_thread/",
    "/producer/bulk/pending_sends.py",
    "/producer/producer.py",
    "/producer/bulk/send_order.py",
    "/producer/bulk/send_window.py",
    "/send/background_sends.py",
)
WITH_LOCKS = ("portal", "_async", "_run", "enter_nowait", "leave", "_leave", "give_up")


class Interrupted(BaseException):
    """Stands for KeyboardInterrupt, so that a real one still ends the test."""


def interrupted_at(step: int, call: Callable[[], object]) -> bool:
    """Calls it, interrupted at its step of this number; returns whether it has so many steps."""
    left = step

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if "pyrmq_core" not in frame.f_code.co_filename or not any(part in frame.f_code.co_filename for part in TRACED):
            return None
        if event in ("call", "return") or (event == "line" and frame.f_code.co_name not in WITH_LOCKS):
            left -= 1
            if left == 0:
                sys.settrace(None)
                raise Interrupted
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Interrupted:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("max_in_flight", [1, 10_000])
def test_an_interrupted_send_soon_keeps_no_room(stage: Stage, max_in_flight: int) -> None:
    with Producer("g", nameserver=stage.nameserver.address, max_in_flight=max_in_flight) as producer:
        producer.send(Message("orders", b"first"))
        parts = producer._async()._parts
        assert parts is not None
        for step in itertools.count(1):
            if not interrupted_at(step, lambda: producer.send_soon(Message("orders", b"x"))):
                break
            assert isinstance(producer.send_soon(Message("orders", b"y")).result(60), SendResult)
        assert step > 30
        producer.send(Message("orders", b"last"))
    assert not parts.in_flight._entered
    assert parts.in_flight._bytes == 0


def test_an_interrupted_send_is_not_waited_for(stage: Stage) -> None:
    with Producer("g", nameserver=stage.nameserver.address) as producer:
        producer.send(Message("orders", b"first"))
        for step in itertools.count(1):
            if not interrupted_at(step, lambda: producer.send(Message("orders", b"x"))):
                break
            assert isinstance(producer.send(Message("orders", b"y")), SendResult)
        assert step > 30


def test_an_interrupted_put_fails_its_window_and_ends(stage: Stage) -> None:
    ids, failed, messages = unique_ids(10_000), 0, 0
    with Producer("g", nameserver=stage.nameserver.address) as producer:
        producer.send(Message("orders", b"first"))
        for step in itertools.count(1):
            with producer.open_window(max_requests=1, max_bytes=10) as window:
                payload = encode_one(Message("orders", b"x" * 8), ids[step])
                interrupted = interrupted_at(step, lambda: window.put(payload, ThisQueue(A0)))  # noqa: B023
                try:
                    messages = window.drain().messages
                except SendFailed:  # it is not known whether the payload was handed over
                    failed += 1
                else:  # interrupted before it was, or after
                    assert messages in (0, 1)
                if not interrupted:
                    assert messages == 1
                    break
        assert step > 15
        assert failed > 5
