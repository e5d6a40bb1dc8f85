"""Spoiled inputs for as long as one wants: a fault is found, and a seed gives the same inputs again."""

import random
import time

from tests.hostile.spoiling import tried
from tests.hostile.targets import Target

LONG_SECONDS = 60.0
INPUTS = 50


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


def test_a_seed_gives_the_same_inputs_again() -> None:
    def inputs_of(seed: int) -> list[bytes]:
        given: list[bytes] = []

        def parse(data: bytes) -> None:
            given.append(data)
            if len(given) == INPUTS:
                raise KeyError

        assert tried(Target(parse, (b"abc",)), LONG_SECONDS, random.Random(seed), (b"xyz",))[0] == INPUTS
        return given

    assert inputs_of(1) == inputs_of(1)
    assert inputs_of(1) != inputs_of(2)


def test_a_parser_without_fault_ends_with_its_time() -> None:
    inputs, fault = tried(Target(len, (b"abc",)), 0.01, random.Random(1))
    assert (inputs > 0, fault) == (True, "")
