"""Small programs run by an interpreter of their own: how a process forks and ends is visible from outside."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SECONDS = 40


@dataclass(frozen=True)
class Ended:
    """The output of a program, its exit code, and its duration in seconds."""

    code: int
    out: str
    err: str
    seconds: float


def run_script(source: str, *arguments: str, timeout: float = 50.0) -> Ended:
    """Runs the program to its end; a program that hangs is killed and fails the test.

    `SECONDS` in it is a time-out that no loaded machine reaches: a test of something else is not to fail by it.
    """
    # Python from 3.12 on warns of every fork in a process with threads, which is what these programs are about.
    python = [sys.executable, "-W", "error", "-W", "ignore:.*fork:DeprecationWarning"]
    command = [*python, "-c", f"SECONDS = {SECONDS}\n{source}", *arguments]
    began = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)
    return Ended(done.returncode, done.stdout, done.stderr, time.monotonic() - began)


def output_of(source: str, *arguments: str, timeout: float = 50.0) -> list[str]:
    """Returns the lines of a program; fails unless it exits with 0 and writes nothing to standard error."""
    ended = run_script(source, *arguments, timeout=timeout)
    assert (ended.code, ended.err) == (0, ""), f"ended with {ended.code} after {ended.seconds:.1f} s\n{ended.err}"
    return ended.out.splitlines()
