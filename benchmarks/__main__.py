"""`python -m benchmarks [--quick] [NAME...]` runs the named benchmarks, or all of them, one after another."""

import argparse
import importlib
import pkgutil
import sys
import time
from contextlib import ExitStack

import benchmarks

# A quick run of all leaves these out, as they boot servers of their own many times, fetch other clients, or are slow:
# `--quick NAME` runs one.
APART = ("hostile", "hostile_pages", "instructions", "kafka")


def main() -> int:
    """Runs the benchmarks in name order. Exits with 2 for an unknown name, returns 1 when there is none to run."""
    modules = pkgutil.iter_modules(benchmarks.__path__)
    programs = sorted(module.name for module in modules if not module.ispkg and module.name != "__main__")
    there_are = ", ".join(programs) or "none yet"
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=f"Benchmarks: {there_are}.")
    parser.add_argument("--quick", action="store_true", help="a small run of each, to see that it works")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    for name in options.names:
        if name not in programs:
            parser.error(f"no benchmark {name!r}; there are: {there_are}")
    if not programs:
        print("There is no benchmark yet.", file=sys.stderr)
        return 1
    apart = APART if options.quick else ()
    names = options.names or [name for name in programs if name not in apart]
    began = time.perf_counter()
    with ExitStack() as stack:
        if options.quick and not options.names:  # one session and one broker for all
            spark = stack.enter_context(importlib.import_module("benchmarks.support.spark_jobs").spark_session("1g"))
            stack.enter_context(importlib.import_module("benchmarks.support.brokers").shared_broker(spark))
        for name in names:
            print(f"== {name}", flush=True)
            importlib.import_module(f"benchmarks.{name}").main(quick=options.quick)
            print(f"   {time.perf_counter() - began:.0f} s since the beginning", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
