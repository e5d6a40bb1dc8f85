"""Threads and connections of Spark's Python processes, read from /proc."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ESTABLISHED = "01"


@dataclass(frozen=True, slots=True)
class Held:
    """The threads and connections of one process."""

    command: str
    threads: int
    connections: Counter[int]


def python_workers(jvm: int) -> dict[int, Held]:
    """Returns every Python under the JVM by its process id."""
    parents = {pid: fields[1] for pid, fields in _stats().items()}
    below = {jvm}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    workers = {}
    for pid in below - {jvm}:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if "-m pyspark." in command:
                workers[pid] = held_by(pid, command)
        except OSError:
            continue
    return workers


def held_by(pid: int, command: str = "") -> Held:
    """Returns what the process holds; raises `OSError` when it ends meanwhile."""
    return Held(command, len(os.listdir(f"/proc/{pid}/task")), _connections(pid))


def _stats() -> dict[int, list[int]]:
    """Returns each process's own id and its parent's."""
    stats = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            stats[int(entry.name)] = [int(entry.name), int(fields[1])]
    return stats


def _connections(pid: int) -> Counter[int]:
    """Returns the ports at the other end, and the number of connections to each."""
    inodes = set()
    for file in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{file}")
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    ports: Counter[int] = Counter()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == ESTABLISHED and fields[9] in inodes:
            ports[int(fields[2].rpartition(":")[2], 16)] += 1
    return ports
