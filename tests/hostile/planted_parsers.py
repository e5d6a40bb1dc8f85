"""Parsers with a fault each, behind lines that chance alone does not reach, for `test_guided_fuzzing`."""

from __future__ import annotations

from collections.abc import Callable

from tests.hostile.targets import Target


def _behind_a_word(fault: Callable[[bytes], object]) -> Target:
    def parse(data: bytes) -> object:
        if data[:1] == b"f" and data[1:2] == b"u":  # noqa: SIM102 - each comparison is a line that coverage sees
            if data[2:3] == b"z":
                return fault(data)
        return None

    return Target(parse, (b"f",))


TARGETS = {
    "an error without a name": _behind_a_word(lambda data: {b"": 1}[data]),
    "work for ever": _behind_a_word(lambda _: [number for number in range(60_000_000) if number < 0]),
    "memory": _behind_a_word(lambda _: bytes(1 << 28)),
    "no fault": _behind_a_word(len),
}
