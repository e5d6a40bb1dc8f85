"""Parsers with a fault each, behind lines that chance alone does not reach, for `test_guided_fuzzing`."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.hostile.targets import Target


def _behind_a_word(fault: Callable[[bytes], object]) -> Target:
    def parse(data: bytes) -> object:
        if data[:1] == b"f" and data[1:2] == b"u":  # noqa: SIM102 - each comparison is a line that coverage sees
            if data[2:3] == b"z":
                return fault(data)
        return None

    return Target(parse, (b"f",))


def _work() -> None:
    """Takes three seconds of a processor, however fast that is."""
    ends = time.thread_time() + 3.0
    while time.thread_time() < ends:
        pass


TARGETS = {
    "an error without a name": _behind_a_word(lambda data: {b"": 1}[data]),
    "work for ever": _behind_a_word(lambda _: _work()),
    "memory": _behind_a_word(lambda _: bytes(1 << 28)),
    "no fault": _behind_a_word(len),
}
