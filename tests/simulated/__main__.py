"""Lives of seeds: python -m tests.simulated SEED [--seeds 1] [--plant "swallowed reset"].

It prints each seed that breaks a promise, and how; exit status 0: none did, 1: some did. With a plant it ends at the
first of them. Without further seeds it logs what the life's clients and servers do.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterable

from tests.chaos.planted import planted
from tests.simulated.life import faults_in
from tests.simulated.plants import PLANTS


def main() -> int:
    """Lives the lives and returns the exit status."""
    parser = argparse.ArgumentParser(prog="tests.simulated")
    parser.add_argument("seed", type=int)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--plant", choices=PLANTS)
    options = parser.parse_args()
    if options.seeds == 1:
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    else:
        logging.disable(logging.CRITICAL)
    seeds, began = range(options.seed, options.seed + options.seeds), time.process_time()
    with planted(PLANTS[options.plant] if options.plant else lambda: None):
        wrong = _wrong(seeds, ends_at_first=options.plant is not None)
    sys.stdout.write(f"{wrong} of {len(seeds)} seeds wrong, {time.process_time() - began:.0f} s of a processor\n")
    return 1 if wrong else 0


def _wrong(seeds: Iterable[int], *, ends_at_first: bool) -> int:
    """Prints the faults of each seed, and returns the number of seeds with some."""
    wrong = 0
    for seed in seeds:
        faults = faults_in(seed)
        wrong += bool(faults)
        for fault in faults:
            sys.stdout.write(f"PYRMQ_SEED={seed} {fault}\n")
            sys.stdout.flush()
        if faults and ends_at_first:
            break
    return wrong


if __name__ == "__main__":
    sys.exit(main())
