"""Every line of the described system has a test that is named after it."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
LINES = 73


def test_every_line_has_its_test() -> None:
    named: set[int] = set()
    for path in HERE.glob("test_*.py"):
        for first, word, last in re.findall(r"def test_lines?_(\d\d)(?:_(and|to)_(\d\d))?", path.read_text("utf-8")):
            numbers = range(int(first), int(last) + 1) if word == "to" else [int(first), *([int(last)] if last else [])]
            named.update(numbers)
    assert named == set(range(1, LINES + 1))
