"""The instructions of this checkout beside another commit's, case by case, whatever else the machine does.

    python -m benchmarks.instructions [--against COMMIT] [--cases PATTERN]

Both run under callgrind (package `valgrind`), with one seed of hashes, at the same servers. The cases and the other
ends are this checkout's (`benchmarks.support.counted_cases`). pyrmq, and helpers of the older benchmarks, are each
one's own. What the kernel does is not counted. Cases with sockets differ from run to run by a few percent: where one
seems slower, its pattern alone runs it again in a minute.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent
CASES = ROOT / "benchmarks" / "support" / "counted_cases.py"
PEERS = ROOT / "benchmarks" / "support" / "counted_peers.py"
PACKAGES = ("pyrmq_core", "pyrmq_spark", "benchmarks")
ROWS = 20_000
SLOWER = 1.03
TOTALS = re.compile(r"^totals: (\d+)", re.MULTILINE)


def main(*, quick: bool = False, against: str = "HEAD", cases: str = "") -> None:
    """Prints the table of the cases whose names the pattern is found in."""
    if shutil.which("valgrind") is None:
        print("valgrind is not installed: nothing is counted")
        return
    with checkout(against) as other, cluster() as nameserver:
        pattern = "codec, encode, 100 x 32" if quick else cases
        counts = [counted(place, nameserver, pattern) for place in (other, ROOT)]
    print(f"{'instructions of one message, call or answer':48} {against[:12]:>12} {'now':>12} {'ratio':>6}")
    for name, now in counts[1].items():
        if (before := counts[0].get(name)) is not None:
            ratio = now / before
            print(f"{name:48} {before:12,.0f} {now:12,.0f} {ratio:6.3f}{'  slower' if ratio > SLOWER else ''}")


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / "other"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", place, commit], cwd=ROOT, check=True)
        try:
            yield place
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", place], cwd=ROOT, check=True)


@contextmanager
def cluster() -> Iterator[str]:
    """Runs a NameServer and a broker with filled topics in a process of its own. Yields the NameServer's address."""
    command = [sys.executable, "-m", "pyrmq_core.tools.cli", "dev", "--brokers", "1", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            nameserver = json.loads(process.stdout.readline())["nameserver"]
            fill = [sys.executable, "-P", str(PEERS), "fill", nameserver, str(ROWS)]
            subprocess.run(fill, env=environment(ROOT), check=True)
            yield nameserver
        finally:
            process.terminate()


def environment(place: Path) -> Mapping[str, str]:
    return {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(place), "PEERS_PATH": str(ROOT)}


def counted(place: Path, nameserver: str, pattern: str) -> dict[str, float]:
    """Returns the instructions of one unit of each case in that checkout."""
    for package in PACKAGES:
        compileall.compile_dir(place / package, quiet=1)
    with tempfile.TemporaryDirectory() as directory:
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=counts"]
        command += [sys.executable, "-P", str(CASES), nameserver, str(PEERS), pattern]
        environ = environment(place)
        done = subprocess.run(command, cwd=directory, env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the cases ended with {done.returncode}: {done.stderr[-3000:]}")
        counts = {}
        for number, line in enumerate(done.stdout.splitlines()):
            name, units = line.split("\t")
            counts[name] = dumped(Path(directory) / f"counts.{number + 1}") / int(units)
        return counts


def dumped(path: Path) -> int:
    match = TOTALS.search(path.read_text())
    assert match is not None, f"callgrind wrote no totals into {path.name}"
    return int(match[1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", default="HEAD", help="the commit to compare with")
    parser.add_argument("--cases", default="", metavar="PATTERN", help="only cases whose names it is found in")
    chosen = parser.parse_args()
    main(against=chosen.against, cases=chosen.cases)
