"""Processor time, memory and handles of processes, as `/proc` has them."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(words: str) -> float:
    """Returns the CPU time of descendants whose command line holds `words`: user and system, ended children too."""
    family = descendants(os.getpid())[1:]
    return sum(sum(times_of(pid)[1:]) for pid in family if words in _command_line(pid))


# Of Spark with its Python workers, and of these alone.
spark_cpu = partial(cpu_seconds, "pyspark")
worker_cpu = partial(cpu_seconds, "pyspark.daemon")


def descendants(pid: int) -> list[int]:
    """Returns the process and all that it started, parents first; those whose parent has ended are not found."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1][1]), []).append(int(entry.name))
    pids = [pid]
    for parent in pids:  # grows while it is walked
        pids += children.get(parent, [])
    return pids


def times_of(pid: int) -> tuple[str, float, float]:
    """Returns a process's name, its own processor seconds, and those of its ended children."""
    fields = _stat(pid)
    if fields is None:
        return "", 0.0, 0.0
    name, rest = fields
    user, system, ended_user, ended_system = map(int, rest[11:15])
    return name, (user + system) / CLOCK_TICKS, (ended_user + ended_system) / CLOCK_TICKS


def figures_of(pid: int) -> dict[str, float]:
    """Returns what the process holds by the system's account."""
    status = _status(pid)
    return {
        "resident MiB": _mib(status["VmRSS"]),
        "handles": float(len(os.listdir(f"/proc/{pid}/fd"))),
        "threads": float(status["Threads"]),
    }


def peak_mib(pid: int) -> float:
    """Returns the largest resident set so far. `ru_maxrss` begins with the size of the process that started this."""
    return _mib(_status(pid)["VmHWM"])


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":", 1) for line in lines)


def _mib(figure: str) -> float:
    return int(figure.split()[0]) / 1024


def _stat(pid: int) -> tuple[str, list[str]] | None:
    """Returns the name and the fields behind it; None if the process has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text[text.index("(") + 1 : text.rindex(")")], text.rpartition(")")[2].split()


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
