"""One Java process of ours: started, waited for, stopped, killed, paused; it never outlives our own process."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

POLL_SECONDS = 0.05
STOP_SECONDS = 10.0


class JavaFailed(Exception):
    """The error of a Java process that ended or did not get ready; the text ends with the last lines it wrote."""


class JavaProcess:
    """A Java program with its output in a log file. Nothing runs until `start`."""

    def __init__(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        self._env = env
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._started_at = 0

    @property
    def pid(self) -> int | None:
        """The running process's id; None before `start` and after the end."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        with self.log.open("ab") as output:
            self._started_at = output.tell()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._env,
                start_new_session=True,
            )
        # Its input ends when we are gone, however we went.
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", 'cat >/dev/null; kill -9 "$0" 2>/dev/null', str(self._process.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def wait_until(self, ready: Callable[[], bool], timeout: float) -> None:
        """Returns when `ready()` is true of a running process.

        Raises `JavaFailed` when the process ended, or after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while not ready() or self.pid is None:  # another server may answer at its port
            if self.pid is None:
                raise JavaFailed(f"{self.name} ended with {self._exit_code()} before it was ready{self.log_tail()}")
            if time.monotonic() > deadline:
                raise JavaFailed(f"{self.name} was not ready within {timeout:g} s{self.log_tail()}")
            time.sleep(POLL_SECONDS)

    def wait_for_exit(self, timeout: float) -> int:
        """Returns the exit code; raises `JavaFailed` after `timeout` seconds."""
        if self._process is None:
            raise JavaFailed(f"{self.name} was never started")
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise JavaFailed(f"{self.name} did not end within {timeout:g} s{self.log_tail()}") from None
        self._release_guard()
        return code

    def terminate(self, timeout: float = 30.0) -> None:
        """Sends SIGTERM, and SIGKILL if that does not end it in time. Does nothing to an ended process."""
        self._signal(signal.SIGTERM)
        try:
            if self._process:
                self.wait_for_exit(timeout)
        except JavaFailed:
            self.kill()

    def kill(self) -> None:
        """Sends SIGKILL, and waits for the end."""
        self._signal(signal.SIGKILL)
        if self._process:
            self.wait_for_exit(10.0)

    def pause(self) -> None:
        """Sends SIGSTOP: its connections stay open, and when this returns it answers nothing."""
        self._signal(signal.SIGSTOP)
        # On a busy machine its threads run on for some milliseconds. macOS reports the stop since Python 3.13.
        if self.pid is not None and hasattr(os, "waitid"):
            self.wait_until(self._has_stopped, STOP_SECONDS)

    def resume(self) -> None:
        """Sends SIGCONT."""
        self._signal(signal.SIGCONT)

    def wrote(self, *texts: str) -> bool:
        """Checks whether its output since the last `start` contains one of these texts."""
        if not self.log.exists():
            return False
        written = self.log.read_bytes()[self._started_at :].decode(errors="replace")
        return any(text in written for text in texts)

    def log_tail(self, lines: int = 15) -> str:
        """Returns its last lines of output, each indented, with a line break in front; empty without output."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "".join(f"\n    {line}" for line in text.splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is not None:
            os.kill(pid, number)

    def _has_stopped(self) -> bool:
        pid = self.pid
        return pid is not None and os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None

    def _exit_code(self) -> int | None:
        return self._process.poll() if self._process else None

    def _release_guard(self) -> None:
        """Ends the guard, which must not kill later, when the id may belong to another process."""
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None
