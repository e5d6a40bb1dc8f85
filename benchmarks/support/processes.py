"""Processor time of Spark and of its Python workers, as this process started them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

SPARK = "pyspark"
WORKERS = "pyspark.daemon"

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(words: str) -> float:
    """Returns the CPU time of descendants whose command line holds `words`: user and system, ended children too."""
    return sum(sum(map(int, _stat(entry)[11:15])) for entry in _family(words)) / CLOCK_TICKS


def _family(words: str) -> Iterator[Path]:
    entries = [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    parents = {int(entry.name): int(_stat(entry)[1]) for entry in entries}
    for entry in entries:
        parent = parents[int(entry.name)]
        while parent in parents and parent != os.getpid():
            parent = parents[parent]
        if parent == os.getpid() and words in _command_line(entry):
            yield entry


def _stat(entry: Path) -> list[str]:
    """Returns the fields behind the name; zeros if the process has ended meanwhile."""
    try:
        return (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["0"] * 50


def _command_line(entry: Path) -> str:
    try:
        return (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
