"""Spoiled inputs for every parser, a process for each core: `python -m tests.hostile.spoiling MINUTES`.

Each parser has an equal share of the time. Nothing is instrumented, so it tries several times as many inputs a minute
as `make fuzz`, and begins with the inputs that coverage chose there. It prints the inputs of each parser and the seed
that repeats them; exit status 1: an error without a name, or an input that took longer than is linear in it.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import time
from collections.abc import Sequence
from functools import partial

import click

from tests.hostile.fuzzing import TARGETS
from tests.hostile.guided_fuzzing import FIXED_SECONDS, SECONDS_A_BYTE
from tests.hostile.targets import CORPUS, Target, spoiled, survives


def tried(target: Target, seconds: float, draw: random.Random, more: Sequence[bytes] = ()) -> tuple[int, str]:
    """Returns how many inputs a parser had in so many seconds, and the fault that ended it, or an empty text.

    The inputs are spoiled ones of its own, and of `more`.
    """
    seeds, inputs = (*target.seeds, *more), 0
    began = before = time.monotonic()
    while before - began < seconds:
        data = spoiled(draw.choice(seeds), draw)
        inputs += 1
        try:
            survives(target, data)
        except Exception as error:
            return inputs, f"{type(error).__name__}: {error} on {data.hex()}"
        now = time.monotonic()
        most_seconds = FIXED_SECONDS + SECONDS_A_BYTE * len(data)
        if now - before > most_seconds and (spent := _seconds(target, data)) > most_seconds:
            return inputs, f"{spent:.1f} s of a processor on {data.hex()}"
        before = now
    return inputs, ""


def _seconds(target: Target, data: bytes) -> float:
    """Returns the processor time of an input that is tried again: the machine may have stood still before."""
    began = time.thread_time()
    survives(target, data)
    return time.thread_time() - began


def _tried_by_name(name: str, seconds: float, seed: int) -> tuple[int, str]:
    return tried(TARGETS[name], seconds, random.Random(f"{name} {seed}"), CORPUS.get(name, ()))


def main(minutes: str) -> int:
    processes, seed = os.cpu_count() or 1, random.SystemRandom().getrandbits(31)
    seconds = float(minutes) * 60 * processes / len(TARGETS)
    in_all, faulty = 0, list[str]()
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        run = partial(_tried_by_name, seconds=seconds, seed=seed)
        for name, (inputs, fault) in zip(TARGETS, pool.imap(run, TARGETS, chunksize=1), strict=True):
            in_all += inputs
            faulty += [name] if fault else []
            click.echo(f"{name}: {inputs:,} inputs, {fault or 'no fault'}")
    click.echo(f"seed {seed}: {in_all:,} inputs of {len(TARGETS)} parsers; faults: {', '.join(faulty) or 'none'}")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
