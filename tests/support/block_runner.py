"""Blocks of pages, one after another: those that use Spark in one process and JVM, each other one in a fork of its own.

The start of a JVM with Spark is most of what a short program costs: eight of them took 200 s of processor time. Without
Spark it is the import of this project, 1.2 s a block; a fork has that from the process that it leaves.

python -m tests.support.block_runner         runs each block that comes as a line of JSON, and answers by a line of JSON
python -m tests.support.block_runner forks   the same, each block in a fork
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent.parent
# What most blocks import; `from ... import *` loads the names that a package loads when they are first used.
IMPORTED: Final = ("pyrmq_core.aio", "pyrmq_core.blocking", "pyrmq_core.testing", "pyrmq_core")


class Printed(NamedTuple):
    """The output of a block, and the traceback that it ended with, if it did."""

    output: str
    error: str = ""


class BlockRunner:
    """The process, and its JVM, which starts with the first block that uses Spark; `close` ends both."""

    def __init__(self, environment: Mapping[str, str], *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.support.block_runner", *arguments]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )

    def run(self, block: str) -> Printed:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(block) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process of the blocks ended"
        return Printed(*json.loads(answer))

    def close(self) -> None:
        self._process.communicate()


def run_here(block: str) -> Printed:
    """Runs a block in this process, and ends its session of Spark."""
    from pyspark.sql import SparkSession

    output, error = StringIO(), ""
    try:
        with redirect_stdout(output):
            exec(compile(block, "<block>", "exec"), {"__name__": "__main__"})
    except Exception:
        error = traceback.format_exc()
    if session := SparkSession.getActiveSession():
        session.stop()
    return Printed(output.getvalue(), error)


def run_forked(block: str) -> Printed:
    """Runs a block in a fork, which ends as a program does: with its threads, its hooks at exit and its status."""
    with TemporaryFile() as output, TemporaryFile() as error:
        if (pid := os.fork()) == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(error.fileno(), 2)
            exec(compile(block, "<block>", "exec"), {"__name__": "__main__"})
            sys.exit()
        _, status = os.waitpid(pid, 0)
        texts = []
        for file in (output, error):
            file.seek(0)
            texts.append(file.read().decode())
    return Printed(texts[0], texts[1][-3000:] or f"status {status}" if status else "")


def main() -> None:
    run: Callable[[str], Printed] = run_here
    if "forks" in sys.argv:
        run = run_forked
        for name in IMPORTED:
            exec(f"from {name} import *", {})
        importlib.import_module("trio")
    # The JVM, which begins with the first context, prints where errors go.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(run(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
