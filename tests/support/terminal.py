"""Commands of `pyrmq` in this process, against one NameServer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import trio
from click.testing import CliRunner, Result

from pyrmq_core.tools.cli.commands import pyrmq
from tests.support.consumer_jobs import Seen, consuming


class Terminal:
    """A terminal whose environment names the NameServer."""

    def __init__(self, nameserver: str, **environment: str) -> None:
        self._environment = {"NAMESRV_ADDR": nameserver, **environment}

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(pyrmq, arguments, env=self._environment)

    def text(self, *arguments: str) -> str:
        """Returns the output of a command that succeeds."""
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.output

    def rows(self, *arguments: str) -> list[dict[str, object]]:
        """Returns the rows that a command prints with --json."""
        rows: list[dict[str, object]] = json.loads(self.text(*arguments, "--json"))
        return rows

    def refused(self, status: int, *arguments: str) -> str:
        """Returns the last line of a command that ends with this status."""
        result = self.run(*arguments)
        assert result.exit_code == status, result.output
        return result.output.splitlines()[-1]


@contextmanager
def consuming_elsewhere(nameserver: str, group: str, topic: str, seen: Seen, **settings: Any) -> Iterator[None]:
    """Runs a member in a thread of its own: commands take the main thread, for its signals."""
    ready, done = threading.Event(), threading.Event()

    async def consume() -> None:
        async with consuming(nameserver, group, topic, seen, **settings):
            ready.set()
            await trio.to_thread.run_sync(done.wait)

    thread = threading.Thread(target=trio.run, args=(consume,))
    thread.start()
    try:
        assert ready.wait(30)
        yield
    finally:
        done.set()
        thread.join(30)


def soon(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
