"""A Java machine that runs programs of a release one after another; only the first waits for its start."""

import select
import struct
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.support.jvm import JavaFailed

RUN_PROGRAMS = Path(__file__).parent / "java" / "RunPrograms.java"


class JavaMachine:
    """A process of `RunPrograms.java`. `close` ends it, and so does the end of our own process."""

    def __init__(self, command: Sequence[str], home: Path, environment: dict[str, str]) -> None:
        self._home = home
        self._runs = 0
        self._one_at_a_time = threading.Lock()
        with ExitStack() as stack:
            log = stack.enter_context((home / "machine.log").open("wb"))
            self._process = subprocess.Popen(
                [*command, str(RUN_PROGRAMS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    @property
    def home(self) -> Path:
        """RocketMQ's home for its programs, where `mqadmin` looks for `conf/tools.yml`."""
        return self._home

    def is_running(self) -> bool:
        """Checks whether it can take another program."""
        return self._process.poll() is None

    def run(self, name: str, *arguments: str, source: Path | None = None, timeout: float) -> str:
        """Returns what the main of the class `name` printed; with `source` the class is compiled from that file.

        Raises `JavaFailed` when it throws, ends the machine with an error, or does not end in time.
        """
        with self._one_at_a_time:
            self._runs += 1
            output = self._home / f"output-{self._runs}.log"
            output.touch()
            self._submit(str(output), str(source or ""), name, *arguments)
            status = self._wait_for_status(timeout)
            printed = output.read_text(errors="replace")
            if status is None:
                self.close()
                raise JavaFailed(
                    f"{' '.join((name, *arguments)[-4:])} did not end within {timeout:g} s\n{printed[-3000:]}"
                )
            if status:
                raise JavaFailed(f"{' '.join((name, *arguments)[-4:])} ended with {status}\n{printed[-3000:]}")
            return printed

    def close(self) -> None:
        """Kills the process, whatever it runs."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _submit(self, *texts: str) -> None:
        encoded = [text.encode() for text in texts]
        frame = struct.pack(">i", len(encoded)) + b"".join(struct.pack(">i", len(text)) + text for text in encoded)
        assert self._process.stdin is not None
        self._process.stdin.write(frame)
        self._process.stdin.flush()

    def _wait_for_status(self, timeout: float) -> int | None:
        """Returns the program's status, or the machine's when the program ended it; None when neither comes in time."""
        deadline = time.monotonic() + timeout
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout)
        if not ready:
            return None
        written = self._process.stdout.read(1)
        if written:
            return written[0]
        try:
            return self._process.wait(max(deadline - time.monotonic(), 1.0))
        except subprocess.TimeoutExpired:
            return None
