"""One caller's mistake is that caller's: wrong arguments, callbacks that raise, and a loop that ends by a defect."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from pyrmq_core import InvalidArgument, Message, SendResult
from pyrmq_core.blocking import Producer
from pyrmq_core.client.producer.bulk.accumulator import Batching
from pyrmq_core.loop_thread.portal import portal
from tests.support.held_loop import held_loop
from tests.support.stage import Stage
from tests.support.wrong_sends import WRONG_SENDS

ROOT = Path(__file__).parent.parent.parent


def raiser(kind: type[BaseException]) -> Callable[..., NoReturn]:
    def fail(*_: object) -> NoReturn:
        raise kind("planted")

    return fail


@pytest.mark.parametrize("batching", [None, Batching(max_delay=0.001)])
@pytest.mark.parametrize("name", WRONG_SENDS)
def test_a_wrong_send_harms_no_other_producer(stage: Stage, name: str, batching: Batching | None) -> None:
    message, keywords, words = WRONG_SENDS[name]
    with (
        Producer("wrong", nameserver=stage.nameserver.address, batching=batching) as producer,
        Producer("right", nameserver=stage.nameserver.address) as other,
    ):
        futures = [other.send_soon(Message("orders", b"%d" % number)) for number in range(50)]
        for send in (producer.send, producer.send_soon, producer.send_oneway):
            with pytest.raises(InvalidArgument, match=words):
                send(message, **keywords)
        futures += [other.send_soon(Message("orders", b"%d" % number)) for number in range(50)]
        futures.append(producer.send_soon(Message("orders", b"good")))
        for future in futures:
            assert isinstance(future.result(60), SendResult)


@pytest.mark.parametrize("error", [KeyError, SystemExit, KeyboardInterrupt])
def test_a_callback_of_a_future_that_raises_does_no_harm(stage: Stage, error: type[BaseException]) -> None:
    with Producer("g", nameserver=stage.nameserver.address) as producer:
        for _ in range(5):
            with held_loop():
                future = producer.send_soon(Message("orders", b"x"))
                future.add_done_callback(raiser(error))
            assert isinstance(future.result(60), SendResult)
        assert isinstance(producer.send(Message("orders", b"y")), SendResult)


@pytest.mark.parametrize("error", [KeyError, SystemExit, KeyboardInterrupt])
def test_a_function_on_the_loop_that_raises_is_logged(
    stage: Stage, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    with Producer("g", nameserver=stage.nameserver.address) as producer:
        portal().soon(raiser(error))
        assert isinstance(producer.send(Message("orders", b"y")), SendResult)
    assert "a function on the library's loop raised" in caplog.text


def test_a_call_that_raises_anything_gives_it_to_its_caller(stage: Stage) -> None:
    async def failing() -> None:
        raise SystemExit(3)

    with Producer("g", nameserver=stage.nameserver.address) as producer:
        with pytest.raises(SystemExit):
            portal().run(failing)
        assert isinstance(producer.send(Message("orders", b"y")), SendResult)


@pytest.mark.parametrize("defect", ["a task", "the loop"])
def test_a_loop_that_ends_by_a_defect_ends_every_wait_at_once(defect: str) -> None:
    """It runs in a process of its own, as a broken loop cannot be repaired."""
    script = "import sys; from tests.blocking.broken_loop import main; main(sys.argv[1])"
    command = [sys.executable, "-c", script, defect]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert ended.stdout.splitlines()[-1:] == ["every wait ended, and a fresh producer sends"], ended.stderr[-3000:]
    assert "the library's loop ended by a defect" in ended.stderr
