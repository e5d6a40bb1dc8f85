"""Ctrl-C, SIGTERM and SIGHUP during `PushConsumer.run`, in processes of their own: an orderly end, then the usual."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyrmq_core import Message
from pyrmq_core.blocking import EmbeddedCluster, Producer, PullConsumer

ROOT = Path(__file__).parent.parent.parent
ENDS_WITHIN = 30

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no such signals on this system"),
]

PROGRAM = """
import os, signal, sys, threading, time
from pyrmq_core import ConsumeFromWhere
from pyrmq_core.blocking import PushConsumer

go_on = threading.Event()

def handler(messages):
    print("begun", flush=True)
    go_on.wait()
    print("finished", flush=True)

FIRST = ConsumeFromWhere.FIRST_OFFSET
with PushConsumer(sys.argv[2], nameserver=sys.argv[1], consume_from_where=FIRST) as consumer:
    consumer.subscribe("orders")
    BEFORE
    consumer.run(handler)
    print("run returned", flush=True)
"""
# The handler finishes only after the signal: what is read from standard input says so.
READS_INPUT = "threading.Thread(target=lambda: sys.stdin.readline() and go_on.set(), daemon=True).start()"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster, Producer("senders", nameserver=cluster.nameserver) as producer:
        producer.send(Message("orders", b"one"))
        yield cluster


@contextmanager
def started(cluster: EmbeddedCluster, group: str, before: str = "pass") -> Iterator[subprocess.Popen[str]]:
    """Yields the program; kills it on leaving."""
    source = PROGRAM.replace("BEFORE", f"{READS_INPUT}; {before}")
    command = [sys.executable, "-W", "ignore:.*fork:DeprecationWarning", "-c", source, cluster.nameserver, group]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{line}\n"


def committed(cluster: EmbeddedCluster, group: str) -> int:
    with PullConsumer(group, nameserver=cluster.nameserver) as consumer:
        return sum(offset or 0 for offset in consumer.committed_offsets(consumer.message_queues("orders")).values())


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_waits_for_the_handler_and_stores_its_offset(
    cluster: EmbeddedCluster, number: signal.Signals, status: int
) -> None:
    """The interpreter ends by SIGINT itself after a KeyboardInterrupt."""
    group = f"first-{number.name}"
    with started(cluster, group) as process:
        wait_for(process, "begun")
        process.send_signal(number)
        output, errors = process.communicate("go on\n", timeout=ENDS_WITHIN)
    assert (output, process.returncode) == ("finished\n", status)
    assert ("KeyboardInterrupt" in errors) == (number == signal.SIGINT)
    assert committed(cluster, group) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_does_not_wait_and_leaves_the_message_to_the_group(
    cluster: EmbeddedCluster, number: signal.Signals
) -> None:
    group = f"second-{number.name}"
    with started(cluster, group, "import logging; logging.basicConfig(level=20)") as process:
        wait_for(process, "begun")
        process.send_signal(number)
        assert process.stderr is not None
        assert any("stopping in order" in line for line in iter(process.stderr.readline, ""))
        process.send_signal(number)
        output, _ = process.communicate(timeout=ENDS_WITHIN)
    assert output == ""
    assert process.returncode in (-signal.SIGINT, 128 + number)
    assert committed(cluster, group) == 0


def test_a_handler_of_the_program_is_left_alone(cluster: EmbeddedCluster) -> None:
    before = "signal.signal(signal.SIGTERM, lambda *_: (print('mine', flush=True), consumer.stop(0)))"
    with started(cluster, "own-handler", before) as process:
        wait_for(process, "begun")
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=ENDS_WITHIN)
    assert (output, errors, process.returncode) == ("mine\nrun returned\n", "", 0)


def test_the_defaults_are_back_after_the_run(cluster: EmbeddedCluster) -> None:
    before = (
        "threading.Timer(0, consumer.stop).start(); consumer.run(handler);"
        "defaults = [signal.default_int_handler, signal.SIG_DFL, signal.SIG_DFL];"
        "print([signal.getsignal(n) for n in (2, 15, 1)] == defaults); sys.exit()"
    )
    with started(cluster, "defaults", before) as process:
        output, errors = process.communicate(timeout=ENDS_WITHIN)
    assert (output.splitlines()[-1], errors, process.returncode) == ("True", "", 0)


def test_a_child_of_the_process_ends_by_the_signal_alone(cluster: EmbeddedCluster) -> None:
    """It inherits the handler, but not the run."""
    before = """
    def fork():
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, b"x")
            time.sleep(60)
        os.read(reading, 1)  # Python forgets a signal that comes at the very moment of the fork
        os.kill(child, signal.SIGTERM)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def handler(messages):
        print(fork(), flush=True)
        consumer.stop()
"""
    with started(cluster, "forking", before) as process:
        output, errors = process.communicate(timeout=ENDS_WITHIN)
    assert (output, errors, process.returncode) == (f"{-signal.SIGTERM}\nrun returned\n", "", 0)


def test_a_child_after_fork_is_a_member_with_the_same_subscriptions(cluster: EmbeddedCluster) -> None:
    before = """
    child = os.fork()
    if child:
        consumer.close()
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    def handler(messages):
        print([message.body for message in messages], flush=True)
        consumer.stop()
"""
    with started(cluster, "child", before) as process:
        output, errors = process.communicate(timeout=ENDS_WITHIN)
    assert (output, errors, process.returncode) == ("[b'one']\nrun returned\n", "", 0)
    assert committed(cluster, "child") == 1
