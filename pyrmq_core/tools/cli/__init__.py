"""The `pyrmq` command, whose libraries come with the extra `cli`.

`commands` has the table of the commands, each loaded when it is used: they are in `admin`, `consume`, `doctor`,
`export`, `import_files`, `search`, `send` (with `message_lines`), `tail` and the folders `groups`, `operation` and
`serving`. They share `connections` (the options of every command that calls servers), `servers` (groups of commands,
and the loop they run in), `tables` (the output as JSON, or as a table of `drawn_tables`), `formats` (the forms of
messages), `name_completion` (names for a shell) and `progress` (a line about work under way).
"""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command. If click or rich is missing, prints what to install."""
    try:
        from pyrmq_core.tools.cli.commands import pyrmq
    except ImportError as error:
        print(f'the pyrmq command needs {error.name}: pip install "pyrmq-spark[cli]"', file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:  # Ctrl-C while the modules are loaded
        raise SystemExit(130) from None
    pyrmq(prog_name="pyrmq")
