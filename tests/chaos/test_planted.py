"""Faults that were mended, put back by a plant: the harness finds each, and by the check that is meant for it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.chaos.clusters import ClusterKind
from tests.chaos.plan import Kind
from tests.chaos.planted import PLANTS, VARIABLE, planted
from tests.chaos.test_runs import KILLED_AFTER_SECONDS, run, skip_without_history

# The number of steps, their kinds, and the words of the check.
FOUND = {
    "spin": (16, (Kind.JOIN, Kind.BURST), "without one turn of its loop"),
    "whole batches": (2, (Kind.BURST,), "never consumed"),
    "swallowed resets": (16, (Kind.BURST, Kind.SKIP), "behind its reset to"),
    "second copies": (4, (Kind.PAUSE,), "are stored twice"),
    "lost members": (1, (Kind.JOIN,), "are not stored"),
    "committed rollbacks": (8, (Kind.JOIN, Kind.CUT), "that are rolled back"),
    "early deliveries": (6, (Kind.JOIN,), "were consumed too early"),
    "second deliveries": (6, (Kind.JOIN,), "are stored twice"),
    "second calls": (8, (Kind.BURST, Kind.CUT), "were consumed twice without a cause"),
    "unflushed answers": (8, (Kind.CUT_POWER, Kind.JOIN), "acknowledged messages are not stored"),
    "unwritten answers": (3, (Kind.FILL_DISK,), "acknowledged messages are not stored"),
    "moved readers": (8, (Kind.WRITE_ONLY, Kind.BURST), "never consumed"),
    "unread queues": (6, (Kind.RESIZE,), "never consumed"),
    "lonely answers": (8, (Kind.JOIN, Kind.PROMOTE), "acknowledged messages are not stored"),
    "short polls": (2, (Kind.BURST,), "pollers never consumed"),
    "emptied stores": (8, (Kind.UPGRADE, Kind.JOIN), "acknowledged messages are not stored"),
    "kept queues": (2, (Kind.REMAKE,), "that were deleted with their topic"),
    "passed topics": (2, (Kind.REMAKE,), "never consumed"),
    "second records": (6, (Kind.CUT,), "are stored twice, and no answer was lost"),
    "ended storing": (16, (Kind.STEP_CLOCK, Kind.FILL_DISK), "acknowledged messages are not stored"),
    "answered refusals": (3, (Kind.DENY,), "sends that were refused did not say so"),
    "spoiled copies": (2, (Kind.BURST,), "is no copy of its master"),
}
# `tests/spark/test_committed_faults.py` finds it.
OF_STREAMS = "whole queues"
# Those of a line are in the processes of one run of a step, each with words of its own.
# `make soak` has the first line, and `tests/simulated` finds most of the others.
TOGETHER = (
    (ClusterKind.OURS, Kind.CUT, ("lost members", "committed rollbacks", "early deliveries", "second calls")),
    (ClusterKind.PAIRS, Kind.JOIN, ("spoiled copies", "second deliveries")),
    (ClusterKind.GUARDED, Kind.DENY, ("answered refusals",)),
)
# Logs are compared when everything is over.
AT_THE_END = FOUND["spoiled copies"][2]
# Whether a fault shows depends on moments, too: on a busy machine one run of some did not meet a swallowed reset.
SEEDS = (7, 5, 8, 6)
# What a plant holds up stays held up, so that fewer beats without a message show it than in a run that is to be right.
STILL_BEATS = 120
SETTLE_SECONDS, SHOWN_SECONDS = 400, 60
ELSEWHERE = {
    "spoiled copies": ClusterKind.PAIRS,
    "lonely answers": ClusterKind.PAIRS,
    "emptied stores": ClusterKind.RENEWED,
    "answered refusals": ClusterKind.GUARDED,
}


def test_every_plant_is_tried() -> None:
    assert FOUND.keys() | {OF_STREAMS} == PLANTS.keys()


@pytest.mark.parametrize("name", PLANTS)
def test_a_plant_takes_the_calls_of_what_it_replaces(name: str) -> None:
    with planted(PLANTS[name]):
        pass


@pytest.mark.timeout(len(SEEDS) * KILLED_AFTER_SECONDS)
@pytest.mark.parametrize(
    ("cluster", "kind", "names"),
    [pytest.param(*row, id=row[0], marks=[pytest.mark.soak] * (row[0] is ClusterKind.OURS)) for row in TOGETHER],
)
def test_planted_faults_are_found(
    cluster: ClusterKind, kind: Kind, names: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, ",".join(names))
    words = [FOUND[name][2] for name in names]
    until = [option for each in words if each != AT_THE_END for option in ("--until", each)]
    for seed in SEEDS:
        printed = _printed(seed, cluster, 1, (kind,), SHOWN_SECONDS, *until)
        if all(each in printed for each in words):
            break
    assert [each for each in words if each not in printed] == [], printed


@pytest.mark.soak
@pytest.mark.timeout(len(SEEDS) * KILLED_AFTER_SECONDS)
@pytest.mark.parametrize("name", FOUND)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, name)
    steps, kinds, words = FOUND[name]
    if ELSEWHERE.get(name) is ClusterKind.RENEWED:
        skip_without_history()
    for seed in SEEDS:
        printed = _printed(seed, ELSEWHERE.get(name, ClusterKind.OURS), steps, kinds, SETTLE_SECONDS)
        if "WRONG" in printed:
            break
    assert words in printed, printed


def _printed(seed: int, cluster: ClusterKind, steps: int, kinds: Sequence[Kind], seconds: int, *until: str) -> str:
    options = ("--cluster", cluster, "--steps", steps, "--kinds", ",".join(kinds), "--settle", seconds)
    return run(seed, *options, "--still-beats", STILL_BEATS, *until).stdout
