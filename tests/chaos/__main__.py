"""One run: python -m tests.chaos SEED [--cluster ours|apache|mixed|pairs|guarded|...] [--steps 30]
[--kinds join,leave] [--sends single,soon] [--seconds 60] [--settle 120] [--history FILE] [--until WORDS]
[--burst-batches 160].

It prints what was done, and each fault; exit status 0: every promise held, 1: one was broken. With --still-beats 300
nothing is awaited any more when every member's loop turned for so many beats without a message. With --committed
Spark copies numbers by a committed stream meanwhile, whose driver is killed, too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import trio

from tests.chaos.checker import faults_of
from tests.chaos.clusters import ClusterKind
from tests.chaos.committed_runs import KINDS as COMMITTED_KINDS
from tests.chaos.committed_runs import running as running_committed
from tests.chaos.history import Event, line_of
from tests.chaos.judged import History
from tests.chaos.plan import Kind, Plan, drawn
from tests.chaos.planted import plant_by_environment
from tests.chaos.process_runs import KINDS_OF, USUAL_LOAD, ProcessRun, running
from tests.chaos.runner import STILL_BEATS
from tests.chaos.traffic import EVERY_SENDING, Load, Sending

Begin: TypeAlias = "Callable[[Plan, Path, ClusterKind], AbstractAsyncContextManager[ProcessRun]]"


def main() -> int:
    """Runs the plan of a seed and returns the exit status."""
    parser = argparse.ArgumentParser(prog="tests.chaos")
    parser.add_argument("seed", type=int)
    parser.add_argument("--cluster", type=ClusterKind, default=ClusterKind.OURS)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--kinds", help="all that the cluster can have")
    parser.add_argument("--sends", default=",".join(EVERY_SENDING))
    parser.add_argument("--burst-batches", type=int, default=USUAL_LOAD.burst_batches)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--settle", type=float, default=120.0)
    parser.add_argument("--still-beats", type=int, default=STILL_BEATS)
    parser.add_argument("--until", action="append", default=[], help="end when a fault with these words shows")
    parser.add_argument("--history", type=Path)
    parser.add_argument("--committed", action="store_true", help="a committed stream in place of members")
    options = parser.parse_args()
    plant_by_environment()
    kinds = COMMITTED_KINDS if options.committed else KINDS_OF[options.cluster]
    if options.kinds:
        kinds = tuple(map(Kind, options.kinds.split(",")))
    plan = drawn(options.seed, options.steps, kinds)
    sendings = [Sending(sending) for sending in options.sends.split(",")]
    load = Load(burst_batches=options.burst_batches)
    begin: Begin = running_committed if options.committed else partial(running, sendings=sendings, load=load)
    run = partial(_run, plan, options.cluster, begin)
    events = trio.run(run, options.seconds, options.settle, options.still_beats, options.until)
    if options.history is not None:
        options.history.write_bytes(b"".join(map(line_of, events)))
    faults = faults_of(events)
    for fault in faults:
        _say(f"WRONG {fault}")
    return 1 if faults else 0


async def _run(
    plan: Plan, kind: ClusterKind, begin: Begin, seconds: float, settle: float, still_beats: int, until: Sequence[str]
) -> list[Event]:
    with tempfile.TemporaryDirectory(prefix="pyrmq-chaos-") as home:
        async with begin(plan, Path(home), kind) as run:
            await run.execute(seconds, settle, still_beats, until)
    history = History(run.events)
    kinds = Counter(fault.kind for fault in history.faults)
    for counted in history.counts:
        _say(f"{counted.reader} has {counted.rows} rows")
    _say(
        f"seed {plan.seed} on {kind}: {run.done_steps} of {len(plan.steps)} steps, {len(history.sends)} messages sent, "
        f"{len(history.got)} passed to handlers, {len(history.resets)} queues reset, "
        f"{history.end.how if history.end else 'no end'}; {', '.join(f'{k} {n}' for k, n in kinds.items())}"
    )
    return run.events


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
