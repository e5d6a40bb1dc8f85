"""Inputs that coverage guides, for every parser of bytes from others, as long as one wants.

python -m tests.hostile.guided_fuzzing MINUTES [NAME ...]     `make fuzz MINUTES=30 ARGS='SQL'`

Each parser of `fuzzing` runs in a process of its own, with an equal share of the time. An error without a name, more
processor time than is linear in the input, and more memory than eight times the input plus a bound end it: the input is
printed, and kept below `build/fuzz`. Inputs that reached new lines are kept there too, where the next run goes on; with
KEEP=1 the smallest set that reaches them all goes into `corpus.json`, by which the tests begin.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import click

from tests.hostile.targets import CORPUS, FIXED_BYTES, MEMORY_FACTOR, Target, keep_corpus, survives

ATHERIS: Final = ("atheris==3.0.0",)
ROOT: Final = Path(__file__).parent.parent.parent
# Of one input, in a process whose lines are counted.
FIXED_SECONDS: Final = 1.0
SECONDS_A_BYTE: Final = 50e-6
SLOW_SECONDS: Final = 1200.0  # of a run beyond its own time: it loads and counts every line, and merges inputs
MEASURED: Final = 32  # one of so many inputs has its memory measured, which slows it down
KEPT_BYTES: Final = 4096  # of a target, in corpus.json
# A file that libFuzzer can start again, as it does to find the smallest set of inputs.
PROGRAM: Final = """#!{python}
import importlib, os, sys, atheris
module = os.environ["FUZZED_MODULE"]
with atheris.instrument_imports(include=["pyrmq_core", "pyrmq_spark", module]):
    targets = importlib.import_module(module).TARGETS
from tests.hostile.guided_fuzzing import checked
atheris.Setup(sys.argv, checked(targets[os.environ["FUZZED_TARGET"]]))
atheris.Fuzz()
"""


def checked(target: Target) -> Callable[[bytes], None]:
    """Returns the function that libFuzzer calls with each input; it raises `AssertionError` for a fault."""
    draw = random.Random(1)

    def check(data: bytes) -> None:
        is_measured = draw.randrange(MEASURED) == 0
        if is_measured:
            tracemalloc.start()
        began = time.thread_time()
        try:
            survives(target, data)
            peak = tracemalloc.get_traced_memory()[1] if is_measured else 0
        finally:
            tracemalloc.stop()
        assert peak <= MEMORY_FACTOR * len(data) + FIXED_BYTES, f"{peak} bytes of memory"
        seconds = time.thread_time() - began
        assert is_measured or seconds <= FIXED_SECONDS + SECONDS_A_BYTE * len(data), f"{seconds:.1f} s"

    return check


def run(
    directory: Path, module: str, name: str, seeds: tuple[bytes, ...], *options: str, seconds: float = 0
) -> tuple[int, str]:
    """Runs one target, for about so many seconds, and returns its status and what it printed.

    `directory` has its inputs. Raises `subprocess.TimeoutExpired` for a run that does not end.
    """
    from tests.support.apart import installed_apart
    from tests.support.native_build import built_site

    inputs = directory / name.replace(" ", "-") / "inputs"
    inputs.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (inputs / f"seed-{number}").write_bytes(seed)
    program = inputs.parent / "program"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o700)
    paths = [str(ROOT), str(installed_apart("atheris", ATHERIS)), *map(str, filter(None, [built_site()]))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "FUZZED_MODULE": module, "FUZZED_TARGET": name}
    command = [str(program), f"-artifact_prefix={inputs.parent}/", *options, str(inputs)]
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds + SLOW_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def inputs_of(output: str) -> int:
    """Returns how many inputs libFuzzer says that it tried."""
    line = next((line for line in output.splitlines() if line.startswith("stat::number_of_executed_units:")), "0")
    return int(line.split()[-1])


def smallest(directory: Path, module: str, name: str) -> list[bytes]:
    """Returns inputs that reach every line that all inputs reach, the short ones first, up to `KEPT_BYTES`."""
    merged = directory / name.replace(" ", "-") / "merged"
    merged.mkdir(exist_ok=True)
    run(directory, module, name, (), "-merge=1", str(merged))
    kept, size = list[bytes](), 0
    for data in sorted((path.read_bytes() for path in merged.iterdir()), key=lambda data: (len(data), data)):
        size += len(data)
        if size > KEPT_BYTES:
            break
        kept.append(data)
    return kept


def main(minutes: str, *names: str) -> None:
    from tests.hostile.fuzzing import TARGETS

    chosen = {name: TARGETS[name] for name in names or TARGETS}
    seconds = max(1, int(float(minutes) * 60 / len(chosen)))
    corpus: Mapping[str, list[bytes]] = dict(CORPUS)
    directory, tried, faulty = ROOT / "build" / "fuzz", 0, list[str]()
    for name, target in chosen.items():
        seed = random.SystemRandom().getrandbits(31)
        options = (f"-seed={seed}", f"-max_total_time={seconds}", "-timeout=60", "-rss_limit_mb=2048")
        status, output = run(
            directory,
            "tests.hostile.fuzzing",
            name,
            (*target.seeds, *corpus.get(name, ())),
            *options,
            "-print_final_stats=1",
            seconds=seconds,
        )
        tried += inputs_of(output)
        click.echo(f"{name}: {inputs_of(output):,} inputs, seed {seed}, {'a fault' if status else 'no fault'}")
        if status:
            faulty.append(name)
            click.echo(output[-6000:])
        elif os.environ.get("KEEP"):
            corpus = {**corpus, name: smallest(directory, "tests.hostile.fuzzing", name)}
    if os.environ.get("KEEP"):
        keep_corpus(corpus)
    click.echo(f"{tried:,} inputs of {len(chosen)} parsers; faults: {', '.join(faulty) or 'none'}")
    sys.exit(bool(faulty))


if __name__ == "__main__":
    main(*sys.argv[1:])
