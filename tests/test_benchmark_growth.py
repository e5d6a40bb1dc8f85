"""The check of long runs: a leak that is planted is found, by the system's account of this process; waves are none."""

from __future__ import annotations

import mmap
import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.support.growth import (
    BOUNDS,
    LEAST_SAMPLES,
    MIB,
    MILLION,
    WARM_UP,
    Growth,
    Sample,
    disk_mib,
    growths,
)
from benchmarks.support.processes import figures_of

SAMPLES = 40


def too_much(samples: list[Sample]) -> list[str]:
    return [growth.figure for growth in growths(samples) if growth.is_too_much]


def run_of(figure: str, *values: float) -> list[Sample]:
    """Returns the samples of a run of ten million messages with these values of one figure."""
    return [Sample("consumer", 10 * MILLION * at // len(values), {figure: value}) for at, value in enumerate(values)]


def test_a_planted_leak_of_this_process_is_found() -> None:
    samples: list[Sample] = []
    with ExitStack() as kept:
        for number in range(SAMPLES):
            samples.append(Sample("leaking", number * MILLION // 4, figures_of(os.getpid())))
            # Pages of its own: a large process has free memory, from which an object of this size takes nothing new.
            kept.enter_context(mmap.mmap(-1, MIB)).write(bytes(MIB))
            kept.enter_context(Path(os.devnull).open("rb"))
    assert sorted(too_much(samples)) == ["handles", "resident MiB"]


def test_a_process_that_keeps_nothing_passes() -> None:
    samples = []
    for number in range(SAMPLES):
        samples.append(Sample("honest", number * MILLION // 4, figures_of(os.getpid())))
        assert len(os.urandom(MIB)) == MIB
    assert too_much(samples) == []


@pytest.mark.parametrize("figure", BOUNDS)
def test_growth_is_slow_or_little_or_else_too_much(figure: str) -> None:
    bound = BOUNDS[figure]
    little = bound.in_all / SAMPLES
    assert too_much(run_of(figure, *(little * number for number in range(SAMPLES)))) == []
    much = max(20 * bound.a_million, 3 * bound.in_all) / SAMPLES
    assert too_much(run_of(figure, *(much * number for number in range(SAMPLES)))) == [figure]


@pytest.mark.parametrize(("figure", "wave"), [("resident MiB", 2.0), ("disk MiB", 30.0)])
def test_the_warm_up_and_waves_are_no_growth(figure: str, wave: float) -> None:
    """Memory comes and goes with the work, and the disk with the segments."""
    warm = [50.0 * number for number in range(round(SAMPLES * WARM_UP))]
    steady = [600.0 + wave * (number % 5) for number in range(SAMPLES - len(warm))]
    assert too_much(run_of(figure, *warm, *steady)) == []


def test_one_step_is_no_growth_and_a_stair_is() -> None:
    """A consumer that was held up keeps the memory of its full queues; one that keeps a little of each wave leaks."""
    for before in range(1, SAMPLES):
        assert too_much(run_of("resident MiB", *[50.0] * before, *[60.0] * (SAMPLES - before))) == []
    stair = [50.0 + 5 * (number // 4) for number in range(SAMPLES)]
    assert too_much(run_of("resident MiB", *stair)) == ["resident MiB"]


def test_fewer_figures_are_no_growth() -> None:
    (growth,) = growths(run_of("tasks", *range(SAMPLES, 0, -1)))
    assert growth.a_million < 0
    assert not growth.is_too_much
    assert str(Growth("broker", "handles", 0.5, 3.0)) == ("broker, handles: +0.500 for a million messages, +3.0 in all")


def test_too_few_samples_are_an_error() -> None:
    with pytest.raises(ValueError, match=f"{LEAST_SAMPLES} at least"):
        growths(run_of("handles", *[1.0] * LEAST_SAMPLES))


def test_the_disk_is_what_the_files_take(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "segment").write_bytes(os.urandom(3 * MIB))
    assert disk_mib(tmp_path) == pytest.approx(3, abs=0.1)
