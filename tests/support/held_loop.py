"""Keeps the library's loop from running, for tests that must come before it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyrmq_core.loop_thread.portal import portal


@contextmanager
def held_loop() -> Iterator[None]:
    """Holds the loop still until the block is left: no future ends before it has its callbacks."""
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        go_on.wait(30)

    portal().soon(hold)
    try:
        assert held.wait(30)
        yield
    finally:
        go_on.set()
