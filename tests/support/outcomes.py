"""A plugin of pytest that writes how each test ended, a line of JSON each: `-p tests.support.outcomes`.

The file is named by `OUTCOMES_FILE`. A file of tests that cannot be imported, or skips itself whole, is one line under
its own name.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

OUTCOMES_FILE: Final = "PYRMQ_OUTCOMES_FILE"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a test: passed, failed or skipped, and the text of its failure."""

    word: str
    text: str = ""


def read_outcomes(file: Path) -> dict[str, Outcome]:
    """Returns the outcomes by the tests' ids, in the order of the run."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {name: Outcome(word, text) for name, word, text in map(json.loads, lines)}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or not report.passed:
        _append(report.nodeid, report.outcome, report.longreprtext if report.failed else "")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if not report.passed:
        _append(report.nodeid, report.outcome, report.longreprtext if report.failed else "")


def _append(name: str, word: str, text: str) -> None:
    if path := os.environ.get(OUTCOMES_FILE):
        with open(path, "a") as file:
            file.write(json.dumps([name, word, text]) + "\n")
