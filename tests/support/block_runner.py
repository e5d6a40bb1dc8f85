"""Blocks of pages, one after another: those that use Spark in one process and JVM, each other one in a fork of its own.

The start of a JVM with Spark is most of what a short program costs: eight of them took 200 s of processor time. Blocks
that build their session by the same lines share its context, too. Without Spark it is the import of this project, 1.2 s
a block; a fork has that from the process that it leaves.

python -m tests.support.block_runner         runs blocks, each with its path, and answers, by lines of JSON
python -m tests.support.block_runner forks   the same, each block in a fork
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent.parent
# What most blocks import; `from ... import *` loads the names that a package loads when they are first used.
IMPORTED: Final = ("pyrmq_core.aio", "pyrmq_core.blocking", "pyrmq_core.testing", "pyrmq_core")

BUILDER: Final = re.compile(r"SparkSession\.builder.*?\.getOrCreate\(\)", re.DOTALL)


class Printed(NamedTuple):
    """The output of a block, and the traceback that it ended with, if it did."""

    output: str
    error: str = ""


def builder_of(block: str) -> str:
    """Returns the lines by which a block builds its session; an empty text, if it does not use Spark."""
    return "".join(BUILDER.findall(block))


class BlockRunner:
    """The process, and its JVM, which starts with the first block that uses Spark; `close` ends both."""

    def __init__(self, environment: Mapping[str, str], *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.support.block_runner", *arguments]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )

    def run(self, block: str, path: Sequence[Path] = ()) -> Printed:
        """Runs a block that finds modules on this path, too."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([block, list(map(str, path))]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process of the blocks ended"
        return Printed(*json.loads(answer))

    def close(self) -> None:
        self._process.communicate()


class SparkBlocks:
    """Runs blocks in this process, each in a session of its own; the context stays while blocks build it alike."""

    def __init__(self) -> None:
        self._builder = ""

    def run(self, block: str, path: list[str]) -> Printed:
        sys.path += path
        if (builder := builder_of(block)) != self._builder:
            self._end(with_context=True)
        self._builder = builder
        output, error = StringIO(), ""
        try:
            with redirect_stdout(output):
                exec(compile(block, "<block>", "exec"), {"__name__": "__main__"})
        except Exception:
            error = traceback.format_exc()
        self._end(with_context=bool(error))
        return Printed(output.getvalue(), error)

    def _end(self, *, with_context: bool) -> None:
        """Ends the session; the next block to build one gets a new one, without its views, settings and queries."""
        from pyspark.sql import SparkSession

        session = SparkSession._instantiatedSession
        if session is None or session._sc._jsc is None:  # the block stopped it
            return
        if with_context:
            session.stop()
            return
        for query in session.streams.active:
            query.stop()
        jvm: Any = session._jvm
        jvm.SparkSession.clearDefaultSession()
        jvm.SparkSession.clearActiveSession()
        SparkSession._instantiatedSession = None


def run_forked(block: str, path: list[str]) -> Printed:
    """Runs a block in a fork, which ends as a program does: with its threads, its hooks at exit and its status."""
    with TemporaryFile() as output, TemporaryFile() as error:
        if (pid := os.fork()) == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(error.fileno(), 2)
            sys.path += path
            exec(compile(block, "<block>", "exec"), {"__name__": "__main__"})
            sys.exit()
        _, status = os.waitpid(pid, 0)
        texts = []
        for file in (output, error):
            file.seek(0)
            texts.append(file.read().decode())
    return Printed(texts[0], texts[1][-3000:] or f"status {status}" if status else "")


def main() -> None:
    run: Callable[[str, list[str]], Printed] = SparkBlocks().run
    if "forks" in sys.argv:
        run = run_forked
        for name in IMPORTED:
            exec(f"from {name} import *", {})
        importlib.import_module("trio")
    # The JVM, which begins with the first context, prints where errors go.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(run(*json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
