"""Blocks of pages that use Spark, in one process one after another: each has a context of its own, all have one JVM.

The start of a JVM with Spark is most of what a short program costs: eight of them took 200 s of processor time.

python -m tests.support.block_runner     runs each block that comes as a line of JSON, and answers by a line of JSON
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent.parent


class Printed(NamedTuple):
    """The output of a block, and the traceback that it ended with, if it did."""

    output: str
    error: str = ""


class BlockRunner:
    """The process and its JVM, which starts with the first block; `close` ends both."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", "tests.support.block_runner"]
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


def main() -> None:
    from pyspark.sql import SparkSession

    # The JVM, which begins with the first context, prints where errors go.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        output, error = StringIO(), ""
        try:
            with redirect_stdout(output):
                exec(compile(json.loads(line), "<block>", "exec"), {"__name__": "__main__"})
        except Exception:
            error = traceback.format_exc()
        if session := SparkSession.getActiveSession():
            session.stop()
        answers.write(json.dumps([output.getvalue(), error]) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
