"""The members of the group as the run sees them: started, stopped, killed, and watched for a loop that stands."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import trio

from tests.chaos.clusters import Keys
from tests.chaos.history import Beat, Event, Hung, event_of
from tests.support.jvm import JavaProcess

ROOT: Final = Path(__file__).parent.parent.parent
# Of a processor, without a beat: a machine that is slow gives a process less of it, and is no fault.
SPIN_SECONDS: Final = 5.0
# A member whose loop runs on, and that has not left so many beats after it was to.
BEATS_TO_STOP: Final = 400
TICKS: Final = os.sysconf("SC_CLK_TCK")


class Member:
    """A process of `tests.chaos.member`, and what it wrote so far."""

    def __init__(
        self, name: str, arguments: tuple[str, str, int], directory: Path, environment: Mapping[str, str], keys: Keys
    ) -> None:
        nameserver, group, seed = arguments
        self.name = name
        self.log = directory / f"{name}.log"
        self.last_beat: Beat | None = None
        self.beats = 0
        self.hung: Hung | None = None
        self._file = directory / f"{name}.events"
        self._read_bytes = 0
        self._is_leaving = False
        command = [sys.executable, "-m", "tests.chaos.member", nameserver, group, name, str(self._file), str(seed)]
        command += filter(None, keys)
        self._process = JavaProcess(name, command, self.log, {**environment, "PYTHONPATH": str(ROOT)})
        self._process.start()

    @property
    def is_alive(self) -> bool:
        return self._process.pid is not None

    def new_events(self) -> list[Event]:
        """Returns what it wrote since the last call; notes it as hung if its loop stands while its process works."""
        if not self._file.exists():
            return []
        with self._file.open("rb") as file:
            file.seek(self._read_bytes)
            written = file.read()
        whole = written[: written.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        events = [event_of(line) for line in whole.splitlines()]
        for event in events:
            if isinstance(event, Beat):
                self.last_beat = event
                self.beats += 1
        self._look()
        return events

    def _look(self) -> None:
        pid = self._process.pid
        if self.hung is not None:
            return
        if pid is None:
            if not self._is_leaving:
                self.hang("ended by itself")
        elif self.last_beat is not None:
            used = _processor_seconds(pid) - self.last_beat.processor_seconds
            if used > SPIN_SECONDS:
                self.hang(f"used {used:.0f} s of a processor without one turn of its loop")

    def hang(self, what: str) -> None:
        """Notes it as hung, with its stacks, and kills it."""
        if self._process.pid is not None:
            os.kill(self._process.pid, signal.SIGUSR1)
            self._process.wait_until(lambda: b"most recent call first" in self.log.read_bytes(), 10)
        self.hung = Hung(time.monotonic(), self.name, what + self._process.log_tail(30))
        self.kill()

    async def stop(self) -> None:
        """Stops it in order; notes it as hung if it does not leave while its loop runs on."""
        pid = self._process.pid
        if pid is None:
            return
        self._is_leaving = True
        os.kill(pid, signal.SIGTERM)
        last = self.beats + BEATS_TO_STOP
        while self.is_alive and self.hung is None:
            await trio.sleep(0.05)
            if self.beats > last:
                self.hang("did not leave")

    def kill(self) -> None:
        self._is_leaving = True
        self._process.kill()


def _processor_seconds(pid: int) -> float:
    """Returns the processor time of a process; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS
