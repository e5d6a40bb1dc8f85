"""Plans: the same for a seed, of the kinds that were asked for, and without a kill that makes a reset unsure."""

import pytest

from tests.chaos.plan import (
    BROKERS,
    EVERY_KIND,
    KILLS,
    NAMESERVERS,
    OF_ACCESS,
    OF_OURS,
    OF_PAIRS,
    OF_TOPICS,
    RESETS,
    SAFE,
    SLAVES,
    STEPS_BETWEEN_RESET_AND_KILL,
    TOPICS,
    Kind,
    drawn,
)

SEEDS = range(200)


def test_a_seed_has_one_plan() -> None:
    assert drawn(7, 40) == drawn(7, 40)
    assert len({drawn(seed, 40).steps for seed in SEEDS}) == len(SEEDS)


def test_a_shorter_plan_is_the_begin_of_a_longer_one() -> None:
    for seed in SEEDS:
        assert drawn(seed, 40).steps[:15] == drawn(seed, 15).steps


def test_every_kind_comes() -> None:
    assert {step.kind for seed in SEEDS for step in drawn(seed, 20).steps} == set(EVERY_KIND)


@pytest.mark.parametrize("kinds", [(Kind.PAUSE,), (Kind.JOIN, Kind.LEAVE), (Kind.KILL, Kind.SKIP, Kind.CUT)])
def test_only_the_kinds_of_the_call_come(kinds: tuple[Kind, ...]) -> None:
    assert {step.kind for seed in SEEDS for step in drawn(seed, 20, kinds).steps} == set(kinds)


def test_targets_are_what_their_kind_needs() -> None:
    for seed in SEEDS:
        for step in drawn(seed, 20).steps:
            assert step.target in (TOPICS if step.kind in (*RESETS, Kind.BURST) else BROKERS)
        for step in drawn(seed, 20, OF_PAIRS).steps:
            assert step.target in {Kind.KILL_SLAVE: SLAVES, Kind.PROMOTE: SAFE}.get(step.kind, NAMESERVERS)
        for step in drawn(seed, 20, OF_OURS).steps:
            assert step.target in (SAFE if step.kind is Kind.CUT_POWER else BROKERS)
        for step in drawn(seed, 20, OF_ACCESS).steps:
            assert step.target in (TOPICS if step.kind is Kind.DENY else BROKERS)
        for step in drawn(seed, 20, OF_TOPICS).steps:
            assert step.target in (TOPICS if step.kind is Kind.RESIZE else BROKERS)


def test_no_broker_is_killed_soon_after_a_reset() -> None:
    for seed in SEEDS:
        kinds = [step.kind for step in drawn(seed, 60, (*EVERY_KIND, *OF_OURS)).steps]
        for place, kind in enumerate(kinds):
            if kind in KILLS:
                assert not set(kinds[max(0, place - STEPS_BETWEEN_RESET_AND_KILL) : place]) & set(RESETS)
