"""Spoiled input to every parser: only named errors, no time beyond linear, no memory beyond its input's.

Seeds are printed by pytest as the test's parameters. `make soak` runs the same for minutes.
"""

from __future__ import annotations

import gc
import random
import time
import tracemalloc

import pytest

from tests.hostile.fuzzing import TARGETS
from tests.hostile.targets import CORPUS, FIXED_BYTES, MEMORY_FACTOR, Target, spoiled, survives

ROUNDS = 150
SOAK_ROUNDS = 60_000
# A quarter of the input takes a quarter of the time, times this factor; quadratic work would be 16 times.
SUPERLINEAR = 9.0
TOO_SHORT_SECONDS = 0.002


def fuzz(name: str, seed: int, rounds: int) -> None:
    target, draw = TARGETS[name], random.Random(f"{name} {seed}")
    seeds = (*target.seeds, *CORPUS.get(name, ()))
    for _ in range(rounds):
        data = spoiled(draw.choice(seeds), draw)
        if draw.random() < 0.1:
            data = spoiled(data + draw.choice(seeds), draw)
        try:
            survives(target, data)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {name} met {type(error).__name__}: {error} on {data.hex()}") from error


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", TARGETS)
def test_spoiled_input_meets_named_errors_alone(name: str, seed: int) -> None:
    fuzz(name, seed, ROUNDS)


@pytest.mark.parametrize("name", CORPUS)
def test_inputs_that_coverage_chose_meet_named_errors_alone(name: str) -> None:
    for data in CORPUS[name]:
        survives(TARGETS[name], data)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", TARGETS)
def test_long_spoiled_input_meets_named_errors_alone(name: str) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")  # noqa: T201 - to run it again
    fuzz(name, seed, SOAK_ROUNDS)


@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if target.unit])
def test_four_times_the_input_takes_no_more_than_linear_time(name: str) -> None:
    target, count = TARGETS[name], 64
    while (small := seconds_of(target, count)) < TOO_SHORT_SECONDS and len(target.grown(count)) < 1 << 19:
        count *= 4
    ratios = []
    for _ in range(5):  # a shared machine stalls now and then: every one of the five has to be slow
        ratios.append(seconds_of(target, 4 * count) / max(seconds_of(target, count), small, 1e-6))
        if ratios[-1] < SUPERLINEAR:
            return
    raise AssertionError(f"{name}: {len(target.grown(count))} bytes and four times as many: {ratios}")


@pytest.mark.parametrize("name", TARGETS)
def test_memory_is_bounded_by_the_input(name: str) -> None:
    target, draw = TARGETS[name], random.Random(f"{name} memory")
    inputs = [
        *target.seeds[:3],
        *CORPUS.get(name, ())[:10],
        *(spoiled(draw.choice(target.seeds), draw) for _ in range(10)),
    ]
    gc.collect()
    for data in inputs:
        tracemalloc.start()
        try:
            survives(target, data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak <= MEMORY_FACTOR * len(data) + FIXED_BYTES, f"{peak} bytes for {data[:100].hex()}"


def seconds_of(target: Target, count: int) -> float:
    data = target.grown(count)
    began = time.thread_time()
    survives(target, data)
    return time.thread_time() - began


def test_the_fuzzer_sees_what_it_looks_for() -> None:
    """A parser that raises an unnamed error, and one whose work is quadratic, are found."""

    def fails_on_zero(data: bytes) -> object:
        return 1 // data.count(b"a")

    def search() -> None:
        broken, draw = Target(fails_on_zero, (b"xaaax",)), random.Random(1)
        for _ in range(10_000):
            survives(broken, spoiled(b"xaaax", draw))

    with pytest.raises(ZeroDivisionError):
        search()
    quadratic = Target(lambda data: [data.count(b"zz", at) for at in range(0, len(data), 8)], (b"",), unit=b"a" * 64)
    assert seconds_of(quadratic, 1024) > 6 * min(seconds_of(quadratic, 256) for _ in range(5))
