"""Lives of work queues break no promise, and planted faults are found.

`PYRMQ_SEED=7 make test ARGS=tests/simulated/test_pop_lives.py` lives the life of a seed that was printed. `make soak
ARGS=tests/simulated` lives hundreds, from that seed or a random one on.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator

import pytest

from tests.chaos.planted import planted
from tests.simulated.pop_life import faults_in
from tests.simulated.pop_plants import PLANTS

GIVEN_SEED = os.environ.get("PYRMQ_SEED")
FIRST_SEED = int(GIVEN_SEED or random.randrange(1_000_000_000))
FEW_SEEDS = (40,)  # where the last part of a millisecond of a wait was a loop without an end
MANY_SEEDS, SEEDS_A_TEST = 600, 100
# A seed that finds a plant, and the words of the rule that it breaks.
FOUND = {
    "forgotten acknowledgement": (0, "after its acknowledgement"),
    "checkpoint without its message": (6, "was never acknowledged"),
    "receipt of another queue": (0, "after its acknowledgement"),
    "no lock": (11, "both had"),
    "passed over": (1, "was never acknowledged"),
    "no offsets of a young broker": (21, "both had"),
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Logs what happens in the life of a given seed alone."""
    logging.disable(logging.NOTSET if GIVEN_SEED else logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", [FIRST_SEED] if GIVEN_SEED else FEW_SEEDS)
def test_a_life_breaks_no_promise(seed: int) -> None:
    assert faults_in(seed) == [], f"PYRMQ_SEED={seed} does it again"


def test_every_plant_is_tried() -> None:
    assert FOUND.keys() == PLANTS.keys()


@pytest.mark.parametrize("name", FOUND)
def test_a_planted_fault_is_found(name: str) -> None:
    seed, words = FOUND[name]
    with planted(PLANTS[name]):
        assert words in "".join(faults_in(seed))
    assert faults_in(seed) == []


@pytest.mark.soak
@pytest.mark.parametrize("number", range(MANY_SEEDS // SEEDS_A_TEST))
def test_hundreds_of_lives(number: int) -> None:
    first = FIRST_SEED + number * SEEDS_A_TEST
    wrong = {seed: faults for seed in range(first, first + SEEDS_A_TEST) if (faults := faults_in(seed))}
    assert wrong == {}, "PYRMQ_SEED=n does one again"
