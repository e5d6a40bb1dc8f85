"""Spoiled inputs for as long as one wants: a fault is found, and a parser without one gets many."""

import random
import time

from tests.hostile.spoiling import tried
from tests.hostile.targets import Target

LONG_SECONDS = 60.0


def test_an_error_without_a_name_is_found() -> None:
    inputs, fault = tried(Target({b"abc": 1}.__getitem__, (b"abc",)), LONG_SECONDS, random.Random(1))
    assert inputs > 0
    assert fault.startswith("KeyError: ")


def test_work_beyond_its_input_is_found() -> None:
    def parse(_: bytes) -> None:
        ends = time.thread_time() + 1.5
        while time.thread_time() < ends:
            pass

    inputs, fault = tried(Target(parse, (b"abc",)), LONG_SECONDS, random.Random(1))
    assert inputs == 1
    assert "s of a processor" in fault


def test_a_parser_without_fault_gets_the_inputs_of_its_seed() -> None:
    given: list[bytes] = []
    assert tried(Target(given.append, (b"abc",)), 0.05, random.Random(1), (b"xyz",))[1] == ""
    again: list[bytes] = []
    tried(Target(again.append, (b"abc",)), 0.05, random.Random(1), (b"xyz",))
    alike = min(len(given), len(again))
    assert alike > 1
    assert given[:alike] == again[:alike]
