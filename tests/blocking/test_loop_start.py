"""A loop that cannot start says why, in both faces that stand on its thread, and a later call starts one."""

import subprocess
import sys

import pytest

from pyrmq_core.loop_thread.loop_errors import not_started

OPEN = """
import asyncio, threading, trio
from pyrmq_core import aio, blocking

def both():
    for face in (blocking, aio):
        producer = face.Producer("g", nameserver="127.0.0.1:1")
        try:
            if face is aio:
                asyncio.set_event_loop(loop)
                loop.run_until_complete(producer.__aenter__())
            else:
                producer.open()
            print("opens")
        except Exception as error:
            print(type(error).__name__, error.condition, error)

loop = asyncio.new_event_loop()
import pyrmq_core.blocking.producer, pyrmq_core.aio.producer
"""
NO_FILES = """
import os, resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
both()
for file in held:
    os.close(file)
both()
"""
NO_THREADS = """
def start(thread):
    raise RuntimeError("can't start new thread")
start_really, threading.Thread.start = threading.Thread.start, start
both()
threading.Thread.start = start_really
both()
"""
# As these libraries answer after `patch_all()` and `monkey_patch()`, which are not in the environment of the tests.
PATCHED = """
import sys, types
library = types.ModuleType({module!r})
library.is_module_patched = library.is_monkey_patched = lambda name: name in {patched!r}
sys.modules[{module!r}] = library
both()
"""


def output(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", OPEN + program], capture_output=True, text=True, timeout=120)
    assert "AssertionError" not in done.stderr, done.stderr
    assert "defect" not in done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("program", "words"), [(NO_FILES, ("Too many open files", "ulimit -n")), (NO_THREADS, ("can't start", "ulimit -u"))]
)
def test_a_loop_without_files_or_threads_names_them_and_starts_later(program: str, words: tuple[str, ...]) -> None:
    blocking, aio, *later = output(program)
    for line in (blocking, aio):
        assert line.startswith("LoopNotStarted RMQ_INVALID_STATE the library's loop cannot start: ")
        assert all(word in line for word in words)
    assert later == ["opens", "opens"]


@pytest.mark.parametrize(
    ("module", "patched", "outcome"),
    [
        ("gevent.monkey", ("threading", "select", "queue"), "gevent has replaced Python's threads"),
        ("gevent.monkey", ("socket", "time"), "opens"),
        ("eventlet.patcher", ("thread", "select", "socket"), "eventlet has replaced Python's threads"),
    ],
)
def test_replaced_threads_are_refused_with_what_to_do(module: str, patched: tuple[str, ...], outcome: str) -> None:
    lines = output(PATCHED.format(module=module, patched=patched))
    assert len(lines) == 2
    for line in lines:
        assert outcome in line
        assert outcome == "opens" or "celery -P threads, gunicorn -k gthread" in line


def test_any_other_failure_of_the_start_is_named() -> None:
    assert "ValueError: what is this" in str(not_started(ValueError("what is this")))
