"""Commands of `pyrmq` in this process, against one NameServer."""

from __future__ import annotations

import json

from click.testing import CliRunner, Result

from pyrmq_core.cli.commands import pyrmq


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
