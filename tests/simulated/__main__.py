"""Lives of seeds: python -m tests.simulated SEED [--seeds 1] [--processes N] [--plant "swallowed reset"].

It prints each seed that breaks a promise, and how; exit status 0: none did, 1: some did. With a plant it ends at the
first of them. Without further seeds it logs what the life's clients and servers do. A life takes a tenth of a second of
a processor: a thousand a minute on two cores; by default each core has a process.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator

from tests.chaos.planted import planted
from tests.simulated.life import faults_in
from tests.simulated.plants import PLANTS, prepare_process


def main() -> int:
    """Lives the lives and returns the exit status."""
    parser = argparse.ArgumentParser(prog="tests.simulated")
    parser.add_argument("seed", type=int)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--plant", choices=PLANTS)
    options = parser.parse_args()
    seeds, began, wrong = range(options.seed, options.seed + options.seeds), time.monotonic(), 0
    for seed, faults in _faults(seeds, options.processes, options.plant):
        wrong += bool(faults)
        for fault in faults:
            sys.stdout.write(f"PYRMQ_SEED={seed} {fault}\n")
            sys.stdout.flush()
        if faults and options.plant is not None:
            break
    sys.stdout.write(f"{wrong} of {len(seeds)} seeds wrong, {time.monotonic() - began:.0f} s\n")
    return 1 if wrong else 0


def _faults(seeds: range, processes: int, plant: str | None) -> Iterator[tuple[int, list[str]]]:
    """Yields each seed with the promises that its life broke, in the order of the seeds."""
    if len(seeds) == 1:
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
        with planted(PLANTS[plant] if plant else lambda: None):
            yield seeds[0], faults_in(seeds[0])
        return
    with multiprocessing.get_context("spawn").Pool(processes, prepare_process, (plant,)) as pool:
        yield from zip(seeds, pool.imap(faults_in, seeds, chunksize=4), strict=True)


if __name__ == "__main__":
    sys.exit(main())
