"""Lives of seeds break no promise, and faults of the past, put back, are found.

`PYRMQ_SEED=7 make test ARGS=tests/simulated/test_lives.py` lives the life of a seed that was printed. `make soak
ARGS=tests/simulated` lives thousands, from that seed or a random one on, and looks for each plant from seed 0 on.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator

import pytest

from tests.chaos.planted import planted
from tests.simulated.life import faults_in
from tests.simulated.plants import PLANTS

GIVEN_SEED = os.environ.get("PYRMQ_SEED")
FIRST_SEED = int(GIVEN_SEED or random.randrange(1_000_000_000))
FEW_SEEDS = (3, 6)
MANY_SEEDS, SEEDS_A_TEST = 3000, 100
# The first seed from 0 on that finds a plant, and the words of the rule that it breaks.
FOUND = {
    "spin of a dropped queue": (647, "without one turn of its loop"),
    "swallowed reset": (91, "never consumed"),
    "stuck retry queue": (8, "never consumed"),
    "second record": (8, "are stored twice, and no answer was lost"),
    "second copy": (2, "are stored twice, and no answer was lost"),
    "polled is consumed": (1, "is not consumed"),
}
WITHIN_SEEDS = 10_000


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
@pytest.mark.parametrize("name", FOUND)
def test_the_first_seed_that_finds_a_plant(name: str) -> None:
    def has_fault(seed: int) -> bool:
        with planted(PLANTS[name]):  # anew: some plants count
            return bool(faults_in(seed))

    assert next(filter(has_fault, range(WITHIN_SEEDS)), None) == FOUND[name][0]


@pytest.mark.soak
@pytest.mark.parametrize("number", range(MANY_SEEDS // SEEDS_A_TEST))
def test_thousands_of_lives(number: int) -> None:
    first = FIRST_SEED + number * SEEDS_A_TEST
    wrong = {seed: faults for seed in range(first, first + SEEDS_A_TEST) if (faults := faults_in(seed))}
    assert wrong == {}, "PYRMQ_SEED=n does one again"
